import assert from "node:assert/strict";
import { existsSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { aFeedModel, aMark, FakeFeed, FEED_TOKEN } from "../../src/testing/fake-feed.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { aTask, call, errorCodeOf, startCall } from "./support/calls.ts";
import { engineKey, feedWorld, replicaAt, type FeedWorld } from "./support/feed-world.ts";
import { upstreamHealth } from "./support/health.ts";
import type { TestGateway } from "./support/test-gateway.ts";

// Gateways that follow a control plane: a scripted one, with the engines' ledgers as evidence.

const MODEL = aFeedModel("m");

/** The endpoints that a gateway goes by, as `id:draining`. */
const replicasOf = async (gateway: TestGateway): Promise<string[]> => {
  const { upstreams } = await gateway.health();
  return upstreams.flatMap(({ endpoints }) =>
    endpoints.map(({ replica, draining }) => `${replica}${draining ? ":draining" : ""}`),
  );
};

const untilReplicas = (gateway: TestGateway, ...wanted: string[]): Promise<string[]> =>
  eventually(
    `replicas ${wanted.join()}`,
    () => replicasOf(gateway),
    (found) => found.join() === wanted.join(),
  );

const untilLogged = (world: FeedWorld, line: RegExp): Promise<string> =>
  eventually(
    `the log has ${line.source}`,
    () => world.logged(),
    (text) => line.test(text),
  );

test("models of the catalog are served as control planes tell: each engine is asked with its own key, one that drains ends what it has and gets nothing new, one that has gone is forgotten, and no call fails [40.C3 10.R6]", async () => {
  await using world = await feedWorld();
  const [one, two] = [await world.engine(engineKey("r1")), await world.engine(engineKey("r2"))];
  const gateway = await world.gateway();
  world.feed.tell([MODEL], [replicaAt(one, "r1")]);
  await untilReplicas(gateway, "r1");
  const long = startCall(gateway, { body: aTask({ tokens: 40, delayBetweenMs: 40 }) });
  await long.received("data:");

  world.feed.tell([MODEL], [replicaAt(one, "r1", { draining: true }), replicaAt(two, "r2")]);
  await untilReplicas(gateway, "r1:draining", "r2");
  const answers = await Promise.all(Array.from({ length: 6 }, () => call(gateway)));
  assert.deepEqual(
    answers.map(({ status }) => status),
    Array<number>(6).fill(200),
  );
  assert.deepEqual([one.ledger().opened, two.ledger().finished], [1, 6]);
  const last = await long.answer;
  assert.deepEqual([last.status, last.whole, last.text.endsWith("data: [DONE]\n\n")], [200, true, true]);
  world.feed.tell([MODEL], [replicaAt(two, "r2")]);
  await untilReplicas(gateway, "r2");

  world.feed.tell([], []);
  await eventually(
    "the model has gone",
    async () => (await call(gateway)).status,
    (status) => status === 404,
  );
  assert.deepEqual([one.ledger().failed + two.ledger().failed, one.ledger().aborted], [0, 0]);
});

test("another replica at the same address is another endpoint: what the first one had on its account is not the second one's [10.R6]", async () => {
  await using world = await feedWorld();
  const engine = await world.engine(engineKey("r1"));
  const gateway = await world.gateway();
  world.feed.tell([MODEL], [replicaAt(engine, "r1", { engineKey: "CANARY-wrong-key-0123456789" })]);
  await untilReplicas(gateway, "r1");
  assert.equal((await call(gateway)).status, 401);
  world.feed.tell([MODEL], [replicaAt(engine, "r1", { generation: 2 })]);
  await eventually(
    "the key of the new one",
    async () => (await call(gateway)).status,
    (status) => status === 200,
  );
  const report = await world.feed.nextReport(({ used }) => used["r1"]?.idleMs !== null);
  assert.deepEqual(Object.keys(report.used), ["r1"]);
});

test("a control plane that is silent, away, on standby, talks rubbish or has an old epoch changes nothing: calls go on, and all of it shows [80.I8 80.P5 40.C3]", async () => {
  await using world = await feedWorld({ mark: { epoch: 5 } });
  const engine = await world.engine(engineKey("r1"));
  const gateway = await world.gateway();
  world.feed.tell([MODEL], [replicaAt(engine, "r1")]);
  await untilReplicas(gateway, "r1");
  const good = async (): Promise<void> => assert.equal((await call(gateway)).status, 200);

  world.feed.say({ type: "state", mark: aMark({ epoch: 4, version: 900 }), models: [], endpoints: [] });
  world.feed.say({
    type: "state",
    mark: aMark({ epoch: 5, holder: "holder-2", version: 900 }),
    models: [],
    endpoints: [],
  });
  world.feed.say({ type: "state", mark: aMark({ clusterId: "other", epoch: 9 }), models: [], endpoints: [] });
  await eventually(
    "three refusals",
    async () =>
      Promise.all(
        ["old_epoch", "other_holder", "other_cluster"].map((why) =>
          gateway.metric(`yardmaster_feed_refused_total{why="${why}"}`),
        ),
      ),
    (counts) => counts.every((count) => count === 1),
  );
  await untilLogged(world, /"op":"feed\.refused".*"why":"oldEpoch"/);
  const unheard = (await gateway.health()).control;
  assert.equal(unheard?.state, "on_its_own", "a link that stands and is not heard is no following");
  assert.match(unheard.links[0]?.why ?? "", /cluster other under epoch 9 and is not heard/);
  await good();

  world.feed.say({ type: "standby" });
  world.feed.sayRaw('{"type":"something new"}');
  await eventually(
    "standby",
    async () => (await gateway.health()).control?.state,
    (state) => state === "on_its_own",
  );
  await good();

  world.feed.sayRaw('{"type":"state","mark":"CANARY-rubbish"}');
  await world.feed.until("the link is dropped", () => world.feed.open === 0);
  await eventually(
    "the link is away",
    () => gateway.metric(`yardmaster_feed_connected{control="${world.feed.url}"}`),
    (value) => value === 0,
  );
  await good();
  assert.deepEqual(await replicasOf(gateway), ["r1"]);
  assert.equal((await gateway.health()).control?.epoch, 5);
  assert.doesNotMatch(world.logged(), /CANARY-rubbish/);
});

test("a gateway that starts with every control plane away serves what it was told last, from a file that only its owner can read; no key of an engine is shown anywhere [80.C13 80.I8 40.C3]", async () => {
  await using world = await feedWorld();
  const engine = await world.engine(engineKey("r1"));
  const first = await world.gateway();
  world.feed.tell([MODEL], [replicaAt(engine, "r1")]);
  await untilReplicas(first, "r1");
  const file = join(world.dataDir, "feed.json");
  await eventually(
    "the file",
    () => (existsSync(file) ? readFileSync(file, "utf8") : ""),
    (text) => text.includes(`"version":${world.feed.mark.version}`),
  );
  assert.equal(statSync(file).mode & 0o777, 0o600);
  await first.stop();
  await world.feed[Symbol.asyncDispose]();

  const second = await world.gateway();
  assert.equal((await call(second)).status, 200);
  const health = await second.health();
  assert.deepEqual([health.control?.state, health.control?.age_ms], ["on_its_own", null]);
  assert.equal(await second.metric("yardmaster_feed_age_seconds"), undefined);
  assert.equal(await second.metric("yardmaster_feed_version"), world.feed.mark.version);
  const pages = [JSON.stringify(health), world.logged()];
  for (const path of ["/metrics", "/v1/models"]) {
    const page = await fetch(second.url + path, { headers: { authorization: `Bearer ${second.keys.operator}` } });
    pages.push(await page.text());
  }
  for (const page of pages) assert.ok(!page.includes("CANARY-engine-key") && !page.includes(FEED_TOKEN));
  await second.stop();

  writeFileSync(file, '{"type":"state","mark"');
  const third = await world.gateway();
  await untilLogged(world, /"op":"feed\.file_unreadable"/);
  assert.equal(errorCodeOf((await call(third)).text), "UPSTREAM_UNAVAILABLE");
});

test("before any control plane has said what there is a gateway is not ready, and an unknown name is told to come back; then it is known, or unknown for good", async () => {
  await using world = await feedWorld({ mode: "mute" });
  const engine = await world.engine(engineKey("r1"));
  const gateway = await world.gateway();
  const early = await call(gateway);
  assert.deepEqual([early.status, errorCodeOf(early.text)], [503, "UPSTREAM_UNAVAILABLE"]);
  assert.ok(Number(early.headers["retry-after"]) > 0);
  const ready = async (): Promise<number> => (await fetch(`${gateway.url}/readyz`)).status;
  assert.equal(await ready(), 503);
  await world.feed.until("a hello", () => world.feed.heard.length > 0);
  world.feed.say({ type: "welcome", clusterId: "cluster", controlId: "c", reportMs: 200 });
  world.feed.tell([MODEL], [replicaAt(engine, "r1")]);
  await untilReplicas(gateway, "r1");
  assert.equal(await ready(), 200);
  assert.equal((await call(gateway)).status, 200);
  assert.equal((await call(gateway, { body: aTask({}, { model: "n" }) })).status, 404);
});

test("a change with a gap before it is not guessed at: everything is asked for again; one that fits is taken [80.C14 40.C3]", async () => {
  await using world = await feedWorld({ models: [MODEL] });
  const [one, two] = [await world.engine(engineKey("r1")), await world.engine(engineKey("r2"))];
  const gateway = await world.gateway();
  await world.feed.nextReport();
  const change = (from: number, version: number, id: string, engine: typeof one): void => {
    world.feed.mark = { ...world.feed.mark, version };
    const endpoints = [replicaAt(engine, id)];
    world.feed.say({
      type: "change",
      mark: world.feed.mark,
      from,
      models: [],
      endpoints,
      modelsGone: [],
      endpointsGone: [],
    });
  };
  change(1, 2, "r1", one);
  await untilReplicas(gateway, "r1");
  world.feed.endpoints = [replicaAt(one, "r1"), replicaAt(two, "r2")];
  change(3, 4, "r2", two);
  await untilReplicas(gateway, "r1", "r2");
  assert.equal(world.feed.heard.filter(({ type }) => type === "resync").length, 1);
});

test("of two control planes the one with the higher epoch is followed, from whichever link it comes; a credential that is refused is no news either [40.C3 80.P5]", async () => {
  await using world = await feedWorld({ mark: { epoch: 1 }, models: [MODEL] });
  await using other = await FakeFeed.start({ mode: "standby" });
  const [one, two] = [await world.engine(engineKey("r1")), await world.engine(engineKey("r2"))];
  const gateway = await world.gateway({ file: { gateway: { control: [world.feed.url, other.url] } } });
  world.feed.tell([MODEL], [replicaAt(one, "r1")]);
  await untilReplicas(gateway, "r1");
  await other.until("a link", () => other.open === 1);
  other.mark = aMark({ epoch: 2, holder: "holder-2", version: 0 });
  other.tell([MODEL], [replicaAt(two, "r2")]);
  await untilReplicas(gateway, "r2");
  world.feed.tell([MODEL], [replicaAt(one, "r1")]);
  await eventually(
    "the old leader is refused",
    () => gateway.metric('yardmaster_feed_refused_total{why="old_epoch"}'),
    (count) => count === 1,
  );
  assert.deepEqual(await replicasOf(gateway), ["r2"]);
  await gateway.stop();

  const wrong = await world.gateway({ env: { YARDMASTER_TOKEN: "CANARY-not-the-token" } });
  await world.feed.until("a try", () => world.feed.shown.includes("CANARY-not-the-token"));
  assert.equal((await call(wrong)).status, 200);
  assert.doesNotMatch(world.logged(), /CANARY-not-the-token/);
});

test("how long each replica was not asked for goes to the control plane as one map: nothing is said of what was not asked since the start, a call that runs is no idleness, and a restart forgets [10.L2]", async () => {
  await using world = await feedWorld();
  const [one, two] = [await world.engine(engineKey("r1")), await world.engine(engineKey("r2"))];
  const gateway = await world.gateway();
  world.feed.tell([MODEL, aFeedModel("n")], [replicaAt(one, "r1"), replicaAt(two, "r2", { model: "n" })]);
  await untilReplicas(gateway, "r1", "r2");
  const { version } = world.feed.mark;
  const fresh = await world.feed.nextReport(({ have }) => have?.version === version);
  assert.deepEqual(fresh.used, { r1: { inFlight: 0, idleMs: null }, r2: { inFlight: 0, idleMs: null } });

  const running = startCall(gateway, { body: aTask({ tokens: 40, delayBetweenMs: 25 }) });
  await running.received("data:");
  const busy = await world.feed.nextReport(({ used }) => used["r1"]?.inFlight === 1);
  assert.deepEqual(busy.used, { r1: { inFlight: 1, idleMs: 0 }, r2: { inFlight: 0, idleMs: null } });
  await running.answer;
  const [ended, later] = [
    await world.feed.nextReport(({ used }) => (used["r1"]?.idleMs ?? 0) > 0),
    await world.feed.nextReport(({ used }) => (used["r1"]?.idleMs ?? 0) > 300),
  ];
  assert.ok(ended.seq < later.seq && ended.upForMs < later.upForMs);
  // Idle since the call's end, not since its start, which was a second ago.
  assert.ok((ended.used["r1"]?.idleMs ?? Infinity) < 900, String(ended.used["r1"]?.idleMs));
  await gateway.stop();
  await world.gateway();
  const again = await world.feed.nextReport(({ have }) => have?.version === version);
  assert.deepEqual(again.used["r1"], { inFlight: 0, idleMs: null });
});

test("an upstream of the file that names a model has its replicas beside its own engine, and a name of the file stays the file's [40.C3]", async () => {
  await using world = await feedWorld();
  const [own, replica] = [await world.engine("own"), await world.engine(engineKey("r1"))];
  const gateway = await world.gateway({
    env: { YARDMASTER_TOKEN: FEED_TOKEN, OWN_KEY: "own" },
    upstreams: [
      { id: "mine", model: "m", slots: 2, key_env: "OWN_KEY", endpoints: [{ url: own.url, slots: 1 }] },
      { id: "other", models: ["n"], slots: 1, endpoints: [{ url: own.url }] },
    ],
  });
  assert.equal((await call(gateway)).status, 200);
  assert.equal(own.ledger().finished, 1);
  world.feed.tell([MODEL, aFeedModel("n")], [replicaAt(replica, "r1")]);
  await untilReplicas(gateway, "null", "r1", "null");
  const both = [startCall(gateway, { body: aTask({ tokens: 20, delayBetweenMs: 25 }) }), startCall(gateway, {})];
  const answers = await Promise.all(both.map(({ answer }) => answer));
  assert.deepEqual(
    answers.map(({ status }) => status),
    [200, 200],
  );
  assert.equal(replica.ledger().finished, 1);
  const health = await gateway.health();
  assert.match(JSON.stringify(health.control?.warnings), /model n .*not served|n of the catalog.*not served/);
  assert.equal((await upstreamHealth(gateway, "mine")).slots, 2);
});
