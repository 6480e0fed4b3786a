import assert from "node:assert/strict";
import { test } from "node:test";
import { aFeedModel } from "../../src/testing/fake-feed.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { aTask, call, errorCodeOf, startCall, type LiveCall } from "./support/calls.ts";
import { engineKey, feedWorld, replicaAt } from "./support/feed-world.ts";
import { upstreamHealth } from "./support/health.ts";
import { accepted, aChat, ended } from "./support/jobs.ts";
import type { TestGateway } from "./support/test-gateway.ts";

// Requests for a model of which nothing runs: a scripted control plane starts it, or does not.

const STOPPED = aFeedModel("m", { settled: "stopped" });
const STARTING = aFeedModel("m", { settled: "starting", why: "starting on node-a" });
const READY = aFeedModel("m");

const untilWaiting = (gateway: TestGateway, count: number, id = "m"): Promise<unknown> =>
  eventually(
    `${count} wait`,
    async () => {
      const found = (await gateway.health()).upstreams.find((upstream) => upstream.id === id);
      return found === undefined ? -1 : Object.values(found.queue.waiting).reduce((sum, one) => sum + one, 0);
    },
    (waiting) => waiting === count,
  );
const statuses = async (calls: readonly LiveCall[]): Promise<(number | string | undefined)[]> =>
  (await Promise.all(calls.map(({ answer }) => answer))).map(({ status, text }) => errorCodeOf(text) ?? status);

test("requests for a model of which nothing runs wait for its start, are one demand however many they are, go by their class once it is ready, and leave when they are left [10.L1]", async () => {
  await using world = await feedWorld({ models: [STOPPED], reportMs: 60_000 });
  const engine = await world.engine(engineKey("r1"), { slots: 1 });
  const gateway = await world.gateway();
  await world.feed.nextReport();
  assert.deepEqual(world.feed.report?.demand, {});
  const asked = world.feed.nextReport(({ demand }) => demand["m"] !== undefined);
  const tagged = (tag: string, name: "batch" | "interactive"): LiveCall =>
    startCall(gateway, { class: name, body: aTask({}, {}, tag) });
  const batch = tagged("batch", "batch");
  const first = await asked; // At once: the next report by time would be a minute away.
  assert.ok((first.demand["m"]?.waiting ?? 0) === 1 && (first.demand["m"]?.oldestWaitMs ?? Infinity) < 5_000);
  await untilWaiting(gateway, 1);
  const people = Array.from({ length: 3 }, (_, at) => tagged(`person-${at}`, "interactive"));
  const leaving = tagged("gone", "interactive");
  await untilWaiting(gateway, 5);
  leaving.leave();
  await untilWaiting(gateway, 4);
  const models = await fetch(`${gateway.url}/v1/models`, { headers: gateway.auth });
  assert.match(await models.text(), /"state":"stopped"/);
  assert.equal((await fetch(`${gateway.url}/readyz`)).status, 200);

  world.feed.tell([STARTING], []);
  await untilWaiting(gateway, 4);
  assert.equal(world.feed.heard.filter((m) => m.type === "report" && Object.keys(m.demand).length > 1).length, 0);
  world.feed.tell([READY], [replicaAt(engine, "r1", { slots: 1 })]);
  assert.deepEqual(await statuses([...people, batch]), [200, 200, 200, 200]);
  const { entries } = engine.ledger();
  assert.deepEqual(
    entries.map(({ tag }) => tag),
    ["person-0", "person-1", "person-2", "batch"],
  );
});

test("a start that is not there within cold_start_s ends the wait with 503 COLD_START and Retry-After, a request's own deadline ends it before, and a full queue refuses at once [10.L1]", async () => {
  await using world = await feedWorld({ models: [STARTING] });
  const gateway = await world.gateway({
    upstreams: [{ id: "u", model: "m", cold_start_s: 1, queue: { max: 2, timeout_s: { interactive: 0.1 } } }],
  });
  await world.feed.nextReport();
  const hasty = startCall(gateway, { headers: { "x-request-timeout-ms": "200" } });
  const patient = startCall(gateway);
  await untilWaiting(gateway, 2, "u");
  assert.equal(errorCodeOf((await call(gateway)).text), "QUEUE_FULL");
  const first = await hasty.answer;
  assert.deepEqual([first.status, errorCodeOf(first.text)], [503, "QUEUE_TIMEOUT"]);
  const last = await patient.answer;
  assert.deepEqual([last.status, errorCodeOf(last.text)], [503, "COLD_START"]);
  assert.ok(Number(last.headers["retry-after"]) > 0);
  assert.match(last.text, /starting on node-a/);
  assert.ok((last.queueMs ?? 0) >= 1_000 && (last.queueMs ?? 0) < 1_500, String(last.queueMs));
});

test("when a start fails, or nothing can be started, everybody who waits is told at once and why; the next request waits for the next try, or is refused at once [10.L1]", async () => {
  await using world = await feedWorld({ models: [STARTING] });
  const gateway = await world.gateway();
  await world.feed.nextReport();
  const round = async (model: typeof READY, says: RegExp): Promise<void> => {
    const calls = Array.from({ length: 5 }, () => startCall(gateway));
    await untilWaiting(gateway, 5);
    world.feed.tell([model], []);
    const answers = await Promise.all(calls.map(({ answer }) => answer));
    for (const { status, text, headers } of answers) {
      assert.deepEqual([status, errorCodeOf(text)], [503, "UPSTREAM_UNAVAILABLE"]);
      assert.match(text, says);
      assert.ok(Number(headers["retry-after"]) > 0);
    }
  };
  await round({ ...STARTING, failedStarts: 1, why: "killed by SIGILL before it was ready" }, /SIGILL/);
  await round({ ...STARTING, failedStarts: 2, why: "killed by SIGSEGV before it was ready" }, /SIGSEGV/);
  await round(
    { ...STARTING, settled: "parked", startable: false, failedStarts: 5, why: "parked: it failed 5 times in a row" },
    /parked: it failed 5 times/,
  );
  const refused = await call(gateway);
  assert.deepEqual([refused.status, errorCodeOf(refused.text)], [503, "UPSTREAM_UNAVAILABLE"]);
  assert.match(refused.text, /parked: it failed 5 times/);
  assert.match((await upstreamHealth(gateway, "m")).reason ?? "", /parked: it failed 5 times/);
  world.feed.tell([aFeedModel("m", { settled: "unplaced", why: "no node has room" })], []);
  await eventually(
    "the other reason",
    async () => (await call(gateway)).text,
    (text) => text.includes("no node has room"),
  );
});

test("who waits for a slot when the last replica goes waits for a start from then on, and who waits for a start waits for a slot once it is there [10.L1]", async () => {
  await using world = await feedWorld({ models: [READY] });
  const engine = await world.engine(engineKey("r1"), { slots: 1 });
  const gateway = await world.gateway({
    upstreams: [{ id: "u", model: "m", cold_start_s: 60, queue: { timeout_s: { interactive: 1 } } }],
  });
  await world.feed.nextReport();
  world.feed.tell([READY], [replicaAt(engine, "r1", { slots: 1 })]);
  await world.feed.nextReport(({ used }) => used["r1"] !== undefined);
  const running = startCall(gateway, { body: aTask({ tokens: 100, delayBetweenMs: 40 }) });
  await running.received("data:");
  const waiting = startCall(gateway);
  await untilWaiting(gateway, 1, "u");
  world.feed.tell([STARTING], [replicaAt(engine, "r1", { slots: 1, draining: true })]);
  const asked = await world.feed.nextReport(({ demand }) => (demand["m"]?.oldestWaitMs ?? 0) > 1_200);
  assert.equal(asked.demand["m"]?.waiting, 1);
  world.feed.tell([READY], [replicaAt(engine, "r1", { slots: 1 })]);
  const answer = await waiting.answer;
  assert.deepEqual([answer.status, errorCodeOf(answer.text)], [503, "QUEUE_TIMEOUT"]);
  running.leave();
});

test("a job for a model of which nothing runs asks for its start as a request does, and gets its result [10.L1]", async () => {
  await using world = await feedWorld({ models: [STOPPED] });
  const engine = await world.engine(engineKey("r1"));
  const gateway = await world.gateway();
  await world.feed.nextReport();
  const job = await accepted(gateway, { body: aChat() });
  await world.feed.nextReport(({ demand }) => demand["m"]?.waiting === 1);
  world.feed.tell([READY], [replicaAt(engine, "r1")]);
  const { state, attempts } = await ended(gateway, job.id);
  assert.deepEqual([state, attempts, engine.ledger().finished], ["completed", 1, 1]);
});
