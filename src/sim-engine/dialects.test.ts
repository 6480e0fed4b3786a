import assert from "node:assert/strict";
import { test } from "node:test";
import { systemClock } from "../kernel/clock.ts";
import { parsePrometheus } from "../testing/exposition-parser.ts";
import type { SimDialect, SimEngineOptions } from "./options.ts";
import { startSimEngine, type SimEngine } from "./sim-engine.ts";

const start = (dialect: SimDialect, over: Partial<SimEngineOptions> = {}): Promise<SimEngine> =>
  startSimEngine({
    models: ["tiny", "alias"],
    dialect,
    slots: 4,
    prefillTps: 0,
    decodeTps: 0,
    seed: 1,
    clock: systemClock,
    contextTokens: 4_096,
    ...over,
  });

interface Reply {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
}

async function post(
  engine: SimEngine,
  path: string,
  body: unknown,
  headers: Record<string, string> = {},
): Promise<Reply> {
  const response = await fetch(`${engine.url}${path}`, {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body: typeof body === "string" ? body : JSON.stringify(body),
  });
  return { status: response.status, headers: response.headers, text: await response.text() };
}

const get = async (engine: SimEngine, path: string, method = "GET"): Promise<Reply> => {
  const response = await fetch(`${engine.url}${path}`, { method });
  return { status: response.status, headers: response.headers, text: await response.text() };
};

/** Every key path of a value, array members as one. */
function keys(value: unknown, at = ""): string[] {
  if (Array.isArray(value)) return [...new Set(value.flatMap((item) => keys(item, `${at}[]`)))];
  if (typeof value !== "object" || value === null) return [at];
  return Object.entries(value).flatMap(([key, of]) => keys(of, at === "" ? key : `${at}.${key}`));
}

const events = (text: string): { name: string | undefined; data: string }[] =>
  text
    .split("\n\n")
    .filter((block) => block !== "")
    .map((block) => ({ name: /^event: (.*)$/m.exec(block)?.[1], data: /^data: (.*)$/m.exec(block)?.[1] ?? "" }));

const chat = { model: "tiny", messages: [{ role: "user", content: "hello" }], max_tokens: 3 };
const words = (list: string): string[] => list.split(" ");

test("vLLM's chat answer has the measured server's fields, its usage adds up and its id is the request's", async () => {
  await using engine = await start("vllm");
  const reply = await post(engine, "/v1/chat/completions", chat, { "x-request-id": "my-id-1" });
  const body = JSON.parse(reply.text);
  assert.deepEqual(
    keys(body).toSorted(),
    words(
      "id object created model choices[].index choices[].message.role choices[].message.content choices[].message.refusal choices[].message.annotations choices[].message.audio " +
        "choices[].message.function_call choices[].message.reasoning choices[].logprobs choices[].finish_reason choices[].stop_reason choices[].token_ids choices[].routed_experts " +
        "service_tier system_fingerprint usage.prompt_tokens usage.total_tokens usage.completion_tokens usage.prompt_tokens_details.cached_tokens " +
        "usage.prompt_tokens_details.created_cache_tokens usage.prompt_tokens_details.multimodal_tokens usage.completion_tokens_details prompt_logprobs prompt_token_ids prompt_text " +
        "kv_transfer_params ec_transfer_params metrics",
    ).toSorted(),
  );
  assert.equal(body.id, "chatcmpl-my-id-1");
  assert.equal(body.choices[0].finish_reason, "length");
  assert.equal(body.usage.total_tokens, body.usage.prompt_tokens + 3);
  assert.equal(reply.headers.get("server"), "uvicorn");
});

test("vLLM's chat stream: role event, one event a token, finish on the last, usage apart, [DONE]", async () => {
  await using engine = await start("vllm");
  const stream = events(
    (await post(engine, "/v1/chat/completions", { ...chat, stream: true, stream_options: { include_usage: true } }))
      .text,
  );
  assert.equal(stream.at(-1)?.data, "[DONE]");
  const parsed = stream.slice(0, -1).map(({ data }) => JSON.parse(data));
  assert.equal(parsed.length, 5);
  const base = words("id object created model choices[].index");
  assert.deepEqual(keys(parsed[0]), [
    ...base,
    ...words(
      "choices[].delta.role choices[].delta.content choices[].logprobs choices[].finish_reason prompt_token_ids prompt_text",
    ),
  ]);
  assert.deepEqual(keys(parsed[1]), [
    ...base,
    ...words("choices[].delta.content choices[].logprobs choices[].finish_reason choices[].token_ids"),
  ]);
  assert.deepEqual(keys(parsed[3]), [
    ...base,
    ...words(
      "choices[].delta.content choices[].logprobs choices[].finish_reason choices[].stop_reason choices[].token_ids",
    ),
  ]);
  assert.deepEqual(
    parsed.map((event) => event.choices[0]?.finish_reason),
    [null, null, null, "length", undefined],
  );
  assert.deepEqual(parsed[4].usage, {
    prompt_tokens: 7,
    total_tokens: 10,
    completion_tokens: 3,
    prompt_tokens_details: { cached_tokens: 0, created_cache_tokens: 0 },
  });
});

test("vLLM's continuous usage counts up on every event", async () => {
  await using engine = await start("vllm");
  const stream = events(
    (
      await post(engine, "/v1/chat/completions", {
        ...chat,
        stream: true,
        stream_options: { include_usage: true, continuous_usage_stats: true },
      })
    ).text,
  );
  assert.deepEqual(
    stream.slice(0, -1).map(({ data }) => JSON.parse(data).usage.completion_tokens),
    [0, 1, 2, 3, 3],
  );
});

test("without include_usage no event carries usage", async () => {
  await using engine = await start("vllm");
  const { text } = await post(engine, "/v1/chat/completions", { ...chat, stream: true });
  assert.equal(text.includes("usage"), false);
  assert.ok(text.includes("system_fingerprint"));
});

test("llama.cpp's chat stream: null content first, an empty delta with the finish reason, usage with timings", async () => {
  await using engine = await start("llama.cpp");
  const reply = await post(engine, "/v1/chat/completions", {
    ...chat,
    stream: true,
    stream_options: { include_usage: true },
  });
  const stream = events(reply.text);
  assert.equal(reply.headers.get("content-type"), "text/event-stream");
  assert.equal(stream.at(-1)?.data, "[DONE]");
  const parsed = stream.slice(0, -1).map(({ data }) => JSON.parse(data));
  assert.deepEqual(
    parsed.map((event) => event.choices[0]?.delta.content),
    [
      null,
      parsed[1].choices[0].delta.content,
      parsed[2].choices[0].delta.content,
      parsed[3].choices[0].delta.content,
      undefined,
      undefined,
    ],
  );
  assert.deepEqual(
    parsed.map((event) => event.choices[0]?.finish_reason),
    [null, null, null, null, "length", undefined],
  );
  assert.deepEqual(
    keys(parsed[1]),
    words("choices[].finish_reason choices[].index choices[].delta.content created id model system_fingerprint object"),
  );
  assert.deepEqual(
    Object.keys(parsed[5].timings),
    words(
      "cache_n prompt_n prompt_ms prompt_per_token_ms prompt_per_second predicted_n predicted_ms predicted_per_token_ms predicted_per_second",
    ),
  );
});

for (const dialect of ["vllm", "llama.cpp"] as const) {
  test(`${dialect}: messages and responses stream named events and no [DONE]`, async () => {
    await using engine = await start(dialect);
    const anthropic = events((await post(engine, "/v1/messages", { ...chat, stream: true })).text);
    const delta = "content_block_delta";
    assert.deepEqual(
      anthropic.map(({ name }) => name),
      [
        "message_start",
        "content_block_start",
        delta,
        delta,
        delta,
        "content_block_stop",
        "message_delta",
        "message_stop",
      ],
    );
    assert.ok(anthropic.every(({ name, data }) => JSON.parse(data).type === name));
    const response = events(
      (await post(engine, "/v1/responses", { model: "tiny", input: "hello", max_output_tokens: 2, stream: true })).text,
    );
    assert.deepEqual(
      response.map(({ name }) => name?.replace("response.", "")),
      words(
        "created in_progress output_item.added content_part.added output_text.delta output_text.delta output_text.done content_part.done output_item.done completed",
      ),
    );
    const last = JSON.parse(response.at(-1)?.data ?? "").response;
    assert.equal(last.usage.output_tokens, 2);
    assert.equal(last.status, dialect === "vllm" ? "incomplete" : "completed");
  });

  test(`${dialect}: a tool call comes in fragments that join to JSON, and its result gets text`, async () => {
    await using engine = await start(dialect);
    const tools = [
      {
        type: "function",
        function: { name: "weather", parameters: { type: "object", properties: { city: { type: "string" } } } },
      },
    ];
    const { text } = await post(engine, "/v1/chat/completions", { ...chat, tools, stream: true });
    const calls = events(text)
      .slice(0, -1)
      .flatMap(({ data }) => JSON.parse(data).choices[0]?.delta?.tool_calls ?? []);
    assert.ok(calls.length > 1);
    assert.deepEqual(
      calls.map((call) => call.function.name),
      ["weather", ...calls.slice(1).map(() => undefined)],
    );
    assert.equal(typeof JSON.parse(calls.map((call) => call.function.arguments).join("")).city, "string");
    assert.match(text, /"finish_reason":"tool_calls"/);
    const after = await post(engine, "/v1/chat/completions", {
      ...chat,
      tools,
      messages: [...chat.messages, { role: "tool", content: "warm" }],
    });
    assert.equal(typeof JSON.parse(after.text).choices[0].message.content, "string");
  });

  test(`${dialect}: vectors come as numbers or as base64 of the same floats`, async () => {
    await using engine = await start(dialect);
    const plain = JSON.parse(
      (await post(engine, "/v1/embeddings", { model: "tiny", input: ["a", "b"], dimensions: 8 })).text,
    );
    const coded = JSON.parse(
      (
        await post(engine, "/v1/embeddings", {
          model: "tiny",
          input: ["a", "b"],
          dimensions: 8,
          encoding_format: "base64",
        })
      ).text,
    );
    const bytes = Buffer.from(coded.data[1].embedding, "base64");
    assert.deepEqual(
      Array.from({ length: 8 }, (_, index) => bytes.readFloatLE(index * 4)),
      plain.data[1].embedding.map(Math.fround),
    );
    assert.deepEqual(plain.usage.prompt_tokens, 2);
  });

  test(`${dialect}: rerank ranks by score and honours top_n`, async () => {
    await using engine = await start(dialect);
    const { results } = JSON.parse(
      (await post(engine, "/v1/rerank", { model: "tiny", query: "q", documents: ["a", "b", "c"], top_n: 2 })).text,
    );
    assert.equal(results.length, 2);
    assert.ok(results[0].relevance_score >= results[1].relevance_score);
  });

  test(`${dialect}: sound, transcripts and pictures have their own content types`, async () => {
    await using engine = await start(dialect);
    const sound = await fetch(`${engine.url}/v1/audio/speech`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ model: "tiny", input: "say this", voice: "x" }),
    });
    assert.equal(sound.headers.get("content-type"), "audio/mpeg");
    assert.equal((await sound.arrayBuffer()).byteLength, 960);
    const form = new FormData();
    form.set("file", new Blob([new Uint8Array(9_000)]), "speech.wav");
    form.set("model", "tiny");
    form.set("user", "batch");
    const heard = await fetch(`${engine.url}/v1/audio/transcriptions`, { method: "POST", body: form });
    assert.deepEqual(Object.keys((await heard.json()) as object), ["text", "usage"]);
    assert.deepEqual([engine.ledger().entries[1]?.model, engine.ledger().entries[1]?.tag], ["tiny", "batch"]);
    const picture = JSON.parse(
      (await post(engine, "/v1/images/generations", { model: "tiny", prompt: "a yard" })).text,
    );
    assert.ok(Buffer.from(picture.data[0].b64_json, "base64").subarray(1, 4).equals(Buffer.from("PNG")));
  });

  test(`${dialect}: the metrics page parses strictly after work of every kind`, async () => {
    await using engine = await start(dialect);
    await post(engine, "/v1/chat/completions", chat);
    await post(engine, "/v1/embeddings", { model: "tiny", input: "a" });
    assert.ok(parsePrometheus((await get(engine, "/metrics")).text).length > 10);
  });
}

test("vLLM's errors have its statuses, types and params", async () => {
  await using engine = await start("vllm");
  const rows: readonly [path: string, body: unknown, status: number, type: string, param: string | null][] = [
    ["/v1/chat/completions", { ...chat, model: "nope" }, 404, "NotFoundError", "model"],
    ["/v1/chat/completions", { ...chat, model: "nope", stream: true }, 404, "NotFoundError", "model"],
    ["/v1/chat/completions", "{bad", 400, "Bad Request", "body.0"],
    ["/v1/chat/completions", [], 400, "Bad Request", "body"],
    ["/v1/chat/completions", "", 400, "Bad Request", "body"],
    ["/v1/chat/completions", { model: "tiny" }, 400, "Bad Request", "body.messages"],
    ["/v1/chat/completions", { ...chat, messages: [] }, 400, "BadRequestError", null],
    ["/v1/chat/completions", { ...chat, max_tokens: 0 }, 400, "BadRequestError", "max_tokens"],
    ["/v1/chat/completions", { ...chat, max_tokens: 5_000 }, 400, "BadRequestError", "max_tokens"],
    ["/v1/chat/completions", { ...chat, temperature: -1 }, 400, "BadRequestError", "temperature"],
    ["/v1/chat/completions", { ...chat, temperature: "hot" }, 400, "Bad Request", "body.temperature"],
    ["/v1/chat/completions", { ...chat, priority: "high" }, 400, "Bad Request", "body.priority"],
    [
      "/v1/chat/completions",
      { ...chat, stream_options: { include_usage: true } },
      400,
      "BadRequestError",
      "stream_options",
    ],
    [
      "/v1/chat/completions",
      { ...chat, messages: [{ role: "user", content: "x".repeat(20_000) }] },
      400,
      "BadRequestError",
      "input_tokens",
    ],
    ["/v1/embeddings", { model: "tiny", input: [] }, 400, "BadRequestError", null],
    ["/v1/messages", { model: "tiny", max_tokens: 1 }, 400, "Bad Request", "body.messages"],
  ];
  for (const [path, body, status, type, param] of rows) {
    const reply = await post(engine, path, body);
    const { error } = JSON.parse(reply.text);
    assert.deepEqual([reply.status, error.type, error.param, error.code], [status, type, param, status], reply.text);
  }
  assert.equal(
    (await post(engine, "/v1/messages", { ...chat, model: "nope" })).text,
    '{"type":"error","error":{"type":"NotFoundError","message":"The model `nope` does not exist. Valid aliases: tiny, alias."}}',
  );
  assert.equal((await post(engine, "/v1/chat/completions", { messages: chat.messages })).status, 200);
});

test("vLLM's pages: bare 404 and 405, models, version, load, tokens there and back", async () => {
  await using engine = await start("vllm");
  assert.deepEqual(
    [(await get(engine, "/v1/models/tiny")).text, (await get(engine, "/nowhere")).status],
    ['{"detail":"Not Found"}', 404],
  );
  const wrong = await get(engine, "/v1/chat/completions");
  assert.deepEqual(
    [wrong.status, wrong.headers.get("allow"), wrong.text],
    [405, "POST", '{"detail":"Method Not Allowed"}'],
  );
  assert.equal((await get(engine, "/health", "HEAD")).status, 405);
  assert.deepEqual(
    [(await get(engine, "/health")).text, (await get(engine, "/version")).text, (await get(engine, "/load")).text],
    ["", '{"version":"0.32.0"}', '{"server_load":0}'],
  );
  const models = JSON.parse((await get(engine, "/v1/models")).text);
  assert.deepEqual(
    models.data.map((card: { id: string }) => card.id),
    ["tiny", "alias"],
  );
  assert.deepEqual(
    Object.keys(models.data[0]),
    words("id object created owned_by root parent max_model_len permission"),
  );
  const { tokens, count } = JSON.parse(
    (await post(engine, "/tokenize", { model: "tiny", prompt: "größer als 東京" })).text,
  );
  assert.equal(count, tokens.length);
  assert.equal(JSON.parse((await post(engine, "/detokenize", { tokens })).text).prompt, "größer als 東京");
  assert.equal((await get(engine, "/v1/responses/resp_x")).status, 404);
});

test("llama.cpp serves any model name, and its errors and pages are its own", async () => {
  await using engine = await start("llama.cpp");
  assert.equal(JSON.parse((await post(engine, "/v1/chat/completions", { ...chat, model: "nope" })).text).model, "tiny");
  assert.equal((await post(engine, "/v1/chat/completions", { ...chat, messages: [] })).status, 200);
  const context = await post(engine, "/v1/chat/completions", {
    ...chat,
    messages: [{ role: "user", content: "x".repeat(20_000) }],
  });
  assert.deepEqual(Object.keys(JSON.parse(context.text).error), [
    "code",
    "message",
    "type",
    "n_prompt_tokens",
    "n_ctx",
  ]);
  assert.equal(context.headers.get("connection"), "close");
  assert.equal(
    JSON.parse((await post(engine, "/v1/chat/completions", "{bad")).text).error.type,
    "invalid_request_error",
  );
  assert.deepEqual(JSON.parse((await get(engine, "/nowhere")).text), {
    error: { message: "File Not Found", type: "not_found_error", code: 404 },
  });
  assert.equal((await get(engine, "/health")).text, '{"status":"ok"}');
  assert.equal(JSON.parse((await get(engine, "/slots")).text).length, 4);
  assert.equal(JSON.parse((await get(engine, "/props")).text).total_slots, 4);
  assert.deepEqual(Object.keys(JSON.parse((await get(engine, "/v1/models")).text)), ["models", "object", "data"]);
});

test("keys: vLLM guards three prefixes with a bearer, llama.cpp all but health with either header", async () => {
  await using vllm = await start("vllm", { apiKey: "secret" });
  assert.deepEqual(
    [(await post(vllm, "/v1/chat/completions", chat)).text, (await get(vllm, "/v1/models")).status],
    ['{"error":"Unauthorized"}', 401],
  );
  assert.equal((await post(vllm, "/v1/messages", chat, { "x-api-key": "secret" })).status, 401);
  assert.equal((await post(vllm, "/v1/chat/completions", chat, { authorization: "Bearer secret" })).status, 200);
  assert.deepEqual([(await get(vllm, "/metrics")).status, (await post(vllm, "/invocations", chat)).status], [200, 200]);
  await using llama = await start("llama.cpp", { apiKey: "secret" });
  assert.equal(JSON.parse((await post(llama, "/v1/chat/completions", chat)).text).error.type, "authentication_error");
  assert.deepEqual([(await get(llama, "/metrics")).status, (await get(llama, "/health")).status], [401, 200]);
  assert.equal((await post(llama, "/v1/messages", chat, { "x-api-key": "secret" })).status, 200);
});
