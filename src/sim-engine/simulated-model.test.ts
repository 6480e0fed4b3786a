import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { Json } from "./json.ts";
import { planOutput, type PlanInput } from "./plan-output.ts";
import { BLOCK_TOKENS, blockHashes, PrefixCache } from "./prefix-cache.ts";
import { decodeTokens, encodeTokens, tokenCount } from "./token-text.ts";

const plan = (over: Partial<PlanInput> = {}): ReturnType<typeof planOutput> =>
  planOutput({
    seed: 1,
    promptText: "hello",
    maxTokens: 50,
    naturalTokensMax: 128,
    stop: [],
    tools: [],
    toolChoice: undefined,
    ...over,
  });

test("tokenizing and detokenizing give back any text, and the count is that of the prompt", () => {
  fc.assert(
    fc.property(fc.string({ unit: "grapheme" }), (text) => {
      assert.equal(decodeTokens(encodeTokens(text)), text);
      assert.equal(encodeTokens(text).length, tokenCount(text));
    }),
  );
});

test("the same seed and prompt give the same answer, another seed another", () => {
  assert.equal(plan().text(0), plan().text(0));
  assert.notEqual(plan().text(0), plan({ seed: 2 }).text(0));
  assert.notEqual(plan().text(0), plan().text(1));
});

test("an answer runs to its limit when it has one and ends by itself when it has none", () => {
  assert.deepEqual([plan().tokens, plan().finish], [50, "length"]);
  const natural = plan({ maxTokens: undefined });
  assert.equal(natural.finish, "stop");
  assert.ok(natural.tokens >= 16 && natural.tokens <= 128);
});

test("a stop string ends the text before it", () => {
  const whole = plan().text(0);
  const stop = whole.slice(40, 44);
  const cut = plan({ stop: [stop] });
  assert.equal(cut.finish, "stop");
  assert.equal(cut.stopReason, stop);
  assert.ok(cut.tokens < 50 && whole.startsWith(cut.text(0)));
});

test("the fragments of a tool call join to arguments that fit the tool's schema", () => {
  const parameters: Json = {
    type: "object",
    properties: {
      city: { type: "string" },
      days: { type: "integer" },
      unit: { enum: ["c", "f"] },
      deep: { type: "array", items: { type: "boolean" } },
    },
  };
  const tools: Json[] = [{ type: "function", function: { name: "weather", parameters } }];
  const call = plan({ tools });
  assert.equal(call.finish, "tool_calls");
  assert.equal(call.tool?.name, "weather");
  const value = JSON.parse(call.text(0)) as Record<string, unknown>;
  assert.deepEqual(
    Object.entries(value).map(([key, of]) => [key, Array.isArray(of) ? "array" : typeof of]),
    [
      ["city", "string"],
      ["days", "number"],
      ["unit", "string"],
      ["deep", "array"],
    ],
  );
  assert.equal(plan({ tools, toolChoice: "none" }).tool, undefined);
});

test("a repeated prompt hits the prefix cache in whole blocks, and an extended one as far as it is the same", () => {
  const cache = new PrefixCache(1_000);
  const text = "a long conversation, ".repeat(40);
  const tokens = tokenCount(text);
  assert.equal(cache.use(blockHashes(text), tokens), 0);
  const hit = cache.use(blockHashes(text), tokens);
  assert.ok(hit > 0 && hit < tokens && hit % BLOCK_TOKENS === 0);
  assert.equal(cache.use(blockHashes(`${text}and a new turn of some length`), tokens + 8), hit);
  assert.equal(cache.use(blockHashes(`other ${text}`), tokens + 2), 0);
});

test("a full prefix cache forgets what was used longest ago", () => {
  const cache = new PrefixCache(10);
  const text = (name: string): string => name.repeat(64 * 8);
  for (const name of ["a", "b"]) cache.use(blockHashes(text(name)), tokenCount(text(name)));
  assert.equal(cache.size, 10);
  assert.equal(cache.use(blockHashes(text("a")), tokenCount(text("a"))), 0);
});
