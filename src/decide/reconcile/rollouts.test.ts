import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { Model } from "../../contract/catalog.ts";
import type { RestartPace } from "../../contract/fleet.ts";
import { aModel, aProfile, GIB } from "../../testing/fleet-builders.ts";
import { PassFleet } from "../../testing/pass-fleet.ts";

const versioned = (name: string, count: number, version: number, gib = 60, part: Partial<Model> = {}): Model =>
  aModel(name, {
    replicas: { min: count, max: 8 },
    profiles: [
      aProfile(`${name}-${version}`, { gpu: { classes: ["h200"], count: 1, memoryMib: gib * GIB }, diskMib: 1 }),
    ],
    ...part,
  });
const allReady = (fleet: PassFleet, models: readonly Model[]): boolean =>
  models.every(({ name, replicas }) => fleet.ready(name).length === replicas.min);
function running(models: readonly Model[], cards: Readonly<Record<string, number>>): PassFleet {
  const fleet = new PassFleet(models, cards);
  return fleet.until(() => allReady(fleet, models));
}
const versions = (fleet: PassFleet, name: string): string[] =>
  fleet
    .ready(name)
    .map(({ profileHash }) => profileHash)
    .toSorted();

test("a rollout replaces all replicas of a model, one beside what runs at a time, and never fewer are ready [40.S9 80.A18]", () => {
  const fleet = running([versioned("m", 4, 1)], { a: 3 });
  fleet.world.apply([versioned("m", 4, 2)]);
  assert.equal(fleet.world.askRollout("m"), null);
  let most = 0;
  fleet.until(() => {
    assert.equal(fleet.ready("m").length >= 4, true);
    most = Math.max(most, fleet.world.replicas.size);
    return versions(fleet, "m").join() === "m-2,m-2,m-2,m-2";
  });
  assert.equal(most, 5, "one at a time");
  fleet.until(() => fleet.world.replicas.size === 4);
});

test("a rollout of a version that can't start stops at the first failure: the others serve on, and say why [40.S9]", () => {
  const fleet = running([versioned("m", 3, 1), versioned("n", 1, 1)], { a: 3 });
  const { world } = fleet;
  world.apply([versioned("m", 3, 2), versioned("n", 1, 2)]);
  let starts = 0;
  fleet.fails = ({ profile }) => {
    starts += Number(profile.hash.endsWith("-2"));
    return profile.hash === "m-2";
  };
  assert.equal(world.askRollout(null), null);
  for (let pass = 0; pass < 500; pass++) {
    fleet.step(10_000);
    assert.equal(fleet.ready("m").length + fleet.ready("n").length, 4);
  }
  assert.equal(starts, 1, "nothing was started after the first failure");
  assert.deepEqual(versions(fleet, "m"), ["m-1", "m-1", "m-1"]);
  assert.deepEqual(versions(fleet, "n"), ["n-1"], "the models behind it are not touched");
  assert.equal(world.restarts().filter((state) => /refused: .*failed/.test(state)).length, 4);
  assert.equal(world.told.filter((kind) => kind === "rolloutStopped").length, 1);
});

test("with continue a rollout goes on with the next model after a failure [40.S9]", () => {
  const fleet = running([versioned("m", 2, 1), versioned("n", 1, 1)], { a: 3 });
  const { world } = fleet;
  world.apply([versioned("m", 2, 2), versioned("n", 1, 2)]);
  fleet.fails = ({ profile }) => profile.hash === "m-2";
  world.askRollout(null, {}, true);
  fleet.until(() => versions(fleet, "n").join() === "n-2", 500);
  assert.deepEqual(versions(fleet, "m"), ["m-1", "m-1"]);
});

test("models of one rollout come one after another, and only outdated replicas are replaced [40.S9]", () => {
  const fleet = running([versioned("m", 2, 1), versioned("n", 1, 1), versioned("o", 1, 1)], { a: 3 });
  const { world } = fleet;
  world.apply([versioned("m", 2, 2), versioned("n", 1, 2), versioned("o", 1, 1)]);
  const [kept] = fleet.ready("o");
  world.askRollout(null);
  fleet.until(() => {
    if (versions(fleet, "m").includes("m-1")) assert.deepEqual(versions(fleet, "n"), ["n-1"]);
    return versions(fleet, "n").join() === "n-2";
  });
  assert.equal(fleet.ready("o")[0]?.id, kept?.id);
  assert.match(world.askRollout(null) ?? "", /no ready replica is outdated/);
  assert.equal(world.askRollout("x"), "unknown");
});

test("rollout: auto replaces the replicas of a changed profile by itself; a failed one is not tried again before the profile changes [40.C2 40.S9]", () => {
  const auto: Partial<Model> = { rollout: "auto" };
  const fleet = running([versioned("m", 2, 1, 60, auto)], { a: 2 });
  const { world } = fleet;
  fleet.fails = ({ profile }) => profile.hash === "m-2";
  world.apply([versioned("m", 2, 2, 60, auto)]);
  let starts = 0;
  for (let pass = 0; pass < 300; pass++) {
    const { commands } = fleet.step(10_000);
    starts += commands.filter(({ verb }) => verb.kind === "start").length;
    assert.equal(fleet.ready("m").length, 2);
  }
  assert.equal(starts, 1);
  world.apply([versioned("m", 2, 3, 60, auto)]);
  fleet.until(() => versions(fleet, "m").join() === "m-3,m-3");
});

test("without rollout: auto a changed profile restarts nothing, nor does another control plane over the same store [40.C2 40.R2]", () => {
  const fleet = running([versioned("m", 2, 1)], { a: 2 });
  fleet.world.apply([versioned("m", 2, 2)]);
  fleet.world.memory = new Map();
  for (let pass = 0; pass < 20; pass++) assert.deepEqual(fleet.step().writes, []);
});

test("a drained node's replicas run elsewhere one by one; what fits nowhere else stays, with the reason, and uncordoned all is as before [40.S1 40.S3 80.A18]", () => {
  const models = [versioned("m", 2, 1, 60), versioned("n", 1, 1, 100)];
  const fleet = running(models, { a: 2 });
  const { world } = fleet;
  world.nodeDocs.set("a", { ...world.nodeDocs.get("a")!, cordoned: true, draining: true });
  fleet.steps(5);
  assert.equal(world.restarts().filter((state) => state.endsWith(": queued")).length, 3);
  const whys = [...world.replicas.values()].map(({ restart }) => restart?.why ?? "");
  assert.equal(whys.filter((why) => /fit nowhere.*a: it is cordoned/.test(why)).length, 2, "one of each model");
  world.nodeDocs.set("a", { ...world.nodeDocs.get("a")!, cordoned: false, draining: false });
  fleet.step();
  assert.deepEqual(world.restarts(), []);
  world.addNode("b");
  world.nodeDocs.set("a", { ...world.nodeDocs.get("a")!, cordoned: true, draining: true });
  fleet.until(() => {
    assert.ok(allReady(fleet, models) || fleet.ready("m").length > 2 || fleet.ready("n").length > 1);
    return [...world.replicas.values()].every(({ shards }) => shards[0]?.nodeId === "b");
  });
  assert.ok(allReady(fleet, models));
});

const anyPace = fc.record({
  maxSurge: fc.nat(2),
  maxUnavailable: fc.nat(2),
  minAvailable: fc.nat(3),
}) satisfies fc.Arbitrary<RestartPace>;
const anyStep = fc.oneof(
  fc.record({ kind: fc.constant("rollout" as const), pace: anyPace, model: fc.constantFrom("m", "n", null) }),
  fc.record({ kind: fc.constant("restart" as const), at: fc.nat(9), pace: anyPace }),
  fc.record({
    kind: fc.constant("version" as const),
    model: fc.constantFrom("m", "n"),
    gib: fc.constantFrom(40, 100, 200),
  }),
  fc.record({ kind: fc.constant("fails" as const), on: fc.boolean() }),
  fc.record({ kind: fc.constant("drain" as const), node: fc.constantFrom("a", "b"), on: fc.boolean() }),
  fc.record({ kind: fc.constant("leader" as const) }),
  fc.record({ kind: fc.constant("steps" as const), count: fc.integer({ min: 1, max: 6 }) }),
);

test("whatever is asked for, never fewer are ready by this hand than the pace allows, no card is given away that a restart freed: 1 000 random plans [80.A18 40.S2]", () => {
  const counts: Readonly<Record<string, number>> = { m: 3, n: 2 };
  const property = (
    cards: number,
    steps: readonly (typeof anyStep extends fc.Arbitrary<infer T> ? T : never)[],
  ): void => {
    const now: Record<string, Model> = { m: versioned("m", 3, 1, 40), n: versioned("n", 2, 1, 40) };
    const waiting = versioned("w", 8, 1, 100, { priority: 90 });
    const fleet = running(Object.values(now), { a: cards, b: 2 });
    const { world } = fleet;
    const apply = (): void => world.apply([...Object.values(now), waiting]);
    apply();
    /** The least that any request of the model so far allows. */
    const least: Record<string, number> = { m: 2, n: 1 };
    const step = (): void => {
      const before = new Map(["m", "n"].map((name) => [name, fleet.ready(name).length]));
      fleet.step();
      for (const [name, ready] of before)
        assert.ok(
          fleet.ready(name).length >= Math.min(ready, least[name]!),
          `${name}: ${ready} → ${fleet.ready(name).length}`,
        );
      for (const doc of world.replicas.values()) {
        if (doc.restart?.state !== "inPlace") continue;
        const heir = [...world.replicas.values()].find(({ replaces }) => replaces?.id === doc.id);
        assert.deepEqual(
          [heir?.model, heir?.desired, heir?.waitsFor],
          [doc.model, "run", [doc.id]],
          "its room has an heir",
        );
      }
    };
    let version = 1;
    for (const move of steps) {
      if (move.kind === "rollout") {
        for (const name of move.model === null ? ["m", "n"] : [move.model])
          least[name] = Math.min(least[name]!, counts[name]! - Math.max(1, move.pace.maxUnavailable));
        world.askRollout(move.model, move.pace);
      } else if (move.kind === "restart") {
        const doc = [...world.replicas.values()].filter(({ model }) => model !== "w")[move.at];
        if (doc === undefined) continue;
        least[doc.model] = Math.min(least[doc.model]!, counts[doc.model]! - Math.max(1, move.pace.maxUnavailable));
        world.askRestart(doc.id, { pace: move.pace });
      } else if (move.kind === "version") {
        version += 1;
        now[move.model] = versioned(move.model, counts[move.model]!, version, move.gib);
        apply();
      } else if (move.kind === "drain")
        world.nodeDocs.set(move.node, { ...world.nodeDocs.get(move.node)!, cordoned: move.on, draining: move.on });
      else if (move.kind === "fails") fleet.fails = ({ model }) => move.on && model.name !== "w";
      else if (move.kind === "leader") world.memory = new Map();
      else for (let at = 0; at < move.count; at++) step();
    }
    for (let at = 0; at < 40; at++) step();
  };
  fc.assert(fc.property(fc.integer({ min: 1, max: 3 }), fc.array(anyStep, { minLength: 4, maxLength: 14 }), property), {
    numRuns: 1_000,
  });
});
