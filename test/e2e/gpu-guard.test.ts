import assert from "node:assert/strict";
import { after, afterEach, before, beforeEach, test } from "node:test";
import { cliCommands } from "../../src/cli/commands.ts";
import { dispatch } from "../../src/cli/dispatch.ts";
import type { SimEngine } from "../../src/sim-engine/sim-engine.ts";
import { captureIo } from "../../src/testing/capture-io.ts";
import { pageOf, startFakeExporter, type FakeCard, type FakeExporter } from "../../src/testing/fake-exporter.ts";
import { aGpu } from "../../src/testing/fleet-builders.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { anEngine } from "./support/an-engine.ts";
import { aTask, call, errorCodeOf, startCall } from "./support/calls.ts";
import { clearGpu, fastGpuHealth, guardedOf, statesOf, untilGpus } from "./support/gpu-world.ts";
import { startTestGateway, type TestGateway } from "./support/test-gateway.ts";

// The guard against a scripted exporter, with the engines' ledgers as evidence of where requests went.

let engines: readonly [SimEngine, SimEngine];
let exporter: FakeExporter;
let gateway: TestGateway | undefined;

before(async () => {
  engines = [await anEngine(), await anEngine()];
});
beforeEach(async () => {
  for (const engine of engines) engine.resetLedger();
  exporter = await startFakeExporter();
});
afterEach(async () => {
  await gateway?.stop();
  gateway = undefined;
  await exporter.close();
});
after(async () => {
  for (const engine of engines) await engine.close();
});

const twoEndpoints = (): Record<string, unknown> => ({
  id: "u",
  models: ["m"],
  engine: "vllm",
  slots: 8,
  endpoints: engines.map(({ url }, index) => ({ url, gpus: [`gpu-host/${index}`] })),
});
const sourceOf = ({ url, host }: FakeExporter): Record<string, unknown> => ({ dcgm_url: url, host });

async function start(
  gpuHealth: Record<string, unknown>,
  upstreams: readonly Record<string, unknown>[] = [twoEndpoints()],
): Promise<TestGateway> {
  const section = fastGpuHealth({ sources: [sourceOf(exporter)], couple_faults: true, ...gpuHealth });
  gateway = await startTestGateway({ upstreams, file: { gpu_health: section } });
  return gateway;
}

const countOf = (engine: SimEngine): number => engine.ledger().entries.length;
const idOf = (engine: SimEngine): string => new URL(engine.url).host;

test("a hot card's endpoint gets no new requests, its running one goes on, and it comes back when the card was cool for long enough [30.U1 30.U2]", async () => {
  exporter.cards({ index: 0 }, { index: 1 });
  const at = await start({});
  await untilGpus("both cards", at, ({ gpus }) => gpus.length === 2);
  const running = [
    startCall(at, { body: aTask({ tokens: 40, delayBetweenMs: 25 }) }),
    startCall(at, { body: aTask({ tokens: 40, delayBetweenMs: 25 }) }),
  ];
  await Promise.all(running.map((each) => each.headed()));
  exporter.cards({ index: 0, temperature: 90 }, { index: 1 });
  await untilGpus("the guard", at, (view) => guardedOf(view, "u").length > 0);
  const before = countOf(engines[0]);
  for (let sent = 0; sent < 6; sent += 1) assert.equal((await call(at, { body: aTask() })).status, 200);
  assert.equal(countOf(engines[0]), before);
  assert.deepEqual(
    (await Promise.all(running.map(({ answer }) => answer))).map(({ status, whole }) => [status, whole]),
    [
      [200, true],
      [200, true],
    ],
  );
  assert.equal(
    await at.metric(`yardmaster_endpoint_state{upstream="u",endpoint="${idOf(engines[0])}",state="guarded"}`),
    1,
  );
  assert.equal(await at.metric('yardmaster_gpu_guards_total{upstream="u",fault="temperature"}'), 1);
  assert.equal(await at.metric('yardmaster_gpu_guarded_endpoints{upstream="u"}'), 1);
  exporter.cards({ index: 0, temperature: 60 }, { index: 1 });
  await untilGpus("the return", at, (view) => guardedOf(view, "u").length === 0);
  // What its engine reported while the streams ran speaks against it until the next report.
  const asked = async (): Promise<number> => {
    assert.equal((await call(at, { body: aTask() })).status, 200);
    return countOf(engines[0]);
  };
  await eventually("a call there", asked, (count) => count > before);
});

test("an endpoint that is taken out or let in again is an event of the audit, with the card and the reason [30.U2]", async () => {
  exporter.cards({ index: 0, xid: 0 }, { index: 1 });
  const at = await start({ couple_xid: true });
  await untilGpus("both cards", at, ({ gpus }) => gpus.length === 2);
  exporter.cards({ index: 0, xid: 79 }, { index: 1 });
  await untilGpus("the guard", at, (view) => guardedOf(view, "u").length === 1);
  exporter.serve({ kind: "hang" });
  await untilGpus("the silence", at, (view) => guardedOf(view, "u").length === 0);
  exporter.cards({ index: 0, xid: 79 }, { index: 1 });
  await untilGpus("the fault again", at, (view) => guardedOf(view, "u").length === 1);
  exporter.cards({ index: 0, xid: 0 }, { index: 1 });
  await untilGpus("the return", at, (view) => guardedOf(view, "u").length === 0);
  const events = (await at.audit()).records.filter(({ method }) => method === "EVENT");
  assert.deepEqual(
    events.map(({ outcome, route, upstream, endpoint, keyId, status }) => ({
      ...{ outcome, route, upstream, endpoint, keyId, status },
    })),
    [
      ["guarded", "gpu-host/0 xid: XID 79"],
      ["unguarded", "gpu-host/0 is unknown: stale"],
      ["guarded", "gpu-host/0 xid: XID 79"],
      ["unguarded", "no card of it has a fault"],
    ].map(([outcome, reason]) => ({
      ...{ outcome, route: `gpu.guard: ${reason}`, upstream: "u", endpoint: idOf(engines[0]) },
      ...{ keyId: null, status: 0 },
    })),
  );
});

test("a card that falls off the bus is seen beside a line that can't be read on every page [30.T2 30.U1]", async () => {
  const bad = 'DCGM_FI_DEV_GPU_TEMP{gpu="1",UUID="GPU-gpu-host-1",label_team="a "quoted" team"} 60\n';
  const told = (...cards: FakeCard[]) => ({ kind: "text", text: pageOf(cards, "gpu-host") + bad }) as const;
  exporter.serve(told({ index: 0 }, { index: 1 }));
  const at = await start({ couple_xid: true });
  await untilGpus("both cards", at, ({ gpus }) => gpus.length === 2);
  exporter.serve(told({ index: 1 }));
  const view = await untilGpus("the guard", at, (seen) => guardedOf(seen, "u").length > 0);
  assert.deepEqual(guardedOf(view, "u"), [idOf(engines[0])]);
});

test("heat keeps an upstream's last endpoint in; a card that fell off the bus does not [30.U2]", async () => {
  const [engine] = engines;
  const one = { ...twoEndpoints(), endpoints: [{ url: engine.url, gpus: ["GPU-gpu-host-0"] }] };
  exporter.cards({ index: 0, temperature: 99, xid: 0 }, { index: 1 });
  const at = await start({ couple_xid: true }, [one]);
  await untilGpus("the heat", at, (view) => statesOf(view)["GPU-gpu-host-0"] === "faulted");
  assert.equal((await call(at, { body: aTask() })).status, 200);
  exporter.cards({ index: 0, temperature: 60, xid: 79 }, { index: 1 });
  await untilGpus("the XID", at, (view) => guardedOf(view, "u").length === 1);
  const refused = await call(at, { body: aTask() });
  assert.deepEqual([refused.status, errorCodeOf(refused.text)], [503, "UPSTREAM_UNAVAILABLE"]);
  assert.match(refused.text, /guard/);
});

test("a hot card's endpoint is let in when the other endpoint dies, and not only with the next page about cards [30.U2]", async () => {
  const dying = await anEngine();
  try {
    exporter.cards({ index: 0, temperature: 99 }, { index: 1 });
    const urls = [engines[0].url, dying.url];
    const endpoints = urls.map((url, index) => ({ url, gpus: [`gpu-host/${index}`] }));
    const at = await start({ poll_s: 120, staleness_s: 600 }, [{ ...twoEndpoints(), endpoints }]);
    await untilGpus("the guard", at, (view) => guardedOf(view, "u").length === 1);
    await dying.close();
    const served = async (): Promise<number> => (await call(at, { body: aTask() })).status;
    await eventually("an answer of the hot one", served, (status) => status === 200);
    assert.equal(exporter.asked, 1);
  } finally {
    await dying.close();
  }
});

test("the operator takes a fault for mended: what stands in the gauge is old from then on, and only operators may say so [30.T4]", async () => {
  exporter.cards({ index: 0, xid: 0 }, { index: 1 });
  const at = await start({ couple_xid: true });
  await untilGpus("both cards", at, ({ gpus }) => gpus.length === 2);
  exporter.cards({ index: 0, xid: 79 }, { index: 1 });
  await untilGpus("the guard", at, (view) => guardedOf(view, "u").length === 1);
  assert.equal((await call(at, { path: "/admin/gpus/clear", body: { gpu: "gpu-host/0" } })).status, 403);
  assert.equal((await clearGpu(at, "0")).status, 400);
  assert.equal((await clearGpu(at, "GPU-nobody")).status, 404);
  const cleared = await clearGpu(at, "gpu-host/0");
  assert.deepEqual([cleared.status, await cleared.json()], [200, { gpu: "gpu-host/0", cleared: 1 }]);
  const audited = (await at.audit()).records.filter(({ route }) => route.startsWith("/admin/gpus/clear"));
  assert.deepEqual(
    audited.map(({ route, keyId, outcome }) => [route, keyId, outcome]),
    [["/admin/gpus/clear/gpu-host/0", "test-operator", "ok"]],
  );
  await exporter.untilAsked(3);
  const view = await untilGpus("the card", at, ({ gpus }) => gpus.length === 2);
  assert.deepEqual([guardedOf(view, "u"), statesOf(view)["GPU-gpu-host-0"], view.gpus[0]?.xids], [[], "good", [79]]);
});

test("a severe code that the gauge has lost to a harmless one is seen by its count; one counted before the start is old [30.T4 30.U1]", async () => {
  const old = { index: 1, xid: 0, xidCounts: { 79: 2 } };
  exporter.cards({ index: 0, xid: 0, xidCounts: {} }, old);
  const at = await start({ couple_xid: true });
  await untilGpus("both cards", at, ({ gpus }) => gpus.length === 2);
  exporter.cards({ index: 0, xid: 45, xidCounts: { 45: 1, 62: 1 } }, old);
  const view = await untilGpus("the guard", at, (seen) => guardedOf(seen, "u").length > 0);
  assert.deepEqual(guardedOf(view, "u"), [idOf(engines[0])]);
  assert.deepEqual(
    view.gpus.map(({ state, why, xid_counts }) => ({ state, why, xid_counts })),
    [
      { state: "faulted", why: "xid: XID 62", xid_counts: { 45: 1, 62: 1 } },
      { state: "good", why: null, xid_counts: { 79: 2 } },
    ],
  );
  const { io, output } = captureIo({ YARDMASTER_URL: at.url, YARDMASTER_KEY: at.keys.operator });
  assert.equal(await dispatch(["ctl", "gpu", "list"], cliCommands, "0", io), 0);
  assert.match(output().out, /^GPU-gpu-host-0 .* 45x1,62x1 /m);
});

test("an OpenMetrics page without its end is cut: what is not on it is not gone [30.T2 80.A13]", async () => {
  exporter.cards({ index: 0 }, { index: 1 });
  const at = await start({ couple_xid: true });
  await untilGpus("both cards", at, ({ gpus }) => gpus.length === 2);
  const contentType = "application/openmetrics-text; version=1.0.0";
  exporter.serve({ kind: "text", text: pageOf([{ index: 0, temperature: 61 }], "gpu-host"), contentType });
  await exporter.untilAsked(8);
  const view = await untilGpus("the page", at, ({ gpus }) => gpus[0]?.temperature_c === 61);
  assert.deepEqual([guardedOf(view, "u"), statesOf(view)["GPU-gpu-host-1"]], [[], "good"]);
});

test("`ctl gpu list` shows each card with what is wrong and what lies on it, and `ctl gpu clear` takes it for mended [30.T4 30.U3]", async () => {
  exporter.cards({ index: 0, remapFailed: 1 }, { index: 1 });
  const at = await start({ couple_xid: true });
  await untilGpus("the guard", at, (view) => guardedOf(view, "u").length === 1);
  const ctl = async (...words: readonly string[]) => {
    const { io, output } = captureIo({ YARDMASTER_URL: at.url, YARDMASTER_KEY: at.keys.operator });
    const code = await dispatch(["ctl", "gpu", ...words], cliCommands, "0", io);
    return { code, ...output() };
  };
  const { code, out } = await ctl("list");
  assert.equal(code, 0);
  assert.match(out, /^GPU-gpu-host-0 +gpu-host\/0 +faulted +rowRemap: .* 50 % .* 60 °C +- .*u 127\.0\.0\.1:\d+$/m);
  assert.match(out, /^http:\S+\/metrics +up +-/m);
  assert.match(out, /^u +- +127\.0\.0\.1:\d+ +-$/m);
  assert.equal((JSON.parse((await ctl("list", "--json")).out) as { gpus: unknown[] }).gpus.length, 2);
  assert.deepEqual(await ctl("clear", "GPU-GPU-HOST-0"), { code: 0, out: "cleared GPU-GPU-HOST-0\n", err: "" });
  await untilGpus("the return", at, (view) => guardedOf(view, "u").length === 0);
  assert.equal((await ctl("clear", "GPU-nobody")).code, 1);
  assert.equal((await ctl("clear")).code, 2);
});

const harms = [
  { name: "answers 500", page: { kind: "text", text: "error", status: 500 }, state: "down" },
  { name: "hangs", page: { kind: "hang" }, state: "down" },
  { name: "is cut", page: { kind: "cut", text: 'DCGM_FI_DEV_GPU_TEMP{gpu="0"} 9' }, state: "down" },
  { name: "sends 100 MB", page: { kind: "huge", bytes: 100_000_000 }, state: "unreadable" },
  {
    name: "sends more rows than there are cards in the world",
    page: { kind: "text", text: 'DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-gpu-host-0"} 95\n'.repeat(20_001) },
    state: "unreadable",
  },
  { name: "sends a page of HTML", page: { kind: "text", text: "<html>busy</html>\n" }, state: "unreadable" },
  { name: "tells of no card", page: { kind: "cards", cards: [] }, state: "empty" },
] as const;
for (const { name, page, state } of harms) {
  test(`an exporter that ${name} takes nothing out; it is shown as ${state}, its cards as unknown, and another source goes on [80.A13 80.A14 30.T1 30.U3]`, async () => {
    const other = await startFakeExporter({ host: "other-host" });
    try {
      exporter.cards({ index: 0, temperature: 89 }, { index: 1 });
      other.cards({ index: 0 });
      const sources = [sourceOf(exporter), sourceOf(other)];
      const at = await start({ sources, couple_xid: true, staleness_s: 0.5 });
      await untilGpus("all cards", at, ({ gpus }) => gpus.length === 3);
      exporter.serve(page);
      const view = await untilGpus(
        "the harm",
        at,
        ({ sources: [first], gpus }) => first?.state === state && gpus[0]?.state === "unknown",
      );
      assert.equal(view.sources[1]?.state, "up");
      await other.untilAsked(3);
      assert.deepEqual(guardedOf(view, "u"), []);
      assert.equal((await call(at, { body: aTask() })).status, 200);
      assert.equal(await at.metric('yardmaster_gpu_stale{host="gpu-host",gpu="GPU-gpu-host-0"}'), 1);
      assert.equal(
        await at.metric('yardmaster_gpu_temperature_celsius{host="gpu-host",gpu="GPU-gpu-host-0"}'),
        undefined,
      );
      exporter.cards({ index: 0 }, { index: 1 });
      await untilGpus("the recovery", at, ({ gpus }) => gpus.every((gpu) => gpu.state === "good"));
    } finally {
      await other.close();
    }
  });
}

test("a card that nobody tells of is warned of, known 0, and its endpoint is not guarded [30.G3]", async () => {
  exporter.cards({ index: 0, temperature: 95 });
  const upstream = { ...twoEndpoints(), endpoints: [{ url: engines[0].url, gpus: ["GPU-typo"] }] };
  const at = await start({}, [upstream]);
  const view = await untilGpus("the heat", at, ({ gpus }) => gpus[0]?.state === "faulted");
  assert.deepEqual([guardedOf(view, "u"), view.upstreams[0]?.not_known], [[], ["GPU-typo"]]);
  assert.equal(await at.metric('yardmaster_gpu_known{gpu="GPU-typo"}'), 0);
  assert.equal((await call(at, { body: aTask() })).status, 200);
  await exporter.untilAsked(3);
  await untilGpus("the warning", at, () => at.logLines.some((line) => line.includes("gpu.not_known")));
  assert.equal(at.logLines.filter((line) => line.includes("gpu.not_known")).length, 1);
});

test("a family that an exporter's next version leaves out is told of once for each card, and takes nothing out [30.T3 30.U3]", async () => {
  exporter.cards({ index: 0, xid: 0 }, { index: 1, xid: 31 });
  const at = await start({ couple_xid: true });
  await untilGpus("both cards", at, ({ gpus }) => gpus.length === 2);
  exporter.cards({ index: 0 }, { index: 1 });
  const view = await untilGpus("the loss", at, ({ gpus }) => gpus.every(({ fields_lost: lost }) => lost[0] === "xid"));
  await exporter.untilAsked(3);
  const warnings = (): number => at.logLines.filter((line) => line.includes("gpu.field_lost")).length;
  assert.equal(await eventually("the warnings", warnings, (count) => count >= 2), 2);
  assert.deepEqual(guardedOf(view, "u"), []);
  assert.equal(await at.metric('yardmaster_gpu_field_lost{host="gpu-host",gpu="GPU-gpu-host-0",field="xid"}'), 1);
});

test("a dry run counts and logs what it would take out, once, and takes out nothing [30.H4]", async () => {
  exporter.cards({ index: 0, temperature: 95 }, { index: 1 });
  const at = await start({ dry_run: true });
  await untilGpus("the heat", at, ({ gpus }) => gpus.some(({ state }) => state === "faulted"));
  await exporter.untilAsked(4);
  assert.equal(await at.metric('yardmaster_gpu_dry_run_total{upstream="u",what="guard"}'), 1);
  await eventually(
    "the log",
    () => at.logLines.filter((line) => line.includes("would_be_out")).length,
    (lines) => lines === 1,
  );
  for (let sent = 0; sent < 4; sent += 1) await call(at, { body: aTask() });
  assert.ok(countOf(engines[0]) > 0);
});

test("endpoints name their cards as control planes do, by node and UUID, and what an agent reads about them needs no exporter [30.G2 30.T1]", async () => {
  const cards = ["node-a/GPU-1", "node-b/GPU-1b"];
  const endpoints = engines.map(({ url }, index) => ({ url, gpus: [cards[index] ?? ""] }));
  const at = await start({ sources: [], couple_xid: true }, [{ ...twoEndpoints(), endpoints }]);
  at.gateway.applyGpuReadings("node-b", [aGpu("GPU-1b")]);
  at.gateway.applyGpuReadings("node-a", [aGpu("GPU-1", { temperatureC: 96 }), aGpu("GPU-2", { index: 1 })]);
  await untilGpus("the guard", at, (view) => guardedOf(view, "u").includes(idOf(engines[0])));
  at.gateway.applyGpuReadings("node-a", [aGpu("GPU-1", { health: "sick", healthWhy: "ECC" })]);
  const view = await untilGpus("what it found", at, ({ gpus }) =>
    gpus.some(({ why }) => why?.includes("ECC") === true),
  );
  assert.deepEqual(guardedOf(view, "u"), [idOf(engines[0])]);
});

test("a reload that turns it off lets every endpoint back in, and no card is looked at any more [30.U2]", async () => {
  exporter.cards({ index: 0, temperature: 95 }, { index: 1 });
  const at = await start({});
  await untilGpus("the guard", at, (view) => guardedOf(view, "u").length === 1);
  at.gateway.applyConfig(at.configOf({ upstreams: [twoEndpoints()] }));
  const page = (await at.health()) as unknown as {
    gpu_health: unknown;
    upstreams: { endpoints: { guard: string }[] }[];
  };
  assert.equal(page.gpu_health, null);
  assert.deepEqual(
    page.upstreams[0]?.endpoints.map(({ guard }) => guard),
    ["pass", "pass"],
  );
  const asked = exporter.asked;
  for (let sent = 0; sent < 20; sent += 1) await call(at, { body: aTask() });
  assert.ok(exporter.asked <= asked + 1);
});
