import assert from "node:assert/strict";
import { rm } from "node:fs/promises";
import { after, before, beforeEach, test } from "node:test";
import type OpenAI from "openai";
import type { SimEngine } from "../../src/sim-engine/sim-engine.ts";
import { OwnRedis } from "../../src/testing/servers/redis-server.ts";
import { anEngine } from "./support/an-engine.ts";
import { aClient, customId, linesOf, manyLines, over, submit, until } from "./support/batches.ts";
import { startTestGateway, type TestGateway } from "./support/test-gateway.ts";

// A batch of gateways that share one Redis, while one of them stops or Redis stands still.

let engine: SimEngine;
before(async () => {
  engine = await anEngine();
});
beforeEach(() => engine.resetLedger());
after(() => engine.close());

const LINES = 600;
const done = (wanted: number) => (batch: OpenAI.Batch) => (batch.request_counts?.completed ?? 0) >= wanted;

const aGateway = (url: string): Promise<TestGateway> =>
  startTestGateway({
    file: { coordination: "redis", redis_url: url, coordination_timeout_ms: 1_000 },
    upstreams: [{ id: "u", models: ["m"], engine: "vllm", slots: 16, endpoints: [{ url: engine.url }] }],
  });

async function mustBeWhole(client: OpenAI, id: string, msMax = 90_000): Promise<void> {
  const batch = await over(client, id, msMax);
  assert.deepEqual(batch.request_counts, { total: LINES, completed: LINES, failed: 0 }, JSON.stringify(batch));
  assert.deepEqual(
    (await linesOf(client, batch.output_file_id)).map(({ custom_id }) => custom_id),
    Array.from({ length: LINES }, (_, index) => customId(index)),
  );
}

test("a gateway that is told to stop leaves its batch to the others at once [20.J7 20.J10]", async () => {
  await using server = await OwnRedis.start();
  const [one, two] = [await aGateway(server.url), await aGateway(server.url)];
  try {
    const client = aClient(two.port, two.keys.client);
    const { id } = await submit(
      aClient(one.port, one.keys.client),
      manyLines(LINES, () => ({ delayHeadMs: 20 })),
    );
    await until(client, id, done(50));
    await one.gateway.stop(new AbortController().signal);
    await rm(one.configOf({ upstreams: [] }).dataDir, { recursive: true, force: true });
    // A claim or a lease that had to run out would take half a minute.
    await mustBeWhole(client, id, 20_000);
  } finally {
    await two.stop();
  }
});

test("a batch goes on when Redis is back that stood still [20.J7 80.R1]", async () => {
  await using server = await OwnRedis.start();
  const gateway = await aGateway(server.url);
  try {
    const client = aClient(gateway.port, gateway.keys.client);
    const { id } = await submit(
      client,
      manyLines(LINES, () => ({ delayHeadMs: 20 })),
    );
    await until(client, id, done(50));
    server.pause();
    await assert.rejects(client.batches.retrieve(id), { status: 503 });
    server.resume();
    await mustBeWhole(client, id);
  } finally {
    await gateway.stop();
  }
});
