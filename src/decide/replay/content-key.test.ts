import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import fc from "fast-check";
import { fingerprintSteps } from "../idempotency/body-fingerprint.ts";
import { contentKey, hashParts, type ContentFacts } from "./content-key.ts";

const newHasher = () => createHash("sha256");

function bodyOf(text: string): string {
  const steps = fingerprintSteps([Buffer.from(text)], { kind: "json" }, newHasher);
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step.value;
  }
}

const BASE: Readonly<Record<string, unknown>> = { model: "m", messages: [{ role: "user", content: "hi" }] };
const facts = (over: Partial<ContentFacts> = {}, body: unknown = BASE): ContentFacts => ({
  upstreamId: "u",
  model: "m",
  method: "POST",
  path: "/v1/chat/completions",
  query: "",
  keyId: "team",
  body: bodyOf(JSON.stringify(body)),
  rawHeaders: ["Content-Type", "application/json"],
  mode: "engine",
  extra: new Set(["x-lora"]),
  ...over,
});
const keyOf = (over: Partial<ContentFacts> = {}, body: unknown = BASE): string =>
  contentKey(facts(over, body), newHasher);

// Every field of the OpenAI routes, and those that engines add, each with two values.
const FIELDS: Readonly<Record<string, readonly [unknown, unknown]>> = {
  audio: [
    { voice: "a", format: "wav" },
    { voice: "b", format: "wav" },
  ],
  background: [true, false],
  best_of: [1, 2],
  cache_salt: ["a", "b"],
  chat_template: ["a", "b"],
  chat_template_kwargs: [{ enable_thinking: true }, { enable_thinking: false }],
  dimensions: [256, 512],
  documents: [["a"], ["b"]],
  echo: [true, false],
  encoding_format: ["float", "base64"],
  extra_body: [{ a: 1 }, { a: 2 }],
  frequency_penalty: [0, 1],
  function_call: ["auto", "none"],
  functions: [[{ name: "a" }], [{ name: "b" }]],
  grammar: ["a", "b"],
  guided_choice: [["a"], ["b"]],
  guided_json: [{ type: "object" }, { type: "array" }],
  guided_regex: ["a", "b"],
  id_slot: [0, 1],
  ignore_eos: [true, false],
  include: [["a"], ["b"]],
  input: ["a", "b"],
  instructions: ["a", "b"],
  json_schema: [{ a: 1 }, { a: 2 }],
  keep_alive: [1, 2],
  length_penalty: [1, 2],
  logit_bias: [{ 5: 1 }, { 5: 2 }],
  logprobs: [true, false],
  lora: [[{ id: 0 }], [{ id: 1 }]],
  max_completion_tokens: [1, 2],
  max_output_tokens: [1, 2],
  max_tokens: [1, 2],
  messages: [[{ role: "user", content: "a" }], [{ role: "user", content: "b" }]],
  metadata: [{ a: "1" }, { a: "2" }],
  min_p: [0, 0.1],
  min_tokens: [1, 2],
  mirostat: [0, 1],
  mm_processor_kwargs: [{ a: 1 }, { a: 2 }],
  modalities: [["text"], ["text", "audio"]],
  model: ["m", "m2"],
  n: [1, 2],
  n_predict: [1, 2],
  num_ctx: [1024, 2048],
  options: [{ num_ctx: 1 }, { num_ctx: 2 }],
  parallel_tool_calls: [true, false],
  prediction: [{ content: "a" }, { content: "b" }],
  presence_penalty: [0, 1],
  previous_response_id: ["a", "b"],
  priority: [0, 1],
  prompt: ["a", "b"],
  prompt_cache_key: ["a", "b"],
  prompt_logprobs: [0, 1],
  query: ["a", "b"],
  reasoning: [{ effort: "low" }, { effort: "high" }],
  reasoning_effort: ["low", "high"],
  repetition_penalty: [1, 1.1],
  response_format: [{ type: "text" }, { type: "json_object" }],
  return_documents: [true, false],
  safety_identifier: ["a", "b"],
  seed: [1, 2],
  separate_reasoning: [true, false],
  service_tier: ["auto", "default"],
  skip_special_tokens: [true, false],
  spaces_between_special_tokens: [true, false],
  stop: ["a", ["a"]],
  stop_token_ids: [[1], [2]],
  store: [true, false],
  stream: [true, false],
  stream_options: [{ include_usage: true }, { include_usage: false }],
  structured_outputs: [{ choice: ["a"] }, { choice: ["b"] }],
  suffix: ["a", "b"],
  system: ["a", "b"],
  temperature: [0, 0.5],
  text: [{ format: { type: "text" } }, { format: { type: "json_object" } }],
  thinking: [{ type: "enabled" }, { type: "disabled" }],
  tool_choice: ["auto", "none"],
  tools: [[{ type: "function", function: { name: "a" } }], [{ type: "function", function: { name: "b" } }]],
  top_k: [1, 2],
  top_logprobs: [1, 2],
  top_n: [1, 2],
  top_p: [0.9, 1],
  truncate: [true, false],
  truncate_prompt_tokens: [1, 2],
  truncation: ["auto", "disabled"],
  use_beam_search: [true, false],
  user: ["a", "b"],
  verbosity: ["low", "high"],
  web_search_options: [{ a: 1 }, { a: 2 }],
  "x-vendor-unknown": [1, 2],
};
for (const [field, [one, other]] of Object.entries(FIELDS)) {
  test(`requests that differ in ${field} alone never share an answer [20.I2]`, () => {
    const { [field]: _left, ...without } = BASE;
    const keys = [without, { ...without, [field]: one }, { ...without, [field]: other }, { ...without, [field]: null }];
    assert.equal(new Set(keys.map((body) => keyOf({}, body))).size, 4);
    assert.equal(keyOf({}, { [field]: one, ...without }), keyOf({}, { ...without, [field]: one }));
  });
}

const differing: { name: string; over: Partial<ContentFacts> }[] = [
  { name: "key", over: { keyId: "other" } },
  { name: "scope of all keys", over: { keyId: null } },
  { name: "a key that is called as the shared scope is", over: { keyId: "shared" } },
  { name: "upstream", over: { upstreamId: "v" } },
  { name: "alias", over: { model: "alias" } },
  { name: "path", over: { path: "/v1/completions" } },
  { name: "query", over: { query: "?a=1" } },
  { name: "Accept", over: { rawHeaders: ["Content-Type", "application/json", "Accept", "text/event-stream"] } },
  { name: "language", over: { rawHeaders: ["Content-Type", "application/json", "Accept-Language", "de"] } },
  { name: "API version", over: { rawHeaders: ["Content-Type", "application/json", "anthropic-version", "1"] } },
  { name: "beta", over: { rawHeaders: ["Content-Type", "application/json", "OpenAI-Beta", "x"] } },
  { name: "a forwarded header", over: { rawHeaders: ["Content-Type", "application/json", "X-Lora", "x"] } },
  { name: "content type", over: { rawHeaders: ["Content-Type", "text/plain"] } },
];
test("requests that differ in anything an engine would be told, or in who asks, have keys of their own [20.I2 80.G17]", () => {
  const keys = new Map([["none", keyOf()], ...differing.map(({ name, over }) => [name, keyOf(over)] as const)]);
  assert.equal(new Set(keys.values()).size, keys.size);
});

test("what changes with each try and tells the engine nothing of the content makes no difference [20.I2]", () => {
  const usual = ["Content-Type", "application/json"];
  const more = [
    ["User-Agent", "x"],
    ["X-Request-Id", "r2"],
    ["Traceparent", "00-1-2-01"],
    ["Accept-Encoding", "gzip"],
    ["Idempotency-Key", "k"],
    ["x-stainless-retry-count", "1"],
    ["X-Yardmaster-Class", "batch"],
    ["Authorization", "Bearer x"],
    ["Connection", "close"],
  ];
  for (const mode of ["engine", "http"] as const)
    for (const header of more)
      assert.equal(keyOf({ mode, rawHeaders: [...header, ...usual] }), keyOf({ mode, rawHeaders: usual }), header[0]);
  assert.equal(
    keyOf({ rawHeaders: ["content-type", "multipart/form-data; boundary=a"] }),
    keyOf({ rawHeaders: ["Content-Type", "Multipart/form-data; boundary=b"] }),
  );
});

test("an upstream of kind http is told every header, so every header counts [20.I2]", () => {
  const of = (value: string): string => keyOf({ mode: "http", rawHeaders: ["X-Pages", value] });
  assert.notEqual(of("1"), of("2"));
});

test("no two lists of parts share a hash [20.I2]", () => {
  fc.assert(
    fc.property(fc.array(fc.string(), { maxLength: 4 }), fc.array(fc.string(), { maxLength: 4 }), (a, b) => {
      const same = a.length === b.length && a.every((part, i) => part === b[i]);
      assert.equal(hashParts(a, newHasher) === hashParts(b, newHasher), same);
    }),
    { numRuns: 2_000 },
  );
});
