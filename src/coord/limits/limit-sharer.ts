import type { KeyLimits } from "../../contract/gateway-config.ts";
import type { KeyEntry, Want } from "../../decide/limits/key-account.ts";
import { KeyBook, type Reservation } from "../../decide/limits/key-book.ts";
import { exceeded, NO_USE, type Amount, type KeyUse, type LimitName } from "../../decide/limits/key-limits.ts";
import type { Clock, Timer } from "../../kernel/clock.ts";
import { ENTRIES_MAX, type LimitAnswer, type LimitRequest, type LimitStore } from "./limit-store.ts";

export interface LimitSharerPorts {
  readonly clock: Clock;
  readonly store: LimitStore;
  /** Of this process; unique among all that share. */
  readonly gateway: string;
  /** How many share, this one included; at least 1. */
  readonly gateways: () => number;
  /** How long a step may take. */
  readonly stepMs: number;
  readonly ttlMs: number;
  /** A name that no other account has. */
  readonly newName: () => string;
  readonly defer: (callback: () => void) => void;
}

export type ReserveOutcome =
  /** `away`: counted by this gateway alone. */
  | { readonly kind: "granted"; readonly reservation: Reservation; readonly use: KeyUse; readonly away: boolean }
  /** `limits` and `use`: the key's, or this gateway's part of them. */
  | { readonly kind: "refused"; readonly limit: LimitName; readonly limits: KeyLimits; readonly use: KeyUse }
  | { readonly kind: "uncounted" };

/** After a step that failed, what is untold is told again. */
const AGAIN_MS = 1_000;
const RENEWALS_PER_TTL = 3;

/**
 * Counts requests against the limits of their keys, in a store that gateways share.
 *
 * Invariants:
 *   S1. Each `reserve` is answered once, and each reservation settled once.
 *   S2. One request that adjusts is under way at a time, and is told again as it was until the store has said that it is done.
 *   S3. Nobody waits for a store longer than one step.
 */
export class LimitSharer {
  readonly #ports: LimitSharerPorts;
  readonly #books = new Map<string, KeyBook>();
  /** The store's clock less ours. */
  #ahead: number;
  #heard = false;
  #ids = 0;
  #seq = 0;
  /** Until what was told is done, also between two tries. */
  #telling = false;
  #deferred = false;
  #failed = false;
  #timer: Timer | undefined;
  #again: Timer | undefined;
  #closed = false;

  constructor(ports: LimitSharerPorts) {
    this.#ports = ports;
    this.#ahead = ports.clock.wall() - ports.clock.mono();
    this.#planRenewal();
    // Once the store's time is known, what it does too late counts for nothing.
    if (ports.store.kind !== "local") ports.store.ask(this.#request([]), (answer) => this.#learn(answer));
  }

  /** Epoch ms by the store's clock, as far as it is known here. */
  get now(): number {
    return Math.floor(this.#ports.clock.mono() + this.#ahead);
  }

  reserve(keyId: string, limits: KeyLimits, amount: Amount, done: (outcome: ReserveOutcome) => void): void {
    const book = this.#bookOf(keyId);
    const want: Want = { id: `${this.#ports.gateway}.${(this.#ids += 1)}`, limits, amount };
    this.#ports.store.ask(this.#request([book.ask(want)]), (answer) => done(this.#onAnswer(book, want, answer)));
  }

  /** `used`: what it came to. */
  settle(reservation: Reservation, used: Amount): void {
    this.#bookOf(reservation.keyId).settle(reservation, used);
    this.#tellSoon();
  }

  /** Keys that something is known of. */
  get keys(): number {
    return this.#books.size;
  }

  /** Tells what is untold, where there is somebody to be told. What is in flight then runs out by itself. */
  close(): void {
    this.#tell();
    this.#closed = true;
    this.#timer?.cancel();
    this.#again?.cancel();
  }

  /** Adjusts nothing, and nothing is done of it once nobody waits for it. */
  #request(entries: readonly KeyEntry[]): LimitRequest {
    const { store, gateway, ttlMs, newName, stepMs } = this.#ports;
    const notAfter = store.kind === "local" || !this.#heard ? 0 : this.now + stepMs;
    return { gateway, seq: 0, notAfter, ttlMs, nonce: newName(), entries };
  }

  #onAnswer(book: KeyBook, want: Want, answer: LimitAnswer): ReserveOutcome {
    const { limits, amount } = want;
    book.answered(want);
    this.#learn(answer);
    const [key] = answer.kind === "done" ? answer.keys : [];
    if (key === undefined) {
      const outcome = this.#judgeAway(book, want);
      // The store may have counted it all the same.
      if (outcome.kind !== "granted" && answer.kind === "unknown") book.abandon(want);
      return outcome;
    }
    book.heard(key, this.now);
    if (key.granted) return { kind: "granted", reservation: book.granted(want, this.now), use: key.use, away: false };
    const limit = exceeded(limits, key.use, amount);
    // A store that refuses what fits has counted otherwise: it has the last word, and the limit is the first that there is.
    return { kind: "refused", limit: limit ?? "requests_per_minute", limits, use: key.use };
  }

  #judgeAway(book: KeyBook, want: Want): ReserveOutcome {
    const verdict = book.judgeAway(want.limits, want.amount, Math.max(1, this.#ports.gateways()), this.now);
    if (verdict.kind === "uncounted") return verdict;
    if (verdict.kind === "exceeds")
      return { kind: "refused", limit: verdict.limit, limits: verdict.limits, use: verdict.use };
    const reservation = book.takeAway(want, this.now);
    this.#tellSoon();
    return { kind: "granted", reservation, use: { ...NO_USE, inFlight: book.inFlight }, away: true };
  }

  #learn(answer: LimitAnswer): void {
    if (answer.kind !== "done" && answer.kind !== "late") {
      this.#failed = true;
      return;
    }
    this.#ahead = answer.now - this.#ports.clock.mono();
    this.#heard = true;
    if (!this.#failed) return;
    // It may have forgotten meanwhile what runs here.
    this.#failed = false;
    this.#renew();
    this.#tellSoon();
  }

  #tellSoon(): void {
    if (this.#ports.store.kind === "local") return this.#tell();
    if (this.#deferred || this.#closed) return;
    this.#deferred = true;
    this.#ports.defer(() => {
      this.#deferred = false;
      this.#tell();
    });
  }

  #tell(): void {
    if (this.#closed || this.#telling) return;
    const books = [...this.#books.values()].filter((book) => book.hasUntold).slice(0, ENTRIES_MAX);
    if (books.length === 0) return;
    const { gateway, ttlMs, newName } = this.#ports;
    const entries = books.map((book) => book.tell());
    this.#telling = true;
    this.#send({ gateway, seq: (this.#seq += 1), notAfter: 0, ttlMs, nonce: newName(), entries });
  }

  #send(request: LimitRequest): void {
    this.#ports.store.ask(request, (answer) => {
      this.#learn(answer);
      if (answer.kind === "done") {
        this.#telling = false;
        request.entries.forEach(({ keyId }, index) => {
          const key = answer.keys[index];
          if (key !== undefined) this.#books.get(keyId)?.told(key, this.now);
        });
        this.#tell();
      } else if (!this.#closed) {
        this.#again = this.#ports.clock.after(AGAIN_MS, () => this.#send(request));
      }
    });
  }

  #planRenewal(): void {
    const { clock, ttlMs } = this.#ports;
    this.#timer = clock.after(ttlMs / RENEWALS_PER_TTL, () => {
      this.#renew();
      for (const [keyId, book] of this.#books) if (book.isIdle(this.now)) this.#books.delete(keyId);
      this.#planRenewal();
    });
  }

  #renew(): void {
    const flying = [...this.#books.values()].filter((book) => book.inFlight > 0);
    for (let from = 0; from < flying.length; from += ENTRIES_MAX) {
      const entries = flying.slice(from, from + ENTRIES_MAX).map((book) => book.renewal());
      this.#ports.store.ask(this.#request(entries), (answer) => this.#learn(answer));
    }
  }

  #bookOf(keyId: string): KeyBook {
    let book = this.#books.get(keyId);
    if (book === undefined) this.#books.set(keyId, (book = new KeyBook(keyId)));
    return book;
  }
}
