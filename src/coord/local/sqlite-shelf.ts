import type { Worker } from "node:worker_threads";
import { parseReply, renderReplyHead, replyBytes, type Reply } from "../../contract/reply.ts";
import type { Clock, Timer } from "../../kernel/clock.ts";
import type { Logger } from "../../kernel/log.ts";
import { startThread } from "../../kernel/start-thread.ts";
import type { ReplyStoreStats } from "../reply-store.ts";
import type { ReplyShelf, ShelvedReply } from "./local-replies.ts";
import type { StoredRow } from "./reply-db.ts";
import type { ReplyAnswer, ReplyRequest, ReplyTotals, ReplyWorkerData } from "./reply-worker.ts";

export interface SqliteShelfOptions {
  readonly path: string;
  /** Of all kept answers together. */
  readonly bytesMax: number;
  readonly clock: Clock;
  readonly log: Logger;
}

interface Pending {
  readonly resolve: (answer: ReplyAnswer) => void;
  readonly reject: (err: Error) => void;
  readonly timer: Timer;
}

/** Steps that wait for the worker at once. More mean that it is stuck: further ones are refused at once. */
const PENDING_MAX = 1_024;
/** A look that takes longer is given up, with its outcome unknown. */
const STEP_MS_MAX = 1_000;
/** The same until the thread has answered once: it has to start. */
const FIRST_STEP_MS_MAX = 5_000;
const CLOSE_MS_MAX = 5_000;

/**
 * Answers in an embedded database behind a worker thread; they survive a restart. The thread starts with the first step: where
 * nobody sends a key there is neither thread nor file.
 */
export class SqliteShelf implements ReplyShelf {
  readonly #options: SqliteShelfOptions;
  readonly #pending = new Map<number, Pending>();
  #worker: Worker | undefined;
  #ids = 0;
  #started = false;
  #failing = false;
  #totals: ReplyTotals | null = null;

  constructor(options: SqliteShelfOptions) {
    this.#options = options;
  }

  async get(key: string): Promise<ShelvedReply | null> {
    const now = this.#options.clock.wall();
    const answer = await this.#ask({ kind: "get", id: 0, key, now }, this.#started ? STEP_MS_MAX : FIRST_STEP_MS_MAX);
    if (answer.kind !== "row" || answer.row === null) return null;
    const { head, body, fingerprint, storedAt } = answer.row;
    const reply = parseReply(head, Buffer.from(body.buffer, body.byteOffset, body.byteLength));
    return reply === undefined ? null : { reply, fingerprint, ageMs: Math.max(0, now - storedAt) };
  }

  async put(key: string, fingerprint: string, reply: Reply, ttlMs: number): Promise<boolean> {
    const storedAt = this.#options.clock.wall();
    // A copy of its own: handing over a part of a larger buffer would copy all of that.
    const row: StoredRow = { fingerprint, head: renderReplyHead(reply), body: new Uint8Array(reply.body), storedAt };
    const bytes = replyBytes(reply);
    const expiresAt = storedAt + ttlMs;
    // Nobody waits for this step but those who wait for the answer anyhow, and a large answer takes its time.
    const answer = await this.#ask({ kind: "put", id: 0, key, row, bytes, expiresAt }, CLOSE_MS_MAX);
    if (answer.kind !== "put") return false;
    this.#totals = answer.totals;
    return answer.kept;
  }

  stats(): ReplyStoreStats {
    const { entries = null, bytes = null, evicted = 0 } = this.#totals ?? {};
    return { entries, bytes, evicted };
  }

  async close(): Promise<void> {
    const worker = this.#worker;
    if (worker === undefined) return;
    worker.ref();
    await this.#ask({ kind: "close", id: 0 }, CLOSE_MS_MAX).catch(() => worker.terminate());
    this.#worker = undefined;
  }

  #ask(request: ReplyRequest, msMax: number): Promise<ReplyAnswer> {
    if (this.#pending.size >= PENDING_MAX) return Promise.reject(new Error("the store of answers is behind"));
    const id = ++this.#ids;
    const { promise, resolve, reject } = Promise.withResolvers<ReplyAnswer>();
    const timer = this.#options.clock.after(msMax, () => {
      this.#pending.delete(id);
      this.#noteFailure(`no answer within ${msMax} ms`);
      reject(new Error(`the store of answers did not answer within ${msMax} ms`));
    });
    this.#pending.set(id, { resolve, reject, timer });
    try {
      this.#ensureWorker().postMessage({ ...request, id });
    } catch (err) {
      // Starting a thread fails when the process is out of threads or memory.
      this.#settle(id, ({ reject: fail }) => fail(err instanceof Error ? err : new Error(String(err))));
    }
    return promise;
  }

  #ensureWorker(): Worker {
    if (this.#worker !== undefined) return this.#worker;
    const { path, bytesMax } = this.#options;
    const workerData: ReplyWorkerData = { path, bytesMax };
    const worker = startThread("reply-worker", import.meta.url, { name: "replies", workerData });
    worker.on("message", (answer: ReplyAnswer) => this.#onAnswer(answer));
    worker.on("error", (err) => this.#onWorkerEnd(worker, err instanceof Error ? err.message : String(err)));
    worker.on("exit", () => this.#onWorkerEnd(worker, "the thread ended"));
    worker.unref();
    this.#worker = worker;
    return worker;
  }

  #onAnswer(answer: ReplyAnswer): void {
    this.#started = true;
    if (answer.kind === "failed") {
      this.#noteFailure(answer.why);
      this.#settle(answer.id, ({ reject }) => reject(new Error(`the store of answers failed: ${answer.why}`)));
      return;
    }
    if (this.#failing) this.#options.log.info("replies.recovered", { path: this.#options.path });
    this.#failing = false;
    this.#settle(answer.id, ({ resolve }) => resolve(answer));
  }

  #onWorkerEnd(worker: Worker, why: string): void {
    if (this.#worker !== worker) return;
    this.#worker = undefined;
    this.#started = false;
    if (this.#pending.size > 0) this.#noteFailure(why);
    for (const id of [...this.#pending.keys()])
      this.#settle(id, ({ reject }) => reject(new Error(`the store of answers failed: ${why}`)));
  }

  #settle(id: number, act: (pending: Pending) => void): void {
    const pending = this.#pending.get(id);
    if (pending === undefined) return;
    this.#pending.delete(id);
    pending.timer.cancel();
    act(pending);
  }

  #noteFailure(why: string): void {
    if (this.#failing) return;
    this.#failing = true;
    this.#options.log.warn("replies.unavailable", {
      path: this.#options.path,
      why,
      effect: "requests go on; idempotency keys do not protect them, and their answers say so",
    });
  }
}
