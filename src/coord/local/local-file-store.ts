import type { Clock } from "../../kernel/clock.ts";
import { startThread } from "../../kernel/start-thread.ts";
import { ThreadCalls } from "../../kernel/thread-calls.ts";
import {
  filesUnavailable,
  type CreateOutcome,
  type DocPlace,
  type FileLimits,
  type FileListQuery,
  type FileStore,
  type FileTotals,
  type OpenDoc,
  type PieceOutcome,
  type StoredDoc,
} from "../files/file-store.ts";
import type { FileOperation, FileOperations, FileRequest, FileWorkerData } from "./file-worker.ts";

export interface LocalFileStoreOptions {
  readonly path: string;
  readonly limits: FileLimits;
  readonly clock: Clock;
}

const ANSWER_MS_MAX = 30_000;

/** Opens the database of files in a thread of its own. Rejects with FILE_STORE_UNAVAILABLE when the file can't be used. */
export async function openLocalFileStore(options: LocalFileStoreOptions): Promise<FileStore> {
  const store = new LocalFileStore(options);
  try {
    await store.begin();
  } catch (error) {
    await store.close();
    throw error;
  }
  return store;
}

/** Files in the embedded SQLite file, this process's alone. Time is the wall clock's at the start and the steady clock's from there on. */
class LocalFileStore implements FileStore {
  readonly kind = "local";
  readonly #clock: Clock;
  readonly #ahead: number;
  readonly #thread: ThreadCalls<FileRequest>;

  constructor({ path, limits, clock }: LocalFileStoreOptions) {
    this.#clock = clock;
    this.#ahead = clock.wall() - clock.mono();
    const workerData: FileWorkerData = { path, limits };
    this.#thread = new ThreadCalls({
      clock,
      start: () => startThread("file-worker", import.meta.url, { name: "files", workerData }),
      answerMsMax: ANSWER_MS_MAX,
      fault: filesUnavailable,
      closed: "it is closed",
    });
  }

  async begin(): Promise<void> {
    await this.#thread.ask((call) => ({ kind: "open", call }));
  }

  now(): Promise<number> {
    return Promise.resolve(this.#now());
  }

  create(id: string, text: string, place: DocPlace): Promise<CreateOutcome> {
    return this.#call("create", id, text, place);
  }

  read(id: string): Promise<StoredDoc | undefined> {
    return this.#call("read", id);
  }

  write(id: string, version: number, text: string, place: DocPlace): Promise<boolean> {
    return this.#call("write", id, version, text, place);
  }

  forget(id: string, version: number): Promise<boolean> {
    return this.#call("forget", id, version);
  }

  list(query: FileListQuery): Promise<readonly StoredDoc[]> {
    return this.#call("list", query);
  }

  open(limit: number): Promise<readonly OpenDoc[]> {
    return this.#call("open", limit);
  }

  putPiece(id: string, name: string, bytes: Buffer, bounded: boolean): Promise<PieceOutcome> {
    const { buffer } = bytes;
    const own = buffer instanceof ArrayBuffer && buffer.byteLength === bytes.length;
    const args = [id, name, bytes, bounded] as const;
    // Memory of its own changes hands instead of being copied.
    return this.#thread.ask((call) => ({ kind: "call", call, op: "putPiece", args }), own ? [buffer] : []);
  }

  async piece(id: string, name: string): Promise<Buffer | undefined> {
    const bytes = await this.#call("piece", id, name);
    return bytes === undefined ? undefined : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  dropPieces(id: string, names: readonly string[]): Promise<void> {
    return this.#call("dropPieces", id, names);
  }

  sweep(): Promise<void> {
    return this.#call("sweep", this.#now());
  }

  totals(): Promise<FileTotals> {
    return this.#call("totals");
  }

  close(): Promise<void> {
    return this.#thread.close((call) => ({ kind: "close", call }));
  }

  #now(): number {
    return Math.round(this.#clock.mono() + this.#ahead);
  }

  #call<O extends FileOperation>(
    op: O,
    ...args: Parameters<FileOperations[O]>
  ): Promise<ReturnType<FileOperations[O]>> {
    return this.#thread.ask<ReturnType<FileOperations[O]>>((call) => ({ kind: "call", call, op, args }));
  }
}
