import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI from "openai";
import { OwnRedis } from "../../src/testing/servers/redis-server.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { anEngine } from "./support/an-engine.ts";
import { adminOf, PREFIX, seasonStore, shareFile, sharedUpstream } from "./support/shared-world.ts";
import { startTestGateway, type TestGateway } from "./support/test-gateway.ts";

const KEY = "CANARY-limited-0123456789abcdef0123456789abcdef";
const messages = [{ role: "user" as const, content: "Count the wagons." }];
const clientOf = (gateway: TestGateway): OpenAI =>
  new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: KEY, maxRetries: 0 });

async function withLimited(
  limits: Record<string, unknown>,
  run: (gateway: TestGateway, openai: OpenAI) => Promise<void>,
  upstream: Record<string, unknown> = {},
): Promise<void> {
  const engine = await anEngine({ slots: 16, prefillTps: 100_000, decodeTps: 2_000 });
  const gateway = await startTestGateway({
    upstreams: [{ id: "u", models: ["m"], engine: "vllm", slots: 16, endpoints: [{ url: engine.url }], ...upstream }],
    keys: [{ id: "limited", key: KEY, limits }],
  });
  try {
    await run(gateway, clientOf(gateway));
  } finally {
    await gateway.stop();
    await engine.close();
  }
}

test("the official OpenAI client reads what is left of its key's limits, and a refusal before any engine is asked [60.K3]", async () => {
  await withLimited({ requests_per_minute: 2, tokens_per_minute: 10_000 }, async (gateway, openai) => {
    const { response, data } = await openai.chat.completions
      .create({ model: "m", messages, max_tokens: 5 })
      .withResponse();
    assert.equal(response.headers.get("x-ratelimit-limit-requests"), "2");
    assert.equal(response.headers.get("x-ratelimit-remaining-requests"), "1");
    assert.match(response.headers.get("x-ratelimit-reset-requests") ?? "", /^(1m)?[\d.]+s$/);
    assert.equal(response.headers.get("x-ratelimit-limit-tokens"), "10000");
    const next = await openai.chat.completions.create({ model: "m", messages, max_tokens: 5 }).withResponse();
    // The first was reserved with an estimate, and settled by what the engine counted.
    const reserved = 10_000 - Number(response.headers.get("x-ratelimit-remaining-tokens"));
    const left = Number(next.response.headers.get("x-ratelimit-remaining-tokens"));
    assert.equal(left, 10_000 - reserved - (data.usage?.total_tokens ?? 0));
    await assert.rejects(openai.chat.completions.create({ model: "m", messages }), (error: unknown) => {
      assert.ok(error instanceof OpenAI.RateLimitError);
      assert.equal(error.code, "RATE_LIMITED");
      assert.match(error.headers?.get("retry-after") ?? "", /^[1-9]\d?$/);
      return true;
    });
    assert.equal(await gateway.metric('yardmaster_key_limited_total{limit="requests_per_minute"}'), 1);
  });
});

test("a list of prompts is reserved for as many answers as it has prompts, also a long one, and the largest length that is asked for counts [60.K3]", async () => {
  await withLimited({ tokens_per_minute: 100_000 }, async (_gateway, openai) => {
    const ask = (prompt: string[] | number[][], more: Record<string, number> = {}): Promise<string> =>
      openai.completions.create({ model: "m", prompt, max_tokens: 40, ...more }).then(
        () => "ok",
        (error: unknown) => (error instanceof OpenAI.APIError ? String(error.code) : String(error)),
      );
    assert.equal(await ask(["a", "b"]), "ok");
    const many = Array.from({ length: 3_000 }, () => "a");
    assert.equal(await ask(many), "REQUEST_OVER_LIMIT");
    assert.equal(await ask(many.map((_, at) => [at])), "REQUEST_OVER_LIMIT");
    assert.equal(await ask([...many, "b".repeat(70_000)]), "REQUEST_OVER_LIMIT");
    assert.equal(await ask(["a"], { max_completion_tokens: 1, max_tokens: 200_000 }), "REQUEST_OVER_LIMIT");
  });
});

test("a stream that its client leaves is settled too, and its place is free again [60.K3]", async () => {
  await withLimited({ max_in_flight: 1, tokens_per_day: 2_000 }, async (_gateway, openai) => {
    const stream = await openai.chat.completions.create({ model: "m", messages, max_tokens: 900, stream: true });
    for await (const _chunk of stream) break;
    const after = await eventually(
      "the place is free again",
      () =>
        openai.chat.completions
          .create({ model: "m", messages, max_tokens: 5 })
          .withResponse()
          .catch(() => null),
      (answer) => answer !== null,
    );
    // Nobody said what the stream came to, so it is what was reserved for it.
    const left = Number(after?.response.headers.get("x-ratelimit-remaining-tokens"));
    assert.ok(left > 900 && left < 1_100, String(left));
    await assert.rejects(
      openai.chat.completions.create({ model: "m", messages, max_tokens: 5_000 }),
      (error: unknown) => {
        assert.ok(error instanceof OpenAI.BadRequestError && error.code === "REQUEST_OVER_LIMIT");
        return true;
      },
    );
    await assert.rejects(
      openai.chat.completions.create({ model: "m", messages, max_tokens: 1_500 }),
      (error: unknown) => {
        assert.ok(error instanceof OpenAI.RateLimitError && error.code === "KEY_QUOTA_SPENT");
        return true;
      },
    );
  });
});

test("three gateways let in no more of a key than its limit, also while Redis stands still, and spend no money meanwhile [60.K3]", async () => {
  const redis = await OwnRedis.start();
  const admin = adminOf(redis);
  const engine = await anEngine({ slots: 256, prefillTps: 100_000, decodeTps: 5_000 });
  const gateways: TestGateway[] = [];
  const keys = [
    { id: "limited", key: KEY, limits: { requests_per_minute: 30 } },
    { id: "paying", key: `${KEY}-paying`, limits: { cost_per_day: 1 } },
  ];
  const call = async (gateway: TestGateway, key: string): Promise<string> => {
    const answer = await fetch(`${gateway.url}/v1/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
      body: JSON.stringify({ model: "m", messages, max_tokens: 3 }),
    });
    const body = (await answer.json()) as { readonly error?: { readonly code: string } };
    return answer.status === 200 ? "ok" : (body.error?.code ?? "");
  };
  const race = async (each: number): Promise<string[]> =>
    Promise.all(gateways.flatMap((gateway) => Array.from({ length: each }, () => call(gateway, KEY))));
  const lets = (said: readonly string[]): number => said.filter((one) => one === "ok").length;
  try {
    await seasonStore(admin);
    const price = { input_per_1m: 1, output_per_1m: 2 };
    for (let i = 0; i < 3; i += 1)
      gateways.push(
        await startTestGateway({
          upstreams: [sharedUpstream(engine.url, 128, { price })],
          file: shareFile(redis.url, { coordination_timeout_ms: 500 }),
          keys,
        }),
      );
    for (const gateway of gateways)
      await eventually(
        "three share",
        () => gateway.health(),
        ({ coordination }) => (coordination as { gateways: number | null }).gateways === 3,
        30_000,
      );
    const paying = await call(gateways[0]!, `${KEY}-paying`);
    assert.equal(paying, "ok");
    redis.pause();
    await Promise.all(gateways.map((gateway) => call(gateway, `${KEY}-paying`)));
    const away = await race(20);
    assert.equal(lets(away), 30, "each gateway lets in its third");
    assert.deepEqual(new Set(away), new Set(["ok", "RATE_LIMITED"]));
    assert.equal(await call(gateways[1]!, `${KEY}-paying`), "KEY_COUNTS_UNAVAILABLE");
    redis.resume();
    const account = `{${PREFIX}:limits}:account:limited`;
    await eventually(
      "all is told",
      async () => {
        const fields = Object.entries(await admin.hgetall(account));
        return fields.reduce((sum, [name, value]) => sum + (/^r\d/.test(name) ? Number(value) : 0), 0);
      },
      (requests) => requests === 30,
      30_000,
    );
    const back = await race(5);
    assert.equal(lets(back), 0, "what was let in meanwhile counts");
    assert.equal(engine.ledger().opened, 30 + 1);
  } finally {
    redis.resume();
    await Promise.all(gateways.map((gateway) => gateway.stop()));
    await engine.close();
    admin.disconnect();
    await redis.close();
  }
});
