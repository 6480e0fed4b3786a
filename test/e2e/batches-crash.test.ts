import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, beforeEach, test } from "node:test";
import type OpenAI from "openai";
import { stringify } from "yaml";
import type { SimEngine } from "../../src/sim-engine/sim-engine.ts";
import { OwnRedis } from "../../src/testing/servers/redis-server.ts";
import { anEngine } from "./support/an-engine.ts";
import { aClient, customId, linesOf, manyLines, over, submit, until } from "./support/batches.ts";
import { YardmasterProcess } from "./support/yardmaster-process.ts";

// Whole gateways that are killed while they work on a batch. What is in the files is read by the official client.

const KEY = "CANARY-client-0123456789abcdef";
/** CI has few; `BATCH_CRASH_LINES=50000` is the long run. */
const LINES = Number(process.env["BATCH_CRASH_LINES"] ?? 3_000);

let engine: SimEngine;
before(async () => {
  engine = await anEngine();
});
beforeEach(() => engine.resetLedger());
after(() => engine.close());

class World implements AsyncDisposable {
  readonly #folder: string;
  readonly #more: Record<string, unknown>;
  readonly #started: YardmasterProcess[] = [];

  private constructor(folder: string, more: Record<string, unknown>) {
    this.#folder = folder;
    this.#more = more;
  }

  static async make(more: Record<string, unknown> = {}): Promise<World> {
    return new World(await mkdtemp(join(tmpdir(), "yardmaster-batches-")), more);
  }

  /** `name` is also its data folder. */
  async start(name: string): Promise<{ readonly client: OpenAI; kill(): Promise<void> }> {
    const config = join(this.#folder, `${name}.yaml`);
    const hash = `sha256:${createHash("sha256").update(KEY).digest("hex")}`;
    const file = {
      listen: "127.0.0.1:0",
      data_dir: join(this.#folder, name),
      auth: { keys: [{ id: "c", hash, role: "client", classes: ["batch"] }] },
      jobs: { claim_ttl_s: 2 },
      upstreams: [
        { id: "u", models: ["m"], engine: "vllm", slots: 64, batch_max: 64, endpoints: [{ url: engine.url }] },
      ],
      ...this.#more,
    };
    await writeFile(config, stringify(file));
    const program = new YardmasterProcess(["gateway", "--config", config], { cwd: this.#folder });
    this.#started.push(program);
    const port = Number((await program.ready()).split(":").at(-1));
    const kill = async (): Promise<void> => {
      program.child.kill("SIGKILL");
      await program.ended;
    };
    return { client: aClient(port, KEY), kill };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const program of this.#started) await program[Symbol.asyncDispose]();
    await rm(this.#folder, { recursive: true, force: true });
  }
}

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
  await using world = await World.make();
  let gateway = await world.start("one");
  const { id } = await submit(
    gateway.client,
    manyLines(LINES, () => ({ delayHeadMs: 5 })),
  );
  for (const share of [0, 0.3, 0.7]) {
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
  await using world = await World.make(shared);
  const [one, two] = [await world.start("one"), await world.start("two")];
  const { id } = await submit(
    one.client,
    manyLines(LINES, () => ({ delayHeadMs: 5 })),
  );
  await until(two.client, id, done(LINES / 4), 120_000);
  await one.kill();
  await mustBeWhole(two.client, await over(two.client, id, 240_000), LINES);
});
