import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { Model } from "../../contract/catalog.ts";
import { aModel, aProfile, GIB } from "../../testing/fleet-builders.ts";
import { PassFleet } from "../../testing/pass-fleet.ts";
import { sent } from "../../testing/pass-world.ts";

const sized = (name: string, gib: number, version = 1, part: Partial<Model> = {}): Model =>
  aModel(name, {
    profiles: [
      aProfile(`${name}-${version}`, { gpu: { classes: ["h200"], count: 1, memoryMib: gib * GIB }, diskMib: 1 }),
    ],
    ...part,
  });
const copies = (min: number): Partial<Model> => ({ replicas: { min, max: 8 } });

function running(models: readonly Model[], cards: Readonly<Record<string, number>> = { a: 1 }): PassFleet {
  const fleet = new PassFleet(models, cards);
  const wanted = models.reduce((sum, { replicas }) => sum + replicas.min, 0);
  return fleet.until(
    () => [...fleet.world.replicas.values()].filter(({ state }) => state === "ready").length >= wanted,
  );
}
const version = (fleet: PassFleet, model: string): string[] => fleet.ready(model).map(({ profileHash }) => profileHash);

test("with room beside it the replacement starts first, the old one serves until that is ready, then drains and stops [40.S1]", () => {
  const fleet = running([sized("m", 60)]);
  const { world } = fleet;
  world.apply([sized("m", 60, 2)]);
  const [old] = fleet.ready("m");
  assert.equal(world.askRestart(old!.id), null);
  const begun = fleet.step();
  assert.deepEqual(sent(begun).length, 1);
  assert.deepEqual(world.restarts(), [`${old!.id}: replacing`]);
  assert.deepEqual(world.states(), ["m ready on a", "m placing on a"]);
  fleet.step();
  assert.deepEqual(world.states(), ["m draining on a", "m ready on a"]);
  fleet.until(() => world.replicas.size === 1);
  assert.deepEqual(version(fleet, "m"), ["m-2"]);
  assert.deepEqual(world.restarts(), []);
  assert.deepEqual(
    ["restartBegun", "restartDone"].map((kind) => world.told.includes(kind as never)),
    [true, true],
  );
  for (let pass = 0; pass < 5; pass++) assert.deepEqual(fleet.step().writes, []);
});

for (const [where, first] of [
  ["after", "m"],
  ["before", "w"],
] as const) {
  for (const stopsIn of [0, 1, 30]) {
    test(`without room beside it the replica stops and its replacement has its card in the same pass; a model that waits ${where} it in the catalog never gets the card, though the stop takes ${stopsIn} passes [40.S2]`, () => {
      const inOrder = (...models: Model[]): Model[] => models.toSorted((a) => (a.name === first ? -1 : 1));
      const fleet = running([sized("m", 100)]);
      const { world } = fleet;
      fleet.stopsIn = stopsIn;
      for (const priority of [10, 50, 90]) {
        world.apply(inOrder(sized("m", 100, 1), sized("w", 100, 1, { priority })));
        fleet.steps(3);
        const round = world.catalog.revision;
        world.apply(inOrder(sized("m", 100, round), sized("w", 100, 1, { priority })));
        const [old] = fleet.ready("m");
        world.askRestart(old!.id);
        fleet.step();
        assert.deepEqual(world.restarts(), [`${old!.id}: in place`]);
        const [, next] = [...world.replicas.values()];
        assert.deepEqual(
          [world.replicas.get(old!.id)?.state, next?.model, next?.state, next?.shards[0]?.gpuUuids],
          ["draining", "m", "placing", ["a/0"]],
        );
        fleet.until(() => version(fleet, "m").includes(`m-${round}`));
      }
      assert.deepEqual(new Set(fleet.history.get("a/0")), new Set(["m"]));
    });
  }
}

test("its replacement is not started before the old one is gone, and gets its first start only then [40.S2]", () => {
  const fleet = running([sized("m", 100)]);
  fleet.drains = false;
  const [old] = fleet.ready("m");
  fleet.world.askRestart(old!.id);
  for (let pass = 0; pass < 20; pass++) assert.deepEqual(sent(fleet.step()), []);
  fleet.drains = true;
  fleet.until(() => fleet.ready("m").length === 1);
  assert.notEqual(fleet.ready("m")[0]?.id, old!.id);
});

test("a replacement that fits nowhere even with the old one stopped is refused, naming node and figures; the old one serves on, until asked again [40.S3 40.S8]", () => {
  const fleet = running([sized("m", 100)]);
  const { world } = fleet;
  world.apply([sized("m", 200, 2)]);
  const [old] = fleet.ready("m");
  world.askRestart(old!.id);
  fleet.steps(10);
  const [told] = world.restarts();
  assert.match(
    told ?? "",
    /^r1: refused: its replacement would fit nowhere.*a: needs 200\.0 GiB on each of 1 card.*140\.0 GiB/,
  );
  assert.deepEqual(version(fleet, "m"), ["m-1"]);
  assert.equal(world.told.filter((kind) => kind === "restartRefused").length, 1);
  world.apply([sized("m", 100, 3)]);
  fleet.steps(5);
  assert.equal(world.restarts().length, 1, "nobody asked again");
  assert.equal(world.askRestart(old!.id), null);
  assert.deepEqual(world.restarts(), [`${old!.id}: queued`]);
  fleet.until(() => version(fleet, "m").includes("m-3"));
});

test("models of one card that are restarted at once: who does not fit before the others are through waits, naming why, and is not refused [40.S2 40.S3]", () => {
  for (const [gib, count] of [
    [60, 2],
    [40, 3],
  ] as const) {
    const names = ["m", "n", "o"].slice(0, count);
    const fleet = running(names.map((name) => sized(name, gib)));
    const { world } = fleet;
    world.apply([...names.map((name) => sized(name, gib, 2)), sized("w", gib)]);
    for (const name of names) assert.equal(world.askRestart(fleet.ready(name)[0]!.id), null);
    const reasons = new Set<string>();
    fleet.until(() => {
      for (const { restart } of world.replicas.values()) if (restart?.why) reasons.add(restart.why);
      return names.every((name) => version(fleet, name).join() === `${name}-2`) && world.restarts().length === 0;
    });
    assert.match([...reasons].join("; "), /others have to be gone first/);
    assert.equal(world.told.includes("restartRefused"), false);
    assert.equal(fleet.history.get("a/0")?.includes("w"), false);
  }
});

test("room beside it that is about to be there, since others are being replaced, is waited for: no model is without a replica for nothing [40.S1 80.A18]", () => {
  const names = ["m", "n"];
  const fleet = running(names.map((name) => sized(name, 40)));
  const { world } = fleet;
  fleet.stopsIn = 5;
  world.apply(names.map((name) => sized(name, 40, 2)));
  for (const name of names) assert.equal(world.askRestart(fleet.ready(name)[0]!.id), null);
  fleet.until(() => {
    for (const name of names) assert.ok(fleet.ready(name).length > 0, `${name}: ${world.states().join(", ")}`);
    return world.restarts().length === 0;
  });
  assert.deepEqual(
    names.map((name) => version(fleet, name).join()),
    ["m-2", "n-2"],
  );
});

test("whatever fits and is asked for at once, in any order: each restart with a version of the same size is carried out, none is refused, and no model loses more than one [40.S1 40.S2 80.A18]", () => {
  const copiesOf = fc.record({
    gib: fc.constantFrom(20, 35, 45, 60, 70, 100, 130),
    count: fc.integer({ min: 1, max: 2 }),
  });
  const plan = fc.record({
    cards: fc.array(fc.integer({ min: 1, max: 2 }), { minLength: 1, maxLength: 3 }),
    models: fc.array(copiesOf, { minLength: 1, maxLength: 4 }),
    stopsIn: fc.nat(5),
    drains: fc.boolean(),
    // Passes before each request, and which of the replicas it is for.
    asks: fc.array(fc.tuple(fc.nat(2), fc.nat(1_000)), { minLength: 1, maxLength: 8 }),
  });
  fc.assert(
    fc.property(plan, ({ cards, models, stopsIn, drains, asks }) => {
      const at = (version: number): Model[] =>
        models.map(({ gib, count }, index) => sized(`m${index}`, gib, version, copies(count)));
      const fleet = new PassFleet(at(1), Object.fromEntries(cards.map((count, index) => [`n${index}`, count])));
      Object.assign(fleet, { stopsIn, drains });
      const { world } = fleet;
      const counts = (): number[] => models.map((_, index) => fleet.ready(`m${index}`).length);
      fleet.steps(8);
      fc.pre(models.every(({ count }, index) => counts()[index] === count));
      world.apply([...at(2), sized("w", 60), sized("v", 130)]);
      const old = [...world.replicas.keys()];
      const isDone = (): boolean => {
        for (const [index, count] of counts().entries()) assert.ok(count >= models[index]!.count - 1, `m${index}`);
        return world.restarts().length === 0;
      };
      const asked = new Set<string>();
      for (const [passes, which] of asks) {
        const id = old[which % old.length]!;
        if (world.replicas.get(id)?.state === "ready" && world.askRestart(id) === null) asked.add(id);
        for (let pass = 0; pass < passes; pass++) fleet.step();
      }
      fleet.until(isDone, 2_000);
      assert.equal(world.told.includes("restartRefused"), false);
      assert.deepEqual(
        [...asked].filter((id) => world.replicas.has(id)),
        [],
      );
    }),
    { numRuns: 300 },
  );
});

test("one that never ends holds nobody up: after the drain grace the replica is stopped in its place [40.S2 40.S5]", () => {
  const fleet = running([sized("m", 60), sized("x", 60)]);
  const { world } = fleet;
  fleet.stopsIn = 1_000;
  world.apply([sized("m", 60, 2)]);
  fleet.steps(3);
  const from = world.now;
  assert.equal(world.askRestart(fleet.ready("m")[0]!.id), null);
  fleet.until(() => world.restarts().join().endsWith("in place"), 500);
  assert.ok(world.now - from >= world.settings.drainGraceMs, `after ${world.now - from} ms`);
});

test("where all fitting cards are held by its own model one at a time is replaced in its place [40.S2 80.A18]", () => {
  const fleet = running([sized("m", 100, 1, copies(3))], { a: 1, b: 1, c: 1 });
  fleet.world.apply([sized("m", 100, 2, copies(3))]);
  for (const { id } of fleet.ready("m")) fleet.world.askRestart(id);
  fleet.until(() => {
    assert.ok(fleet.ready("m").length >= 2);
    return version(fleet, "m").join() === "m-2,m-2,m-2";
  });
});

test("a model whose failures let nothing start: the restart waits, and after the drain grace it is stopped in its place [40.S5]", () => {
  const fleet = running([sized("m", 60)]);
  const { world } = fleet;
  const [old] = fleet.ready("m");
  const doc = { name: "m", failuresInRow: 1, backoffMs: 900_000, failedOn: {}, profileHashes: ["m-1"] };
  world.models.set("m", { ...doc, lastFailure: "exit", parked: null, demandedAt: null });
  world.askRestart(old!.id);
  const from = world.now;
  fleet.until(() => world.restarts().some((state) => state.endsWith("in place")), 1_000);
  const tookMs = world.now - from;
  assert.ok(tookMs >= world.settings.drainGraceMs && tookMs < world.settings.drainGraceMs + 5_000, `${tookMs} ms`);
  fleet.until(() => fleet.ready("m").length === 1);
});

test("a parked model's replica is not restarted: the refusal names the park and what lifts it [40.S6]", () => {
  const fleet = running([sized("m", 60)]);
  const { world } = fleet;
  const parked = { why: "failed 5 times in a row", at: "2026-01-01T00:00:00.000Z" };
  const doc = { name: "m", failuresInRow: 5, backoffMs: 1_000, failedOn: {}, profileHashes: ["m-1"] };
  world.models.set("m", { ...doc, lastFailure: "exit", parked, demandedAt: null });
  world.askRestart("r1", { stopFirst: true });
  fleet.steps(3);
  assert.match(
    world.restarts()[0] ?? "",
    /^r1: refused: model m is parked: failed 5 times in a row; `ctl retry m` lifts/,
  );
  assert.equal(fleet.ready("m").length, 1);
});

test("asked for in its place it stops first, whatever room there is beside it, and that is told [40.S7]", () => {
  const fleet = running([sized("m", 30)], { a: 2 });
  const { world } = fleet;
  world.askRestart("r1", { stopFirst: true });
  fleet.step();
  assert.deepEqual(world.restarts(), ["r1: in place"]);
  assert.equal(world.replicas.get("r1")?.state, "draining");
  fleet.until(() => fleet.ready("m").length === 1);
  assert.ok(world.told.includes("restartBegun"));
});

test("only a ready replica can be asked for, the refusal names it; one that stops being ready leaves the queue [40.S8]", () => {
  const fleet = new PassFleet([sized("m", 100)]);
  const { world } = fleet;
  fleet.step();
  assert.match(world.askRestart("r1") ?? "", /^replica r1 is placing/);
  assert.equal(world.askRestart("r9"), "unknown");
  fleet.until(() => fleet.ready("m").length === 1);
  world.braked = true;
  world.askRestart("r1");
  fleet.steps(3);
  assert.deepEqual(world.restarts(), ["r1: queued"], "while the fleet is not trusted nothing begins");
  fleet.crash("r1");
  fleet.step();
  fleet.step();
  assert.deepEqual(world.restarts(), []);
  world.braked = false;
  fleet.until(() => fleet.ready("m").length === 1);
  assert.deepEqual(world.restarts(), []);
});

test("a replacement that fails leaves the old one serving and queued; with more failures the model is parked and the restart refused [40.S1 40.S6]", () => {
  const fleet = running([sized("m", 60)]);
  const { world } = fleet;
  world.apply([sized("m", 60, 2)]);
  fleet.fails = ({ profile }) => profile.hash === "m-2";
  world.askRestart("r1");
  fleet.until(() => {
    assert.deepEqual(version(fleet, "m"), ["m-1"]);
    return world.restarts().some((state) => state.startsWith("r1: refused: model m is parked"));
  }, 1_000);
  assert.equal(world.replicas.get("r1")?.state, "ready");
});

test("a restarted leader goes on with restarts where they were: the queue is stored [40.S8 40.R2]", () => {
  const fleet = running([sized("m", 100, 1, copies(2))], { a: 1, b: 1 });
  const { world } = fleet;
  world.apply([sized("m", 100, 2, copies(2))]);
  for (const { id } of fleet.ready("m")) world.askRestart(id);
  fleet.until(() => {
    world.memory = new Map();
    return version(fleet, "m").join() === "m-2,m-2";
  });
  assert.deepEqual([...new Set([...fleet.history.values()].flat())], ["m"]);
});

test("scaled down while it is being replaced, a model keeps as many as are wanted and no engine too many", () => {
  const fleet = running([sized("m", 30, 1, copies(2))], { a: 2 });
  const { world } = fleet;
  world.apply([sized("m", 30, 2, copies(2))]);
  world.askRollout("m");
  fleet.step();
  world.apply([sized("m", 30, 2, copies(1))]);
  fleet.until(() => {
    assert.ok(fleet.ready("m").length >= 1);
    return world.replicas.size === 1 && fleet.ready("m").length === 1;
  });
  for (let pass = 0; pass < 5; pass++) fleet.step();
  assert.deepEqual(version(fleet, "m").length, 1);
});
