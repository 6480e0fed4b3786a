import type { Worker } from "node:worker_threads";
import type { Clock, Timer } from "../../kernel/clock.ts";
import { YardmasterError } from "../../kernel/errors.ts";
import { startThread } from "../../kernel/start-thread.ts";
import { nextTurn } from "../../kernel/next-turn.ts";
import { bodyFingerprint } from "../http/body-fingerprint.ts";
import { parseSubmission, type ParsedSubmission } from "./parse-submission.ts";
import type { SubmissionReply, SubmissionRequest } from "./submission-worker.ts";

/** Up to here a submit is read at once, in a few milliseconds. */
const AT_ONCE_BYTES_MAX = 256 * 1024;
/** Copied for the thread in one turn of the event loop. */
const PIECE_BYTES = 256 * 1024;
/** For the largest body that is taken, on a machine that has much else to do. */
const READ_MS_MAX = 60_000;

export interface ReadSubmission {
  readonly asked: ParsedSubmission;
  /** Null where none was wanted. */
  readonly fingerprint: string | null;
}

interface Waiting {
  readonly resolve: (reply: SubmissionReply) => void;
  readonly reject: (error: Error) => void;
  readonly timer: Timer;
}

/**
 * Reads submits, large ones in a thread of its own. It starts with the first of them, and again after it has died.
 *
 * Invariants:
 *   B1. No turn of the event loop copies, parses or digests more than PIECE_BYTES of a submit.
 *   B2. Every read ends: by its result, by the thread's death, or by READ_MS_MAX.
 */
export class SubmissionReader {
  readonly #clock: Clock;
  readonly #waiting = new Map<number, Waiting>();
  #worker: Worker | undefined;
  #ids = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Throws BAD_JSON, BAD_REQUEST, or INTERNAL when the thread gave no answer. */
  async read(chunks: readonly Buffer[], wantsFingerprint: boolean): Promise<ReadSubmission> {
    const bytes = chunks.reduce((sum, { length }) => sum + length, 0);
    if (bytes > AT_ONCE_BYTES_MAX) return unpack(await this.#ask(chunks, wantsFingerprint));
    const fingerprint = wantsFingerprint ? bodyFingerprint([], chunks, true) : null;
    return { asked: parseSubmission(Buffer.concat(chunks)), fingerprint };
  }

  async close(): Promise<void> {
    const worker = this.#worker;
    this.#worker = undefined;
    this.#end("the gateway is stopping");
    await worker?.terminate();
  }

  async #ask(chunks: readonly Buffer[], wantsFingerprint: boolean): Promise<SubmissionReply> {
    const id = (this.#ids += 1);
    const { promise, resolve, reject } = Promise.withResolvers<SubmissionReply>();
    const timer = this.#clock.after(READ_MS_MAX, () => this.#giveUp());
    this.#waiting.set(id, { resolve, reject, timer });
    // It may fail while pieces are still on their way.
    promise.catch(() => {});
    const worker = this.#ensureWorker();
    const tell = (request: SubmissionRequest, transfer: ArrayBuffer[] = []): void => {
      if (worker === this.#worker) worker.postMessage(request, transfer);
    };
    for (const chunk of chunks) {
      for (let at = 0; at < chunk.length; at += PIECE_BYTES) {
        const piece = new Uint8Array(chunk.subarray(at, at + PIECE_BYTES));
        tell({ kind: "piece", id, bytes: piece }, [piece.buffer]);
        if (chunk.length > PIECE_BYTES) await nextTurn();
      }
    }
    tell({ kind: "end", id, wantsFingerprint });
    return promise;
  }

  #ensureWorker(): Worker {
    if (this.#worker !== undefined) return this.#worker;
    const worker = startThread("submission-worker", import.meta.url, { name: "submits", workerData: null });
    worker.on("message", (reply: SubmissionReply) => {
      const waiting = this.#waiting.get(reply.id);
      this.#waiting.delete(reply.id);
      waiting?.timer.cancel();
      waiting?.resolve(reply);
    });
    const onEnd = (why: string): void => {
      if (this.#worker !== worker) return;
      this.#worker = undefined;
      this.#end(why);
    };
    worker.on("error", (error) => onEnd(error instanceof Error ? error.message : String(error)));
    worker.on("exit", () => onEnd("its thread ended"));
    worker.unref();
    return (this.#worker = worker);
  }

  /** A thread that is stuck is of no use to those behind either. */
  #giveUp(): void {
    const worker = this.#worker;
    this.#worker = undefined;
    this.#end(`no answer within ${READ_MS_MAX} ms`);
    void worker?.terminate();
  }

  #end(why: string): void {
    for (const { reject, timer } of this.#waiting.values()) {
      timer.cancel();
      reject(new YardmasterError("INTERNAL", `the submit could not be read: ${why}`));
    }
    this.#waiting.clear();
  }
}

function unpack(reply: SubmissionReply): ReadSubmission {
  if (reply.kind === "refused") throw new YardmasterError(reply.code, reply.why);
  const { asked, packed, lengths, fingerprint } = reply;
  const blobs = new Map<string, Buffer>();
  let at = 0;
  for (const [name, length] of lengths) {
    blobs.set(name, Buffer.from(packed.buffer, at, length));
    at += length;
  }
  return { asked: { ...asked, blobs }, fingerprint };
}
