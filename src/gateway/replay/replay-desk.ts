import { Bag } from "../../kernel/bag.ts";
import { ClaimKeeper } from "./claim-keeper.ts";
import type { ReplayDeps } from "./replay-deps.ts";
import { ReplayRun, type ReplayRequest } from "./replay-run.ts";

/**
 * Where requests go first that may be answered from memory: those with an idempotency key, and those to upstreams that keep
 * answers or refusals. All others never come here.
 */
export class ReplayDesk {
  readonly #deps: ReplayDeps;
  readonly #keeper: ClaimKeeper;
  /** Looking, or waiting for somebody else's answer. */
  readonly #waiting = new Bag<ReplayRun>();
  /** Answers on their way into a store. */
  readonly #storing = new Set<Promise<void>>();

  constructor(deps: ReplayDeps) {
    this.#deps = deps;
    this.#keeper = new ClaimKeeper(deps.clock);
  }

  /** Requests that are neither answered nor on their way to an upstream. */
  get waiting(): number {
    return this.#waiting.size;
  }

  take(request: ReplayRequest): void {
    const run = new ReplayRun(this.#deps, this.#keeper, request, (storing) => this.#follow(storing));
    this.#waiting.add(run);
    void run.start().finally(() => this.#waiting.delete(run));
  }

  /** The gateway's drain time is over: whoever waits is told to come again. */
  abortForDrain(): void {
    for (const run of [...this.#waiting]) run.abortForDrain();
  }

  /** Resolves when what was answered is kept, or given up; then the stores can be closed. */
  async close(): Promise<void> {
    await Promise.all(this.#storing);
    await this.#deps.stores.close();
  }

  #follow(storing: Promise<void>): void {
    this.#storing.add(storing);
    void storing.finally(() => this.#storing.delete(storing));
  }
}
