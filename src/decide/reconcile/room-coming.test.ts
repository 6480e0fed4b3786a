import assert from "node:assert/strict";
import { test } from "node:test";
import type { Model } from "../../contract/catalog.ts";
import { aGpu, aModel, aProfile, aReplicaDoc, aShard, GIB } from "../../testing/fleet-builders.ts";
import { PassWorld } from "../../testing/pass-world.ts";
import { makeFeed } from "../feed/make-feed.ts";
import type { PassPlan } from "./snapshot.ts";

// A model whose room is about to be there is not told as one without room: whoever asks for it would be turned away.

const on = (name: string, priority: number): Model =>
  aModel(name, {
    priority,
    profiles: [aProfile(name, { gpu: { classes: ["h200"], count: 1, memoryMib: 100 * GIB }, diskMib: 1 })],
  });
const [low, high] = [on("low", 10), on("high", 90)];

/** One card, held by the lower model in this state, and the higher one in the catalog. */
function full(part: Parameters<typeof aReplicaDoc>[3], shard: Parameters<typeof aShard>[1]): PassWorld {
  const world = new PassWorld([high, low], []);
  world.addNode("a", { gpus: [aGpu("a/0")] });
  const doc = aReplicaDoc("r9", low, "a", { gpuUuids: ["a/0"], ...part } as typeof part);
  const held = { ...doc, shards: doc.shards.map((each) => ({ ...each, gpuUuids: ["a/0"], memoryMib: 100 * GIB })) };
  world.replicas.set("r9", held);
  world.report("a", [aShard(held, { gpuUuids: ["a/0"], ...shard })], {
    gpus: [aGpu("a/0", { usedMib: 100 * GIB })],
  });
  return world;
}
const toldOf = (world: PassWorld, plan: PassPlan): readonly unknown[] => {
  const { catalog, docs } = world.snapshot();
  const { settled, startable } = makeFeed(catalog, docs, plan.unplaced).models.get("high")!;
  return [settled, startable, plan.events.some(({ kind, model }) => kind === "modelUnplaced" && model === "high")];
};

test("from the first sight of room that others will make to the start in it, the model is told as starting [40.P5 10.L1]", () => {
  const world = full({ state: "ready" }, { since: 9_000_000 });
  const first = world.pass(0);
  assert.deepEqual(toldOf(world, first), ["starting", true, false]);
  assert.ok(first.wakeAt !== null && first.wakeAt <= world.now + world.settings.confirmMs);
  const second = world.pass();
  assert.ok(second.events.some(({ kind }) => kind === "replicaDisplaced"));
  assert.deepEqual(toldOf(world, second), ["starting", true, false]);
});

test("while what is on its way out still holds the room, the model is told as starting; once another has it, as one without room [40.P4 40.P6 10.L1]", () => {
  const world = full({ state: "stopping", desired: "stop" }, { state: "stopping", gpuUsedMib: { "a/0": 100 * GIB } });
  assert.deepEqual(toldOf(world, world.pass()), ["starting", true, false]);
  const taken = full({ state: "ready" }, { since: 1_000 });
  const plan = taken.pass();
  assert.deepEqual(toldOf(taken, plan), ["unplaced", false, true]);
  assert.match(plan.unplaced[0]?.why ?? "", /a: needs .*; a: r9 of low stays: it has served 1 s of 300 s/);
});
