import assert from "node:assert/strict";
import { test } from "node:test";
import { aModel, aShard } from "../../testing/fleet-builders.ts";
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
