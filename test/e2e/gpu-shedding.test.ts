import assert from "node:assert/strict";
import { after, afterEach, before, beforeEach, test } from "node:test";
import { parseIsoTime } from "../../src/kernel/clock.ts";
import type { SimEngine } from "../../src/sim-engine/sim-engine.ts";
import { startFakeAnalyzer } from "../../src/testing/analyzer/fake-analyzer.ts";
import { startFakeExporter, type FakeCard, type FakeExporter, type FakePage } from "../../src/testing/fake-exporter.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { anEngine } from "./support/an-engine.ts";
import { aTask, call, errorCodeOf } from "./support/calls.ts";
import { documentClient, submitDocument } from "./support/document-client.ts";
import { fastGpuHealth, untilGpus } from "./support/gpu-world.ts";
import { aChat, accepted, ended, jobOf, submit } from "./support/jobs.ts";
import { median } from "./support/ledger-check.ts";
import { startTestGateway, type TestGateway } from "./support/test-gateway.ts";

// Shedding over real sockets: which work is refused while the cards are saturated, and that everything else is as always.

let engine: SimEngine;
let exporter: FakeExporter;
let gateway: TestGateway | undefined;

before(async () => {
  engine = await anEngine();
});
beforeEach(async () => {
  engine.resetLedger();
  exporter = await startFakeExporter();
});
afterEach(async () => {
  await gateway?.stop();
  gateway = undefined;
  await exporter.close();
});
after(() => engine.close());

const BUSY: FakeCard = { index: 0, utilization: 99 };
const IDLE: FakeCard = { index: 0, utilization: 10 };

async function start(
  gpuHealth: Record<string, unknown> = {},
  upstream: Record<string, unknown> = {},
): Promise<TestGateway> {
  const sources = [{ dcgm_url: exporter.url, host: exporter.host }];
  gateway = await startTestGateway({
    upstreams: [
      {
        id: "u",
        models: ["m"],
        engine: "vllm",
        slots: 8,
        endpoints: [{ url: engine.url, gpus: ["gpu-host/0"] }],
        ...upstream,
      },
    ],
    file: { gpu_health: fastGpuHealth({ sources, shed_batch: true, ...gpuHealth }) },
  });
  return gateway;
}

const untilSaturated = (at: TestGateway, saturated = true): Promise<unknown> =>
  untilGpus(
    `saturated: ${saturated}`,
    at,
    ({ upstreams, gpus }) => gpus.length > 0 && upstreams[0]?.saturated === saturated,
  );
const shedOf = (at: TestGateway, site: string): Promise<number | undefined> =>
  at.metric(`yardmaster_gpu_shed_total{upstream="u",site="${site}"}`);

test("while the cards are saturated batch alone is refused, with a time to come back, counted once and on record; nobody else notices [30.H1 30.H2 30.H3]", async () => {
  exporter.cards(IDLE);
  const at = await start();
  await untilSaturated(at, false);
  const before: number[] = [];
  for (let sent = 0; sent < 15; sent += 1) before.push((await call(at, { body: aTask() })).tookMs);
  assert.equal((await call(at, { class: "batch", body: aTask() })).status, 200);
  exporter.cards(BUSY);
  await untilSaturated(at);
  engine.resetLedger();
  const refused = await call(at, { class: "batch", body: aTask() });
  assert.deepEqual([refused.status, errorCodeOf(refused.text)], [429, "GPU_SATURATED"]);
  assert.ok(Number(refused.headers["retry-after"]) >= 1);
  assert.equal(engine.ledger().entries.length, 0);
  assert.equal(await shedOf(at, "sync"), 1);
  const during: number[] = [];
  for (const requestClass of ["interactive", "system"] as const)
    for (let sent = 0; sent < 15; sent += 1) {
      const answer = await call(at, { class: requestClass, body: aTask() });
      assert.equal(answer.status, 200);
      during.push(answer.tookMs);
    }
  assert.ok(median(during) < 3 * median(before) + 20, `${median(before)} ms before, ${median(during)} ms during`);
  const { records } = await eventually(
    "the record",
    () => at.audit("?outcome=refused"),
    (page) => page.records.length > 0,
  );
  assert.deepEqual(
    records.map(({ errorCode, shed, class: name, upstream }) => [errorCode, shed, name, upstream]),
    [["GPU_SATURATED", true, "batch", "u"]],
  );
  exporter.cards(IDLE);
  await untilSaturated(at, false);
  assert.equal((await call(at, { class: "batch", body: aTask() })).status, 200);
  assert.equal(await shedOf(at, "sync"), 1);
});

test("load that comes and goes faster than the window refuses nothing [30.H1]", async () => {
  const pages = Array.from({ length: 200 }, (_, at): FakePage => ({
    kind: "cards",
    cards: [at % 4 === 3 ? IDLE : BUSY],
  }));
  exporter.play(...pages, { kind: "cards", cards: [IDLE] });
  const at = await start();
  await exporter.untilAsked(3);
  for (let sent = 0; sent < 40; sent += 1) {
    await exporter.untilAsked(1);
    assert.equal((await call(at, { class: "batch", body: aTask() })).status, 200);
  }
  assert.equal(await shedOf(at, "sync"), undefined);
});

test("a job is put back while the cards are saturated, counted and on record once, and finishes afterwards; one that would rather fail does [20.J9 30.H2 30.H3]", async () => {
  exporter.cards(BUSY);
  const at = await start();
  await untilSaturated(at);
  const waits = await accepted(at, { body: aChat() });
  const fails = await accepted(at, { body: aChat(), on_shed: "fail" });
  const failed = await ended(at, fails.id);
  assert.deepEqual([failed.state, failed.error?.code], ["failed", "GPU_SATURATED"]);
  const put = await eventually(
    "put back more than once",
    () => jobOf(at, waits.id),
    ({ plan }) => {
      const timeOf = (step: string): number => parseIsoTime(plan.findLast(({ what }) => what === step)?.at ?? "") ?? 0;
      // Told with the newest time alone: the first time it is put back at once.
      return timeOf("postponed") - timeOf("claimed") > 2_000;
    },
  );
  assert.deepEqual([put.state, put.attempts], ["queued", 0]);
  assert.equal(await shedOf(at, "job"), 2);
  assert.equal(engine.ledger().entries.length, 0);
  const { records } = await at.audit();
  assert.equal(records.filter(({ requestId, shed }) => shed && requestId.startsWith(`${waits.id}.`)).length, 1);
  exporter.cards(IDLE);
  assert.equal((await ended(at, waits.id)).state, "completed");
  assert.equal(engine.ledger().entries.length, 1);
});

test("a job that failed for saturation is driven afresh by a resubmission with its key [20.J5 30.H2]", async () => {
  exporter.cards(BUSY);
  const at = await start();
  await untilSaturated(at);
  const headers = { "idempotency-key": "again" };
  const first = await accepted(at, { body: aChat(), on_shed: "fail" }, { headers });
  assert.equal((await ended(at, first.id)).error?.code, "GPU_SATURATED");
  exporter.cards(IDLE);
  await untilSaturated(at, false);
  const again = JSON.parse((await submit(at, { body: aChat(), on_shed: "fail" }, { headers })).text) as { id: string };
  assert.equal((await ended(at, again.id)).state, "completed");
});

test("what memory has is given out before anybody asks about saturation; a refusal is not kept under the key [30.H2 20.I4]", async () => {
  exporter.cards(IDLE);
  const at = await start({}, { cache: { ttl_s: 60 } });
  const body = { model: "m", messages: [{ role: "user", content: "hi" }], temperature: 0, sim: { tokens: 2 } };
  const batch = (more: Record<string, string>, content = "hi") =>
    call(at, { class: "batch", headers: more, body: { ...body, messages: [{ role: "user", content }] } });
  await untilSaturated(at, false);
  assert.equal((await batch({ "idempotency-key": "a" })).status, 200);
  assert.equal((await batch({}, "cached")).status, 200);
  exporter.cards(BUSY);
  await untilSaturated(at);
  assert.equal((await batch({ "idempotency-key": "a" })).status, 200);
  assert.equal((await batch({}, "cached")).status, 200);
  assert.equal((await batch({ "idempotency-key": "b" }, "new")).status, 429);
  exporter.cards(IDLE);
  await untilSaturated(at, false);
  assert.equal((await batch({ "idempotency-key": "b" }, "new")).status, 200);
});

test("documents of class batch are refused in their service's own words [30.H2 30.H3]", async () => {
  const analyzer = await startFakeAnalyzer();
  try {
    exporter.cards(BUSY);
    const at = await start(
      {},
      {
        kind: "azure-di",
        engine: "generic",
        models: ["prebuilt-read"],
        endpoints: [{ url: analyzer.url, gpus: ["GPU-gpu-host-0"] }],
      },
    );
    await untilSaturated(at);
    const answer = await call(at, {
      path: "/documentintelligence/documentModels/prebuilt-read:analyze?api-version=2024-11-30",
      class: "batch",
      headers: { "content-type": "application/pdf" },
      body: Buffer.from("%PDF-1.7 x"),
    });
    assert.deepEqual([answer.status, answer.text.includes("saturated")], [429, true]);
    assert.ok(Number(answer.headers["retry-after"]) >= 1);
    assert.equal(await shedOf(at, "document"), 1);
    const { records } = await eventually(
      "the record",
      () => at.audit("?outcome=refused"),
      (page) => page.records.length > 0,
    );
    assert.deepEqual(
      records.map(({ errorCode, shed, class: name }) => [errorCode, shed, name]),
      [["GPU_SATURATED", true, "batch"]],
    );
    const client = documentClient(at.url, { key: at.keys.client, family: "v4.0" });
    assert.equal((await submitDocument(client, { bytes: Buffer.from("%PDF-1.7 y") })).status, "202");
  } finally {
    await analyzer.close();
  }
});

test("a dry run counts what it would refuse, and refuses nothing [30.H4]", async () => {
  exporter.cards(BUSY);
  const at = await start({ dry_run: true });
  await untilSaturated(at);
  for (let sent = 0; sent < 3; sent += 1) assert.equal((await call(at, { class: "batch", body: aTask() })).status, 200);
  assert.equal(await at.metric('yardmaster_gpu_dry_run_total{upstream="u",what="shed"}'), 3);
  assert.equal(await shedOf(at, "sync"), undefined);
  await eventually(
    "the log",
    () => at.logLines.filter((line) => line.includes("would_shed")).length,
    (lines) => lines === 1,
  );
});

test("an upstream is saturated only when all of its endpoints' cards are, and one without cards never is [30.H1]", async () => {
  const other = await anEngine();
  try {
    exporter.cards(BUSY, { index: 1, utilization: 99 });
    const endpoints = [{ url: engine.url, gpus: ["gpu-host/0"] }, { url: other.url }];
    const at = await start({}, { endpoints });
    await untilGpus("both cards", at, ({ gpus }) => gpus.length === 2 && gpus.every(({ saturated }) => saturated));
    assert.equal((await call(at, { class: "batch", body: aTask() })).status, 200);
    assert.equal(await at.metric('yardmaster_gpu_saturated{upstream="u"}'), 0);
  } finally {
    await other.close();
  }
});
