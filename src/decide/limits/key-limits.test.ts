import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { NO_LIMITS, type KeyLimits } from "../../contract/gateway-config.ts";
import { asEpoch, formatIsoTime } from "../../kernel/clock.ts";
import { describeRefusal, describeTooLarge, limitHeaders } from "./describe-limit.ts";
import { KeyAccount, NOTHING_STORED, type KeyEntry } from "./key-account.ts";
import { exceeded, fitsInMs, isLimited, limitOf, NO_USE, tooLargeFor, type KeyUse } from "./key-limits.ts";
import { dayEnds, dayOf, monthEnds, monthOf, PIECE_MS } from "./windows.ts";

const NOON = 1_796_040_000_000; // 2026-11-30T12:00:00Z
const NOTHING = { tokens: 0, micros: 0 };
const DAY_MS = 86_400_000;

const dayText = (day: number): string => formatIsoTime(asEpoch(day * DAY_MS)).slice(0, 10);

const entryOf = (want: KeyEntry["want"]): KeyEntry => ({
  keyId: "k",
  boot: "",
  floors: NOTHING_STORED,
  pieces: [],
  days: [],
  months: [],
  release: [],
  renew: [],
  want,
});

test("days and months are those of UTC", () => {
  assert.equal(dayText(dayOf(NOON)), "2026-11-30");
  assert.equal(monthOf(NOON), 2026 * 12 + 10);
  assert.equal(dayEnds(NOON) - NOON, 12 * 3_600_000);
  assert.equal(monthEnds(NOON), dayEnds(NOON));
  assert.equal(monthOf(monthEnds(NOON)), monthOf(NOON) + 1);
  const december = NOON + DAY_MS;
  assert.equal(dayText(dayOf(monthEnds(december))), "2027-01-01");
});

test("a key is limited by any one of its limits", () => {
  assert.equal(isLimited(NO_LIMITS), false);
  for (const name of Object.keys(NO_LIMITS)) assert.equal(isLimited({ ...NO_LIMITS, [name]: 1 }), true, name);
});

test("no sixty seconds, wherever they begin, hold more requests or tokens than the limit, and what was refused is told when it fits [60.K3]", () => {
  const arrival = fc.record({ afterMs: fc.integer({ min: 0, max: 9_000 }), tokens: fc.integer({ min: 0, max: 40 }) });
  fc.assert(
    fc.property(fc.array(arrival, { minLength: 1, maxLength: 120 }), (arrivals) => {
      const limits: KeyLimits = { ...NO_LIMITS, requestsPerMinute: 10, tokensPerMinute: 150 };
      const account = new KeyAccount("b");
      const taken: { readonly at: number; readonly tokens: number }[] = [];
      let now = NOON;
      for (const [index, { afterMs, tokens }] of arrivals.entries()) {
        now += afterMs;
        const amount = { tokens, micros: 0 };
        const want = { id: `r${index}`, limits, amount };
        const { granted, use } = account.step(entryOf(want), false, 1_000, now);
        if (granted) taken.push({ at: now, tokens });
        else {
          const name = exceeded(limits, use, amount);
          assert.ok(name !== null);
          const afterIt = now + fitsInMs(name, limitOf[name](limits) ?? 0, use, amount, now);
          const copy = new KeyAccount("b");
          copy.step(
            {
              ...entryOf(null),
              pieces: use.pieces.map(({ piece, requests, tokens: t }) => [piece, requests, t] as const),
            },
            true,
            1_000,
            now,
          );
          const then = copy.step(entryOf(null), false, 1_000, afterIt).use;
          assert.notEqual(exceeded({ ...NO_LIMITS, [fieldOf(name)]: limitOf[name](limits) }, then, amount), name);
        }
      }
      for (const { at } of taken) {
        const within = taken.filter((one) => one.at >= at && one.at < at + 60_000);
        assert.ok(within.length <= 10);
        assert.ok(within.reduce((sum, one) => sum + one.tokens, 0) <= 150);
      }
    }),
  );
});

const fieldOf = (name: string): string => (name === "requests_per_minute" ? "requestsPerMinute" : "tokensPerMinute");

test("a full minute is free again after at most sixty-five seconds", () => {
  const account = new KeyAccount("b");
  const limits = { ...NO_LIMITS, requestsPerMinute: 1 };
  const ask = (now: number): boolean =>
    account.step(entryOf({ id: String(now), limits, amount: NOTHING }), false, 1, now).granted;
  assert.equal(ask(NOON), true);
  assert.equal(ask(NOON + 60_000), false);
  assert.equal(ask(NOON + 65_000), true);
});

test("a new day and a new month begin with nothing used [60.K3]", () => {
  const account = new KeyAccount("b");
  const limits = { ...NO_LIMITS, tokensPerDay: 10, dayMicrosMax: 10, monthMicrosMax: 15 };
  const ask = (now: number): boolean =>
    account.step(entryOf({ id: String(now), limits, amount: { tokens: 10, micros: 10 } }), false, 1, now).granted;
  const first = NOON - 86_400_000;
  assert.deepEqual([ask(first), ask(first + 1)], [true, false]);
  assert.equal(ask(NOON), false, "the month's limit holds on");
  assert.equal(ask(dayEnds(NOON)), true);
});

test("a request that alone is over a limit fits at no time, and waiting for others is no such reason", () => {
  const limits = { ...NO_LIMITS, requestsPerMinute: 1, inFlightMax: 1, tokensPerDay: 100 };
  assert.equal(tooLargeFor(limits, { tokens: 101, micros: 0 }), "tokens_per_day");
  assert.equal(tooLargeFor(limits, { tokens: 100, micros: 0 }), null);
  const message = describeTooLarge("tokens_per_day", limits, { tokens: 101, micros: 0 });
  assert.match(message, /tokens_per_day: about 101 asked for, and the limit is 100/);
});

test("a refusal says which limit is reached, how much is left and when the request fits [60.K3]", () => {
  const limits = { ...NO_LIMITS, tokensPerMinute: 100, tokensPerDay: 500, dayMicrosMax: 2_500_000 };
  const piece = Math.floor(NOON / PIECE_MS);
  const use: KeyUse = { ...NO_USE, pieces: [{ piece, requests: 1, tokens: 70 }], dayTokens: 470, dayMicros: 2_000_000 };
  const minute = describeRefusal("tokens_per_minute", limits, use, { tokens: 40, micros: 0 }, NOON);
  assert.deepEqual([minute.code, minute.retryAfterMs], ["RATE_LIMITED", 65_000]);
  assert.equal(
    minute.message,
    "the key's tokens_per_minute is reached: 30 of 100 left, about 40 asked for; fits from 2026-11-30T12:01:05.000Z",
  );
  const day = describeRefusal("tokens_per_day", limits, use, { tokens: 40, micros: 0 }, NOON);
  assert.deepEqual([day.code, day.retryAfterMs], ["KEY_QUOTA_SPENT", 12 * 3_600_000]);
  const money = describeRefusal("cost_per_day", limits, use, { tokens: 0, micros: 750_000 }, NOON);
  assert.match(money.message, /cost_per_day is reached: 0\.5 of 2\.5 left, about 0\.75 asked for/);
});

test("the headers tell limit, rest and reset in the form that OpenAI's clients parse [60.K3]", () => {
  const piece = Math.floor(NOON / PIECE_MS);
  const use: KeyUse = { ...NO_USE, pieces: [{ piece, requests: 2, tokens: 70 }], dayTokens: 470 };
  const limits = { ...NO_LIMITS, requestsPerMinute: 3, tokensPerMinute: 100 };
  assert.deepEqual(limitHeaders(limits, use, NOON + 1_500), [
    "x-ratelimit-limit-requests",
    "3",
    "x-ratelimit-remaining-requests",
    "1",
    "x-ratelimit-reset-requests",
    "1m3.5s",
    "x-ratelimit-limit-tokens",
    "100",
    "x-ratelimit-remaining-tokens",
    "30",
    "x-ratelimit-reset-tokens",
    "1m3.5s",
  ]);
  assert.equal(limitHeaders({ ...NO_LIMITS, tokensPerDay: 400 }, use, NOON).at(-1), "12h0m0s");
  assert.equal(limitHeaders({ ...NO_LIMITS, tokensPerDay: 400 }, use, NOON).at(3), "0");
  assert.equal(limitHeaders({ ...NO_LIMITS, requestsPerMinute: 4 }, NO_USE, NOON).at(-1), "0s");
  assert.deepEqual(limitHeaders({ ...NO_LIMITS, inFlightMax: 4 }, NO_USE, NOON), []);
});
