import type { KeyLimits } from "../../contract/gateway-config.ts";
import { MICROS } from "../../contract/money.ts";
import type { ErrorCode } from "../../kernel/errors.ts";
import { asEpoch, formatIsoTime } from "../../kernel/clock.ts";
import { emptyInMs, fitsInMs, leftOf, limitOf, type Amount, type KeyUse, type LimitName } from "./key-limits.ts";

export interface LimitRefusal {
  readonly code: ErrorCode;
  readonly message: string;
  readonly retryAfterMs: number;
}

const CODES: Readonly<Record<LimitName, ErrorCode>> = {
  max_in_flight: "RATE_LIMITED",
  requests_per_minute: "RATE_LIMITED",
  tokens_per_minute: "RATE_LIMITED",
  tokens_per_day: "KEY_QUOTA_SPENT",
  cost_per_day: "KEY_QUOTA_SPENT",
  cost_per_month: "KEY_QUOTA_SPENT",
};

/** Which limit is reached, how much of it is left, and when the request fits. */
export function describeRefusal(
  name: LimitName,
  limits: KeyLimits,
  use: KeyUse,
  amount: Amount,
  now: number,
): LimitRefusal {
  const limit = limitOf[name](limits) ?? 0;
  const retryAfterMs = fitsInMs(name, limit, use, amount, now);
  const left = `${quantity(name, leftOf(name, limit, use))} of ${quantity(name, limit)} left`;
  const asked =
    name === "max_in_flight" || name === "requests_per_minute" ? "" : `, ${askedFor(name, amount)} asked for`;
  const when =
    name === "max_in_flight"
      ? "when one of the key's requests ends"
      : `from ${formatIsoTime(asEpoch(now + retryAfterMs))}`;
  return { code: CODES[name], message: `the key's ${name} is reached: ${left}${asked}; fits ${when}`, retryAfterMs };
}

/** It alone is larger than a limit. */
export const describeTooLarge = (name: LimitName, limits: KeyLimits, amount: Amount): string =>
  `the request alone is over the key's ${name}: ${askedFor(name, amount)} asked for, and the limit is ${quantity(name, limitOf[name](limits) ?? 0)}`;

const isMoney = (name: LimitName): boolean => name === "cost_per_day" || name === "cost_per_month";
const quantity = (name: LimitName, value: number): string => String(isMoney(name) ? value / MICROS : value);
const askedFor = (name: LimitName, { tokens, micros }: Amount): string =>
  isMoney(name) ? `about ${micros / MICROS}` : `about ${tokens}`;

/**
 * The headers that OpenAI's clients read, as a flat list. Where tokens have a limit by the minute and by the day, they tell of the minute.
 */
export function limitHeaders(limits: KeyLimits, use: KeyUse, now: number): string[] {
  const headers: string[] = [];
  const tell = (what: string, name: "requests_per_minute" | "tokens_per_minute" | "tokens_per_day"): void => {
    const limit = limitOf[name](limits);
    if (limit === null) return;
    headers.push(`x-ratelimit-limit-${what}`, String(limit));
    headers.push(`x-ratelimit-remaining-${what}`, String(leftOf(name, limit, use)));
    headers.push(`x-ratelimit-reset-${what}`, duration(emptyInMs(name, use, now)));
  };
  tell("requests", "requests_per_minute");
  tell("tokens", limits.tokensPerMinute === null ? "tokens_per_day" : "tokens_per_minute");
  return headers;
}

/** `0s`, `12ms`, `59.5s`, `6m0s`, `1h2m3s`: what clients of the service parse. */
function duration(ms: number): string {
  const whole = Math.ceil(ms);
  if (whole > 0 && whole < 1_000) return `${whole}ms`;
  const hours = Math.floor(whole / 3_600_000);
  const minutes = Math.floor(whole / 60_000) % 60;
  const seconds = `${(whole % 60_000) / 1_000}s`;
  if (hours > 0) return `${hours}h${minutes}m${seconds}`;
  return minutes > 0 ? `${minutes}m${seconds}` : seconds;
}
