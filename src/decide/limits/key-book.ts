import type { KeyLimits } from "../../contract/gateway-config.ts";
import { NOTHING_STORED, type Adjustment, type KeyAnswer, type KeyEntry, type Want } from "./key-account.ts";
import { exceeded, limitsMoney, type Amount, type KeyUse, type LimitName } from "./key-limits.ts";
import { PieceCounts } from "./piece-counts.ts";
import { dayOf, monthOf, pieceOf } from "./windows.ts";

/** What one request was counted for, and in which windows. */
export interface Reservation {
  readonly id: string;
  readonly keyId: string;
  readonly piece: number;
  readonly day: number;
  readonly month: number;
  readonly amount: Amount;
}

export type AwayVerdict =
  | { readonly kind: "fits" }
  /** `use`: of this gateway alone, and `limits` its part of the key's. */
  | { readonly kind: "exceeds"; readonly limit: LimitName; readonly use: KeyUse; readonly limits: KeyLimits }
  /** There is a limit of money, which nobody spends unseen. */
  | { readonly kind: "uncounted" };

interface Heard {
  readonly boot: string;
  readonly use: KeyUse;
  readonly day: number;
  readonly month: number;
}

/**
 * What one gateway knows of one key: what the shared store last said, what it let through itself, and what the store has not been told yet.
 *
 * Invariants:
 *   B1. Each reservation ends once. What it was counted for beyond what was used is given back in the windows that it was counted in.
 *   B2. What was told stays until the store has said that it is done, and is told again as it was.
 *   B3. Without the store a gateway lets through its equal part: of a minute, with what it let through itself before; of a day, of what
 *       was left when last heard. Of what is in flight, and of requests, at least one.
 */
export class KeyBook {
  readonly keyId: string;
  readonly #flying = new Map<string, Reservation>();
  /** Wants whose outcome is not known. */
  readonly #asked = new Set<string>();
  readonly #own = new PieceCounts();
  #heard: Heard | null = null;
  #untold = new Untold();
  #sent: Untold | null = null;

  constructor(keyId: string) {
    this.keyId = keyId;
  }

  get hasUntold(): boolean {
    return this.#sent === null && !this.#untold.empty;
  }

  get inFlight(): number {
    return this.#flying.size;
  }

  /** To ask for one more. What has ended is told with it, so that it never stands in the way of what follows. */
  ask(want: Want): KeyEntry {
    this.#asked.add(want.id);
    const release = [...this.#untold.release, ...(this.#sent?.release ?? [])];
    return { ...this.#header(), ...NOTHING, release, renew: [], want };
  }

  /** Its outcome is known: whatever follows from it follows at once. */
  answered({ id }: Want): void {
    this.#asked.delete(id);
  }

  /** To say that what is in flight is so still. */
  renewal(): KeyEntry {
    return { ...this.#header(), ...NOTHING, release: [], renew: [...this.#flying.keys()], want: null };
  }

  /** To tell what the store does not know. Nothing else is told of the key until `told`. */
  tell(): KeyEntry {
    const sent = (this.#sent = this.#untold);
    this.#untold = new Untold();
    const renew = [...sent.begun].filter((id) => this.#flying.has(id));
    return { ...this.#header(), ...sent.adjustment(), release: [...sent.release], renew, want: null };
  }

  told(answer: KeyAnswer, now: number): void {
    this.#sent = null;
    this.heard(answer, now);
  }

  heard({ boot, use }: KeyAnswer, now: number): void {
    this.#heard = { boot, use, day: dayOf(now), month: monthOf(now) };
  }

  /** The store has counted it. */
  granted({ id, amount }: Want, now: number): Reservation {
    return this.#begin(id, amount, now);
  }

  /** It does not begin, whatever the store has of it. What it may be counted for there stays: nothing is given back that may not be there. */
  abandon({ id }: Want): void {
    this.#untold.release.add(id);
  }

  /** The store is away, and this gateway counts it. */
  takeAway({ id, amount }: Want, now: number): Reservation {
    const reservation = this.#begin(id, amount, now);
    this.#untold.begun.add(id);
    this.#untold.add(reservation, 1, amount);
    return reservation;
  }

  judgeAway(limits: KeyLimits, amount: Amount, gateways: number, now: number): AwayVerdict {
    if (limitsMoney(limits)) return { kind: "uncounted" };
    this.#own.forget(now);
    const heard = this.#heard?.day === dayOf(now) ? this.#heard.use.dayTokens : 0;
    const part = (limit: number | null): number | null => (limit === null ? null : Math.floor(limit / gateways));
    const oneAtLeast = (limit: number | null): number | null => (limit === null ? null : Math.max(1, limit));
    const shares: KeyLimits = {
      ...limits,
      inFlightMax: oneAtLeast(part(limits.inFlightMax)),
      requestsPerMinute: oneAtLeast(part(limits.requestsPerMinute)),
      tokensPerMinute: part(limits.tokensPerMinute),
      tokensPerDay: limits.tokensPerDay === null ? null : part(Math.max(0, limits.tokensPerDay - heard)),
    };
    const use: KeyUse = {
      inFlight: this.#flying.size,
      pieces: this.#own.list(),
      dayTokens: Math.max(0, this.#untold.tokensOf(dayOf(now)) + (this.#sent?.tokensOf(dayOf(now)) ?? 0)),
      dayMicros: 0,
      monthMicros: 0,
    };
    const limit = exceeded(shares, use, amount);
    return limit === null ? { kind: "fits" } : { kind: "exceeds", limit, use, limits: shares };
  }

  /** Does nothing the second time. */
  settle(reservation: Reservation, used: Amount): void {
    if (!this.#flying.delete(reservation.id)) return;
    const { piece, amount } = reservation;
    if (this.#own.has(piece)) this.#own.add(piece, 0, used.tokens - amount.tokens);
    this.#untold.begun.delete(reservation.id);
    this.#untold.release.add(reservation.id);
    this.#untold.add(reservation, 0, { tokens: used.tokens - amount.tokens, micros: used.micros - amount.micros });
  }

  /** Nothing would be lost without it. */
  isIdle(now: number): boolean {
    this.#own.forget(now);
    return this.#asked.size + this.#flying.size + this.#own.size === 0 && this.#sent === null && this.#untold.empty;
  }

  #begin(id: string, amount: Amount, now: number): Reservation {
    this.#own.forget(now);
    const piece = pieceOf(now);
    this.#own.add(piece, 1, amount.tokens);
    const reservation = { id, keyId: this.keyId, piece, day: dayOf(now), month: monthOf(now), amount };
    this.#flying.set(id, reservation);
    return reservation;
  }

  #header(): Pick<KeyEntry, "keyId" | "boot" | "floors"> {
    const heard = this.#heard;
    if (heard === null) return { keyId: this.keyId, boot: "", floors: NOTHING_STORED };
    const { day, month, boot } = heard;
    const { dayTokens, dayMicros, monthMicros } = heard.use;
    return { keyId: this.keyId, boot, floors: { day, dayTokens, dayMicros, month, monthMicros } };
  }
}

const NOTHING: Adjustment = { pieces: [], days: [], months: [] };

/** Windows that a gateway tells of at once: a store that is away for days gets the last ones. */
const WINDOWS_MAX = 64;

/** What a store does not know yet. */
class Untold {
  readonly release = new Set<string>();
  /** Began without the store. */
  readonly begun = new Set<string>();
  readonly #pieces = new Map<number, [requests: number, tokens: number]>();
  readonly #days = new Map<number, [tokens: number, micros: number]>();
  readonly #months = new Map<number, number>();

  get empty(): boolean {
    return this.release.size + this.begun.size + this.#pieces.size + this.#days.size + this.#months.size === 0;
  }

  add({ piece, day, month }: Reservation, requests: number, { tokens, micros }: Amount): void {
    if (requests === 0 && tokens === 0 && micros === 0) return;
    const [r, t] = this.#pieces.get(piece) ?? [0, 0];
    this.#pieces.set(piece, [r + requests, t + tokens]);
    const [dayTokens, dayMicros] = this.#days.get(day) ?? [0, 0];
    this.#days.set(day, [dayTokens + tokens, dayMicros + micros]);
    this.#months.set(month, (this.#months.get(month) ?? 0) + micros);
    const [oldest] = this.#pieces.keys();
    if (this.#pieces.size > WINDOWS_MAX && oldest !== undefined) this.#pieces.delete(oldest);
  }

  tokensOf(day: number): number {
    return this.#days.get(day)?.[0] ?? 0;
  }

  adjustment(): Adjustment {
    return {
      pieces: [...this.#pieces].map(([piece, [requests, tokens]]) => [piece, requests, tokens] as const),
      days: [...this.#days].map(([day, [tokens, micros]]) => [day, tokens, micros] as const),
      months: [...this.#months].map(([month, micros]) => [month, micros] as const),
    };
  }
}
