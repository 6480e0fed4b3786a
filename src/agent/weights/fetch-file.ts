import { createHash, type Hash } from "node:crypto";
import { constants } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import type { IncomingMessage } from "node:http";
import {
  ANEW_MAX,
  askFor,
  type HeadVerdict,
  judgeEnd,
  judgeHead,
  pauseMs,
  type Transfer,
} from "../../decide/weights/file-transfer.ts";
import type { HeldFile } from "../../decide/weights/holding.ts";
import type { Clock } from "../../kernel/clock.ts";
import { hasSystemCode, messageOf } from "../../kernel/errors.ts";
import type { Random } from "../../kernel/random.ts";
import { diskTroubleOf } from "./disk-ledger.ts";
import { bornOf, identityOf } from "./seen-file.ts";
import type { WebClient, WebRequest } from "./web-client.ts";

/** What others may see of a file on its way. */
export interface FileProgress {
  have: number;
  total: number | null;
  /** Rises with everything that is progress, and never falls. */
  mark: number;
  /** Why nothing comes now; null while something does. */
  why: string | null;
}

export interface FetchFilePorts {
  readonly clock: Clock;
  readonly random: Random;
  readonly web: WebClient;
  readonly request: WebRequest;
  /** Where the file is made; its folder is there. */
  readonly path: string;
  /** Whether bytes that an earlier run of the machine wrote are to be distrusted unless they were seen on the disk. */
  readonly isOtherBoot: boolean;
  readonly progress: FileProgress;
  /** On the disk when it resolves. */
  readonly save: (file: HeldFile) => Promise<void>;
  /** Throws DiskTrouble when the disk can't take so many bytes. */
  readonly reserve: (total: number) => Promise<void>;
}

export type FileOutcome = { readonly kind: "done" } | { readonly kind: "refused"; readonly why: string };
type TryOutcome = FileOutcome | { readonly kind: "later"; readonly afterMs: number | null; readonly why: string };

const SYNC_EVERY_BYTES = 64 * 1024 * 1024;
/** A wrong digest may be the network's or the disk's fault once. */
const WRONG_MAX = 2;
const READ_BYTES = 1024 * 1024;

/**
 * Fetches one file of a source, with as many tries as it takes.
 *
 * Invariants:
 *   F1. The digest is made of every byte that stays, in its order, those of earlier runs included.
 *   F2. The file is only called done when length and digest are right and its bytes are on the disk.
 */
export class FileFetch {
  readonly #ports: FetchFilePorts;
  #file: HeldFile;
  #hash: Hash = createHash("sha256");
  #unsynced = 0;
  #anew = 0;

  constructor(ports: FetchFilePorts, file: HeldFile) {
    this.#ports = ports;
    this.#file = file;
  }

  /** Throws the disk's errors, and the signal's reason. */
  async run(signal: AbortSignal): Promise<FileOutcome> {
    await using handle = await this.#open();
    for (let fails = 0; ; fails += 1) {
      const before = this.#ports.progress.have;
      const outcome = await this.#try(handle, signal);
      if (outcome.kind === "done" || outcome.kind === "refused") return outcome;
      if (this.#ports.progress.have > before) fails = 0;
      this.#ports.progress.why = outcome.why;
      await this.#keepSynced(handle);
      await this.#ports.clock.sleep(pauseMs(fails, outcome.afterMs, this.#ports.random.next()), signal);
    }
  }

  async #open(): Promise<FileHandle> {
    const { path, progress, isOtherBoot } = this.#ports;
    const { O_CREAT, O_RDWR, O_NOFOLLOW } = constants;
    const handle = await open(path, O_CREAT | O_RDWR | O_NOFOLLOW, 0o644);
    try {
      const seen = await handle.stat({ bigint: true });
      const { dev, ino } = identityOf(seen);
      const isOurs = this.#file.dev === dev && this.#file.ino === ino;
      // One that a crash left between its making and its record is empty, and has no other name.
      const isFresh = this.#file.ino === null && seen.size === 0n && seen.nlink === 1n;
      if (!seen.isFile() || (!isOurs && !isFresh))
        throw new Error(`${path} is not the file that this node made: move it away`);
      const { etag, sha256, synced } = this.#file;
      // Without either nothing shows what they are bytes of.
      const isOfUse = isOurs && (etag !== null || sha256 !== null);
      const trusted = isOfUse ? (isOtherBoot ? synced : Number(seen.size)) : 0;
      const have = Math.min(trusted, Number(seen.size), this.#file.bytes ?? Number.POSITIVE_INFINITY);
      await handle.truncate(have);
      if (!isOurs) await this.#save({ dev, ino, bornNs: bornOf(seen) });
      progress.total = this.#file.bytes;
      await this.#readAgain(handle, have);
      return handle;
    } catch (error) {
      await handle.close();
      throw error;
    }
  }

  /** F1. */
  async #readAgain(handle: FileHandle, have: number): Promise<void> {
    const { progress } = this.#ports;
    this.#hash = createHash("sha256");
    const buffer = Buffer.allocUnsafe(READ_BYTES);
    for (let at = 0; at < have;) {
      const { bytesRead } = await handle.read(buffer, 0, Math.min(READ_BYTES, have - at), at);
      if (bytesRead === 0) throw new Error("the file became shorter while it was read");
      this.#hash.update(buffer.subarray(0, bytesRead));
      at += bytesRead;
      progress.mark += bytesRead;
    }
    progress.have = have;
  }

  async #try(handle: FileHandle, signal: AbortSignal): Promise<TryOutcome> {
    const { web, request, progress, reserve } = this.#ports;
    const transfer = this.#transfer();
    const headers = askFor(transfer);
    if (headers === null) return this.#finish(handle);
    const answer = await web.ask({ ...request, headers: { ...request.headers, ...headers } }, signal);
    if (answer.kind !== "answer")
      return answer.kind === "refused" ? answer : { kind: "later", afterMs: null, why: answer.why };
    const verdict = judgeHead(transfer, answer.head);
    if (verdict.kind !== "take") answer.body.destroy();
    switch (verdict.kind) {
      case "whole":
        return this.#finish(handle);
      case "anew":
        return this.#beginAnew(handle, verdict.why);
      case "take":
        try {
          if (verdict.total !== null) await reserve(verdict.total);
          if (verdict.from < progress.have) {
            this.#anew += 1;
            if (this.#anew >= ANEW_MAX) {
              answer.body.destroy();
              return { kind: "refused", why: `the server sends the file from its begin, ${ANEW_MAX} times` };
            }
            await this.#cut(handle);
          }
          progress.total = verdict.total;
          const { etag, total: told } = verdict;
          if (etag !== this.#file.etag || told !== this.#file.told) await this.#save({ etag, told });
        } catch (error) {
          answer.body.destroy();
          throw error;
        }
        return this.#take(handle, answer.body, verdict, signal);
      default:
        return verdict;
    }
  }

  #transfer(): Transfer {
    const { bytes, sha256, etag, told } = this.#file;
    return { want: { bytes, sha256 }, have: this.#ports.progress.have, etag, told };
  }

  async #take(
    handle: FileHandle,
    body: IncomingMessage,
    { end, total }: Pick<Extract<HeadVerdict, { kind: "take" }>, "end" | "total">,
    signal: AbortSignal,
  ): Promise<TryOutcome> {
    const { web, progress } = this.#ports;
    let broken: string | null = null;
    let isTooMuch = false;
    try {
      for await (const part of web.parts(body)) {
        signal.throwIfAborted();
        progress.why = null;
        isTooMuch = end !== null && progress.have + part.length > end;
        if (isTooMuch) break;
        await writeAll(handle, part, progress.have);
        this.#hash.update(part);
        progress.have += part.length;
        progress.mark += part.length;
        this.#unsynced += part.length;
        if (this.#unsynced >= SYNC_EVERY_BYTES) await this.#keepSynced(handle);
      }
    } catch (error) {
      signal.throwIfAborted();
      // Only the network may be tried again at once.
      if (diskTroubleOf(error) !== null) throw error;
      broken = messageOf(error);
    }
    if (isTooMuch) return this.#beginAnew(handle, "more came than was told");
    switch (judgeEnd(progress.have, total, broken === null)) {
      case "whole":
        return this.#finish(handle);
      case "anew":
        return this.#beginAnew(handle, broken ?? "other bytes came than were told");
      case "rest":
        return { kind: "later", afterMs: null, why: `the download broke off: ${broken ?? "the answer was too short"}` };
    }
  }

  /** F2. */
  async #finish(handle: FileHandle): Promise<TryOutcome> {
    const { progress } = this.#ports;
    const digest = this.#hash.copy().digest("hex");
    const { sha256 } = this.#file;
    if (sha256 !== null && digest !== sha256)
      return this.#beginAnew(handle, `the file's sha256 is ${digest}, not ${sha256}`, WRONG_MAX);
    await handle.sync();
    const seen = await handle.stat({ bigint: true });
    if (Number(seen.size) !== progress.have) throw new Error("the file was changed while it was fetched");
    await this.#save({ bytes: progress.have, synced: progress.have, digest, mtimeNs: String(seen.mtimeNs) });
    progress.total = progress.have;
    progress.why = null;
    return { kind: "done" };
  }

  async #beginAnew(handle: FileHandle, why: string, timesMax = ANEW_MAX): Promise<TryOutcome> {
    this.#anew += 1;
    if (this.#anew >= timesMax) return { kind: "refused", why: `${why}, ${this.#anew} times` };
    await this.#cut(handle);
    return { kind: "later", afterMs: null, why };
  }

  async #cut(handle: FileHandle): Promise<void> {
    await handle.truncate(0);
    this.#hash = createHash("sha256");
    this.#ports.progress.have = 0;
    this.#unsynced = 0;
    await this.#save({ etag: null, told: null, synced: 0 });
  }

  async #keepSynced(handle: FileHandle): Promise<void> {
    if (this.#unsynced === 0) return;
    await handle.datasync();
    this.#unsynced = 0;
    await this.#save({ synced: this.#ports.progress.have });
  }

  async #save(over: Partial<HeldFile>): Promise<void> {
    this.#file = { ...this.#file, ...over };
    await this.#ports.save(this.#file);
  }
}

async function writeAll(handle: FileHandle, part: Buffer, at: number): Promise<void> {
  for (let done = 0; done < part.length;) {
    const { bytesWritten } = await handle.write(part, done, part.length - done, at + done);
    done += bytesWritten;
  }
}

/** The digest of a file that lies there, in hex; null when there is none. `mark` is told of bytes as they are read. */
export async function digestOf(
  path: string,
  mark: (bytes: number) => void,
  signal: AbortSignal,
): Promise<string | null> {
  let handle: FileHandle;
  try {
    handle = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW);
  } catch (error) {
    if (hasSystemCode(error, "ENOENT") || hasSystemCode(error, "ELOOP")) return null;
    throw error;
  }
  await using _held = handle;
  const hash = createHash("sha256");
  const buffer = Buffer.allocUnsafe(READ_BYTES);
  for (;;) {
    signal.throwIfAborted();
    const { bytesRead } = await handle.read(buffer, 0, READ_BYTES);
    if (bytesRead === 0) return hash.digest("hex");
    hash.update(buffer.subarray(0, bytesRead));
    mark(bytesRead);
  }
}
