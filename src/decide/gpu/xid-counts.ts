import type { MonoMs } from "../../kernel/clock.ts";

/** How often each code was counted. A code that is not in it was not counted. */
export type XidCounts = Readonly<Record<number, number>>;

/**
 * `window`  counts of the last minutes: they fall as incidents grow old, and a card without one is told of with none.
 * `total`   counts since the exporter began: they fall when it begins anew, and nothing is told of a card without one.
 */
export type CountKind = "window" | "total";

/**
 * Makes incidents of one card's counts.
 *
 * Invariants:
 *   N1. What was counted at the first look has not come: counts of the last minutes are years old for a gateway that has just started.
 *   N2. Only a count that is higher than every one before it says that a code came. A lower one counts from `clearAfterMs` on, so that a
 *       page given out again, or a series left out for a while, makes no code come again.
 *   N3. What a total reads once it has been lower for so long came since the exporter began anew, and so after the last look.
 */
export class XidCountWatch {
  readonly #kind: CountKind;
  /** Null before the first look that told something. */
  #highest: Map<number, number> | null = null;
  readonly #lowerSince = new Map<number, MonoMs>();
  #last: XidCounts = {};

  constructor(kind: CountKind) {
    this.#kind = kind;
  }

  /** How often each code has come since the last look. */
  look(counts: XidCounts | null, now: MonoMs, clearAfterMs: number): ReadonlyMap<number, number> {
    const came = new Map<number, number>();
    if (counts === null && this.#kind === "window") return came;
    const told = counts ?? {};
    this.#last = told;
    if (this.#highest === null) {
      this.#highest = countsOf(told);
      return came;
    }
    for (const code of new Set([...this.#highest.keys(), ...countsOf(told).keys()])) {
      const rise = this.#rise(this.#highest, code, told[code] ?? 0, now, clearAfterMs);
      if (rise > 0) came.set(code, rise);
    }
    return came;
  }

  /** What is counted now is old. */
  clear(): void {
    if (this.#highest !== null) this.#highest = countsOf(this.#last);
    this.#lowerSince.clear();
  }

  #rise(highest: Map<number, number>, code: number, count: number, now: MonoMs, clearAfterMs: number): number {
    const before = highest.get(code) ?? 0;
    if (count >= before) {
      this.#lowerSince.delete(code);
      highest.set(code, count);
      return count - before;
    }
    const since = this.#lowerSince.get(code) ?? now;
    this.#lowerSince.set(code, since);
    if (now - since < clearAfterMs) return 0;
    this.#lowerSince.delete(code);
    if (count === 0) highest.delete(code);
    else highest.set(code, count);
    return this.#kind === "total" ? count : 0;
  }
}

const countsOf = (counts: XidCounts): Map<number, number> =>
  new Map(Object.entries(counts).map(([code, count]) => [Number(code), count]));
