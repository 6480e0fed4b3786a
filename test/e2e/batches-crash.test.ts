import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";
import type OpenAI from "openai";
import type { SimEngine } from "../../src/sim-engine/sim-engine.ts";
import { OwnRedis } from "../../src/testing/servers/redis-server.ts";
import { anEngine } from "./support/an-engine.ts";
import { customId, linesOf, manyLines, over, submit, until } from "./support/batches.ts";
import { BatchProcesses } from "./support/batch-processes.ts";

// Whole gateways that are killed while they work on a batch. What is in the files is read by the official client.

/** `BATCH_CRASH_LINES=50000` is the long run. */
const LINES = Number(process.env["BATCH_CRASH_LINES"] ?? 10_000);

let engine: SimEngine;
before(async () => {
  engine = await anEngine();
});
beforeEach(() => engine.resetLedger());
after(() => engine.close());

const done = (wanted: number) => (batch: OpenAI.Batch) => (batch.request_counts?.completed ?? 0) >= wanted;

async function mustBeWhole(client: OpenAI, batch: OpenAI.Batch, lines: number): Promise<void> {
  assert.equal(batch.status, "completed", JSON.stringify(batch));
  assert.deepEqual(batch.request_counts, { total: lines, completed: lines, failed: 0 });
  const output = await linesOf(client, batch.output_file_id);
  assert.deepEqual(
    output.map(({ custom_id }) => custom_id),
    Array.from({ length: lines }, (_, index) => customId(index)),
    "each line once, in the order of the input",
  );
  assert.equal(batch.error_file_id, null);
}

test("a gateway that is killed again and again goes on with its batch: no line is lost, and none is there twice [20.J7 80.G3 80.I1]", async () => {
  await using world = await BatchProcesses.make(engine);
  let gateway = await world.start("one");
  const { id } = await submit(
    gateway.client,
    manyLines(LINES, () => ({ delayHeadMs: 5 })),
  );
  for (const share of [0.2, 0.6]) {
    await until(gateway.client, id, done(share * LINES), 120_000);
    await gateway.kill();
    gateway = await world.start("one");
  }
  await mustBeWhole(gateway.client, await over(gateway.client, id, 240_000), LINES);
  const calls = engine.ledger().entries.length;
  assert.ok(calls >= LINES && calls <= LINES * 1.5, `${calls} calls for ${LINES} lines: what is done stays done`);
});

test("of two gateways over Redis the other one goes on with the batch of the one that was killed [20.J7 80.G3]", async () => {
  await using server = await OwnRedis.start();
  const shared = { coordination: "redis", redis_url: server.url, coordination_timeout_ms: 2_000 };
  await using world = await BatchProcesses.make(engine, shared);
  const [one, two] = [await world.start("one"), await world.start("two")];
  const lines = LINES / 5;
  const { id } = await submit(
    one.client,
    manyLines(lines, () => ({ delayHeadMs: 5 })),
  );
  await until(two.client, id, done(lines / 4), 120_000);
  await one.kill();
  await mustBeWhole(two.client, await over(two.client, id, 240_000), lines);
});
