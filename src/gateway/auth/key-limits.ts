import type { KeyLimits } from "../../contract/gateway-config.ts";
import type { MonoMs } from "../../kernel/clock.ts";

export type LimitCheck =
  | { readonly kind: "ok" }
  | {
      readonly kind: "limited";
      readonly limit: "requests_per_minute" | "max_in_flight";
      readonly retryAfterMs: number;
    };

interface KeyUse {
  inFlight: number;
  /** Requests that may start now; refilled at the key's rate, up to one minute's worth. */
  allowance: number;
  refilledAt: MonoMs;
}

const OK: LimitCheck = { kind: "ok" };
const MINUTE_MS = 60_000;
/** Told when a key's own requests fill its places: when one ends is not known. */
const IN_FLIGHT_RETRY_MS = 1_000;

/**
 * Requests per minute and requests in flight of each key, in this process. A refused request counts for nothing, and a
 * place is given back by the request that took it, so the count can't drift or wrap at a minute's edge.
 */
export class KeyLimiter {
  readonly #uses = new Map<string, KeyUse>();

  /** On "ok" the request is counted until `leave`. */
  enter(keyId: string, limits: KeyLimits, now: MonoMs): LimitCheck {
    if (limits.requestsPerMinute === null && limits.inFlightMax === null) return OK;
    const use = this.#useOf(keyId, limits, now);
    if (limits.inFlightMax !== null && use.inFlight >= limits.inFlightMax)
      return { kind: "limited", limit: "max_in_flight", retryAfterMs: IN_FLIGHT_RETRY_MS };
    if (limits.requestsPerMinute !== null) {
      if (use.allowance < 1)
        return {
          kind: "limited",
          limit: "requests_per_minute",
          retryAfterMs: ((1 - use.allowance) * MINUTE_MS) / limits.requestsPerMinute,
        };
      use.allowance -= 1;
    }
    use.inFlight += 1;
    return OK;
  }

  leave(keyId: string): void {
    const use = this.#uses.get(keyId);
    if (use !== undefined && use.inFlight > 0) use.inFlight -= 1;
  }

  #useOf(keyId: string, limits: KeyLimits, now: MonoMs): KeyUse {
    const perMinute = limits.requestsPerMinute ?? 0;
    let use = this.#uses.get(keyId);
    if (use === undefined) this.#uses.set(keyId, (use = { inFlight: 0, allowance: perMinute, refilledAt: now }));
    use.allowance = Math.min(perMinute, use.allowance + ((now - use.refilledAt) * perMinute) / MINUTE_MS);
    use.refilledAt = now;
    return use;
  }
}
