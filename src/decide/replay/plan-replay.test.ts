import assert from "node:assert/strict";
import { test } from "node:test";
import { asksForSameAnswer, planReplay, type ReplayFacts } from "./plan-replay.ts";

const aRequest = (over: Partial<ReplayFacts> = {}): ReplayFacts => ({
  method: "POST",
  path: "/v1/embeddings",
  idempotencyKey: null,
  cacheControl: undefined,
  pragma: undefined,
  personal: false,
  ...over,
});
const CACHE = { ttlMs: 1_000, bytesMax: 1_000, shared: false };
const REFUSALS = [{ status: 422, code: null }];
const BARE = { kind: "openai", cache: null, refusals: [] } as const;
const CACHED = { ...BARE, cache: CACHE };
const BOTH = { ...CACHED, refusals: REFUSALS };

test("a request without a key to an upstream without memory has nothing to do with any", () => {
  assert.equal(planReplay(aRequest(), BARE), null);
  assert.equal(planReplay(aRequest({ cacheControl: "no-store" }), BARE), null);
  assert.equal(planReplay(aRequest({ method: "GET", idempotencyKey: "k" }), BOTH), null);
});

test("a key alone asks for neither cache nor refusals", () => {
  const plan = planReplay(aRequest({ idempotencyKey: "k", cacheControl: "no-store" }), BARE);
  assert.deepEqual(plan, { idempotencyKey: "k", cache: "off", refusals: "off" });
});

const rows: { name: string; facts: Partial<ReplayFacts>; cache: string; refusals: string }[] = [
  { name: "embeddings", facts: {}, cache: "use", refusals: "use" },
  { name: "a rerank", facts: { path: "/v1/rerank" }, cache: "use", refusals: "use" },
  { name: "a chat", facts: { path: "/v1/chat/completions" }, cache: "seeded", refusals: "use" },
  {
    name: "a chat with no-cache",
    facts: { path: "/v1/chat/completions", cacheControl: "no-cache" },
    cache: "seededRefresh",
    refusals: "refresh",
  },
  { name: "speech, which differs each time", facts: { path: "/v1/audio/speech" }, cache: "bypass", refusals: "use" },
  { name: "a path nobody knows", facts: { path: "/v1/other" }, cache: "bypass", refusals: "use" },
  { name: "no-cache", facts: { cacheControl: "max-age=5, No-Cache" }, cache: "refresh", refusals: "refresh" },
  { name: "max-age=0", facts: { cacheControl: "max-age=0" }, cache: "refresh", refusals: "refresh" },
  { name: "max-age=60", facts: { cacheControl: "max-age=60" }, cache: "use", refusals: "use" },
  { name: "Pragma: no-cache", facts: { pragma: "no-cache" }, cache: "refresh", refusals: "refresh" },
  { name: "no-store", facts: { cacheControl: "no-store" }, cache: "bypass", refusals: "off" },
  { name: "both", facts: { cacheControl: "no-cache, no-store" }, cache: "bypass", refusals: "off" },
  { name: "something for this request alone", facts: { personal: true }, cache: "bypass", refusals: "off" },
];
for (const { name, facts, cache, refusals } of rows) {
  test(`with a cache, ${name}: ${cache}, refusals ${refusals} [20.I2]`, () => {
    const plan = planReplay(aRequest(facts), BOTH);
    assert.deepEqual([plan?.cache, plan?.refusals], [cache, refusals]);
    assert.equal(planReplay(aRequest(facts), CACHED)?.refusals, "off");
  });
}

test("an upstream of kind http that has a cache keeps the answers of every path [20.I2]", () => {
  assert.equal(planReplay(aRequest({ path: "/ocr" }), { ...CACHED, kind: "http" })?.cache, "use");
});

const same: { temperature?: string; seed?: string; expect: boolean }[] = [
  { expect: false },
  { temperature: "0", expect: true },
  { temperature: "0.0", expect: true },
  { temperature: "-0", expect: true },
  { temperature: "0e5", expect: true },
  { temperature: "0.7", expect: false },
  { temperature: "1e-400", expect: false },
  { temperature: "null", expect: false },
  { temperature: '"0"', expect: false },
  { seed: "7", expect: true },
  { seed: "-7", expect: true },
  { seed: "null", expect: false },
  { seed: '"7"', expect: false },
  { seed: "[7]", expect: false },
  { temperature: "1", seed: "7", expect: true },
];
for (const { temperature, seed, expect } of same)
  test(`temperature ${temperature} and seed ${seed}: ${expect ? "the same answer each time" : "any answer"} [20.I2]`, () =>
    assert.equal(asksForSameAnswer(temperature, seed), expect));
