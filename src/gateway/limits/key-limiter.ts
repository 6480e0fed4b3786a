import type { RequestKey } from "../../access/request-key.ts";
import type { PriceSettings } from "../../contract/gateway-config.ts";
import type { LimitSharer, ReserveOutcome } from "../../coord/limits/limit-sharer.ts";
import {
  describeRefusal,
  describeTooLarge,
  limitHeaders,
  type LimitRefusal,
} from "../../decide/limits/describe-limit.ts";
import {
  amountOf,
  costMicros,
  NO_AMOUNT,
  NO_ESTIMATE,
  tokensUsed,
  type EndedRequest,
  type Estimate,
} from "../../decide/limits/estimate-tokens.ts";
import type { Reservation } from "../../decide/limits/key-book.ts";
import { isLimited, NO_USE, tooLargeFor, type LimitName } from "../../decide/limits/key-limits.ts";
import { asMono, type Clock, type MonoMs } from "../../kernel/clock.ts";

export type Entered =
  /** The key has no limit: nothing is kept of the request. */
  | { readonly kind: "free" }
  | { readonly kind: "held"; readonly hold: KeyHold }
  | { readonly kind: "limited"; readonly refusal: LimitRefusal };

export interface KeyLimiterDeps {
  readonly clock: Clock;
  readonly sharer: LimitSharer;
  readonly onLimited: (limit: LimitName | "too_large" | "uncounted") => void;
  readonly onAway: () => void;
}

const FREE: Entered = { kind: "free" };
const UNCOUNTED_RETRY_MS = 2_000;

/**
 * The limits of keys, asked twice for a request: before its body is read for what is certain without it, and once its body tells how much
 * it asks for.
 *
 * Invariants:
 *   L1. A key without limits costs a look at its limits and nothing else.
 *   L2. What a request holds is given back once, by whoever records its end.
 */
export class KeyLimiter {
  readonly #deps: KeyLimiterDeps;
  /** Requests of this process, those whose bodies are still coming included. */
  readonly #entered = new Map<string, number>();
  /** Until when a key's requests in a minute are certainly used up: what was counted is not given back. */
  readonly #usedUp = new Map<string, { readonly until: MonoMs; readonly requestsPerMinute: number | null }>();

  constructor(deps: KeyLimiterDeps) {
    this.#deps = deps;
  }

  enter(key: RequestKey): Entered {
    const { limits, id } = key;
    if (!isLimited(limits)) return FREE;
    const { sharer, clock, onLimited } = this.#deps;
    const inHere = this.#entered.get(id) ?? 0;
    if (limits.inFlightMax !== null && inHere >= limits.inFlightMax) {
      onLimited("max_in_flight");
      const use = { ...NO_USE, inFlight: inHere };
      return { kind: "limited", refusal: describeRefusal("max_in_flight", limits, use, NO_AMOUNT, sharer.now) };
    }
    const usedUp = this.#usedUp.get(id);
    const leftMs = usedUp?.requestsPerMinute === limits.requestsPerMinute ? usedUp.until - clock.mono() : 0;
    if (leftMs > 0) {
      onLimited("requests_per_minute");
      const message = `the key's requests_per_minute is reached: 0 of ${limits.requestsPerMinute} left`;
      return { kind: "limited", refusal: { code: "RATE_LIMITED", message, retryAfterMs: leftMs } };
    }
    this.#usedUp.delete(id);
    this.#entered.set(id, inHere + 1);
    return { kind: "held", hold: new KeyHold(this, key) };
  }

  leave(keyId: string): void {
    const inHere = this.#entered.get(keyId) ?? 0;
    if (inHere > 1) this.#entered.set(keyId, inHere - 1);
    else this.#entered.delete(keyId);
  }

  reserve(
    { id, limits }: RequestKey,
    estimate: Estimate,
    price: PriceSettings | null,
    done: (outcome: Reserved) => void,
  ): void {
    const { sharer, onLimited, onAway, clock } = this.#deps;
    const amount = amountOf(estimate, price);
    const tooLarge = tooLargeFor(limits, amount);
    if (tooLarge !== null) {
      onLimited("too_large");
      const message = describeTooLarge(tooLarge, limits, amount);
      return done({ kind: "refused", refusal: { code: "REQUEST_OVER_LIMIT", message, retryAfterMs: 0 }, headers: [] });
    }
    sharer.reserve(id, limits, amount, (outcome: ReserveOutcome) => {
      if (outcome.kind === "uncounted") {
        onLimited("uncounted");
        return done({ kind: "refused", refusal: UNCOUNTED, headers: [] });
      }
      if (outcome.kind === "granted") {
        if (outcome.away) onAway();
        const headers = outcome.away ? [] : limitHeaders(limits, outcome.use, sharer.now);
        return done({ kind: "granted", reservation: outcome.reservation, headers });
      }
      onLimited(outcome.limit);
      const refusal = describeRefusal(outcome.limit, outcome.limits, outcome.use, amount, sharer.now);
      if (outcome.limit === "requests_per_minute" && outcome.limits === limits)
        this.#usedUp.set(id, {
          until: asMono(clock.mono() + refusal.retryAfterMs),
          requestsPerMinute: limits.requestsPerMinute,
        });
      return done({ kind: "refused", refusal, headers: limitHeaders(outcome.limits, outcome.use, sharer.now) });
    });
  }

  settle(reservation: Reservation, used: { readonly tokens: number; readonly micros: number }): void {
    this.#deps.sharer.settle(reservation, used);
  }
}

const UNCOUNTED: LimitRefusal = {
  code: "KEY_COUNTS_UNAVAILABLE",
  message: "the key has a limit of money, and the store that counts what it has spent can't be used now",
  retryAfterMs: UNCOUNTED_RETRY_MS,
};

type Reserved =
  | { readonly kind: "granted"; readonly reservation: Reservation; readonly headers: readonly string[] }
  | { readonly kind: "refused"; readonly refusal: LimitRefusal; readonly headers: readonly string[] };

const NO_HEADERS: readonly string[] = [];

/** What one request of a key with limits holds. */
export class KeyHold {
  readonly #limiter: KeyLimiter;
  readonly #key: RequestKey;
  #estimate: Estimate = NO_ESTIMATE;
  #price: PriceSettings | null = null;
  #reservation: Reservation | null = null;
  #over = false;
  /** For the answer; empty where the key's limits are not told of. */
  headers = NO_HEADERS;

  constructor(limiter: KeyLimiter, key: RequestKey) {
    this.#limiter = limiter;
    this.#key = key;
  }

  /** Counts the request. `done` is called once, with null if it fits, and in the same turn where counts are kept in this process. */
  reserve(estimate: Estimate, price: PriceSettings | null, done: (refusal: LimitRefusal | null) => void): void {
    this.#estimate = estimate;
    this.#price = price;
    this.#limiter.reserve(this.#key, estimate, price, (outcome) => {
      this.headers = outcome.headers;
      if (outcome.kind === "refused") return done(outcome.refusal);
      this.#reservation = outcome.reservation;
      done(null);
    });
  }

  /** The request is over. Does nothing the second time. */
  settle(ended: EndedRequest): void {
    if (this.#over) return;
    this.#over = true;
    this.#limiter.leave(this.#key.id);
    const reservation = this.#reservation;
    if (reservation === null) return;
    const { prompt, completion, cached } = tokensUsed(ended, this.#estimate);
    const micros = costMicros(this.#price, prompt, completion, cached);
    this.#limiter.settle(reservation, { tokens: prompt + completion, micros });
  }
}
