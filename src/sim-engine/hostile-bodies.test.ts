import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { Json, JsonObject } from "./json.ts";
import { SIM_DIALECTS } from "./options.ts";
import { parseGeneration } from "./parse-generation.ts";
import { planOutput } from "./plan-output.ts";
import { parsePooling } from "./pooling.ts";
import { parseAction } from "./script.ts";
import { llamaChat, llamaCompletions } from "./shapes/llamacpp-openai.ts";
import { messages } from "./shapes/messages.ts";
import { responses } from "./shapes/responses.ts";
import type { AnswerFacts, AnswerShape } from "./shapes/shape.ts";
import { vllmChat, vllmCompletions } from "./shapes/vllm-openai.ts";

const CONTEXT = 500;

const anyJson = fc.jsonValue({ maxDepth: 3 }) as fc.Arbitrary<Json>;
const turns = fc.array(
  fc.record({ role: fc.constantFrom("user", "tool", "system"), content: fc.oneof(fc.string(), anyJson) }),
  { minLength: 1, maxLength: 3 },
);
const tools = fc.array(
  fc.oneof(
    anyJson,
    fc.record({ type: fc.constant("function"), function: fc.record({ name: fc.string(), parameters: anyJson }) }),
  ),
  { maxLength: 2 },
);
// JSON has no NaN; a numeral beyond the range of doubles is read as an infinity.
const number = fc.oneof(
  fc.integer({ min: -2, max: 600 }),
  fc.double({ noNaN: true }),
  fc.constantFrom(1e308, -1e308, 0.5),
);

/** Mostly sensible, so that bodies get past the first check, with anything in any place. */
const anyBody: fc.Arbitrary<JsonObject> = fc.record(
  {
    messages: fc.oneof({ weight: 5, arbitrary: turns }, { weight: 1, arbitrary: anyJson }),
    prompt: fc.oneof(fc.string(), fc.array(fc.string(), { maxLength: 3 }), fc.array(fc.nat(99)), anyJson),
    input: fc.oneof(fc.string(), fc.array(fc.string(), { maxLength: 3 }), turns, anyJson),
    query: fc.oneof(fc.string(), anyJson),
    documents: fc.oneof(fc.array(fc.string(), { maxLength: 3 }), anyJson),
    max_tokens: number,
    max_output_tokens: number,
    n: fc.oneof(fc.integer({ min: -1, max: 3 }), anyJson),
    stream: fc.oneof(fc.boolean(), anyJson),
    stream_options: fc.oneof(fc.record({ include_usage: fc.boolean(), continuous_usage_stats: fc.boolean() }), anyJson),
    tools: fc.oneof(tools, anyJson),
    tool_choice: fc.oneof(fc.constantFrom("auto", "none", "required"), anyJson),
    stop: fc.oneof(fc.string({ maxLength: 2 }), fc.array(fc.string({ maxLength: 2 })), anyJson),
    logprobs: anyJson,
    top_logprobs: anyJson,
    dimensions: number,
    top_n: number,
    encoding_format: fc.constantFrom("float", "base64"),
  },
  { requiredKeys: [] },
) as fc.Arbitrary<JsonObject>;

function shapes(facts: AnswerFacts, dialect: (typeof SIM_DIALECTS)[number]): AnswerShape {
  const { kind } = facts.request;
  if (kind === "messages") return messages(dialect, facts);
  if (kind === "responses") return responses(dialect, facts);
  if (kind === "chat") return dialect === "vllm" ? vllmChat(facts) : llamaChat(facts);
  return dialect === "vllm" ? vllmCompletions(facts) : llamaCompletions(facts);
}

test("whatever a body holds, it is refused with an error status or answered in whole events of valid JSON", () => {
  const kinds = fc.constantFrom("chat", "completions", "responses", "messages");
  fc.assert(
    fc.property(fc.constantFrom(...SIM_DIALECTS), kinds, anyBody, (dialect, kind, body) => {
      const outcome = parseGeneration(dialect, kind, body, CONTEXT);
      if (outcome.kind === "refused") {
        assert.equal(outcome.refusal.status, 400);
        return;
      }
      const { request } = outcome;
      assert.ok(
        request.maxTokens === undefined || (Number.isInteger(request.maxTokens) && request.maxTokens <= CONTEXT),
      );
      const plan = planOutput({ ...request, seed: 1, naturalTokensMax: 20 });
      const facts = { request, plan, id: "x", createdS: 1, model: "m", cachedTokens: 0, prefillMs: 0, decodeMs: 0 };
      const shape = shapes(facts, dialect);
      const events: string[] = [];
      const emit = (event: string): number => events.push(event);
      shape.open(emit);
      for (let index = 0; index < plan.tokens; index += 1) shape.token(index, emit);
      shape.close(emit);
      for (const event of events) {
        const data = /^(?:event: [a-z_.]+\n)?data: ([^\n]*)\n\n$/.exec(event)?.[1];
        assert.ok(data !== undefined, event);
        if (data !== "[DONE]") JSON.parse(data);
      }
      JSON.stringify(shape.whole());
    }),
    { numRuns: 300 },
  );
});

test("whatever a body holds, a pooling call is refused or answered", () => {
  const kinds = fc.constantFrom("embeddings", "rerank", "score", "classify");
  fc.assert(
    fc.property(fc.constantFrom(...SIM_DIALECTS), kinds, anyBody, (dialect, kind, body) => {
      const outcome = parsePooling(dialect, kind, body);
      if (outcome.kind === "refused") assert.equal(outcome.refusal.status, 400);
      else JSON.stringify(outcome.request.answer("x", 1, "m"));
    }),
    { numRuns: 300 },
  );
});

test("actions that no socket could carry out are refused", () => {
  const rows = [
    { status: 42 },
    { status: 200.5 },
    { delayHeadMs: -1 },
    { headers: { "a b": "c" } },
    { headers: { a: "b\r\nc: d" } },
    { trailers: { a: 1 } },
  ];
  for (const row of rows) assert.equal(parseAction(row).kind, "wrong", JSON.stringify(row));
});
