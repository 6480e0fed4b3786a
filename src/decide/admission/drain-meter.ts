import type { MonoMs } from "../../kernel/clock.ts";

/** Time after which a measurement has lost two thirds of its weight: some requests long, yet quick to see an engine slow down. */
const MEMORY_MS = 60_000;
/** Multiplying by less than a second's decay would cost more than it says. */
const DECAY_STEP_MS = 1_000;
/** Below this weight what is left of old measurements is rounding noise. */
const ENDS_MIN = 1e-6;

/**
 * How fast slots come free, from two sums that fade with time: slot time in use, and ends. Their ratio is the rate of one
 * busy slot, so a half-empty pool predicts what a full one will do, and no request needs a start time of its own.
 */
export class DrainMeter {
  #slotMs = 0;
  #ends = 0;
  #decayedAt: MonoMs;

  constructor(now: MonoMs) {
    this.#decayedAt = now;
  }

  /** `inUse` slots were held for the `ms` up to `now`. */
  ran(inUse: number, ms: number, now: MonoMs): void {
    this.#slotMs += inUse * ms;
    const age = now - this.#decayedAt;
    if (age < DECAY_STEP_MS) return;
    const kept = Math.exp(-age / MEMORY_MS);
    this.#slotMs *= kept;
    this.#ends *= kept;
    this.#decayedAt = now;
  }

  ended(): void {
    this.#ends += 1;
  }

  /** Mean time a request holds its slot; undefined before anything was measured. */
  holdMs(): number | undefined {
    return this.#ends < ENDS_MIN ? undefined : this.#slotMs / this.#ends;
  }

  /** Ends a second with `busy` slots in use; undefined before anything was measured. */
  perSecond(busy: number): number | undefined {
    const holdMs = this.holdMs();
    // Requests that hold their slot for less than a microsecond exist only on a clock that stands still.
    return holdMs === undefined ? undefined : (busy * 1_000) / Math.max(holdMs, 1e-3);
  }
}
