import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";
import type { SimEngine } from "../../src/sim-engine/sim-engine.ts";
import type { FakeCloud } from "../../src/testing/cloud/fake-cloud.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { anEngine } from "./support/an-engine.ts";
import { aChat, accepted, ask, ended, jobOf } from "./support/jobs.ts";
import {
  aCloud,
  aTier,
  ENV,
  OUTSIDE_KEY,
  outsideKey,
  signalPages,
  type SignalPages,
} from "./support/overflow-world.ts";
import { startTestGateway, type TestGateway, type TestGatewayOptions } from "./support/test-gateway.ts";

// Jobs whose card is busy or away, with the engine's ledger and the cloud's own as evidence of what ran where.

let engine: SimEngine;
let cloud: FakeCloud;
let pages: SignalPages;
before(async () => {
  engine = await anEngine({ slots: 2 });
});
beforeEach(async () => {
  engine.resetLedger();
  cloud = await aCloud();
  pages = await signalPages();
});
after(() => engine.close());

const vram = (percent: number): Record<string, unknown> => ({
  kind: "comfyui_vram",
  url: `${pages.url}/system_stats`,
  busy_pct: percent,
});
const semaphore = (): Record<string, unknown> => ({
  kind: "semaphore",
  url: `${pages.url}/status`,
  busy_field: "guard.busy",
});

interface Given {
  readonly signals?: readonly Record<string, unknown>[];
  readonly tier?: Record<string, unknown>;
  readonly section?: Record<string, unknown>;
  readonly key?: Record<string, unknown>;
  readonly env?: Record<string, string>;
}

const optionsOf = (given: Given): TestGatewayOptions => ({
  upstreams: [{ id: "u", models: ["m"], engine: "vllm", slots: 2, endpoints: [{ url: engine.url }] }],
  keys: [{ ...outsideKey, ...given.key }],
  env: given.env ?? ENV,
  file: {
    overflow: [
      {
        upstream: "u",
        signals: given.signals ?? [vram(85)],
        signal_memory_ms: 0,
        hold_s: 0,
        tiers: [aTier(cloud, given.tier)],
        ...given.section,
      },
    ],
  },
});

async function withGateway(given: Given, run: (gateway: TestGateway) => Promise<void>): Promise<void> {
  const gateway = await startTestGateway(optionsOf(given));
  try {
    await run({ ...gateway, keys: { ...gateway.keys, client: OUTSIDE_KEY } });
  } finally {
    await gateway.stop();
    await cloud.close();
    await pages[Symbol.asyncDispose]();
  }
}

const here = (): number => engine.ledger().entries.length;

test("a card that is free keeps its jobs, and the reading is on record [50.V3 50.V5]", async () => {
  await withGateway({}, async (gateway) => {
    const job = await accepted(gateway, { body: aChat() });
    const done = await ended(gateway, job.id);
    assert.deepEqual([done.state, done.overflow?.decision, done.overflow?.card], ["completed", "local", "free"]);
    assert.deepEqual(
      done.overflow?.signals.map(({ reason, state }) => [reason, state]),
      [["vram 42.4% < 85.0%", "not_busy"]],
    );
    assert.deepEqual([here(), cloud.ledger().submits], [1, 0]);
  });
});

test("an artificially low threshold marks the card as loaded in words and numbers, and without approval the job stays here [50.V3 50.V4 50.V5 80.O3]", async () => {
  await withGateway({ signals: [vram(1)], tier: { approved: false } }, async (gateway) => {
    const job = await accepted(gateway, { body: aChat() });
    const done = await ended(gateway, job.id);
    assert.deepEqual([done.state, done.overflow?.decision, done.overflow?.card], ["completed", "local", "loaded"]);
    assert.equal(done.overflow?.why, "vram 42.4% ≥ 1.0%");
    assert.deepEqual(done.overflow?.missing, [{ tier: "cloud", lacks: ["not_approved"] }]);
    assert.deepEqual([here(), cloud.ledger().submits], [1, 0]);
  });
});

test("the semaphore alone is enough: the job runs on the tier, its result is kept, and what it cost is told [50.V1 50.V3 50.V5]", async () => {
  pages.taken = true;
  await withGateway({ signals: [vram(85), semaphore()] }, async (gateway) => {
    const job = await accepted(gateway, { body: aChat() });
    const done = await ended(gateway, job.id);
    assert.deepEqual([done.state, done.overflow?.decision, done.overflow?.tier], ["completed", "tier", "cloud"]);
    assert.equal(done.overflow?.why, "guard.busy: the card holds 1 ≥ 1 job");
    assert.deepEqual(
      [done.overflow?.price_reserved, done.overflow?.price_paid, done.overflow?.currency, done.overflow?.state],
      [0.5, 0.5, "EUR", "ended"],
    );
    const result = await ask(gateway, `/${job.id}/result`);
    assert.match(result.text, /^video of /);
    assert.match(result.headers["content-type"] ?? "", /video\/mp4/);
    const { submits, tasks } = cloud.ledger();
    assert.deepEqual([here(), submits, tasks[0]?.idempotencyKey], [0, 1, job.id]);
    const { records } = await gateway.audit(`?request_id=${job.id}`);
    assert.deepEqual(
      records.map(({ outcome }) => outcome),
      ["money_committed", "money_charged", "ok"],
    );
  });
});

test("a card that holds its jobs off is given none while it is busy, and takes the job when it is free again [50.V3]", async () => {
  pages.taken = true;
  const given = { signals: [semaphore()], tier: { approved: false }, section: { hold_s: 600 } };
  await withGateway(given, async (gateway) => {
    const job = await accepted(gateway, { body: aChat() });
    const held = await eventually(
      "the job to be held",
      () => jobOf(gateway, job.id),
      ({ overflow }) => overflow?.decision === "held",
    );
    assert.deepEqual([held.state === "completed", here()], [false, 0]);
    pages.taken = false;
    const done = await ended(gateway, job.id);
    assert.deepEqual([done.state, done.attempts, done.overflow?.decision], ["completed", 1, "local"]);
    assert.deepEqual([here(), cloud.ledger().submits], [1, 0]);
  });
});
