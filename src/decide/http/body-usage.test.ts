import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { readBodyUsage } from "./body-usage.ts";
import type { TokenUsage } from "./token-usage.ts";

const usageOf = (body: unknown): TokenUsage => readBodyUsage(Buffer.from(JSON.stringify(body))).usage;
const known = (prompt: number | null, completion: number | null, cached: number | null): TokenUsage => ({
  prompt,
  completion,
  cached,
});

const rows: { name: string; body: unknown; expect: TokenUsage }[] = [
  {
    name: "chat",
    body: {
      choices: [],
      usage: { prompt_tokens: 33, completion_tokens: 6, prompt_tokens_details: { cached_tokens: 32 } },
    },
    expect: known(33, 6, 32),
  },
  {
    name: "embeddings",
    body: { data: [], usage: { prompt_tokens: 5, total_tokens: 5 } },
    expect: known(5, null, null),
  },
  {
    name: "responses",
    body: {
      object: "response",
      usage: { input_tokens: 3, input_tokens_details: { cached_tokens: 1 }, output_tokens: 4 },
    },
    expect: known(3, 4, 1),
  },
  {
    name: "messages, whose cached tokens stand beside the others",
    body: {
      type: "message",
      usage: { input_tokens: 1, output_tokens: 6, cache_read_input_tokens: 32, cache_creation_input_tokens: 4 },
    },
    expect: known(37, 6, 32),
  },
  { name: "rerank with a total", body: { results: [], usage: { total_tokens: 9 } }, expect: known(9, null, null) },
  {
    name: "rerank with meta",
    body: { results: [], meta: { tokens: { input_tokens: 7, output_tokens: 0 } } },
    expect: known(7, 0, null),
  },
  {
    name: "a transcription by seconds",
    body: { text: "", usage: { type: "duration", seconds: 3 } },
    expect: known(null, null, null),
  },
  { name: "no usage", body: { choices: [] }, expect: known(null, null, null) },
  { name: "usage null", body: { usage: null }, expect: known(null, null, null) },
  { name: "usage only deeper", body: { x: { usage: { prompt_tokens: 1 } } }, expect: known(null, null, null) },
  {
    name: "counts that are none",
    body: { usage: { prompt_tokens: -1, completion_tokens: 1.5 } },
    expect: known(null, null, null),
  },
];
for (const row of rows)
  test(`usage of a whole answer is read, unknown is not zero: ${row.name} [10.X4]`, () =>
    assert.deepEqual(usageOf(row.body), row.expect));

const MANY = Array.from({ length: 2_000 }, (_, index) => ({
  index,
  embedding: [0.25, -1.5e-3, 0.125],
  text: 'a "usage":{"prompt_tokens":1} }',
}));

test("usage in a large answer is found near its end or its beginning, and not inside other members [10.X4]", () => {
  const usage = { prompt_tokens: 12, completion_tokens: 3, prompt_tokens_details: { cached_tokens: 2 } };
  assert.deepEqual(usageOf({ object: "list", data: MANY, usage }), known(12, 3, 2));
  assert.deepEqual(usageOf({ object: "list", data: MANY, usage, timings: { a: [1, { usage: 3 }] } }), known(12, 3, 2));
  assert.deepEqual(usageOf({ id: "x", model: "m", usage, results: MANY }), known(12, 3, 2));
  assert.deepEqual(usageOf({ object: "list", data: MANY }), known(null, null, null));
  assert.deepEqual(usageOf({ data: MANY, inner: { usage } }), known(null, null, null));
  assert.deepEqual(usageOf({ inner: { usage }, data: MANY }), known(null, null, null));
});

test("a body that is no JSON of the right form is told", () => {
  const complete = (text: string): boolean => readBodyUsage(Buffer.from(text)).looksComplete;
  assert.ok(complete('{"a":1}') && complete(' [{"index":0}]\n') && complete(JSON.stringify({ data: MANY })));
  assert.ok(!complete("") && !complete("<html></html>") && !complete('{"a":') && !complete('"x"') && !complete("null"));
  assert.ok(!complete(JSON.stringify({ data: MANY }).slice(0, -1)));
  assert.ok(readBodyUsage(Buffer.from('{"error":{"message":"x"}}')).isError);
  assert.ok(!readBodyUsage(Buffer.from('{"error":null}')).isError);
});

test("a choice that the engine gave up is no answer, as in a stream; one that is finished is [FC-STREAM-03]", () => {
  const ends = (...reasons: readonly unknown[]): boolean =>
    readBodyUsage(Buffer.from(JSON.stringify({ choices: reasons.map((finish_reason) => ({ finish_reason })) })))
      .isError;
  for (const reason of ["abort", "error"]) assert.ok(ends(reason) && ends("stop", reason), reason);
  for (const reason of ["stop", "length", "tool_calls", null, undefined, 1]) assert.ok(!ends(reason), String(reason));
  assert.ok(!readBodyUsage(Buffer.from('{"choices":[null,"abort",{}]}')).isError);
});

const codes: { name: string; body: string; is: number | undefined }[] = [
  { name: "a number", body: '{"error":{"message":"x","code":500}}', is: 500 },
  { name: "digits", body: '{"error":{"message":"x","code":"503"}}', is: 503 },
  { name: "beside words", body: '{"error":"x","code":500}', is: 500 },
  { name: "a fault of the request", body: '{"error":{"type":"BadRequestError"}}', is: 400 },
  { name: "none", body: '{"error":{"message":"x"}}', is: undefined },
  { name: "no error at all", body: '{"error":null,"code":500}', is: undefined },
];
for (const { name, body, is } of codes)
  test(`the status that an answer's own error stands for: ${name}`, () => {
    assert.equal(readBodyUsage(Buffer.from(body)).errorStatus, is);
  });

test("no bytes make the reading throw [80.A10]", () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 300 }), fc.boolean(), (noise, large) => {
      readBodyUsage(
        Buffer.concat([
          Buffer.from(large ? `{"usage":{"a":${" ".repeat(66_000)}` : "{"),
          noise,
          Buffer.from('"usage":{"prompt_tokens":1}}'),
        ]),
      );
    }),
    { numRuns: 100 },
  );
});
