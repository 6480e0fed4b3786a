import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import type { SimEngine } from "../../src/sim-engine/sim-engine.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { anEngine } from "./support/an-engine.ts";
import { startTestGateway, type TestGateway } from "./support/test-gateway.ts";

let engine: SimEngine;
let gateway: TestGateway;
let openai: OpenAI;

before(async () => {
  engine = await anEngine({ models: ["sim-model"], slots: 4, prefillTps: 100_000, decodeTps: 200 });
  gateway = await startTestGateway({
    upstreams: [{ id: "sim", engine: "vllm", models: ["sim-model"], slots: 4, endpoints: [{ url: engine.url }] }],
  });
  openai = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: gateway.keys.client, maxRetries: 0 });
});
after(async () => {
  await gateway.stop();
  await engine.close();
});

const messages = [{ role: "user" as const, content: "Count the wagons." }];

test("the official OpenAI client gets a whole answer with its usage [10.X4]", async () => {
  const answer = await openai.chat.completions.create({ model: "sim-model", messages, max_tokens: 5 });
  assert.equal(answer.choices[0]?.finish_reason, "length");
  assert.equal(answer.usage?.completion_tokens, 5);
});

test("the official OpenAI client gets a streamed answer, event by event [10.X1]", async () => {
  const stream = await openai.chat.completions.create({
    model: "sim-model",
    messages,
    max_tokens: 5,
    stream: true,
    stream_options: { include_usage: true },
  });
  let text = "";
  let usage: OpenAI.CompletionUsage | null | undefined;
  let finish: string | null | undefined;
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta.content ?? "";
    finish = chunk.choices[0]?.finish_reason ?? finish;
    usage = chunk.usage ?? usage;
  }
  assert.ok(text.length > 0);
  assert.equal(finish, "length");
  assert.equal(usage?.completion_tokens, 5);
});

test("the official OpenAI client gets tool calls, streamed and whole", async () => {
  const tools = [
    {
      type: "function" as const,
      function: { name: "shunt", parameters: { type: "object", properties: { track: { type: "integer" } } } },
    },
  ];
  const whole = await openai.chat.completions.create({ model: "sim-model", messages, tools });
  const call = whole.choices[0]?.message.tool_calls?.[0];
  assert.ok(call?.type === "function" && call.function.name === "shunt");
  const stream = openai.chat.completions.stream({ model: "sim-model", messages, tools });
  const final = await stream.finalChatCompletion();
  const streamed = final.choices[0]?.message.tool_calls?.[0];
  assert.ok(streamed?.type === "function");
  assert.equal(streamed.function.arguments, call.function.arguments);
});

test("the official OpenAI client gets embeddings and the list of models", async () => {
  const embedded = await openai.embeddings.create({ model: "sim-model", input: ["a", "b"] });
  assert.equal(embedded.data.length, 2);
  const models = await openai.models.list();
  assert.deepEqual(
    models.data.map((model) => model.id),
    ["sim-model"],
  );
  assert.equal((await openai.models.retrieve("sim-model")).id, "sim-model");
});

test("an abort in the middle of a stream by the official client stops the engine [10.A5]", async () => {
  const before = engine.ledger().aborted;
  const stream = await openai.chat.completions.create({
    model: "sim-model",
    messages,
    max_tokens: 20_000,
    stream: true,
  });
  for await (const _chunk of stream) break;
  stream.controller.abort();
  await eventually(
    "the engine saw the abort",
    () => engine.ledger().aborted,
    (aborted) => aborted === before + 1,
  );
});

test("refusals reach the official client as its own error classes, with our stable codes", async () => {
  const wrong = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: "CANARY-wrong", maxRetries: 0 });
  await assert.rejects(
    wrong.models.list(),
    (error) => error instanceof OpenAI.AuthenticationError && error.code === "UNAUTHORIZED",
  );
  await assert.rejects(
    openai.chat.completions.create({ model: "nobody", messages }),
    (error) => error instanceof OpenAI.NotFoundError && error.code === "MODEL_UNKNOWN",
  );
  await assert.rejects(openai.models.retrieve("nobody"), (error) => error instanceof OpenAI.NotFoundError);
  await assert.rejects(
    openai.chat.completions.create({ model: "sim-model", messages, temperature: -1 }),
    (error) => error instanceof OpenAI.BadRequestError,
  );
});

test("the official Anthropic client gets messages, whole and streamed, and errors in its own shape", async () => {
  const anthropic = new Anthropic({ baseURL: gateway.url, apiKey: gateway.keys.client, maxRetries: 0 });
  const whole = await anthropic.messages.create({ model: "sim-model", max_tokens: 4, messages });
  assert.equal(whole.usage.output_tokens, 4);
  const stream = anthropic.messages.stream({ model: "sim-model", max_tokens: 4, messages });
  const final = await stream.finalMessage();
  assert.equal(final.usage.output_tokens, 4);
  await assert.rejects(anthropic.messages.create({ model: "nobody", max_tokens: 4, messages }), (error) => {
    assert.ok(error instanceof Anthropic.NotFoundError);
    assert.match(JSON.stringify(error.error), /not_found_error/);
    return true;
  });
});
