import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { Model } from "../../contract/catalog.ts";
import type { KeptRoom } from "../../contract/fleet.ts";
import { asEpoch, asMono } from "../../kernel/clock.ts";
import { aModel, aProfile, GIB, someGpus } from "../../testing/fleet-builders.ts";
import { PassFleet } from "../../testing/pass-fleet.ts";
import { explainModel } from "./explain-model.ts";

// Replicas that are replaced in their place by versions that fail: whose room it is meanwhile.

const CARD_GIB = 140;
const sized = (name: string, version: number | string, gib = 100, part: Partial<Model> = {}): Model =>
  aModel(name, {
    profiles: [
      aProfile(`${name}-${version}`, { gpu: { classes: ["h200"], count: 1, memoryMib: gib * GIB }, diskMib: 1 }),
    ],
    ...part,
  });
const copies = (min: number): Partial<Model> => ({ replicas: { min, max: 8 } });
const isBad = ({ profile: { hash } }: { profile: { hash: string } }): boolean => hash.includes("bad");

/** All run; versions that are called bad fail from then on. */
function running(models: readonly Model[], cards: Readonly<Record<string, number>> = { a: 1 }): PassFleet {
  const fleet = new PassFleet(models, cards);
  fleet.fails = isBad;
  const wanted = models.reduce((sum, { replicas }) => sum + replicas.min, 0);
  return fleet.until(
    () => [...fleet.world.replicas.values()].filter(({ state }) => state === "ready").length >= wanted,
  );
}
const failures = (fleet: PassFleet, name = "m"): number => fleet.world.models.get(name)?.failuresInRow ?? 0;
const kept = (fleet: PassFleet, name = "m"): number => fleet.world.models.get(name)?.keepsRoom?.length ?? 0;
const versions = (fleet: PassFleet, name = "m"): string[] => fleet.ready(name).map(({ profileHash }) => profileHash);
const told = (fleet: PassFleet, kind: string): number => fleet.world.told.filter((each) => each === kind).length;

/** One card; the bad version has failed `count` times, and the other model has waited all the while. */
function failed(
  count: number,
  waits = sized("w", 1),
  bad = sized("m", "bad"),
  lookAt = (_: PassFleet) => {},
): PassFleet {
  const fleet = running([sized("m", 1)]);
  const { world } = fleet;
  world.apply([bad, waits]);
  world.askRestart("r1");
  fleet.until(() => {
    lookAt(fleet);
    return failures(fleet) === count && fleet.world.replicas.size > 0;
  }, 500);
  return fleet;
}
const explained = ({ world }: PassFleet, name: string): string => {
  const found = explainModel(world.snapshot(), name, { mono: asMono(world.now), wall: asEpoch(world.now) });
  return found?.notes.join("\n") ?? "";
};

for (const [where, first] of [
  ["after", "m"],
  ["before", "w"],
] as const)
  for (const priority of [10, 50, 90])
    test(`one card: a version that fails four times keeps it, a model of priority ${priority} that waits ${where} it in the catalog never gets it, and a good version serves there [40.S2]`, () => {
      const inOrder = (...models: Model[]): Model[] => models.toSorted((a) => (a.name === first ? -1 : 1));
      const waits = sized("w", 1, 100, { priority });
      const fleet = running([sized("m", 1)]);
      const { world } = fleet;
      // What a model waits for before it may displace another is not the matter here.
      world.settings = { ...world.settings, minRunMs: 3_600_000 };
      world.apply(inOrder(sized("m", "bad"), waits));
      world.askRestart("r1");
      let before = 0;
      fleet.until(() => {
        // A new leader after each failure, and while each start is on its way.
        if (failures(fleet) !== before || world.states().some((state) => state.includes("placing")))
          world.memory = new Map();
        before = failures(fleet);
        return before === 4;
      }, 500);
      assert.deepEqual(fleet.history.get("a/0")?.includes("w"), false);
      assert.deepEqual([kept(fleet), told(fleet, "roomKept")], [1, 4]);
      world.apply(inOrder(sized("m", "good"), waits));
      fleet.until(() => versions(fleet).join() === "m-good");
      fleet.until(() => world.models.get("m")?.keepsRoom === undefined, 500);
      assert.deepEqual(new Set(fleet.history.get("a/0")), new Set(["m"]));
      assert.equal(told(fleet, "roomGivenUp"), 0, "it has not been given up: it is used");
      for (let pass = 0; pass < 5; pass++) assert.deepEqual(fleet.step().writes, []);
    });

test("who waits is told whose room it is and until when, and its model that it keeps it, in words and numbers [40.S2 40.P4]", () => {
  const fleet = failed(2);
  const why = fleet.step().unplaced.find(({ model }) => model === "w")?.why ?? "";
  const words =
    /a: 100\.0 GiB on 1 card is kept for m until one of it serves in place of r1, it is parked or leaves the catalog: the replacement failed 2 times in a row/;
  assert.match(why, words);
  assert.match(why, /the 1 freest have 40\.0 GiB/);
  assert.match(explained(fleet, "w"), words);
  assert.match(explained(fleet, "m"), /^it keeps its room: a: 100\.0 GiB on 1 card$/m);
  assert.doesNotMatch(explained(fleet, "m"), /kept for m/);
});

test("what is kept is the most that the old one had or its replacements need, on every card of them: a version that asks for less gives nothing away [40.S2]", () => {
  for (const gib of [30, 100, 130]) {
    const fleet = failed(2, sized("w", 1, 60), sized("m", "bad", gib));
    assert.equal(fleet.history.get("a/0")?.includes("w"), false, `${gib} GiB`);
    fleet.world.apply([sized("m", "good", 100), sized("w", 1, 60)]);
    fleet.until(() => versions(fleet).join() === "m-good");
  }
  const two = (version: string, count: number): Model =>
    aModel("m", {
      profiles: [aProfile(`m-${version}`, { gpu: { classes: ["h200"], count, memoryMib: 100 * GIB }, diskMib: 1 })],
    });
  const fleet = running([two("1", 2)], { a: 2 });
  fleet.world.apply([two("bad", 1), sized("w", 1)]);
  fleet.world.askRestart("r1");
  fleet.until(() => failures(fleet) === 2);
  fleet.world.apply([two("good", 2), sized("w", 1)]);
  fleet.until(() => versions(fleet).join() === "m-good");
  assert.deepEqual([...fleet.history.values()].flat().includes("w"), false);
});

test("a version that serves and crashes soon after keeps its room too; after a time of stable service a crash leaves it to whoever waits [40.S2]", () => {
  for (const [servesMs, isKept] of [
    [4_000, true],
    [500_000, true],
    [700_000, false],
  ] as const) {
    const fleet = running([sized("m", 1)]);
    const { world } = fleet;
    world.apply([sized("m", 2), sized("w", 1)]);
    world.askRestart("r1");
    fleet.until(() => versions(fleet).join() === "m-2");
    fleet.steps(servesMs / 2_000);
    fleet.crash(fleet.ready("m")[0]!.id);
    fleet.steps(30);
    assert.equal(fleet.history.get("a/0")?.includes("w"), !isKept, `${servesMs} ms`);
    if (isKept) fleet.until(() => versions(fleet).join() === "m-2");
  }
});

test("a smaller version that serves leaves the rest of the room at once [40.S2]", () => {
  const fleet = running([sized("m", 1)]);
  const { world } = fleet;
  world.apply([sized("m", 2, 60), sized("w", 1, 80)]);
  world.askRestart("r1", { stopFirst: true });
  fleet.until(() => versions(fleet).join() === "m-2");
  fleet.steps(2);
  assert.equal(fleet.history.get("a/0")?.includes("w"), true);
  assert.equal(kept(fleet), 1, "until it is stable");
  fleet.crash(fleet.ready("m")[0]!.id);
  fleet.until(() => fleet.ready("m").length === 1 && fleet.ready("w").length === 1);
});

test("a replica that a higher priority displaces keeps nothing, though it has served for a short time only [40.S2 40.P5]", () => {
  const fleet = running([sized("m", 1)]);
  const { world } = fleet;
  world.settings = { ...world.settings, minRunMs: 60_000 };
  world.apply([sized("m", 2), sized("w", 1, 100, { priority: 90 })]);
  world.askRestart("r1");
  fleet.until(() => fleet.ready("w").length === 1);
  assert.deepEqual([kept(fleet), world.models.get("m")?.displacedBy], [0, "w"]);
});

test("who waits is told so from the start, though what is stopped still drains: it holds more than its replacement will [40.S2 40.P4]", () => {
  const fleet = running([sized("m", 1)]);
  fleet.drains = false;
  fleet.world.apply([sized("m", 2, 30), sized("w", 1)]);
  fleet.world.askRestart("r1", { stopFirst: true });
  const told = [1, 2, 3, 4].map(() =>
    fleet
      .step()
      .unplaced.map(({ model }) => model)
      .join(),
  );
  assert.deepEqual(told.slice(1), ["w", "w", "w"]);
});

test("a replica that is stopped since it is too many leaves its room without a word [40.S2]", () => {
  const fleet = running([sized("m", 1, 100, copies(2))], { a: 1, b: 1 });
  fleet.world.apply([sized("m", 2, 100, copies(2))]);
  fleet.world.askRollout("m");
  fleet.until(() => versions(fleet).join() === "m-2,m-2");
  fleet.world.apply([sized("m", 2, 100, copies(1)), sized("w", 1)]);
  fleet.until(() => fleet.ready("w").length === 1);
  assert.deepEqual([told(fleet, "roomGivenUp"), fleet.ready("m").length], [0, 1]);
});

test("room beside what is kept is anybody's [40.S2]", () => {
  const fleet = failed(1, sized("w", 1, 40));
  fleet.until(() => fleet.ready("w").length === 1);
  fleet.world.apply([sized("m", "good"), sized("w", 1, 40)]);
  fleet.until(() => versions(fleet).join() === "m-good");
});

const ends: readonly { name: string; end: (fleet: PassFleet) => void }[] = [
  { name: "left the catalog", end: ({ world }) => world.apply([sized("w", 1)]) },
  {
    name: "is wanted no more",
    end: ({ world }) => world.apply([sized("m", "bad", 100, { replicas: { min: 0, max: 1 } }), sized("w", 1)]),
  },
  {
    name: "is parked",
    end: (fleet) => void fleet.until(() => failures(fleet) === 5, 500),
  },
];
for (const { name, end } of ends)
  test(`a model that ${name} keeps nothing: whoever waits has the room, and it is told [40.S2]`, () => {
    const fleet = failed(1);
    end(fleet);
    fleet.until(() => fleet.ready("w").length === 1);
    assert.deepEqual([kept(fleet), told(fleet, "roomGivenUp")], [0, 1]);
  });

test("a model that runs on demand keeps its room while it is asked for [40.S2]", () => {
  const onDemand = (version: string): Model => sized("m", version, 100, { replicas: { min: 0, max: 1 } });
  const fleet = new PassFleet([onDemand("1")]);
  fleet.fails = isBad;
  fleet.world.demanded.add("m");
  fleet.until(() => fleet.ready("m").length === 1);
  fleet.world.demanded.clear();
  fleet.world.apply([onDemand("bad"), sized("w", 1)]);
  fleet.world.askRestart("r1");
  fleet.until(() => failures(fleet) === 3);
  fleet.world.apply([onDemand("good"), sized("w", 1)]);
  fleet.until(() => versions(fleet).join() === "m-good");
  assert.equal(fleet.history.get("a/0")?.includes("w"), false);
});

test("a strictly higher priority takes a kept room after the least time, as it takes one that serves; the same never, and what it took it from takes nothing back [40.S2 40.P5]", () => {
  for (const [priority, isTaken] of [
    [50, false],
    [51, true],
  ] as const) {
    const fleet = running([sized("m", 1)]);
    const { world } = fleet;
    world.settings = { ...world.settings, parkAfter: 1_000, failuresPerNodeMax: 1_000, minRunMs: 120_000 };
    world.apply([sized("m", "bad"), sized("w", 1, 100, { priority })]);
    world.askRestart("r1");
    const from = world.now;
    for (let at = 0; at < 400 && fleet.ready("w").length === 0; at++) fleet.step();
    assert.equal(fleet.ready("w").length === 1, isTaken, `priority ${priority}`);
    if (!isTaken) continue;
    assert.ok(world.now - from >= 120_000, `after ${world.now - from} ms`);
    assert.deepEqual([kept(fleet), world.models.get("m")?.displacedBy], [0, "w"]);
    world.apply([sized("m", "good", 100, { priority: 90 }), sized("w", 1, 100, { priority })]);
    fleet.steps(50, 60_000);
    assert.deepEqual([fleet.ready("w").length, fleet.ready("m").length], [1, 0]);
  }
});

test("a definition that fits nowhere, even with what is kept, gives it up after the least time and not before [40.S2]", () => {
  const fleet = failed(1);
  const { world } = fleet;
  world.apply([sized("m", 3, 200), sized("w", 1)]);
  const from = world.now;
  fleet.until(() => fleet.ready("w").length === 1, 500);
  assert.ok(world.now - from >= world.settings.minRunMs, `after ${world.now - from} ms`);
  assert.equal(told(fleet, "roomGivenUp"), 1);
});

test("a room that nobody can use is not given up, however long that lasts: of a node that is cordoned, silent or lost, of a card that is sick or can't be read [40.S2]", () => {
  const nodeOf = ({ world }: PassFleet) => world.nodes.get("a")!;
  const cards = (fleet: PassFleet, part: Parameters<typeof someGpus>[2]): void => {
    const node = nodeOf(fleet);
    node.report = { ...node.report, gpus: someGpus("a", 1, part) };
  };
  const closed: Record<string, (fleet: PassFleet, closes: boolean) => void> = {
    cordoned: ({ world: { nodeDocs } }, cordoned) => nodeDocs.set("a", { ...nodeDocs.get("a")!, cordoned }),
    unreachable: (fleet, closes) => (nodeOf(fleet).state = closes ? "unreachable" : "ready"),
    lost: (fleet, closes) => (nodeOf(fleet).state = closes ? "lost" : "ready"),
    sick: (fleet, closes) => cards(fleet, closes ? { health: "sick" } : {}),
    unread: (fleet, closes) => cards(fleet, closes ? { usedMib: null } : {}),
  };
  for (const [name, close] of Object.entries(closed)) {
    const fleet = failed(1);
    const { world } = fleet;
    close(fleet, true);
    fleet.steps(10, world.settings.minRunMs / 2);
    assert.deepEqual([kept(fleet), told(fleet, "roomGivenUp")], [1, 0], name);
    world.apply([sized("m", "good"), sized("w", 1)]);
    close(fleet, false);
    fleet.until(() => versions(fleet).join() === "m-good");
    assert.equal(fleet.history.get("a/0")?.includes("w"), false, name);
  }
});

test("each replica of a model that is to be away has its own room; the restart of another one takes no room that one of them lacks [40.S2]", () => {
  const m = (version: string): Model => sized("m", version, 100, copies(3));
  const waits = sized("w", 1, 100, copies(3));
  const fleet = running([m("1")], { a: 1, b: 1, c: 1 });
  const { world } = fleet;
  world.apply([m("bad"), waits]);
  world.askRollout("m", { maxSurge: 0, maxUnavailable: 2 });
  fleet.until(() => failures(fleet) === 2, 500);
  assert.deepEqual([fleet.ready("m").length, kept(fleet)], [1, 2]);
  world.apply([m("good"), waits]);
  fleet.until(() => fleet.ready("m").length === 3, 500);
  world.askRollout("m");
  fleet.until(() => versions(fleet).join() === "m-good,m-good,m-good", 500);
  assert.deepEqual(new Set([...fleet.history.values()].flat()), new Set(["m"]));
});

test("a replica on several nodes keeps its cards on each of them, whichever shard fails [40.S2]", () => {
  for (const at of [0, 1]) {
    const wide = (version: string): Model => sized("m", version, 100, { multiNode: { nodes: 2, fabric: "same" } });
    const fleet = new PassFleet([wide("1")], {});
    for (const id of ["a", "b"]) fleet.world.addNode(id, { fabric: "f", gpus: someGpus(id, 1) });
    fleet.fails = ({ profile, shard }) => isBad({ profile }) && shard.index === at;
    fleet.until(() => fleet.ready("m").length === 1);
    fleet.world.apply([wide("bad"), sized("w", 1, 100, copies(2))]);
    fleet.world.askRestart("r1");
    fleet.until(() => failures(fleet) === 2, 500);
    assert.deepEqual([...fleet.history.values()].flat().includes("w"), false);
    fleet.world.apply([wide("good"), sized("w", 1, 100, copies(2))]);
    fleet.until(() => versions(fleet).join() === "m-good", 500);
    assert.deepEqual([...fleet.history.values()].flat().includes("w"), false);
  }
});

test("of a replica whose shard on a silent node can't be seen gone, the room on the others is kept as soon as that is free [40.S2]", () => {
  const wide = (version: string, gib: number): Model =>
    sized("m", version, gib, { multiNode: { nodes: 2, fabric: "same" } });
  const fleet = new PassFleet([wide("1", 100)], {});
  for (const id of ["a", "b"]) fleet.world.addNode(id, { fabric: "f", gpus: someGpus(id, 1) });
  fleet.until(() => fleet.ready("m").length === 1);
  fleet.world.apply([wide("2", 30), sized("w", 1, 60)]);
  fleet.world.askRestart("r1", { stopFirst: true });
  fleet.step();
  fleet.world.nodes.get("b")!.state = "unreachable";
  fleet.steps(20);
  assert.deepEqual(fleet.world.states(), ["m stopping on a+b", "m placing on a+b"]);
});

test("however many models keep room, all of them serve again, a few with each pass [40.S2]", () => {
  const names = Array.from({ length: 20 }, (_, at) => `m${at}`);
  const all = (version: string): Model[] => names.map((name) => sized(name, version));
  const fleet = running(all("1"), { a: 20 });
  const { world } = fleet;
  world.apply([...all("bad"), sized("w", 1)]);
  for (const { id } of [...world.replicas.values()]) world.askRestart(id);
  fleet.until(() => names.every((name) => failures(fleet, name) > 0 && kept(fleet, name) === 1), 500);
  world.apply([...all("good"), sized("w", 1)]);
  let most = 0;
  fleet.until(() => {
    const { commands } = fleet.step();
    most = Math.max(most, commands.filter(({ verb }) => verb.kind === "start").length);
    return names.every((name) => versions(fleet, name).join() === `${name}-good`);
  });
  assert.equal(most, 16);
  assert.equal([...fleet.history.values()].flat().includes("w"), false);
});

test("a node that is removed takes with it what was kept there [40.S2]", () => {
  const fleet = failed(1);
  fleet.world.nodeDocs.delete("a");
  fleet.world.nodes.delete("a");
  fleet.step();
  assert.equal(kept(fleet), 0);
});

test("a leader that ends before or after any of its commits, its commands unsent, changes nothing of that [40.S2 40.R2]", () => {
  for (const isCommitted of [false, true])
    for (let endsAt = 0; endsAt < 24; endsAt++) {
      const fleet = running([sized("m", 1)]);
      const { world } = fleet;
      world.apply([sized("w", 1), sized("m", "bad")]);
      world.askRestart("r1");
      for (let pass = 0; pass < 24; pass++) {
        if (pass === endsAt) {
          if (isCommitted) world.pass();
          else world.plan();
          world.memory = new Map();
        }
        fleet.step();
      }
      assert.ok(failures(fleet) > 0, `ended at ${endsAt}`);
      world.apply([sized("w", 1), sized("m", "good")]);
      fleet.until(() => versions(fleet).join() === "m-good");
      assert.deepEqual(new Set(fleet.history.get("a/0")), new Set(["m"]), `ended at ${endsAt}`);
    }
});

const anyMove = fc.oneof(
  fc.record({ kind: fc.constant("version" as const), gib: fc.constantFrom(30, 70, 100, 130), bad: fc.boolean() }),
  fc.record({ kind: fc.constant("restart" as const), at: fc.nat(3), stopFirst: fc.boolean() }),
  fc.record({ kind: fc.constant("rollout" as const), maxUnavailable: fc.nat(2) }),
  fc.record({ kind: fc.constant("scale" as const), count: fc.integer({ min: 0, max: 3 }) }),
  fc.record({ kind: fc.constant("leader" as const) }),
  fc.record({ kind: fc.constant("crash" as const), at: fc.nat(3) }),
  fc.record({ kind: fc.constant("steps" as const), count: fc.integer({ min: 1, max: 12 }) }),
);

test("whatever fails, changes or leads: on no card more is kept and held than it has, only a model that lacks replicas keeps room, and a good version of the old size always finds its place [40.S2]", () => {
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 3 }), fc.array(anyMove, { minLength: 3, maxLength: 16 }), (cards, moves) => {
      let [count, gib, version] = [Math.min(2, cards), 100, 1];
      const m = (name: string): Model => sized("m", name, gib, copies(count));
      const waits = sized("w", 1, 40, copies(8));
      const fleet = running([m("1")], { a: cards });
      const { world } = fleet;
      world.settings = { ...world.settings, parkAfter: 1_000, failuresPerNodeMax: 1_000, minRunMs: 3_600_000 };
      const rooms = (): readonly KeptRoom[] => world.models.get("m")?.keepsRoom ?? [];
      /** Rooms that no ready replica serves in. */
      const unserved = (): readonly KeptRoom[] =>
        rooms().filter(({ heir }) => !fleet.ready("m").some(({ id }) => id === heir));
      const lacksNow = (): number => {
        // Scaled to none, one that runs already runs on.
        const runs = [...world.replicas.values()].some(({ model, desired }) => model === "m" && desired === "run");
        return Math.max(0, Math.max(count, Number(runs)) - fleet.ready("m").length);
      };
      const check = (): void => {
        const before = new Set(unserved().map(({ of }) => of));
        const lacksBefore = lacksNow();
        fleet.step();
        const lacks = Math.max(lacksBefore, lacksNow());
        const lasting = unserved().filter(({ of }) => before.has(of));
        assert.ok(lasting.length <= lacks, `${lasting.length} kept of ${lacks}`);
        for (const uuid of Array.from({ length: cards }, (_, at) => `a/${at}`)) {
          const members = new Set(rooms().flatMap(({ of, heir }) => [of, heir ?? ""]));
          let used = 0;
          for (const { nodes } of rooms()) for (const node of nodes) used += node.cards[uuid] ?? 0;
          for (const doc of world.replicas.values())
            if (!members.has(doc.id) && doc.state !== "failed" && doc.shards[0]?.gpuUuids.includes(uuid) === true)
              if (doc.model === "w" || doc.desired === "run") used += doc.shards[0].memoryMib;
          assert.ok(used <= CARD_GIB * GIB, `${uuid}: ${used / GIB} GiB`);
        }
      };
      let name = "1";
      const apply = (): void => world.apply([m(name), waits]);
      apply();
      for (const move of moves) {
        if (move.kind === "version") {
          gib = move.gib;
          name = `${move.bad ? "bad" : "good"}-${++version}`;
          apply();
        } else if (move.kind === "scale") {
          count = Math.min(move.count, cards);
          apply();
        } else if (move.kind === "restart") {
          const doc = fleet.ready("m")[move.at];
          if (doc !== undefined) world.askRestart(doc.id, { stopFirst: move.stopFirst });
        } else if (move.kind === "rollout") world.askRollout("m", { maxSurge: 0, maxUnavailable: move.maxUnavailable });
        else if (move.kind === "leader") world.memory = new Map();
        else if (move.kind === "crash") fleet.crash(fleet.ready("m")[move.at]?.id ?? "none");
        else for (let at = 0; at < move.count; at++) check();
      }
      check();
      const left = unserved();
      if (left.length === 0) return;
      const least = Math.min(
        ...left.map(({ nodes }) => Math.min(...nodes.flatMap(({ cards: its }) => Object.values(its)))),
      );
      [gib, name] = [least / GIB, "good-last"];
      apply();
      const wanted = Math.min(count, fleet.ready("m").length + left.length);
      for (let at = 0; at < 400 && fleet.ready("m").length < wanted; at++) check();
      assert.ok(fleet.ready("m").length >= wanted, `${fleet.ready("m").length} of ${wanted}: ${world.states().join()}`);
    }),
    { numRuns: 500 },
  );
});
