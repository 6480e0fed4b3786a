import assert from "node:assert/strict";
import { test } from "node:test";
import { placementView } from "../../src/contract/control-api.ts";
import { FakeGateway } from "../../src/testing/fake-gateway.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { ctlDone } from "./support/live-ctl.ts";
import { allReady, LiveWorld, simModel } from "./support/live-world.ts";
import { keyOf } from "./support/test-control.ts";

// Real agents and engines under a real control plane, on one machine.

test("what the catalog wants is placed, answers, follows each edit, and goes when its model goes; nothing is restarted for it [40.C2 40.R1 40.N6]", async () => {
  await using world = await LiveWorld.start();
  await world.addAgent("node-a");
  await world.addAgent("node-b");
  await using gateway = new FakeGateway(world.control.url, keyOf("gateway"));
  await world.apply(simModel("m", { replicas: { min: 2 } }), simModel("other"));
  const placed = await world.untilReplicas("three ready replicas", (list) => allReady(list, 3));
  const nodesOf = (model: string): readonly string[] =>
    placed
      .filter((replica) => replica.model === model)
      .flatMap(({ nodes }) => nodes)
      .toSorted();
  assert.deepEqual(nodesOf("m"), ["node-a", "node-b"], "two replicas of a model share a node only where no other fits");
  await gateway.until("the endpoints", () => gateway.endpoints.size === 3);
  const [endpoint] = gateway.endpoints.values();
  assert.ok(endpoint !== undefined);
  const call = (key: string): Promise<Response> =>
    fetch(`${endpoint.url}/v1/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
      body: JSON.stringify({ model: endpoint.model, prompt: "Hi", max_tokens: 2 }),
    });
  assert.equal((await call(endpoint.engineKey)).status, 200);
  assert.equal((await call("wrong")).status, 401);

  const before = world.engines();
  await world.apply(simModel("m", { replicas: { min: 3 }, aliases: ["alias"] }), simModel("other"));
  await world.untilReplicas("a third replica", (list) => allReady(list, 4));
  await world.apply(simModel("m", { replicas: { min: 1, max: 2 }, aliases: ["alias"] }));
  const left = await world.untilReplicas("one replica", (list) => allReady(list, 1));
  assert.equal(left[0]?.model, "m");
  await gateway.until("the one endpoint", () => gateway.endpoints.size === 1 && gateway.models.size === 1);
  const [kept = ""] = left.map(({ id }) => id);
  if (before.has(kept)) assert.equal(world.engines().get(kept), before.get(kept));
  await eventually(
    "the end of the others' engines",
    () => world.engines().size,
    (count) => count === 1,
    30_000,
  );
});

test("a cordoned node takes nothing and keeps what it has; why is told with the same words by the pass and by explain-placement [40.P4]", async () => {
  await using world = await LiveWorld.start();
  await world.addAgent("node-a", { labels: { zone: "a" } });
  await world.apply(simModel("m"));
  await world.untilReplicas("a ready replica", (list) => allReady(list, 1));
  assert.match(await ctlDone(world, "cordon", "node-a"), /cordoned node-a/);
  await world.apply(simModel("m"), simModel("n"));
  const models = async (): Promise<string> => ctlDone(world, "models");
  await eventually("the reason", models, (out) => /^n +waiting .*\S+: it is cordoned$/m.test(out));
  const explained = placementView.parse((await world.control.ask("GET", "/v1/models/n/placement")).body);
  assert.deepEqual(
    explained.profiles[0]?.nodes.map(({ node, why }) => [node, why]),
    [["node-a", "it is cordoned"]],
  );
  assert.match(await ctlDone(world, "status"), /n +fits on no node: \S+: it is cordoned/);
  assert.match(await ctlDone(world, "nodes"), /^node-a +ready, cordoned .*zone=a$/m);
  assert.equal((await world.replicas()).length, 1);
  await ctlDone(world, "uncordon", "node-a");
  const placed = await world.untilReplicas("both", (list) => allReady(list, 2));
  const [first] = placed;
  assert.match(await ctlDone(world, "replicas"), /^r-[0-9a-f]{12} +m +sim +ready +node-a/m);
  assert.match(await ctlDone(world, "logs", first?.id ?? ""), /sim-engine ready/);
  assert.match(await ctlDone(world, "leader"), /leading/);
  for (const kind of ["nodeReady", "replicaPlaced", "replicaReady", "nodeCordoned", "modelUnplaced"])
    assert.match(await ctlDone(world, "events", "--kind", kind), new RegExp(kind));
  assert.match(await ctlDone(world, "events", "--kind", "replicaPlaced"), /on node-a$/m);
  assert.match(await ctlDone(world, "gateways"), /^GATEWAY +VERSION/);
});

test("a model that can't start is parked after its failures, each told with its reason, and `ctl retry` lifts that [40.N6 80.A11]", async () => {
  await using world = await LiveWorld.start({ unreachable_after_s: 5, park_after: 1 });
  await world.addAgent("node-a");
  const models = async (): Promise<string> => ctlDone(world, "models");
  await world.apply(simModel("broken", { profiles: [{ engine: "sim", args: { "no-such-flag": 1 } }] }));
  await eventually("the park", models, (out) => /^broken +parked /m.test(out), 30_000);
  const [failed] = await world.replicas();
  assert.deepEqual([failed?.state, failed?.why?.includes("no-such-flag")], ["failed", true]);
  // Its node has forgotten it; what the engine said last has not gone with it.
  assert.match(await ctlDone(world, "logs", failed?.id ?? ""), /no-such-flag/);
  await ctlDone(world, "retry", "broken");
  await eventually(
    "another try",
    () => world.events("replicaPlaced"),
    (told) => told.length >= 2,
    30_000,
  );
  await world.apply(simModel("broken"));
  await world.untilReplicas("a ready replica", (list) => list.some(({ state }) => state === "ready"));
});
