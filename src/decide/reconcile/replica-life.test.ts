import assert from "node:assert/strict";
import { test } from "node:test";
import { aModel, aNodeDoc, aShard } from "../../testing/fleet-builders.ts";
import { PassWorld, sent } from "../../testing/pass-world.ts";

test("an engine that was stopped on its node itself is no failure: it is forgotten, and the model is placed anew at once [40.N6 40.R2]", () => {
  const world = new PassWorld([aModel("chat")], ["a"]);
  world.pass();
  world.reportReady();
  world.pass();
  const { id } = world.only();
  world.report("a", [aShard(world.only(), { state: "stopped" })]);
  const plan = world.pass();
  assert.deepEqual(sent(plan), [`forget ${id}@a`, "start r2@a"]);
  assert.ok(plan.events.some(({ kind, why }) => kind === "replicaVanished" && why.includes("on node a itself")));
  assert.equal(world.models.get("chat")?.failuresInRow ?? 0, 0);
});

test("what is said of a replica's node names it as people do", () => {
  const world = new PassWorld([aModel("chat")], []);
  world.addNode("a", { name: "rack-1" });
  world.nodeDocs.set("a", aNodeDoc("a", { ...world.nodeDocs.get("a"), name: "rack-1" }));
  const placed = world.pass();
  world.reportReady();
  world.pass();
  world.report("a", [aShard(world.only(), { state: "stopped" })]);
  assert.deepEqual(
    [...placed.events, ...world.pass().events].filter(({ replicaId }) => replicaId !== null).map(({ why }) => why),
    ["on rack-1", "it was stopped on node rack-1 itself", "on rack-1"],
  );
});
