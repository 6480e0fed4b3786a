import assert from "node:assert/strict";
import { test } from "node:test";
import { countCall, servedName, type CountedCall } from "./count-call.ts";

const price = { input: 1, output: 4, cached: 0.5, currency: "EUR" };
const countsOf = (call: CountedCall): Record<string, number> => {
  const counts: Record<string, number> = {};
  countCall(call, price, (counter, amount) => {
    counts[counter] = (counts[counter] ?? 0) + amount;
  });
  return counts;
};
const usage = { prompt: 100, completion: 10, cached: 40 };
const told = {
  ran: 1,
  told: 1,
  promptTold: 1,
  completionTold: 1,
  cachedTold: 1,
  prompt: 100,
  completion: 10,
  cached: 40,
};

const rows: { readonly name: string; readonly call: CountedCall; readonly counts: Record<string, number> }[] = [
  {
    name: "a request counts its outcome, its tokens and what they cost",
    call: { outcome: "ok", attempts: 1, usage },
    counts: { "out:ok": 1, ...told, "cost:EUR": 60 + 20 + 40 },
  },
  {
    name: "one that was tried again counts once",
    call: { outcome: "ok", attempts: 3, usage },
    counts: { "out:ok": 1, ...told, "cost:EUR": 120 },
  },
  {
    name: "one whose client has gone counts what the engine had said",
    call: { outcome: "client_aborted", attempts: 1, usage: { prompt: 7, completion: null, cached: null } },
    counts: { "out:client_aborted": 1, ran: 1, told: 1, promptTold: 1, prompt: 7, "cost:EUR": 7 },
  },
  {
    name: "an engine that said nothing leaves the tokens unknown, not nothing",
    call: { outcome: "client_aborted", attempts: 1, usage: null },
    counts: { "out:client_aborted": 1, ran: 1 },
  },
  {
    name: "an engine's refusal used no tokens",
    call: { outcome: "engine_error", attempts: 2, usage: null },
    counts: { "out:engine_error": 1 },
  },
  {
    name: "what reached no engine used none",
    call: { outcome: "refused", attempts: 0, usage: null },
    counts: { "out:refused": 1 },
  },
  {
    name: "an answer for a repeated idempotency key counts apart",
    call: { outcome: "ok", attempts: 0, usage: null, from: "idempotent" },
    counts: { replays: 1 },
  },
  {
    name: "one from a cache too",
    call: { outcome: "ok", attempts: 0, usage: null, from: "cache" },
    counts: { cacheHits: 1 },
  },
];
for (const { name, call, counts } of rows)
  test(`used: ${name} [60.K4]`, () => {
    assert.deepEqual(countsOf(call), counts);
  });

test("what has no model is counted for its upstream", () => {
  assert.equal(servedName("m", "u"), "m");
  assert.equal(servedName("", "u"), "upstreams/u");
  assert.equal(servedName(null, "u"), "upstreams/u");
  assert.equal(servedName(null, null), "");
});
