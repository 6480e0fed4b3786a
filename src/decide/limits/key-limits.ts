import type { KeyLimits } from "../../contract/gateway-config.ts";
import { dayEnds, monthEnds, pieceEnds } from "./windows.ts";

/** As the configuration names them: what a refusal and a metric say. */
export const LIMIT_NAMES = [
  "max_in_flight",
  "requests_per_minute",
  "tokens_per_minute",
  "tokens_per_day",
  "cost_per_day",
  "cost_per_month",
] as const;
export type LimitName = (typeof LIMIT_NAMES)[number];

/** What one request counts for. Money is whole millionths of the currency, since sums of fractions drift. */
export interface Amount {
  readonly tokens: number;
  readonly micros: number;
}

/** `piece`: which five seconds; negative counts do not occur. */
export interface Piece {
  readonly piece: number;
  readonly requests: number;
  readonly tokens: number;
}

/** What a key has used in the windows that count now. */
export interface KeyUse {
  readonly inFlight: number;
  /** Oldest first. */
  readonly pieces: readonly Piece[];
  readonly dayTokens: number;
  readonly dayMicros: number;
  readonly monthMicros: number;
}

export const NO_USE: KeyUse = { inFlight: 0, pieces: [], dayTokens: 0, dayMicros: 0, monthMicros: 0 };

export const isLimited = (limits: KeyLimits): boolean =>
  limits.requestsPerMinute !== null ||
  limits.inFlightMax !== null ||
  limits.tokensPerMinute !== null ||
  limits.tokensPerDay !== null ||
  limitsMoney(limits);

export const limitsMoney = (limits: KeyLimits): boolean =>
  limits.dayMicrosMax !== null || limits.monthMicrosMax !== null;

/** The value of each limit; null where there is none. */
export const limitOf: Readonly<Record<LimitName, (limits: KeyLimits) => number | null>> = {
  max_in_flight: (limits) => limits.inFlightMax,
  requests_per_minute: (limits) => limits.requestsPerMinute,
  tokens_per_minute: (limits) => limits.tokensPerMinute,
  tokens_per_day: (limits) => limits.tokensPerDay,
  cost_per_day: (limits) => limits.dayMicrosMax,
  cost_per_month: (limits) => limits.monthMicrosMax,
};

const USED: Readonly<Record<LimitName, (use: KeyUse) => number>> = {
  max_in_flight: (use) => use.inFlight,
  requests_per_minute: (use) => sumOf(use.pieces, "requests"),
  tokens_per_minute: (use) => sumOf(use.pieces, "tokens"),
  tokens_per_day: (use) => use.dayTokens,
  cost_per_day: (use) => use.dayMicros,
  cost_per_month: (use) => use.monthMicros,
};

const COUNTS_FOR: Readonly<Record<LimitName, (amount: Amount) => number>> = {
  max_in_flight: () => 1,
  requests_per_minute: () => 1,
  tokens_per_minute: (amount) => amount.tokens,
  tokens_per_day: (amount) => amount.tokens,
  cost_per_day: (amount) => amount.micros,
  cost_per_month: (amount) => amount.micros,
};

/** The first limit that one more request does not fit under; null: it fits. */
export function exceeded(limits: KeyLimits, use: KeyUse, amount: Amount): LimitName | null {
  for (const name of LIMIT_NAMES) {
    const limit = limitOf[name](limits);
    if (limit !== null && USED[name](use) + COUNTS_FOR[name](amount) > limit) return name;
  }
  return null;
}

/** The limit that the request alone is larger than, so that waiting does not help. */
export function tooLargeFor(limits: KeyLimits, amount: Amount): LimitName | null {
  return exceeded({ ...limits, inFlightMax: null, requestsPerMinute: null }, NO_USE, amount);
}

/** What is left of a limit now; not below 0. */
export const leftOf = (name: LimitName, limit: number, use: KeyUse): number => Math.max(0, limit - USED[name](use));

/** Told when a key's own requests fill its places: when one ends is not known. */
const IN_FLIGHT_RETRY_MS = 1_000;

/** After how long a request of this amount fits under the limit, if nothing else comes and nothing is given back. */
export function fitsInMs(name: LimitName, limit: number, use: KeyUse, amount: Amount, now: number): number {
  switch (name) {
    case "max_in_flight":
      return IN_FLIGHT_RETRY_MS;
    case "requests_per_minute":
    case "tokens_per_minute": {
      let over = USED[name](use) + COUNTS_FOR[name](amount) - limit;
      const counted = name === "requests_per_minute" ? "requests" : "tokens";
      for (const piece of use.pieces) {
        if (over <= 0) return Math.max(0, pieceEnds(piece.piece - 1) - now);
        over -= piece[counted];
        if (over <= 0) return pieceEnds(piece.piece) - now;
      }
      return 0;
    }
    case "tokens_per_day":
    case "cost_per_day":
      return dayEnds(now) - now;
    default:
      return monthEnds(now) - now;
  }
}

/** After how long nothing counts against the limit any more. */
export function emptyInMs(
  name: "requests_per_minute" | "tokens_per_minute" | "tokens_per_day",
  use: KeyUse,
  now: number,
): number {
  if (USED[name](use) === 0) return 0;
  if (name === "tokens_per_day") return dayEnds(now) - now;
  const counted = name === "requests_per_minute" ? "requests" : "tokens";
  const last = use.pieces.findLast((piece) => piece[counted] > 0);
  return last === undefined ? 0 : pieceEnds(last.piece) - now;
}

function sumOf(pieces: readonly Piece[], of: "requests" | "tokens"): number {
  let sum = 0;
  for (const piece of pieces) sum += piece[of];
  return sum;
}
