import type { Worker } from "node:worker_threads";
import type { Clock } from "../../kernel/clock.ts";
import { startThread } from "../../kernel/start-thread.ts";
import type { CommitOutcome, Doc, DocCommit, DocStore } from "../overflow/doc-store.ts";
import type { DocReply, DocRequest } from "./doc-worker.ts";

const ANSWER_MS_MAX = 5_000;

type Ask = DocRequest extends infer R ? (R extends DocRequest ? Omit<R, "call"> : never) : never;
/**
 * The ledger in a file of its own, in a thread of its own; this process's alone. Time is the wall clock's at the start and the steady
 * clock's from there on. A thread that died is answered for, and the next call starts another.
 */
export class LocalDocs implements DocStore {
  readonly kind = "local";
  readonly #path: string;
  readonly #clock: Clock;
  readonly #ahead: number;
  readonly #calls = new Map<number, (reply: DocReply) => void>();
  #worker: Worker | undefined;
  #count = 0;
  #closed = false;

  constructor(path: string, clock: Clock) {
    this.#path = path;
    this.#clock = clock;
    this.#ahead = clock.wall() - clock.mono();
  }

  async load(names: readonly string[]): Promise<{ readonly docs: readonly Doc[]; readonly now: number }> {
    const docs = await this.#ask<readonly Doc[]>({ kind: "load", names });
    return { docs, now: this.#now() };
  }

  commit(commit: DocCommit): Promise<CommitOutcome> {
    return this.#ask({ kind: "commit", commit, now: this.#now() });
  }

  open(kind: string): Promise<readonly (readonly [string, string])[]> {
    return this.#ask({ kind: "open", of: kind });
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    const worker = this.#worker;
    // What was answered is on disk; a thread that does not answer has nothing more to give.
    if (worker !== undefined) await this.#ask({ kind: "close" }).catch(() => {});
    this.#closed = true;
    this.#worker = undefined;
    await worker?.terminate();
  }

  #now(): number {
    return Math.round(this.#clock.mono() + this.#ahead);
  }

  #ask<T>(ask: Ask): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      if (this.#closed) return reject(new Error("the ledger is closed"));
      const call = (this.#count += 1);
      const settle = (reply: DocReply): void => {
        this.#calls.delete(call);
        timer.cancel();
        if (reply.kind === "done") resolve(reply.value as T);
        else reject(new Error(reply.why));
      };
      const failed = (why: string): void => settle({ kind: "failed", call, why });
      const timer = this.#clock.after(ANSWER_MS_MAX, () => failed(`no answer within ${ANSWER_MS_MAX} ms`));
      this.#calls.set(call, settle);
      try {
        this.#ensureWorker().postMessage({ ...ask, call } as DocRequest);
      } catch (error) {
        failed(error instanceof Error ? error.message : "no thread");
      }
    });
  }

  #ensureWorker(): Worker {
    if (this.#worker !== undefined) return this.#worker;
    const worker = startThread("doc-worker", import.meta.url, { name: "ledger", workerData: { path: this.#path } });
    worker.on("message", (reply: DocReply) => this.#calls.get(reply.call)?.(reply));
    worker.on("error", (error) => this.#onEnd(worker, error instanceof Error ? error.message : String(error)));
    worker.on("exit", () => this.#onEnd(worker, "its thread ended"));
    this.#worker = worker;
    return worker;
  }

  #onEnd(worker: Worker, why: string): void {
    if (this.#worker !== worker) return;
    this.#worker = undefined;
    for (const [call, settle] of [...this.#calls]) settle({ kind: "failed", call, why });
  }
}
