import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { amountOf, costMicros, estimateTokens, promptsIn, tokensUsed, type EndedRequest } from "./estimate-tokens.ts";

const rows: readonly {
  readonly name: string;
  readonly bytes?: number;
  readonly generates?: boolean;
  readonly prompts?: number;
  readonly body?: Readonly<Record<string, string>>;
  readonly expect: readonly [number, number];
}[] = [
  { name: "four bytes are a token, rounded up", bytes: 401, generates: false, expect: [101, 0] },
  {
    name: "a body of pictures counts no more than a long prompt",
    bytes: 9_000_000,
    generates: false,
    expect: [32_768, 0],
  },
  { name: "the body says how long its answer may become", body: { max_tokens: "50" }, expect: [100, 50] },
  {
    name: "of several members the largest, whichever the engine goes by",
    body: { max_tokens: "80", max_completion_tokens: "60", max_output_tokens: "1" },
    expect: [100, 80],
  },
  { name: "choices that are made and not shown", body: { max_tokens: "50", n: "1", best_of: "4" }, expect: [100, 200] },
  { name: "each prompt is answered", prompts: 3, body: { max_tokens: "50", n: "2" }, expect: [100, 300] },
  { name: "responses have their own", body: { max_output_tokens: "70" }, expect: [100, 70] },
  { name: "each choice is as long", body: { max_tokens: "50", n: "3" }, expect: [100, 150] },
  { name: "an answer of no stated length", body: {}, expect: [100, 1_024] },
  { name: "what is no count is the engine's to judge", body: { max_tokens: '"50"', n: "-2" }, expect: [100, 1_024] },
];
for (const { name, bytes = 400, generates = true, body = {}, prompts, expect } of rows)
  test(`estimate: ${name} [60.K3]`, () => {
    const { prompt, completion } = estimateTokens(bytes, generates, (member) => body[member], prompts);
    assert.deepEqual([prompt, completion], expect);
  });

test("as many prompts are counted as a list of texts or of tokens holds, however they are written [60.K3]", () => {
  const written = (value: unknown): number[] =>
    [JSON.stringify(value), JSON.stringify(value, null, 2)].map((text) => promptsIn(Buffer.from(text)));
  assert.deepEqual(written("a, b"), [1, 1]);
  assert.deepEqual(written([]), [1, 1]);
  assert.deepEqual(written([1, 2, 3]), [1, 1]);
  assert.deepEqual(written([[1, 2], [3], []]), [3, 3]);
  const texts = fc.array(fc.oneof(fc.string(), fc.constantFrom('"', "\\", '\\"', '","', "[")), {
    minLength: 1,
    maxLength: 8,
  });
  fc.assert(fc.property(texts, (list) => assert.deepEqual(written(list), [list.length, list.length])));
});

const PRICE = { input: 2.5, output: 10, cached: 0.25, currency: "USD" };

test("a price by the million is millionths by the token, rounded up, and cached tokens have their own [60.K3]", () => {
  assert.equal(costMicros(PRICE, 1_000_000, 0, 0), 2_500_000);
  assert.equal(costMicros(PRICE, 0, 1_000_000, 0), 10_000_000);
  assert.equal(costMicros(PRICE, 1_000, 10, 600), 400 * 2.5 + 600 * 0.25 + 100);
  assert.equal(costMicros(PRICE, 1, 0, 0), 3);
  assert.equal(costMicros(PRICE, 10, 0, 99), 3, "no more is cached than there is");
  assert.equal(costMicros(null, 10, 10, 0), 0);
  assert.equal(costMicros({ ...PRICE, input: 0.07 }, 100, 0, 0), 7, "100 * 0.07 lies a hair above 7");
  assert.equal(costMicros({ ...PRICE, input: 1e-9 }, 1, 0, 0), 1, "what costs anything costs something");
  assert.deepEqual(amountOf({ prompt: 10, completion: 5 }, PRICE), { tokens: 15, micros: 75 });
});

const ended = (over: Partial<EndedRequest>): EndedRequest => ({ outcome: "ok", attempts: 1, usage: null, ...over });
const ESTIMATE = { prompt: 100, completion: 50 };
const used: readonly { readonly name: string; readonly ended: EndedRequest; readonly expect: readonly number[] }[] = [
  {
    name: "as the engine counted",
    ended: ended({ usage: { prompt: 7, completion: 3, cached: 2 } }),
    expect: [7, 3, 2],
  },
  { name: "unknown usage is the estimate", ended: ended({}), expect: [100, 50, 0] },
  {
    name: "a stream that is cut with its prompt counted alone",
    ended: ended({ outcome: "client_aborted", usage: { prompt: 7, completion: null, cached: null } }),
    expect: [7, 50, 0],
  },
  {
    name: "a client that left while the engine worked",
    ended: ended({ outcome: "client_aborted" }),
    expect: [100, 50, 0],
  },
  { name: "nobody was asked", ended: ended({ outcome: "queue_timeout", attempts: 0 }), expect: [0, 0, 0] },
  { name: "an answer from memory", ended: ended({ attempts: 0 }), expect: [0, 0, 0] },
  { name: "an engine that refused", ended: ended({ outcome: "engine_error" }), expect: [0, 0, 0] },
  { name: "an engine that was not reached", ended: ended({ outcome: "upstream_failed" }), expect: [0, 0, 0] },
];
for (const row of used)
  test(`used: ${row.name} [60.K3]`, () => {
    const { prompt, completion, cached } = tokensUsed(row.ended, ESTIMATE);
    assert.deepEqual([prompt, completion, cached], row.expect);
  });
