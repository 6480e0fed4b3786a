import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { ProviderPrice } from "../../../contract/provider-settings.ts";
import { costOf, quote, readCharge } from "./price-quote.ts";

const perSecond: ProviderPrice = { unit: "second", micros: 50_000, currency: "EUR" };

test("a call, seconds and tokens cost what they cost, and an unknown amount has no price [50.V6]", () => {
  const perCall: ProviderPrice = { unit: "call", micros: 7, currency: "USD" };
  const perTokens: ProviderPrice = { unit: "1kTokens", micros: 3_000, currency: "USD" };
  assert.deepEqual(quote(perCall, {}), { kind: "priced", micros: 7, currency: "USD" });
  assert.deepEqual(quote(perSecond, { seconds: 6 }), { kind: "priced", micros: 300_000, currency: "EUR" });
  assert.deepEqual(quote(perTokens, { tokens: 1 }), { kind: "priced", micros: 3, currency: "USD" });
  assert.deepEqual(quote(perTokens, { tokens: 333 }), { kind: "priced", micros: 999, currency: "USD" });
  assert.equal(quote(perSecond, {}).kind, "unpriced");
  assert.equal(quote(perTokens, { seconds: 5 }).kind, "unpriced");
  assert.equal(quote(perSecond, { seconds: Number.NaN }).kind, "unpriced");
  assert.equal(quote(perSecond, { seconds: -1 }).kind, "unpriced");
  assert.equal(quote(perSecond, { seconds: 1e300 }).kind, "unpriced");
});

test("a cost is a whole number of millionths, never below the exact one, and grows with the amount [50.V6]", () => {
  const prices = fc.record({
    unit: fc.constantFrom("second" as const, "1kTokens" as const),
    micros: fc.nat(10_000_000),
    currency: fc.constant("EUR"),
  });
  fc.assert(
    fc.property(prices, fc.nat(100_000), fc.nat(100_000), (price, a, b) => {
      const [less, more] = [costOf(price, Math.min(a, b)), costOf(price, Math.max(a, b))];
      assert.ok(less !== undefined && more !== undefined && less <= more && Number.isSafeInteger(more));
      const exact = price.micros * (price.unit === "1kTokens" ? Math.max(a, b) / 1_000 : Math.max(a, b));
      assert.ok(more >= exact - 1e-3 && more < exact + 1);
    }),
  );
});

test("a charge is read from numbers and digits alone, and anything else is none [50.V6]", () => {
  const rows: readonly (readonly [unknown, number | undefined])[] = [
    [0, 0],
    [0.1, 100_000],
    [0.3, 300_000],
    ["12.50", 12_500_000],
    [0.000_000_1, 1],
    [-0.01, undefined],
    [Number.NaN, undefined],
    [Number.POSITIVE_INFINITY, undefined],
    [1e30, 1e15],
    ["1".repeat(40), 1e15],
    ["1e9", undefined],
    ["", undefined],
    ["EUR 3", undefined],
    [true, undefined],
    [[1], undefined],
    [undefined, undefined],
  ];
  for (const [told, expected] of rows) assert.equal(readCharge(told), expected, JSON.stringify(told));
});
