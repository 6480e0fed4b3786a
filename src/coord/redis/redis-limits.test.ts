import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { NO_LIMITS } from "../../contract/gateway-config.ts";
import { dayOf, monthOf, pieceOf } from "../../decide/limits/windows.ts";
import { systemClock } from "../../kernel/clock.ts";
import { ownRedisLink } from "../../testing/servers/own-redis-link.ts";
import { aLimitRequest, anEntry, limitStoreSuite } from "../limits/limit-store.conformance.ts";
import type { LimitAnswer, LimitRequest } from "../limits/limit-store.ts";
import { LocalLimits } from "../local/local-limits.ts";
import { RedisLimits } from "./redis-limits.ts";

const redis = ownRedisLink();

limitStoreSuite("in Redis", () => ({
  store: new RedisLimits(redis.link),
  empty: async () => void (await redis.admin.flushall()),
  pass: (ms) => systemClock.sleep(ms, new AbortController().signal),
}));

const count = fc.integer({ min: -20, max: 40 });
const small = fc.integer({ min: 0, max: 20 });
const limit = fc.constantFrom(null, 1, 2, 5, 30, 100);
const ids = fc.uniqueArray(fc.constantFrom("r0", "r1", "r2", "r3", "r4"), { maxLength: 2 });
const anyLimits = fc.record({
  requestsPerMinute: limit,
  tokensPerMinute: limit,
  tokensPerDay: limit,
  inFlightMax: limit,
  dayMicrosMax: limit,
  monthMicrosMax: limit,
});
const anyStep = fc.record({
  gateway: fc.constantFrom("a", "b"),
  seq: fc.constantFrom(0, 0, 1, 2, 3, 4),
  key: fc.constantFrom("x", "y"),
  knows: fc.constantFrom("", "none", "first"),
  floor: small,
  piece: fc.integer({ min: -14, max: 1 }),
  requests: count,
  tokens: count,
  micros: count,
  release: ids,
  renew: ids,
  want: fc.option(
    fc.record({
      id: fc.constantFrom("r0", "r1", "r2", "r3", "r4"),
      limits: anyLimits,
      amount: fc.record({ tokens: small, micros: small }),
    }),
  ),
});
type AnyStep = typeof anyStep extends fc.Arbitrary<infer T> ? T : never;

const requestOf = (round: string, step: AnyStep, now: number): LimitRequest =>
  aLimitRequest({
    gateway: `${round}${step.gateway}`,
    seq: step.seq,
    entries: [
      anEntry({
        keyId: `${round}${step.key}`,
        boot: step.knows,
        floors: {
          day: dayOf(now),
          dayTokens: step.floor,
          dayMicros: step.floor,
          month: monthOf(now),
          monthMicros: step.floor,
        },
        pieces: [[pieceOf(now) + step.piece, step.requests, step.tokens]],
        days: [[dayOf(now), step.tokens, step.micros]],
        months: [[monthOf(now), step.micros]],
        release: step.release,
        renew: step.renew,
        want: step.want,
      }),
    ],
  });

test("Redis and the model of it come to the same after any sequence [60.K3]", async () => {
  const store = new RedisLimits(redis.link);
  let rounds = 0;
  await fc.assert(
    fc.asyncProperty(fc.array(anyStep, { minLength: 1, maxLength: 12 }), async (steps) => {
      const round = `m${(rounds += 1)}`;
      const model = new LocalLimits(systemClock, null);
      for (const step of steps) {
        const request = requestOf(round, step, systemClock.wall());
        const answer = await new Promise<LimitAnswer>((resolve) => store.ask(request, resolve));
        assert.equal(answer.kind, "done");
        // The model's time is that of the answer, so that both see one moment.
        assert.deepEqual(model.step(request, answer.kind === "done" ? answer.now : 0), answer);
      }
    }),
    { numRuns: 150 },
  );
});

test("every key that holds counts has a time to live", async () => {
  const store = new RedisLimits(redis.link);
  const want = { id: "r", limits: { ...NO_LIMITS, inFlightMax: 2 }, amount: { tokens: 1, micros: 1 } };
  await new Promise((resolve) =>
    store.ask(aLimitRequest({ gateway: "ttl", seq: 1, entries: [anEntry({ keyId: "ttl", want })] }), resolve),
  );
  const keys = await redis.admin.keys("{t:limits}:*ttl");
  assert.equal(keys.length, 3);
  for (const key of keys) assert.ok((await redis.admin.pttl(key)) > 0, key);
});
