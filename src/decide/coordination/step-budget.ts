/** With less time than this a step is not sent: it would fail for the want of time and say nothing of the store. */
export const STEP_MS_MIN = 10;

/**
 * The time that one call may wait for shared stores before it is admitted, over all steps that it takes: its key, the cache, and
 * its slot. A server that stands still costs a call that time once, and not once for each step.
 */
export class StepBudget {
  readonly #ms: number;
  #leftMs: number;

  constructor(ms: number) {
    this.#ms = ms;
    this.#leftMs = ms;
  }

  /** For the next step, in ms; 0 when it is not worth asking any more. */
  get leftMs(): number {
    return this.#leftMs < STEP_MS_MIN ? 0 : this.#leftMs;
  }

  /** So much is gone that the steps to come must not wait as if they were the first. */
  get short(): boolean {
    return this.#leftMs < this.#ms / 2;
  }

  spend(ms: number): void {
    this.#leftMs = Math.max(0, this.#leftMs - ms);
  }
}
