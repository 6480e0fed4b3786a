import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { Model } from "../../contract/catalog.ts";
import { aModel, aProfile, GIB } from "../../testing/fleet-builders.ts";
import { PassFleet } from "../../testing/pass-fleet.ts";
import { sent } from "../../testing/pass-world.ts";

const on = (name: string, priority: number, part: Partial<Model> = {}, count = 1, gib = 100): Model =>
  aModel(name, {
    priority,
    profiles: [aProfile(name, { gpu: { classes: ["h200"], count, memoryMib: gib * GIB }, diskMib: 1 })],
    ...part,
  });
const demand: Partial<Model> = { replicas: { min: 0, max: 4 }, idleStopMs: 600_000 };

/** All run, and have done so for longer than the least time. */
function running(models: readonly Model[], cards: Readonly<Record<string, number>>): PassFleet {
  const fleet = new PassFleet(models, cards);
  for (const { name, replicas } of models) if (replicas.min === 0) fleet.world.demanded.add(name);
  fleet.until(() => models.every(({ name }) => fleet.ready(name).length > 0));
  fleet.world.demanded.clear();
  return fleet.steps(3, fleet.world.settings.minRunMs);
}
const displaced = (fleet: PassFleet): number => fleet.world.told.filter((kind) => kind === "replicaDisplaced").length;

test("a model without a replica displaces one of the lowest priority: it drains first, and its room is held for the other from the same pass on [40.P5 40.R3]", () => {
  const low = on("low", 10);
  const mid = on("mid", 50);
  const fleet = running([mid, low], { a: 2 });
  const { world } = fleet;
  fleet.stopsIn = 10;
  world.apply([mid, low, on("vip", 90)]);
  fleet.until(() => displaced(fleet) === 1);
  const heir = [...world.replicas.values()].find(({ model }) => model === "vip");
  const victim = [...world.replicas.values()].find(({ model }) => model === "low");
  assert.deepEqual([heir?.waitsFor, victim?.state], [[victim!.id], "draining"]);
  fleet.until(() => fleet.ready("vip").length === 1);
  assert.equal(fleet.ready("mid").length, 1);
  for (let pass = 0; pass < 50; pass++) fleet.step(60_000);
  assert.deepEqual([displaced(fleet), fleet.ready("vip").length, fleet.ready("low").length], [1, 1, 0]);
  assert.ok(fleet.world.told.includes("modelUnplaced"));
});

test("never one of the same or a higher priority, one that has run for less than the least time, or for a second replica [40.P5]", () => {
  const same = running([on("m", 50)], { a: 1 });
  same.world.apply([on("m", 50), on("n", 50)]);
  same.steps(20, 60_000);
  assert.equal(displaced(same), 0);

  const young = new PassFleet([on("m", 10)], { a: 1 });
  young.until(() => young.ready("m").length === 1);
  young.world.apply([on("m", 10), on("n", 50)]);
  const from = young.world.now;
  young.until(() => displaced(young) === 1, 1_000);
  assert.ok(young.world.now - from >= young.world.settings.minRunMs - 10_000);

  const second = running([on("m", 10), on("n", 50)], { a: 2 });
  second.world.apply([on("m", 10), on("n", 50, { replicas: { min: 2, max: 2 } })]);
  second.steps(20, 60_000);
  assert.equal(displaced(second), 0);
});

test("the fewest go, though they may be of a higher priority than more of them would be [40.P5]", () => {
  const fleet = running([on("s", 10, { replicas: { min: 2, max: 2 } }), on("big", 20, {}, 2)], { a: 2, b: 2 });
  fleet.world.apply([on("s", 10, { replicas: { min: 2, max: 2 } }), on("big", 20, {}, 2), on("vip", 90, {}, 2)]);
  fleet.until(() => fleet.ready("vip").length === 1);
  const left = ["s", "big"].map((name) => fleet.ready(name).length);
  // Its two small ones lie on one node each or on both: one big one is fewer in either case.
  assert.deepEqual([displaced(fleet), left], [1, [2, 0]]);
});

test("what was displaced displaces nobody before it has served again: no move causes the next [40.P5]", () => {
  const models = [on("low", 10), on("mid", 50, { nodes: { require: {}, avoid: {}, gpuUuids: ["b/0"] } })];
  const fleet = running(models, { a: 1, b: 1 });
  const vip = on("vip", 90, { nodes: { require: {}, avoid: {}, gpuUuids: ["b/0"] } });
  const free = on("mid", 50);
  fleet.world.apply([models[0]!, free, vip]);
  fleet.steps(100, 60_000);
  assert.deepEqual([displaced(fleet), fleet.ready("low").length, fleet.ready("vip").length], [1, 1, 1]);
  assert.equal(fleet.world.models.get("mid")?.displacedBy, "vip");
});

test("while the fleet is not trusted nobody is displaced, nor at first sight [40.P5 80.A14]", () => {
  const fleet = running([on("low", 10)], { a: 1 });
  fleet.world.braked = true;
  fleet.world.apply([on("low", 10), on("vip", 90)]);
  fleet.steps(20, 60_000);
  assert.equal(displaced(fleet), 0);
});

test("a model on demand that every gateway knows to be idle stops by itself, and runs again when somebody asks [40.P6]", () => {
  const fleet = running([on("m", 50, demand)], { a: 1 });
  const { world } = fleet;
  const [replica] = fleet.ready("m");
  world.use.set(replica!.id, { inFlight: 0, idleMs: 599_000 });
  for (let pass = 0; pass < 5; pass++) assert.deepEqual(sent(fleet.step()), []);
  world.use.set(replica!.id, { inFlight: 0, idleMs: 600_000 });
  fleet.until(() => world.replicas.size === 0);
  assert.ok(world.told.includes("modelIdle"));
  fleet.steps(20);
  assert.equal(world.replicas.size, 0);
  world.demanded.add("m");
  fleet.until(() => fleet.ready("m").length === 1);
  world.demanded.clear();
  world.use.clear();
  fleet.steps(20, 60_000);
  assert.equal(fleet.ready("m").length, 1);
});

for (const [name, use, part] of [
  ["nothing is known of it", undefined, demand],
  ["one gateway does not know", { inFlight: 0, idleMs: null }, demand],
  ["it is always to run", { inFlight: 0, idleMs: 9e6 }, { ...demand, replicas: { min: 1, max: 4 } }],
  ["it has no idle time", { inFlight: 0, idleMs: 9e6 }, { ...demand, idleStopMs: null }],
] as const) {
  test(`a model is not stopped for idleness: ${name} [40.P6]`, () => {
    const fleet = running([on("m", 50, part)], { a: 1 });
    const [replica] = fleet.ready("m");
    if (use !== undefined) fleet.world.use.set(replica!.id, use);
    for (let pass = 0; pass < 30; pass++) assert.deepEqual(sent(fleet.step(60_000)), []);
    assert.equal(fleet.ready("m").length, 1);
  });
}

test("an idle model makes room for another, whatever their priorities, and the room is not given to a third [40.P6 40.R3]", () => {
  const fleet = running([on("m", 90, demand)], { a: 1 });
  const { world } = fleet;
  fleet.stopsIn = 10;
  const [replica] = fleet.ready("m");
  world.apply([on("m", 90, demand), on("n", 50)]);
  fleet.steps(5);
  assert.equal(fleet.ready("m").length, 1);
  world.use.set(replica!.id, { inFlight: 0, idleMs: 700_000 });
  fleet.until(() => fleet.world.replicas.get(replica!.id)?.desired === "stop");
  const heir = [...world.replicas.values()].find(({ model }) => model === "n");
  assert.deepEqual(heir?.waitsFor, [replica!.id]);
  world.apply([on("m", 90, demand), on("n", 50), on("third", 80)]);
  fleet.until(() => fleet.ready("n").length === 1);
  assert.ok(!(fleet.history.get("a/0") ?? []).includes("third"));
});

test("whatever the models and their priorities: displacements go upwards only, end, and none undoes another [40.P5]", () => {
  let displacements = 0;
  const anyModel = fc.record({ priority: fc.nat(4), count: fc.integer({ min: 1, max: 2 }), at: fc.nat(6) });
  const property = (shape: readonly { priority: number; count: number; at: number }[], cards: number): void => {
    const models = shape.map(({ priority, count }, index) => on(`m${index}`, priority, {}, count));
    const fleet = new PassFleet([], { a: cards, b: 2 });
    const { world } = fleet;
    world.settings = { ...world.settings, minRunMs: 60_000 };
    const priorities = new Map(models.map(({ name, priority }) => [name, priority]));
    const readySince = new Map<string, number>();
    let moves = 0;
    for (let pass = 0; pass < 120; pass++) {
      world.apply(models.filter((_, index) => shape[index]!.at <= pass));
      const before = new Map([...world.replicas.values()].map((doc) => [doc.id, doc]));
      const { events } = fleet.step(10_000);
      for (const { kind, replicaId, why } of events) {
        if (kind !== "replicaDisplaced") continue;
        moves += 1;
        displacements += 1;
        const victim = before.get(replicaId!)!;
        const [, heir = ""] = /by \S+ of (m\d)/.exec(why) ?? [];
        assert.ok(priorities.get(heir)! > priorities.get(victim.model)!, why);
        assert.ok(world.now - readySince.get(victim.id)! >= 60_000 - 10_000, "it has run for the least time");
        assert.equal(world.models.get(heir)?.displacedBy ?? null, null, "none that was displaced displaces");
      }
      for (const { id, state } of world.replicas.values())
        if (state === "ready" && !readySince.has(id)) readySince.set(id, world.now);
      if (pass > 100) assert.ok(!events.some(({ kind }) => kind === "replicaDisplaced"), "it ends");
    }
    assert.ok(moves <= models.length * 5, `${moves} moves`);
  };
  fc.assert(fc.property(fc.array(anyModel, { minLength: 2, maxLength: 6 }), fc.integer({ min: 1, max: 3 }), property), {
    numRuns: 150,
  });
  assert.ok(displacements > 50, `only ${displacements} in all`);
});
