import { listAt, mistake, textAt, type Finding } from "./finding.ts";
import { valueAt } from "./describe-issue.ts";

const CURRENCY_DEFAULT = "USD";

/** Limits of money are amounts without a currency, and count what all upstreams cost: so their prices are in one. */
export function checkPrices(raw: unknown): Finding[] {
  let first: { readonly currency: string; readonly id: string } | undefined;
  return listAt(raw, ["upstreams"]).flatMap((upstream, index): Finding[] => {
    if (valueAt(upstream, ["price"]) === undefined) return [];
    const currency = textAt(upstream, ["price", "currency"]) ?? CURRENCY_DEFAULT;
    const id = textAt(upstream, ["id"]) ?? `number ${index + 1}`;
    first ??= { currency, id };
    if (currency === first.currency) return [];
    const message = `${id} is priced in ${currency}, and ${first.id} in ${first.currency}: limits of money are counted in one currency`;
    return [mistake(["upstreams", index, "price", "currency"], message, "give all prices in one currency")];
  });
}
