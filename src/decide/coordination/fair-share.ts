import type { MonoMs } from "../../kernel/clock.ts";

/** What was known when the shared store went away. */
export interface LastSeen {
  readonly slots: number;
  /** Held here. */
  readonly own: number;
  /** Held by the other gateways, as last told; null when the store was never seen. */
  readonly others: number | null;
  /** Gateways last seen, this one included; at least 1. */
  readonly gateways: number;
}

/**
 * How many slots this gateway may hold without asking anyone, `progress` (0 to 1) of the way through the time that requests
 * take. It begins with what it holds and its part of what was free, and ends at its equal share: at each moment the limits of
 * all gateways sum up to no more than the slots, while a plain equal share would add to what one of them held already.
 * What was free may have been taken by another since it was last told: so all together begin with no more of it than a quarter of
 * the slots, and however old the news is, the sum is no more than a quarter above the slots.
 * The share, and a part of what was free, is at least one slot, so with few slots for many gateways the sum can be as much above
 * them as there are gateways.
 */
export function fairShare({ slots, own, others, gateways }: LastSeen, progress: number): number {
  const share = Math.max(1, Math.floor(slots / gateways));
  if (others === null) return share;
  const unheardMax = Math.max(1, Math.floor((slots * UNHEARD_PART) / gateways));
  const part = Math.floor(Math.max(0, slots - own - others) / gateways);
  const start = own + (gateways > 1 ? Math.min(part, unheardMax) : part);
  return Math.floor(start + (share - start) * Math.min(1, Math.max(0, progress)));
}

/** Of the slots, what is taken at most in the belief that it is free. */
const UNHEARD_PART = 1 / 4;

/** How many times of requests are remembered. */
const REMEMBERED = 128;
/** Before any request has ended nothing tells how long they take. */
const UNKNOWN_MS = 30_000;
/** A store that is away for a moment only must not move anything. */
const MS_MIN = 5_000;
const MS_MAX = 300_000;

/** How long requests hold their slots: the 95th percentile of the last ones, within bounds. */
export class HoldTimes {
  readonly #ms: number[] = [];
  #next = 0;

  ended(ms: number): void {
    this.#ms[this.#next] = ms;
    this.#next = (this.#next + 1) % REMEMBERED;
  }

  p95Ms(): number {
    if (this.#ms.length === 0) return UNKNOWN_MS;
    const sorted = this.#ms.toSorted((a, b) => a - b);
    const ms = sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * 0.95))] ?? UNKNOWN_MS;
    return Math.min(MS_MAX, Math.max(MS_MIN, ms));
  }
}

interface Holders {
  readonly own: number;
  /** Null: unknown. */
  readonly others: number | null;
}

export interface OpenBasis {
  readonly at: MonoMs;
  readonly rampMs: number;
  readonly gateways: number;
  readonly all: Holders;
  readonly batch: Holders;
  /** By endpoint, where anything is known. */
  readonly on: ReadonlyMap<string, Holders>;
}

/** What may be held while the store is away, by what was known when it went. */
export class OpenShare {
  readonly #basis: OpenBasis;

  constructor(basis: OpenBasis) {
    this.#basis = basis;
  }

  all(slots: number, now: MonoMs): number {
    return this.#share(this.#basis.all, slots, now);
  }

  batch(batchMax: number, now: MonoMs): number {
    return this.#share(this.#basis.batch, batchMax, now);
  }

  onEndpoint(endpoint: string, slots: number, now: MonoMs): number {
    const others = this.#basis.all.others === null ? null : 0;
    return this.#share(this.#basis.on.get(endpoint) ?? { own: 0, others }, slots, now);
  }

  #share({ own, others }: Holders, slots: number, now: MonoMs): number {
    const { at, rampMs, gateways } = this.#basis;
    return fairShare({ slots, own, others, gateways }, (now - at) / rampMs);
  }
}
