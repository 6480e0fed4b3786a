import assert from "node:assert/strict";
import { test } from "node:test";
import { aModel } from "../../testing/fleet-builders.ts";
import { PassWorld } from "../../testing/pass-world.ts";

test("that a model is idle is told once, though its replica runs on until a second pass has confirmed it [40.P6 40.V3]", () => {
  const chat = aModel("chat", { replicas: { min: 0, max: 1 }, idleStopMs: 8_000 });
  const world = new PassWorld([chat]);
  world.demanded.add("chat");
  world.pass();
  world.reportReady({ since: 60_000 });
  world.pass();
  world.demanded.clear();
  world.use.set(world.only().id, { inFlight: 0, idleMs: 60_000 });
  for (let pass = 0; pass < 6; pass += 1) {
    if (world.only().state === "ready") world.reportReady({ since: 60_000 });
    world.pass(1_000);
  }
  assert.equal(world.only().state, "draining");
  assert.equal(world.told.filter((kind) => kind === "modelIdle").length, 1);
});
