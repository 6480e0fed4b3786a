import { MICROS, microsUp } from "../../../contract/money.ts";
import type { ProviderPrice } from "../../../contract/provider-settings.ts";
import type { PriceQuote } from "./provider-work.ts";

/** How much there is of what a tier charges for; undefined where nobody can say. */
export interface Amounts {
  readonly seconds?: number | undefined;
  /** Prompt and answer together, at most. */
  readonly tokens?: number | undefined;
}

const FREE: PriceQuote = { kind: "priced", micros: 0, currency: "" };
const UNIT_WORDS = { second: "how many seconds", "1kTokens": "how many tokens at most" } as const;

/**
 * What work costs at most; nothing where the place has no price. Rounded up to a whole millionth, so that what is reserved is never too
 * little.
 */
export function quote(price: ProviderPrice | null, amounts: Amounts): PriceQuote {
  if (price === null) return FREE;
  const { unit, currency } = price;
  if (unit === "call") return { kind: "priced", micros: price.micros, currency };
  const amount = unit === "second" ? amounts.seconds : amounts.tokens;
  const micros = amount === undefined ? undefined : costOf(price, amount);
  if (micros !== undefined) return { kind: "priced", micros, currency };
  return { kind: "unpriced", why: `the tier charges per ${unit}, and the work does not say ${UNIT_WORDS[unit]}` };
}

/** In millionths; undefined where `amount` is no amount. */
export function costOf(price: ProviderPrice, amount: number): number | undefined {
  if (!Number.isFinite(amount) || amount < 0) return undefined;
  const units = price.unit === "1kTokens" ? amount / 1_000 : amount;
  const micros = microsUp(price.micros * units);
  return Number.isSafeInteger(micros) ? micros : undefined;
}

/** More than any budget holds, and small enough for the sums of an account to stay exact. */
const CHARGE_MAX = 1_000_000_000 * MICROS;

/**
 * What a place says that it charged, in units of its currency, as millionths. Undefined where it can't be a price. A number that is too large
 * for any is told as the largest: taken for none it would count as what was expected, and the tier would go on.
 */
export function readCharge(value: unknown): number | undefined {
  const number = typeof value === "string" && /^\d{1,300}(?:\.\d{1,30})?$/.test(value) ? Number(value) : value;
  return typeof number === "number" ? chargeOf(number * MICROS) : undefined;
}

/** As `costOf`, of what was used and not of what may be. */
export function chargeFor(price: ProviderPrice, used: number): number | undefined {
  return chargeOf(price.micros * (price.unit === "1kTokens" ? used / 1_000 : used));
}

const chargeOf = (micros: number): number | undefined =>
  Number.isFinite(micros) && micros >= 0 ? Math.min(CHARGE_MAX, microsUp(micros)) : undefined;
