import type { MonoMs } from "../../kernel/clock.ts";
import type { BookLimits } from "./book-view.ts";
import { SETTLE_MS } from "./slot-request.ts";

/**
 * Of all slots, what newcomers take together from a store that may have forgotten the others. It is what the fleet may be above
 * its slots while a store is lost and found, so those who are there can hold all of them.
 */
const NEWCOMERS_PART = 1 / 4;

interface Bound {
  /** Slots that this gateway may hold. */
  readonly held: number;
  /** Of the limits, what is told to the store as the limit. */
  readonly part: number;
  readonly until: MonoMs;
  /** It ends earlier, when so many gateways have told the store what runs there. */
  readonly here: number;
}

/** For how long, and how far, a gateway does not take a store at its word that may not know yet what runs at the others. */
export class Settling {
  #bound: Bound | null = null;

  /** Whether less is taken than a settled store would give. */
  isBound(now: MonoMs): boolean {
    return this.#bound !== null && now < this.#bound.until;
  }

  /** True when the bound is over by time: more may be asked for than before. */
  endsBy(now: MonoMs): boolean {
    return this.#bound !== null && now >= this.#bound.until && this.end();
  }

  /** True when the bound is over because everybody has spoken. */
  endsWith(here: number): boolean {
    return this.#bound !== null && here >= this.#bound.here && this.end();
  }

  end(): boolean {
    this.#bound = null;
    return true;
  }

  /** This gateway keeps to `held` slots: until those that were away with it have come back. */
  afterOutage(held: number, now: MonoMs): void {
    this.#bound = { held, part: 1, until: after(now, SETTLE_MS), here: Number.POSITIVE_INFINITY };
  }

  /** The same after the store was emptied: until `here` gateways have spoken, or who does not within a lease's time is gone. */
  afterLoss(held: number, here: number, ttlMs: number, now: MonoMs): void {
    this.#bound = { held, part: 1, until: after(now, ttlMs), here };
  }

  /**
   * This gateway has just started, and knows nothing of the others. A store that is young may be a new one or an emptied one; in
   * the time that the others need to speak, all newcomers together get a part of the slots, and nothing when that much is taken.
   */
  asNewcomer(storeAgeMs: number, now: MonoMs): void {
    if (storeAgeMs >= SETTLE_MS) return;
    const none = Number.POSITIVE_INFINITY;
    this.#bound = { held: none, part: NEWCOMERS_PART, until: after(now, SETTLE_MS - storeAgeMs), here: none };
  }

  /** Of `wanted` leases, how many may be asked for beside those that are held. */
  room(wanted: number, held: number): number {
    return Math.max(0, Math.min(wanted, (this.#bound?.held ?? Number.POSITIVE_INFINITY) - held));
  }

  limits({ slots, batchMax }: BookLimits): BookLimits {
    return { slots: this.part(slots), batchMax: this.part(batchMax) };
  }

  /** At least one where there is any. */
  part(slots: number): number {
    const part = this.#bound?.part ?? 1;
    return part === 1 ? slots : Math.min(slots, Math.max(1, Math.floor(slots * part)));
  }
}

const after = (now: MonoMs, ms: number): MonoMs => (now + ms) as MonoMs;
