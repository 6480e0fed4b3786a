import assert from "node:assert/strict";
import { test } from "node:test";
import { LiveWorld, simModel } from "./support/live-world.ts";

test("a node that is enrolled gets what the catalog wants, and what runs is shown [40.R1]", async () => {
  await using world = await LiveWorld.start();
  await world.addAgent("node-a");
  await world.untilNodes("the node", ([node]) => node?.state === "ready");
  await world.apply(simModel("m"));
  const [replica] = await world.untilReplicas("a ready replica", ([first]) => first?.state === "ready");
  assert.deepEqual(replica?.nodes, ["node-a"]);
});
