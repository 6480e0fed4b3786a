import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { Model, Profile } from "../../contract/catalog.ts";
import type { GpuReport } from "../../contract/fleet.ts";
import { aGpu, aModel, aNodeReport, aProfile } from "../../testing/fleet-builders.ts";
import { fleetRoom } from "./fleet-room.ts";
import type { Holding, PlacementNode } from "./node-room.ts";
import { explainPlacement, type PlacedShard, type PlacementWish, placeReplica } from "./place-replica.ts";

// A slow and obvious model of placement: it lists every set of cards of every node, keeps those that are allowed, and takes the
// best by a list of wishes. Sizes are small whole numbers, since only comparisons matter.

const CLASSES = ["big", "small"] as const;
const WEIGHTS_MIB = { "w-p0": 0, "w-p1": 2, "w-p2": 5 } as const;
const CARD_MIB = { big: 10, small: 6 } as const;

interface Option {
  readonly nodeId: string;
  readonly gpuUuids: readonly string[];
  readonly keys: readonly (number | string)[];
}

interface World {
  readonly nodes: readonly PlacementNode[];
  readonly holdings: Holding[];
}

const subsets = (items: readonly GpuReport[], size: number): readonly (readonly GpuReport[])[] => {
  if (size === 0) return [[]];
  return items.flatMap((item, at) => subsets(items.slice(at + 1), size - 1).map((rest) => [item, ...rest]));
};
const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0);

function heldBy(world: World, nodeId: string): readonly Holding[] {
  return world.holdings.filter((holding) => holding.nodeId === nodeId);
}

function freeOn(world: World, nodeId: string, card: GpuReport): number {
  if (card.memoryMib === null || card.usedMib === null) return -1;
  const own = heldBy(world, nodeId).filter((holding) => holding.gpuUuids.includes(card.uuid));
  return card.memoryMib - (card.foreignMib ?? 0) - sum(own.map((holding) => holding.perGpuMib ?? 0));
}

function options(world: World, wish: PlacementWish, profile: Profile): readonly Option[] {
  return world.nodes.flatMap((node) => {
    const { report } = node;
    if (node.state !== "ready" || node.cordoned || report === null) return [];
    const { require, avoid } = wish.model.nodes;
    if (Object.entries(require).some(([label, value]) => report.labels[label] !== value)) return [];
    if (Object.entries(avoid).some(([label, value]) => report.labels[label] === value)) return [];
    if (wish.avoidNodes.has(node.nodeId) || (wish.failedOn[node.nodeId] ?? 0) >= wish.failuresPerNodeMax) return [];
    const own = heldBy(world, node.nodeId);
    const weights = new Set([
      ...report.weights.map(({ name }) => name),
      ...own.map(({ weightsName }) => weightsName ?? ""),
    ]);
    const holds = weights.has(profile.weightsName ?? "-");
    const coming = new Map(
      own
        .filter(({ weightsName }) => !report.weights.some(({ name }) => name === weightsName))
        .map((holding) => [holding.weightsName, holding.diskMib]),
    );
    if (!holds && (report.diskFreeMib ?? 0) - sum([...coming.values()]) < profile.diskMib) return [];
    const coresFree = report.cores - sum(own.map(({ cores }) => cores));
    const memoryFree = report.memoryMib - sum(own.map(({ memoryMib }) => memoryMib));
    if (profile.cpu !== null && (coresFree < profile.cpu.cores || memoryFree < profile.cpu.memoryMib)) return [];
    const same = own.filter(({ model }) => model === wish.model.name).length;
    const first = [same, wish.failedOn[node.nodeId] ?? 0];
    if (profile.gpu === null)
      return [
        {
          nodeId: node.nodeId,
          gpuUuids: [],
          keys: [...first, 0, Number(!holds), -coresFree / report.cores, own.length, node.nodeId],
        },
      ];
    const { count, memoryMib, classes } = profile.gpu;
    const tenants = (card: GpuReport): number => own.filter(({ gpuUuids }) => gpuUuids.includes(card.uuid)).length;
    const perClass = classes.map((gpuClass) =>
      subsets(
        report.gpus.filter((card) => card.class === gpuClass && card.health !== "sick"),
        count,
      ).filter((cards) => cards.every((card) => freeOn(world, node.nodeId, card) >= memoryMib)),
    );
    return perClass.flatMap((sets, rank) =>
      sets.map((cards) => ({
        nodeId: node.nodeId,
        gpuUuids: cards.map(({ uuid }) => uuid),
        keys: [
          ...first,
          rank,
          Number(!holds),
          Number(!report.gpus.some((card) => tenants(card) > 0)),
          report.gpus.filter((card) => tenants(card) === 0 && !cards.includes(card)).length,
          sum(cards.map((card) => freeOn(world, node.nodeId, card) - memoryMib)),
          node.nodeId,
        ],
      })),
    );
  });
}

function compareKeys(a: Option, b: Option): number {
  for (const [at, key] of a.keys.entries()) {
    const other = b.keys[at];
    if (other === undefined || key === other) continue;
    return key < other ? -1 : 1;
  }
  return 0;
}

/** On one node the first class that fits, then as many cards as possible stay whole, then the tightest. */
function bestPerNode(all: readonly Option[]): readonly Option[] {
  const best = new Map<string, Option>();
  for (const option of all) {
    const other = best.get(option.nodeId);
    if (other === undefined || compareKeys(within(option), within(other)) < 0) best.set(option.nodeId, option);
  }
  return [...best.values()];
}
const within = (option: Option): Option => ({
  ...option,
  keys: [option.keys[2] ?? 0, -(option.keys[5] as number), option.keys[6] ?? 0],
});

const anyCard = fc.record({
  class: fc.constantFrom(...CLASSES),
  foreign: fc.constantFrom(0, 0, 0, 3, 8),
  health: fc.constantFrom("ok" as const, "ok" as const, "unknown" as const, "sick" as const),
  known: fc.constantFrom(true, true, true, false),
});
const anyNode = fc.record({
  state: fc.constantFrom("ready" as const, "ready" as const, "ready" as const, "unreachable" as const),
  cordoned: fc.constantFrom(false, false, false, true),
  zone: fc.constantFrom("a", "b"),
  cores: fc.integer({ min: 1, max: 8 }),
  disk: fc.integer({ min: 0, max: 12 }),
  held: fc.constantFrom("", "", "w-p0", "w-p1"),
  cards: fc.array(anyCard, { maxLength: 4 }),
});
const anyWish = fc.record({
  model: fc.constantFrom("m0", "m1", "m2"),
  weights: fc.constantFrom("w-p0" as const, "w-p1" as const, "w-p2" as const),
  gpu: fc.option(
    fc.record({
      classes: fc.constantFrom(["big"], ["small"], ["big", "small"], ["small", "big"]),
      count: fc.integer({ min: 1, max: 3 }),
      memoryMib: fc.integer({ min: 1, max: 10 }),
    }),
  ),
  cores: fc.nat(3),
  zone: fc.constantFrom("", "", "a", "b"),
  avoid: fc.constantFrom("", "", "n0", "n1"),
  failed: fc.constantFrom(0, 0, 1, 5),
});
type AnyNode = typeof anyNode extends fc.Arbitrary<infer T> ? T : never;
type AnyWish = typeof anyWish extends fc.Arbitrary<infer T> ? T : never;

const nodeOf = (node: AnyNode, at: number): PlacementNode => ({
  nodeId: `n${at}`,
  state: node.state,
  silentMs: 0,
  cordoned: node.cordoned,
  report: aNodeReport(`n${at}`, {
    labels: { zone: node.zone },
    cores: node.cores,
    memoryMib: 100,
    memoryFreeMib: 100,
    diskFreeMib: node.disk,
    weights: node.held === "" ? [] : [{ name: node.held, bytes: 1, inUse: false }],
    gpus: node.cards.map((card, index) =>
      aGpu(`n${at}/${index}`, {
        index,
        class: card.class,
        memoryMib: CARD_MIB[card.class],
        usedMib: card.known ? Math.min(card.foreign, CARD_MIB[card.class]) : null,
        foreignMib: card.known ? Math.min(card.foreign, CARD_MIB[card.class]) : null,
        health: card.health,
      }),
    ),
  }),
});

function wishOf(wish: AnyWish): PlacementWish {
  const profile = aProfile(wish.weights, {
    gpu: wish.gpu,
    cpu: wish.gpu === null ? { cores: wish.cores, memoryMib: 10 } : null,
    weightsName: wish.weights,
    diskMib: WEIGHTS_MIB[wish.weights],
  });
  const require = wish.zone === "" ? {} : { zone: wish.zone };
  const model: Model = aModel(wish.model, { profiles: [profile], nodes: { require, avoid: {}, gpuUuids: [] } });
  return {
    model,
    truth: () => undefined,
    avoidNodes: new Set(wish.avoid === "" ? [] : [wish.avoid]),
    failedOn: { n2: wish.failed },
    failuresPerNodeMax: 5,
    untriedLast: false,
  };
}

const holdingOf = (wish: PlacementWish, profile: Profile, shard: PlacedShard): Holding => ({
  model: wish.model.name,
  nodeId: shard.nodeId,
  gpuUuids: shard.gpuUuids,
  perGpuMib: shard.perGpuMib,
  cores: profile.cpu?.cores ?? 0,
  memoryMib: profile.cpu?.memoryMib ?? 0,
  diskMib: profile.diskMib,
  weightsName: profile.weightsName,
  settled: false,
  gpuUsedMib: null,
  hostUsedMib: null,
  replicaId: "r",
  leaves: false,
});

const anyFleet = fc.array(anyNode, { maxLength: 5 });
const anyWishes = fc.array(anyWish, { minLength: 1, maxLength: 12 });

test("wish after wish, the place is that of a slow and obvious model [40.P1 40.P2 40.P3]", () => {
  fc.assert(
    fc.property(anyFleet, anyWishes, (nodes, wishes) => {
      const world: World = { nodes: nodes.map(nodeOf), holdings: [] };
      const fleet = fleetRoom(world.nodes, []);
      for (const wish of wishes.map(wishOf)) {
        const [best] = bestPerNode(options(world, wish, wish.model.profiles[0]!)).toSorted(compareKeys);
        const outcome = placeReplica(fleet, wish);
        if (outcome.kind === "noRoom") {
          assert.equal(best, undefined);
          continue;
        }
        const [shard] = outcome.shards;
        assert.ok(shard !== undefined && best !== undefined);
        assert.equal(shard.nodeId, best.nodeId);
        const same = options(world, wish, outcome.profile).find(
          ({ nodeId, gpuUuids }) =>
            nodeId === shard.nodeId && gpuUuids.toSorted().join() === shard.gpuUuids.toSorted().join(),
        );
        assert.deepEqual(same?.keys, best.keys, "its cards are as good as the best ones");
        world.holdings.push(holdingOf(wish, outcome.profile, shard));
      }
    }),
    { numRuns: 1_500 },
  );
});

test("nothing is ever overcommitted, and a closed node, a sick card and unknown memory take nothing [40.P1 40.P8]", () => {
  fc.assert(
    fc.property(anyFleet, anyWishes, (nodes, wishes) => {
      const world: World = { nodes: nodes.map(nodeOf), holdings: [] };
      const fleet = fleetRoom(world.nodes, []);
      for (const wish of wishes.map(wishOf)) {
        const outcome = placeReplica(fleet, wish);
        if (outcome.kind === "placed")
          world.holdings.push(...outcome.shards.map((shard) => holdingOf(wish, outcome.profile, shard)));
      }
      for (const { nodeId, state, cordoned, report } of world.nodes) {
        const held = heldBy(world, nodeId);
        if (held.length > 0) assert.ok(state === "ready" && !cordoned);
        assert.ok(sum(held.map(({ cores }) => cores)) <= (report?.cores ?? 0));
        for (const card of report?.gpus ?? []) {
          const given = sum(
            held.filter(({ gpuUuids }) => gpuUuids.includes(card.uuid)).map(({ perGpuMib }) => perGpuMib ?? 0),
          );
          if (given > 0) assert.ok(card.health !== "sick" && card.usedMib !== null);
          assert.ok(given + (card.foreignMib ?? 0) <= (card.memoryMib ?? 0) || given === 0);
        }
      }
    }),
    { numRuns: 500 },
  );
});

test("the same fleet and wishes give the same places, in whatever order the nodes are told [40.P1]", () => {
  fc.assert(
    fc.property(anyFleet, anyWishes, (nodes, wishes) => {
      const all = nodes.map(nodeOf);
      const [forth, back] = [fleetRoom(all, []), fleetRoom(all.toReversed(), [])];
      for (const wish of wishes.map(wishOf)) assert.deepEqual(placeReplica(forth, wish), placeReplica(back, wish));
    }),
    { numRuns: 300 },
  );
});

test("a node is said to fit exactly when a replica can go there, and else a reason is given for each node [40.P4]", () => {
  fc.assert(
    fc.property(anyFleet, anyWishes, (nodes, wishes) => {
      const world: World = { nodes: nodes.map(nodeOf), holdings: [] };
      const fleet = fleetRoom(world.nodes, []);
      for (const wish of wishes.map(wishOf)) {
        const explained = explainPlacement(fleet, wish)[0]!;
        const fitting = explained.nodes.filter(({ verdict }) => verdict.kind === "fits").map(({ nodeId }) => nodeId);
        assert.deepEqual(
          fitting.toSorted(),
          [...new Set(options(world, wish, explained.profile).map(({ nodeId }) => nodeId))].toSorted(),
        );
        assert.equal(explained.nodes.length, world.nodes.length);
        const outcome = placeReplica(fleet, wish);
        if (outcome.kind === "noRoom") continue;
        assert.equal(outcome.shards[0]?.nodeId, fitting[0], "the first that is named is the one that is taken");
        world.holdings.push(...outcome.shards.map((shard) => holdingOf(wish, outcome.profile, shard)));
      }
    }),
    { numRuns: 300 },
  );
});
