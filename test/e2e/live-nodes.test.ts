import assert from "node:assert/strict";
import { cp, rm } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { statusView } from "../../src/contract/control-api.ts";
import { FakeGateway } from "../../src/testing/fake-gateway.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { allReady, LiveWorld, QUICK, simModel } from "./support/live-world.ts";
import { keyOf } from "./support/test-control.ts";

// What happens to nodes, on real agents and engines. The product's 10 s and 60 s are 1.5 s and 4 s here.

const nodeOf = (nodes: readonly string[] | undefined): string => nodes?.[0] ?? "";
const isAlive = (pid: number): boolean => {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
};

async function threeNodes(section: Parameters<typeof LiveWorld.start>[0] = QUICK): Promise<LiveWorld> {
  const world = await LiveWorld.start(section);
  for (const name of ["node-a", "node-b", "node-c"]) await world.addAgent(name);
  return world;
}

test("a machine that loses its power is unreachable, then lost; its replica is started elsewhere and gateways are told, and back on it takes nothing needlessly [40.N3 80.A4 80.I8]", async () => {
  await using world = await threeNodes();
  await using gateway = new FakeGateway(world.control.url, keyOf("gateway"));
  await world.apply(simModel("m"));
  const [first] = await world.untilReplicas("a ready replica", (list) => allReady(list, 1));
  await gateway.until("the endpoint", () => gateway.endpoints.size === 1);
  const dead = world.agents.find(({ name }) => name === nodeOf(first?.nodes));
  assert.ok(dead !== undefined && first !== undefined);
  await dead.powerOff();
  await world.untilNodes("it is unreachable", (nodes) => nodes.some(({ state }) => state === "unreachable"));
  assert.ok(gateway.endpoints.has(first.id), "an unreachable node's endpoint stays");
  assert.equal((await world.replicas())[0]?.id, first.id);
  await world.untilNodes("it is lost", (nodes) => nodes.some(({ state }) => state === "lost"));
  const [second] = await world.untilReplicas("another one", (list) => allReady(list, 1) && list[0]?.id !== first.id);
  assert.notEqual(nodeOf(second?.nodes), dead.name);
  await gateway.until(
    "the new endpoint",
    () => gateway.endpoints.size === 1 && gateway.endpoints.has(second?.id ?? ""),
  );
  for (const kind of ["nodeUnreachable", "nodeLost", "replicaLost"])
    assert.equal((await world.events(kind)).length, 1, kind);
  await dead.start();
  await world.untilNodes("it is back", (nodes) => nodes.every(({ state }) => state === "ready"));
  await eventually(
    "what it recorded is forgotten",
    () => dead.records().length,
    (count) => count === 0,
    30_000,
  );
  assert.deepEqual(
    (await world.replicas()).map(({ id, state }) => [id, state]),
    [[second?.id, "ready"]],
  );
});

test("a node that is cut off for longer than the lost time keeps its engine; back, the one that was replaced is stopped, and one set is left [40.N3 80.A1 80.A7]", async () => {
  await using world = await threeNodes();
  await world.apply(simModel("m"));
  const [first] = await world.untilReplicas("a ready replica", (list) => allReady(list, 1));
  const cut = world.agents.find(({ name }) => name === nodeOf(first?.nodes));
  assert.ok(cut !== undefined && first !== undefined);
  const pid = cut.engines().get(first.id) ?? 0;
  cut.pause();
  const [second] = await world.untilReplicas("another one", (list) => allReady(list, 1) && list[0]?.id !== first.id);
  assert.ok(isAlive(pid), "nobody there ended it");
  cut.resume();
  await eventually(
    "its end",
    () => isAlive(pid),
    (alive) => !alive,
    30_000,
  );
  await eventually(
    "one engine",
    () => [...world.engines().keys()],
    (ids) => ids.length === 1 && ids[0] === second?.id,
  );
  assert.equal((await world.replicas())[0]?.id, second?.id);
});

test("a silence that is shorter than the lost time changes nothing [80.A1 40.N3]", async () => {
  await using world = await threeNodes(LONG_LOST);
  await world.apply(simModel("m", { replicas: { min: 3 } }));
  await world.untilReplicas("three replicas", (list) => allReady(list, 3));
  const before = await settledEngines(world);
  const [agent] = world.agents;
  agent?.pause();
  await world.untilNodes("it is unreachable", (nodes) => nodes.some(({ state }) => state === "unreachable"));
  agent?.resume();
  await world.untilNodes("it is back", (nodes) => nodes.every(({ state }) => state === "ready"));
  await nothingChanges(world, before);
});

/** Agents come back anywhere within half a minute when the first try finds nobody: nothing may be lost sooner. */
const LONG_LOST = { ...QUICK, lost_after_s: 60 };

/** After the last command has been answered and forgotten. */
async function settledEngines(world: LiveWorld): Promise<ReadonlyMap<string, number>> {
  await eventually(
    "quiet",
    () => world.engines().size,
    (count) => count > 0,
  );
  return world.engines();
}

/** A model that is placed and ready shows that passes have been made since; the engines from before are the same processes. */
async function nothingChanges(world: LiveWorld, before: ReadonlyMap<string, number>): Promise<void> {
  const known = await world.replicas();
  const models = [...new Set(known.map(({ model }) => model))].map((name) =>
    simModel(name, { replicas: { min: known.filter(({ model }) => model === name).length } }),
  );
  await world.apply(...models, simModel("probe"));
  await world.untilReplicas("the probe", (list) =>
    list.some(({ model, state }) => model === "probe" && state === "ready"),
  );
  const now = world.engines();
  for (const [id, pid] of before) assert.equal(now.get(id), pid, id);
  assert.equal(now.size, before.size + 1);
}

test("an agent that is killed and comes back finds its engines, and the control plane changes nothing [80.A3 40.N4 40.R2]", async () => {
  await using world = await threeNodes(LONG_LOST);
  await world.apply(simModel("m", { replicas: { min: 3 } }));
  await world.untilReplicas("three replicas", (list) => allReady(list, 3));
  const before = await settledEngines(world);
  const [agent] = world.agents;
  await agent?.kill();
  await agent?.start();
  await world.untilNodes("it is back", (nodes) => nodes.every(({ state }) => state === "ready"));
  await nothingChanges(world, before);
});

test("a control plane that is restarted finds everything as it was: no engine is restarted, and traffic never stops [40.R2 80.A17 80.I8]", async () => {
  await using world = await threeNodes(LONG_LOST);
  await using gateway = new FakeGateway(world.control.url, keyOf("gateway"));
  await world.apply(simModel("m", { replicas: { min: 3 } }));
  await world.untilReplicas("three replicas", (list) => allReady(list, 3));
  await gateway.until("the endpoints", () => gateway.endpoints.size === 3);
  const before = await settledEngines(world);
  const endpoints = [...gateway.endpoints.values()];
  await world.stopControl();
  for (const { url, engineKey } of endpoints) {
    const answer = await fetch(`${url}/v1/models`, { headers: { authorization: `Bearer ${engineKey}` } });
    assert.equal(answer.status, 200);
    await answer.text();
  }
  await world.startControl();
  await using again = new FakeGateway(world.control.url, keyOf("gateway"));
  await again.until("the same endpoints", () => again.endpoints.size === 3, 40_000);
  assert.deepEqual(new Map(again.endpoints), new Map(endpoints.map((endpoint) => [endpoint.replicaId, endpoint])));
  assert.equal(again.mark?.epoch, (gateway.mark?.epoch ?? 0) + 1);
  await world.untilNodes("all nodes", (nodes) => nodes.length === 3 && nodes.every(({ state }) => state === "ready"));
  await nothingChanges(world, before);
});

test("most of the fleet silent at once: no node is lost and nothing moves, however long it lasts, and it is told [40.N3b 80.A14 80.C15]", async () => {
  await using world = await threeNodes();
  await world.apply(simModel("m", { replicas: { min: 3 } }));
  await world.untilReplicas("three replicas", (list) => allReady(list, 3));
  const before = await settledEngines(world);
  const silent = world.agents.slice(0, 2);
  for (const agent of silent) agent.pause();
  await eventually(
    "the alert",
    () => world.events("fleetSilent"),
    (told) => told.length > 0,
    30_000,
  );
  const longAgo = (nodes: Awaited<ReturnType<LiveWorld["nodes"]>>): boolean =>
    nodes.filter(({ silent_s }) => (silent_s ?? 0) > 2 * QUICK.lost_after_s).length === 2;
  const nodes = await world.untilNodes("twice the lost time", longAgo);
  assert.deepEqual(nodes.map(({ state }) => state).toSorted(), ["ready", "unreachable", "unreachable"]);
  for (const agent of silent) agent.resume();
  await world.untilNodes("all are back", (list) => list.every(({ state }) => state === "ready"));
  await nothingChanges(world, before);
});

/** Ways back to an older store: a copy of its folder, and the backup that the program makes at each start. */
const COPIES = ["a copy of the folder from an earlier term", "the program's own backup"] as const;
for (const [index, way] of COPIES.entries())
  test(`${way}: put back it stops nothing until an operator confirms, over restarts of the control plane; then the surplus goes [80.P7]`, () =>
    putBack(index === 0));

async function putBack(folder: boolean): Promise<void> {
  await using world = await LiveWorld.start(LONG_LOST);
  await world.addAgent("node-a");
  await world.apply(simModel("m"));
  await world.untilReplicas("a replica", (list) => allReady(list, 1));
  await world.stopControl();
  const copy = join(world.folder, "copy");
  await cp(world.dataDir, copy, { recursive: true });
  await world.startControl();
  await world.apply(simModel("m"), simModel("late"));
  await world.untilReplicas("both", (list) => allReady(list, 2));
  const before = await settledEngines(world);
  await world.stopControl();
  const database = join(world.dataDir, "control.db");
  if (folder) {
    await rm(world.dataDir, { recursive: true });
    await cp(copy, world.dataDir, { recursive: true });
  } else {
    for (const ending of ["", "-wal", "-shm"]) await rm(database + ending, { force: true });
    await cp(`${database}.backup`, database);
  }
  await world.startControl();
  const restored = async (): Promise<boolean> =>
    statusView.parse((await world.control.ask("GET", "/v1/status")).body).restored;
  await eventually("it is found out", restored, (is) => is, 30_000);
  await eventually(
    "the unknown engine is told",
    () => world.events("unknownEngine"),
    (told) => told.length > 0,
    30_000,
  );
  await world.stopControl();
  await world.startControl();
  assert.equal(await eventually("it is still known", restored, (is) => is, 30_000), true);
  await world.untilNodes("the node", (nodes) => nodes[0]?.state === "ready");
  await nothingChanges(world, before);
  assert.equal((await world.control.ask("POST", "/v1/restored/confirm", { role: "operator" })).status, 403);
  assert.equal((await world.control.ask("POST", "/v1/restored/confirm")).status, 200);
  assert.equal(await restored(), false);
  assert.equal((await world.control.ask("POST", "/v1/restored/confirm")).status, 409);
  const kept = new Set((await world.replicas()).map(({ id }) => id));
  await eventually(
    "only what is known runs",
    () => [...world.engines().keys()],
    (ids) => ids.every((id) => kept.has(id)),
    30_000,
  );
  assert.equal(kept.size, 2);
}
