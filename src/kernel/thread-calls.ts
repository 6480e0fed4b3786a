import type { Worker } from "node:worker_threads";
import type { Clock } from "./clock.ts";
import { messageOf } from "./errors.ts";

/** What a thread answers to one call. */
export type ThreadReply =
  | { readonly kind: "done"; readonly call: number; readonly value: unknown }
  | { readonly kind: "failed"; readonly call: number; readonly why: string };

export interface ThreadCallsOptions {
  readonly clock: Clock;
  readonly start: () => Worker;
  /** A thread was started, and nothing has been asked of it yet. */
  readonly onStart?: () => void;
  readonly answerMsMax: number;
  /** What a call rejects with. */
  readonly fault: (why: string) => Error;
  /** Why a call after the end is refused. */
  readonly closed: string;
}

/** Calls under way at once; each holds its bytes until it is answered. */
const CALLS_MAX = 2_000;

interface Call {
  readonly resolve: (value: never) => void;
  readonly reject: (error: Error) => void;
  readonly timer: { cancel(): void };
}

/**
 * Calls to a thread that owns something, such as a file. Every call ends within its time; a thread that died is answered for, and the
 * next call starts another.
 */
export class ThreadCalls<Request> {
  readonly #options: ThreadCallsOptions;
  readonly #calls = new Map<number, Call>();
  #worker: Worker | undefined;
  #count = 0;
  #closed = false;

  constructor(options: ThreadCallsOptions) {
    this.#options = options;
  }

  /** `give`: memory that changes hands instead of being copied. */
  ask<T>(request: (call: number) => Request, give: readonly ArrayBuffer[] = []): Promise<T> {
    const { clock, answerMsMax, fault, closed } = this.#options;
    return new Promise<T>((resolve, reject) => {
      if (this.#closed) return reject(fault(closed));
      if (this.#calls.size >= CALLS_MAX) return reject(fault("too many calls wait for it"));
      const call = (this.#count += 1);
      const timer = clock.after(answerMsMax, () => this.#fail(call, `no answer within ${answerMsMax} ms`));
      this.#calls.set(call, { resolve, reject, timer });
      try {
        this.#ensureWorker().postMessage(request(call), give);
      } catch (error) {
        this.#fail(call, messageOf(error));
      }
    });
  }

  /** `last` is asked of a thread that there is; then it is ended. */
  async close(last: (call: number) => Request): Promise<void> {
    if (this.#closed) return;
    const worker = this.#worker;
    // What was answered is on disk; a thread that does not answer has nothing more to give.
    if (worker !== undefined) await this.ask(last).catch(() => {});
    this.#closed = true;
    this.#worker = undefined;
    await worker?.terminate();
  }

  #ensureWorker(): Worker {
    if (this.#worker !== undefined) return this.#worker;
    const worker = this.#options.start();
    worker.on("message", (reply: ThreadReply) => this.#onReply(reply));
    worker.on("error", (error) => this.#onEnd(worker, messageOf(error)));
    worker.on("exit", () => this.#onEnd(worker, "its thread ended"));
    this.#worker = worker;
    this.#options.onStart?.();
    return worker;
  }

  #onReply(reply: ThreadReply): void {
    if (reply.kind === "failed") this.#fail(reply.call, reply.why);
    else this.#take(reply.call)?.resolve(reply.value as never);
  }

  #onEnd(worker: Worker, why: string): void {
    if (this.#worker !== worker) return;
    this.#worker = undefined;
    for (const call of [...this.#calls.keys()]) this.#fail(call, why);
  }

  #fail(call: number, why: string): void {
    this.#take(call)?.reject(this.#options.fault(why));
  }

  #take(call: number): Call | undefined {
    const waiting = this.#calls.get(call);
    this.#calls.delete(call);
    waiting?.timer.cancel();
    return waiting;
  }
}
