import type { KeyLimits } from "../../contract/gateway-config.ts";
import { exceeded, type Amount, type KeyUse } from "./key-limits.ts";
import { PieceCounts } from "./piece-counts.ts";
import { dayOf, monthOf, pieceOf, PIECES } from "./windows.ts";

/** Changes of what a key has used, in the windows that they belong to. May be negative: what was reserved and not used. */
export interface Adjustment {
  readonly pieces: readonly (readonly [piece: number, requests: number, tokens: number])[];
  readonly days: readonly (readonly [day: number, tokens: number, micros: number])[];
  readonly months: readonly (readonly [month: number, micros: number])[];
}

/** A key's day and month: what outlives a restart, and what a gateway last heard, which is all that is left when a store was emptied. */
export interface StoredAccount {
  readonly day: number;
  readonly dayTokens: number;
  readonly dayMicros: number;
  readonly month: number;
  readonly monthMicros: number;
}

export const NOTHING_STORED: StoredAccount = { day: 0, dayTokens: 0, dayMicros: 0, month: 0, monthMicros: 0 };

/** One request that wants to be counted. */
export interface Want {
  readonly id: string;
  readonly limits: KeyLimits;
  readonly amount: Amount;
}

/** What is told and asked of one key. */
export interface KeyEntry extends Adjustment {
  readonly keyId: string;
  /** The life of the account that the gateway knows; "" for none. */
  readonly boot: string;
  readonly floors: StoredAccount;
  readonly release: readonly string[];
  readonly renew: readonly string[];
  readonly want: Want | null;
}

export interface KeyAnswer {
  readonly boot: string;
  /** False where nothing was wanted. */
  readonly granted: boolean;
  /** After all of it. */
  readonly use: KeyUse;
}

/**
 * What one key has used. coord/redis/limits.lua does the same to an account in Redis: the two change together, and one suite of tests
 * runs against both.
 *
 * Invariants:
 *   K1. A request is counted only if it fits under every limit, and then under all of them at once.
 *   K2. Counts are not below 0. What belongs to a window that is over is dropped.
 *   K3. What is in flight and not renewed leaves by itself; what it was counted for stays.
 *   K4. An account of another life than the gateway knows is taken to be emptied: its day and month are at least what was heard.
 */
export class KeyAccount {
  readonly boot: string;
  readonly #pieces = new PieceCounts();
  readonly #inFlight = new Map<string, number>();
  readonly #sums: { -readonly [Name in keyof StoredAccount]: number };

  constructor(boot: string, stored = NOTHING_STORED) {
    this.boot = boot;
    this.#sums = { ...stored };
  }

  /** `adjusts`: false where the gateway tells again what was done before. */
  step(entry: KeyEntry, adjusts: boolean, ttlMs: number, now: number): KeyAnswer {
    this.#roll(now);
    if (entry.boot !== "" && entry.boot !== this.boot) this.#raise(entry.floors);
    if (adjusts) this.#adjust(entry, pieceOf(now));
    for (const id of entry.release) this.#inFlight.delete(id);
    for (const id of entry.renew) this.#inFlight.set(id, now + ttlMs);
    const { want } = entry;
    const granted = want !== null && exceeded(want.limits, this.use(), want.amount) === null;
    if (granted) {
      this.#pieces.add(pieceOf(now), 1, want.amount.tokens);
      this.#sums.dayTokens += want.amount.tokens;
      this.#sums.dayMicros += want.amount.micros;
      this.#sums.monthMicros += want.amount.micros;
      this.#inFlight.set(want.id, now + ttlMs);
    }
    return { boot: this.boot, granted, use: this.use() };
  }

  use(): KeyUse {
    const { dayTokens, dayMicros, monthMicros } = this.#sums;
    return { inFlight: this.#inFlight.size, pieces: this.#pieces.list(), dayTokens, dayMicros, monthMicros };
  }

  /** What has to outlive a restart. */
  stored(): StoredAccount {
    return { ...this.#sums };
  }

  /** Nothing of it counts any more. */
  isIdle(now: number): boolean {
    this.#roll(now);
    return this.#inFlight.size + this.#pieces.size === 0 && this.#sums.dayTokens + this.#sums.monthMicros === 0;
  }

  #roll(now: number): void {
    this.#pieces.forget(now);
    for (const [id, expiry] of this.#inFlight) if (expiry <= now) this.#inFlight.delete(id);
    if (this.#sums.day !== dayOf(now)) {
      this.#sums.day = dayOf(now);
      this.#sums.dayTokens = this.#sums.dayMicros = 0;
    }
    if (this.#sums.month !== monthOf(now)) {
      this.#sums.month = monthOf(now);
      this.#sums.monthMicros = 0;
    }
  }

  #raise(floors: StoredAccount): void {
    if (floors.day === this.#sums.day) {
      this.#sums.dayTokens = Math.max(this.#sums.dayTokens, floors.dayTokens);
      this.#sums.dayMicros = Math.max(this.#sums.dayMicros, floors.dayMicros);
    }
    if (floors.month === this.#sums.month)
      this.#sums.monthMicros = Math.max(this.#sums.monthMicros, floors.monthMicros);
  }

  #adjust({ pieces, days, months }: Adjustment, current: number): void {
    for (const [index, requests, tokens] of pieces) {
      // Of a gateway whose clock is off, what is ahead is not kept for longer than a window.
      if (index <= current - PIECES || index >= current + PIECES) continue;
      this.#pieces.add(index, requests, tokens);
    }
    for (const [day, tokens, micros] of days) {
      if (day !== this.#sums.day) continue;
      this.#sums.dayTokens = Math.max(0, this.#sums.dayTokens + tokens);
      this.#sums.dayMicros = Math.max(0, this.#sums.dayMicros + micros);
    }
    for (const [month, micros] of months)
      if (month === this.#sums.month) this.#sums.monthMicros = Math.max(0, this.#sums.monthMicros + micros);
  }
}
