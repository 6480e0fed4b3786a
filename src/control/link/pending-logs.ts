import { type Clock, type Timer } from "../../kernel/clock.ts";
import { type ErrorCode, YardmasterError } from "../../kernel/errors.ts";

const ANSWER_MS_MAX = 5_000;
const PENDING_MAX = 100;

interface Pending {
  readonly nodeId: string;
  readonly resolve: (lines: readonly string[]) => void;
  readonly reject: (error: Error) => void;
  readonly timer: Timer;
}

/** Requests for an engine's log that an agent has not answered yet. Each ends within seconds. */
export class PendingLogs {
  readonly #clock: Clock;
  readonly #pending = new Map<string, Pending>();
  #asked = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Throws RATE_LIMITED while too many are under way. */
  ask(nodeId: string, send: (requestId: string) => void): Promise<readonly string[]> {
    if (this.#pending.size >= PENDING_MAX)
      return Promise.reject(new YardmasterError("RATE_LIMITED", "too many logs are asked for at once"));
    this.#asked += 1;
    const requestId = `logs-${this.#asked}`;
    return new Promise((resolve, reject) => {
      const timer = this.#clock.after(ANSWER_MS_MAX, () =>
        this.#fail(requestId, "NODE_SILENT", "its node did not answer in time"),
      );
      this.#pending.set(requestId, { nodeId, resolve, reject, timer });
      send(requestId);
    });
  }

  answer(requestId: string, nodeId: string, lines: readonly string[]): void {
    this.#take(requestId, nodeId)?.resolve(lines);
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
  #take(requestId: string, nodeId: string): Pending | undefined {
    const pending = this.#pending.get(requestId);
    if (pending === undefined || pending.nodeId !== nodeId) return undefined;
    this.#pending.delete(requestId);
    pending.timer.cancel();
    return pending;
  }
}
