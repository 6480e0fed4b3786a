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

/** What a place says that it charged, in units of its currency, as millionths. Undefined where it can't be a price. */
export function readCharge(value: unknown): number | undefined {
  const number = typeof value === "string" && /^\d{1,12}(?:\.\d{1,12})?$/.test(value) ? Number(value) : value;
  if (typeof number !== "number" || !Number.isFinite(number) || number < 0) return undefined;
  const micros = microsUp(number * MICROS);
  return Number.isSafeInteger(micros) ? micros : undefined;
}
