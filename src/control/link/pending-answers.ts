import { type Clock, type Timer } from "../../kernel/clock.ts";
import { type ErrorCode, YardmasterError } from "../../kernel/errors.ts";

const PENDING_MAX = 100;

interface Pending<T> {
  readonly nodeId: string;
  readonly resolve: (answer: T) => void;
  readonly reject: (error: Error) => void;
  readonly timer: Timer;
}

/** Questions of one kind that agents have not answered yet. Each ends within its time. */
export class PendingAnswers<T> {
  readonly #clock: Clock;
  readonly #what: string;
  readonly #answerMsMax: number;
  readonly #pending = new Map<string, Pending<T>>();
  #asked = 0;

  /** `what` is asked for, in the plural. */
  constructor(clock: Clock, what: string, answerMsMax: number) {
    this.#clock = clock;
    this.#what = what;
    this.#answerMsMax = answerMsMax;
  }

  /** Throws RATE_LIMITED while too many are under way. */
  ask(nodeId: string, send: (requestId: string) => void): Promise<T> {
    if (this.#pending.size >= PENDING_MAX)
      return Promise.reject(new YardmasterError("RATE_LIMITED", `too many ${this.#what} are asked for at once`));
    this.#asked += 1;
    const requestId = `${this.#what}-${this.#asked}`;
    return new Promise((resolve, reject) => {
      const timer = this.#clock.after(this.#answerMsMax, () =>
        this.#fail(requestId, "NODE_SILENT", "its node did not answer in time"),
      );
      this.#pending.set(requestId, { nodeId, resolve, reject, timer });
      send(requestId);
    });
  }

  answer(requestId: string, nodeId: string, answer: T): void {
    this.#take(requestId, nodeId)?.resolve(answer);
  }

  refuse(requestId: string, nodeId: string, code: string, why: string): void {
    const unknown = code === "SHARD_UNKNOWN";
    this.#take(requestId, nodeId)?.reject(
      new YardmasterError(
        unknown ? "SHARD_UNKNOWN" : "NODE_SILENT",
        unknown ? "its node has no log of it" : `its node refused: ${why}`,
      ),
    );
  }

  /** The node's connection has ended. */
  gone(nodeId: string): void {
    for (const [requestId, pending] of this.#pending)
      if (pending.nodeId === nodeId) this.#fail(requestId, "NODE_SILENT", "its node's connection has ended");
  }

  #fail(requestId: string, code: ErrorCode, why: string): void {
    const pending = this.#pending.get(requestId);
    if (pending !== undefined) this.#take(requestId, pending.nodeId)?.reject(new YardmasterError(code, why));
  }

  /** Only the node that was asked may answer. */
  #take(requestId: string, nodeId: string): Pending<T> | undefined {
    const pending = this.#pending.get(requestId);
    if (pending === undefined || pending.nodeId !== nodeId) return undefined;
    this.#pending.delete(requestId);
    pending.timer.cancel();
    return pending;
  }
}
