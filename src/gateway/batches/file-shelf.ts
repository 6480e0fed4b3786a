import { randomBytes } from "node:crypto";
import type { BatchRecord, FileRecord, FileSegment } from "../../contract/batch.ts";
import { isOver } from "../../contract/batch.ts";
import {
  filesUnavailable,
  PIECE_BYTES,
  type CreateOutcome,
  type DocPlace,
  type FileStore,
  type PieceOutcome,
} from "../../coord/files/file-store.ts";

const ID_BYTES = 18;
/** What a name says lies in the pieces' names, so a name is given once. */
const NAME_BYTES = 9;

export const newId = (prefix: "file-" | "batch_"): string => `${prefix}${randomBytes(ID_BYTES).toString("base64url")}`;
export const newName = (): string => randomBytes(NAME_BYTES).toString("base64url");

/** A document as it was read, so that it can be changed over that version alone. */
export interface Held<T> {
  readonly record: T;
  readonly version: number;
  readonly seq: number;
}

const placeOfFile = (file: FileRecord): DocPlace => ({
  kind: "file",
  keyId: file.keyId,
  shown: file.ready,
  open: false,
  expiresAt: file.expiresAt,
});

const placeOfBatch = (batch: BatchRecord): DocPlace => ({
  kind: "batch",
  keyId: batch.keyId,
  shown: true,
  open: !isOver(batch.state),
  expiresAt: (batch.endedAt ?? batch.expiresAt + batch.keepMs) + batch.keepMs,
});

/** A change that others keep getting ahead of. */
const TRIES_MAX = 20;

/** Files and batches as records over the store's documents. */
export class FileShelf {
  readonly store: FileStore;

  constructor(store: FileStore) {
    this.store = store;
  }

  createFile(file: FileRecord): Promise<CreateOutcome> {
    return this.store.create(file.id, JSON.stringify(file), placeOfFile(file));
  }

  createBatch(batch: BatchRecord): Promise<CreateOutcome> {
    return this.store.create(batch.id, JSON.stringify(batch), placeOfBatch(batch));
  }

  async file(id: string): Promise<Held<FileRecord> | undefined> {
    return id.startsWith("file-") ? this.#read<FileRecord>(id) : undefined;
  }

  async batch(id: string): Promise<Held<BatchRecord> | undefined> {
    return id.startsWith("batch_") ? this.#read<BatchRecord>(id) : undefined;
  }

  writeBatch(batch: BatchRecord, version: number): Promise<boolean> {
    return this.store.write(batch.id, version, JSON.stringify(batch), placeOfBatch(batch));
  }

  /** `change` is asked with each version that is found until one is written; null: as it is, it stays. */
  async changeFile(id: string, change: (file: FileRecord) => FileRecord | null): Promise<FileRecord | undefined> {
    for (let attempt = 0; attempt < TRIES_MAX; attempt += 1) {
      const found = await this.file(id);
      if (found === undefined) return undefined;
      const file = change(found.record);
      if (file === null) return found.record;
      if (await this.store.write(id, found.version, JSON.stringify(file), placeOfFile(file))) return file;
    }
    throw filesUnavailable("too many changes of one file at once");
  }

  async forget(id: string): Promise<void> {
    for (let attempt = 0; attempt < TRIES_MAX; attempt += 1) {
      const found = await this.store.read(id);
      if (found === undefined || (await this.store.forget(id, found.version))) return;
    }
    throw filesUnavailable("too many changes of one file at once");
  }

  /** A file's bytes from `offset` on, a piece at a time. Its pieces are all of one size where the file is one segment. */
  async *bytes(file: FileRecord, offset = 0): AsyncGenerator<Buffer, void, undefined> {
    const skipped = Math.floor(offset / PIECE_BYTES);
    let within = offset % PIECE_BYTES;
    for (const { name, pieces } of file.segments) {
      for (let index = skipped; index < pieces; index += 1) {
        const piece = await this.store.piece(file.id, `${name}.${index}`);
        if (piece === undefined) throw filesUnavailable(`a piece of ${file.id} is not there`);
        yield piece.subarray(within);
        within = 0;
      }
    }
  }

  async #read<T>(id: string): Promise<Held<T> | undefined> {
    const doc = await this.store.read(id);
    // What stands there was written by this program, under a name that no client chose.
    return doc === undefined ? undefined : { record: JSON.parse(doc.text) as T, version: doc.version, seq: doc.seq };
  }
}

/** Writes bytes of any size as pieces of one, each when it is full. */
export class PieceWriter {
  readonly #store: FileStore;
  readonly #fileId: string;
  readonly #bounded: boolean;
  readonly name: string;
  /** What is filled now; memory of its own, which the store takes. */
  #piece: Buffer | null = null;
  #filled = 0;
  #pieces = 0;
  #bytes = 0;

  constructor(store: FileStore, fileId: string, name: string, bounded: boolean) {
    this.#store = store;
    this.#fileId = fileId;
    this.name = name;
    this.#bounded = bounded;
  }

  get bytes(): number {
    return this.#bytes;
  }

  get segment(): FileSegment {
    return { name: this.name, pieces: this.#pieces };
  }

  /** Anything but "kept": no more is to be written. */
  async write(bytes: Buffer): Promise<PieceOutcome> {
    for (let at = 0; at < bytes.length;) {
      this.#piece ??= Buffer.allocUnsafeSlow(PIECE_BYTES);
      const taken = bytes.copy(this.#piece, this.#filled, at);
      at += taken;
      this.#filled += taken;
      if (this.#filled < PIECE_BYTES) continue;
      const outcome = await this.end();
      if (outcome !== "kept") return outcome;
    }
    return "kept";
  }

  async end(): Promise<PieceOutcome> {
    const length = this.#filled;
    if (this.#piece === null || length === 0) return "kept";
    const piece = length === PIECE_BYTES ? this.#piece : cutTo(this.#piece, length);
    this.#piece = null;
    this.#filled = 0;
    const outcome = await this.#store.putPiece(this.#fileId, `${this.name}.${this.#pieces}`, piece, this.#bounded);
    if (outcome !== "kept") return outcome;
    this.#pieces += 1;
    this.#bytes += length;
    return "kept";
  }
}

/** What lies behind would be sent along. */
function cutTo(piece: Buffer, length: number): Buffer {
  const cut = Buffer.allocUnsafeSlow(length);
  piece.copy(cut, 0, 0, length);
  return cut;
}
