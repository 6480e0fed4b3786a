import assert from "node:assert/strict";
import { test } from "node:test";
import type { Model, Profile } from "../../contract/catalog.ts";
import type { NodeReport } from "../../contract/fleet.ts";
import { aGpu, aModel, aNodeReport, aProfile, GIB, someGpus } from "../../testing/fleet-builders.ts";
import type { Exclusion } from "./exclusion.ts";
import { fleetRoom } from "./fleet-room.ts";
import type { MemoryTruth } from "./memory-need.ts";
import type { Holding, PlacementNode } from "./node-room.ts";
import { explainPlacement, type PlacementWish, placeReplica } from "./place-replica.ts";

const aNode = (id: string, report: Partial<NodeReport> = {}, part: Partial<PlacementNode> = {}): PlacementNode => ({
  nodeId: id,
  state: "ready",
  silentMs: 0,
  cordoned: false,
  report: aNodeReport(id, report),
  ...part,
});
const aWish = (model: Model, part: Partial<PlacementWish> = {}): PlacementWish => ({
  model,
  truth: () => undefined,
  avoidNodes: new Set(),
  failedOn: {},
  failuresPerNodeMax: 5,
  untriedLast: false,
  ...part,
});
const aHolding = (nodeId: string, part: Partial<Holding> = {}): Holding => ({
  model: "other",
  nodeId,
  gpuUuids: [],
  perGpuMib: 0,
  cores: 0,
  memoryMib: 0,
  diskMib: 0,
  weightsName: null,
  settled: true,
  gpuUsedMib: null,
  hostUsedMib: null,
  replicaId: "r",
  leaves: false,
  ...part,
});
const gpu = (memoryGib: number, count = 1, classes: readonly string[] = ["h200"]): Partial<Profile> => ({
  gpu: { classes, count, memoryMib: memoryGib * GIB },
});
const cpu = (cores: number, memoryGib: number): Partial<Profile> => ({
  engine: "llama.cpp",
  gpu: null,
  cpu: { cores, memoryMib: memoryGib * GIB },
});
const withProfile = (part: Partial<Profile>, model: Partial<Model> = {}): Model =>
  aModel("chat", { profiles: [aProfile("p1", part)], ...model });

/** Where it goes, as `node: cards`; undefined where it does not fit. */
function placed(
  nodes: readonly PlacementNode[],
  wish: PlacementWish,
  holdings: readonly Holding[] = [],
): string | undefined {
  const outcome = placeReplica(fleetRoom(nodes, holdings), wish);
  if (outcome.kind !== "placed") return undefined;
  return outcome.shards
    .map((shard) => [shard.nodeId, ...shard.gpuUuids.map((uuid) => uuid.split("/")[1])].join(" "))
    .join(", ");
}

function why(node: PlacementNode, wish: PlacementWish, holdings: readonly Holding[] = []): Exclusion {
  const verdict = explainPlacement(fleetRoom([node], holdings), wish)[0]?.nodes[0]?.verdict;
  assert.ok(verdict !== undefined && verdict.kind !== "fits");
  return verdict;
}

const chat = withProfile(gpu(70));
const cpuNode = (part: Partial<NodeReport> = {}): PlacementNode =>
  aNode("a", { cores: 16, memoryMib: 64 * GIB, memoryFreeMib: 60 * GIB, gpus: [], ...part });

const excluded: readonly {
  readonly name: string;
  readonly node: PlacementNode;
  readonly wish?: PlacementWish;
  readonly holdings?: readonly Holding[];
  readonly why: Exclusion;
}[] = [
  { name: "was never seen", node: aNode("a", {}, { state: "never_seen", report: null }), why: { kind: "neverSeen" } },
  {
    name: "is unreachable",
    node: aNode("a", {}, { state: "unreachable", silentMs: 12_000 }),
    why: { kind: "unreachable", silentMs: 12_000 },
  },
  {
    name: "is lost",
    node: aNode("a", {}, { state: "lost", silentMs: 61_000 }),
    why: { kind: "lost", silentMs: 61_000 },
  },
  { name: "is cordoned", node: aNode("a", {}, { cordoned: true }), why: { kind: "cordoned" } },
  {
    name: "lacks a label",
    node: aNode("a", { labels: { zone: "b" } }),
    wish: aWish(withProfile(gpu(70), { nodes: { require: { zone: "a" }, avoid: {}, gpuUuids: [] } })),
    why: { kind: "labelMissing", label: "zone", wanted: "a", found: "b" },
  },
  {
    name: "has a label to avoid",
    node: aNode("a", { labels: { use: "lab" } }),
    wish: aWish(withProfile(gpu(70), { nodes: { require: {}, avoid: { use: "lab" }, gpuUuids: [] } })),
    why: { kind: "labelAvoided", label: "use", value: "lab" },
  },
  {
    name: "held what is being replaced",
    node: aNode("a"),
    wish: aWish(chat, { avoidNodes: new Set(["a"]) }),
    why: { kind: "avoided" },
  },
  {
    name: "saw the model fail five times",
    node: aNode("a"),
    wish: aWish(chat, { failedOn: { a: 5 } }),
    why: { kind: "failedTooOften", failures: 5, failuresMax: 5 },
  },
  { name: "lacks the engine", node: aNode("a", { engines: ["tei"] }), why: { kind: "engineMissing", engine: "vllm" } },
  {
    name: "does not allow the program",
    node: aNode("a", { commands: ["/opt/ocr"] }),
    wish: aWish(withProfile({ engine: "command", gpu: null, command: ["/opt/other", "--x"] })),
    why: { kind: "commandNotAllowed", command: "/opt/other" },
  },
  {
    name: "could not list its GPUs",
    node: aNode("a", { gpuDiscovery: "failed", gpuDiscoveryWhy: "timeout", gpus: [] }),
    why: { kind: "gpuDiscoveryFailed", why: "timeout" },
  },
  {
    name: "has cards of another class",
    node: aNode("a", { gpus: someGpus("a", 2, { class: "a40" }) }),
    why: { kind: "gpuClass", wanted: ["h200"], found: ["a40"] },
  },
  {
    name: "has too few cards",
    node: aNode("a", { gpus: someGpus("a", 3) }),
    wish: aWish(withProfile(gpu(70, 4))),
    why: { kind: "gpuCount", needed: 4, found: 3 },
  },
  {
    name: "has sick cards",
    node: aNode("a", { gpus: [aGpu("a/0", { health: "sick" }), aGpu("a/1")] }),
    wish: aWish(withProfile(gpu(70, 2))),
    why: { kind: "gpuSick", needed: 2, healthy: 1, sick: 1 },
  },
  {
    name: "does not know what its card uses",
    node: aNode("a", { gpus: [aGpu("a/0", { usedMib: null, foreignMib: null })] }),
    why: { kind: "gpuMemoryUnknown", needed: 1, known: 0 },
  },
  {
    name: "has a card that another process uses",
    node: aNode("a", { gpus: [aGpu("a/0", { usedMib: 100 * GIB, foreignMib: 100 * GIB })] }),
    why: {
      kind: "gpuMemory",
      neededMib: 70 * GIB,
      cardsNeeded: 1,
      cardsFitting: 0,
      freeMib: 40 * GIB,
      foreignMib: 100 * GIB,
    },
  },
  {
    name: "has a card whose use nobody claims",
    node: aNode("a", { gpus: [aGpu("a/0", { usedMib: 80 * GIB, foreignMib: null })] }),
    why: {
      kind: "gpuMemory",
      neededMib: 70 * GIB,
      cardsNeeded: 1,
      cardsFitting: 0,
      freeMib: 60 * GIB,
      foreignMib: 80 * GIB,
    },
  },
  {
    name: "has a card that is given away",
    node: aNode("a", { gpus: [aGpu("a/0")] }),
    holdings: [aHolding("a", { gpuUuids: ["a/0"], perGpuMib: 90 * GIB, settled: false })],
    why: { kind: "gpuMemory", neededMib: 70 * GIB, cardsNeeded: 1, cardsFitting: 0, freeMib: 50 * GIB, foreignMib: 0 },
  },
  {
    name: "has a card with an engine that the store does not know and nobody measured",
    node: aNode("a", { gpus: [aGpu("a/0")] }),
    holdings: [aHolding("a", { gpuUuids: ["a/0"], perGpuMib: null })],
    why: { kind: "gpuMemory", neededMib: 70 * GIB, cardsNeeded: 1, cardsFitting: 0, freeMib: 0, foreignMib: 0 },
  },
  {
    name: "has only cards on which it ran out of memory",
    node: aNode("a", { gpus: [aGpu("a/0")] }),
    wish: aWish(chat, { truth: () => ({ perGpuMib: null, oomAtMib: 139 * GIB }) }),
    why: { kind: "gpuTooSmall", ranOutAtMib: 139 * GIB, largestMib: 140 * GIB },
  },
  {
    name: "lacks the pinned card",
    node: aNode("a"),
    wish: aWish(withProfile(gpu(70), { nodes: { require: {}, avoid: {}, gpuUuids: ["b/0"] } })),
    why: { kind: "pinnedGpuAbsent", uuids: ["b/0"] },
  },
  {
    name: "lacks cores",
    node: cpuNode(),
    wish: aWish(withProfile(cpu(10, 20))),
    holdings: [aHolding("a", { cores: 8 })],
    why: { kind: "cores", needed: 10, free: 8 },
  },
  {
    name: "lacks memory, for others use it",
    node: cpuNode({ memoryFreeMib: 10 * GIB }),
    wish: aWish(withProfile(cpu(8, 24))),
    why: { kind: "memory", neededMib: 24 * GIB, freeMib: 10 * GIB },
  },
  {
    name: "does not know its free memory",
    node: cpuNode({ memoryFreeMib: null }),
    wish: aWish(withProfile(cpu(8, 24))),
    why: { kind: "memoryUnknown" },
  },
  {
    name: "lacks disk",
    node: aNode("a", { diskFreeMib: 50 * GIB }),
    why: { kind: "disk", neededMib: 75 * GIB, freeMib: 50 * GIB },
  },
  { name: "does not know its free disk", node: aNode("a", { diskFreeMib: null }), why: { kind: "diskUnknown" } },
  {
    name: "belongs to no fabric",
    node: aNode("a"),
    wish: aWish(withProfile(gpu(70), { multiNode: { nodes: 2, fabric: "same" } })),
    why: { kind: "fabricMissing" },
  },
  {
    name: "is alone in its fabric",
    node: aNode("a", { fabric: "nv1" }),
    wish: aWish(withProfile(gpu(70), { multiNode: { nodes: 2, fabric: "same" } })),
    why: { kind: "fabricTooSmall", fabric: "nv1", needed: 2, fitting: 1 },
  },
];
for (const row of excluded) {
  test(`a node that ${row.name} takes nothing, and the answer says so with its figures [40.P1 40.P4]`, () => {
    const wish = row.wish ?? aWish(chat);
    assert.deepEqual(why(row.node, wish, row.holdings), row.why);
    assert.equal(placed([row.node], wish, row.holdings), undefined);
    const outcome = placeReplica(fleetRoom([row.node], row.holdings ?? []), wish);
    assert.deepEqual(outcome, {
      kind: "noRoom",
      nodes: { [row.why.kind]: 1 },
      firsts: [{ nodeId: row.node.nodeId, why: row.why }],
    });
  });
}

test("a node that already holds the weights needs no disk for them, and is preferred [40.P2]", () => {
  const held = aNode("b", { diskFreeMib: 0, weights: [{ name: "w-p1", bytes: 1, inUse: false }] });
  assert.equal(placed([aNode("a"), held], aWish(chat)), "b 0");
});

test("weights on their way for another replica count as held, and take their room once [40.P2]", () => {
  const fetching = aHolding("b", { weightsName: "w-p1", diskMib: 75 * GIB });
  const node = aNode("b", { diskFreeMib: 100 * GIB });
  assert.equal(placed([aNode("a"), node], aWish(chat), [fetching]), "b 0");
  assert.equal(placed([node], aWish(withProfile({ weightsName: "w-9" })), [fetching]), undefined);
});

test("two replicas of a model share a node only where no other fits [40.P1]", () => {
  const fleet = fleetRoom([aNode("a", { weights: [{ name: "w-p1", bytes: 1, inUse: false }] }), aNode("b")], []);
  const nodes = [1, 2, 3].map(() => {
    const outcome = placeReplica(fleet, aWish(chat));
    return outcome.kind === "placed" ? outcome.shards[0]?.nodeId : undefined;
  });
  assert.deepEqual(nodes, ["a", "b", "a"]);
});

test("GPU replicas fill a node, and a card, before they open another [40.P3]", () => {
  const nodes = ["a", "b", "c"].map((id) => aNode(id));
  const fleet = fleetRoom(nodes, [aHolding("b", { gpuUuids: ["b/3"], perGpuMib: 60 * GIB })]);
  const order = ["m1", "m2", "m3", "m4"].map((name) => {
    const outcome = placeReplica(fleet, aWish(aModel(name)));
    return outcome.kind === "placed" ? outcome.shards[0]?.gpuUuids[0] : undefined;
  });
  assert.deepEqual(order, ["b/3", "b/0", "b/0", "b/1"]);
  assert.equal(
    placed(nodes, aWish(withProfile(gpu(100, 8))), [aHolding("b", { gpuUuids: ["b/3"], perGpuMib: 60 * GIB })]),
    "a 0 1 2 3 4 5 6 7",
  );
});

test("CPU replicas are spread over the nodes with the most free cores [40.P3]", () => {
  const small = { gpus: [], cores: 16 };
  const fleet = fleetRoom(
    ["a", "b", "c"].map((id) => aNode(id, small)),
    [aHolding("a", { cores: 8 })],
  );
  const nodes = ["m1", "m2", "m3"].map((name) => {
    const outcome = placeReplica(fleet, aWish(aModel(name, { profiles: [aProfile(name, cpu(4, 8))] })));
    return outcome.kind === "placed" ? outcome.shards[0]?.nodeId : undefined;
  });
  assert.deepEqual(nodes, ["b", "c", "b"]);
});

test("profiles are tried in order, and the first that fits anywhere is used [40.P1]", () => {
  const both = (count: number): Model =>
    aModel("chat", { profiles: [aProfile("big", gpu(70, count)), aProfile("small", cpu(8, 24))] });
  const hash = (model: Model): string | undefined => {
    const outcome = placeReplica(fleetRoom([aNode("a")], []), aWish(model));
    return outcome.kind === "placed" ? outcome.profile.hash : undefined;
  };
  assert.equal(hash(both(8)), "big");
  assert.equal(hash(both(9)), "small");
});

test("the first class of a profile that fits is preferred, whatever is packed tighter [40.P1]", () => {
  const nodes = [aNode("a", { gpus: someGpus("a", 8) }), aNode("b", { gpus: someGpus("b", 1, { class: "b200" }) })];
  assert.equal(placed(nodes, aWish(withProfile(gpu(70, 1, ["b200", "h200"])))), "b 0");
  assert.equal(placed(nodes, aWish(withProfile(gpu(70, 2, ["b200", "h200"])))), "a 0 1");
});

test("a multi-node replica has all shards on one fabric, of several the one that just fits [40.P3]", () => {
  const on = (id: string, fabric: string | null): PlacementNode => aNode(id, { fabric });
  const nodes = [on("a", "x"), on("b", "y"), on("c", "x"), on("d", "y"), on("e", "x"), on("f", null)];
  const model = withProfile(gpu(100, 8), { multiNode: { nodes: 2, fabric: "same" } });
  assert.equal(placed(nodes, aWish(model)), "b 0 1 2 3 4 5 6 7, d 0 1 2 3 4 5 6 7");
  const wide = withProfile(gpu(100, 8), { multiNode: { nodes: 3, fabric: "same" } });
  assert.deepEqual(
    placed(nodes, aWish(wide))
      ?.split(", ")
      .map((shard) => shard[0]),
    ["a", "c", "e"],
  );
});

test("a pinned model stays unplaced while its card's node is away: no other node and no CPU profile is taken [40.P1]", () => {
  const model = aModel("chat", {
    profiles: [aProfile("big", gpu(70)), aProfile("small", cpu(8, 24))],
    nodes: { require: {}, avoid: {}, gpuUuids: ["a/1"] },
  });
  assert.equal(placed([aNode("a"), aNode("b")], aWish(model)), "a 1");
  assert.equal(placed([aNode("a", {}, { state: "unreachable" }), aNode("b")], aWish(model)), undefined);
});

test("two wishes for 60 % of the only card in one pass: one is placed, the other is told the figures [40.P1 40.P4]", () => {
  const fleet = fleetRoom([aNode("a", { gpus: [aGpu("a/0")] })], []);
  assert.equal(placeReplica(fleet, aWish(withProfile(gpu(84)))).kind, "placed");
  const second = aWish(aModel("second", { profiles: [aProfile("p2", gpu(84))] }));
  const refused = placeReplica(fleet, second);
  assert.ok(refused.kind === "noRoom");
  assert.deepEqual(refused.nodes, { gpuMemory: 1 });
  assert.deepEqual(explainPlacement(fleet, second)[0]?.nodes[0]?.verdict, {
    kind: "gpuMemory",
    neededMib: 84 * GIB,
    cardsNeeded: 1,
    cardsFitting: 0,
    freeMib: 56 * GIB,
    foreignMib: 0,
  });
});

const truths: readonly { readonly name: string; readonly truth: MemoryTruth | undefined; readonly expect: number }[] = [
  { name: "nothing measured: the profile's figure", truth: undefined, expect: 70 },
  { name: "less was measured", truth: { perGpuMib: 40 * GIB, oomAtMib: null }, expect: 40 },
  { name: "more was measured", truth: { perGpuMib: 90 * GIB, oomAtMib: null }, expect: 90 },
  {
    name: "it ran out of memory with the profile's figure",
    truth: { perGpuMib: null, oomAtMib: 70 * GIB },
    expect: 84,
  },
  {
    name: "it ran out of memory at a figure whose growth is more than a card",
    truth: { perGpuMib: null, oomAtMib: 120 * GIB },
    expect: 140,
  },
];
for (const row of truths) {
  test(`what a start needs: ${row.name} [40.P8]`, () => {
    const outcome = placeReplica(fleetRoom([aNode("a")], []), aWish(chat, { truth: () => row.truth }));
    assert.equal(outcome.kind === "placed" ? outcome.shards[0]?.perGpuMib : undefined, row.expect * GIB);
  });
}

test("what our own engines use is not taken for foreign, and what they use beyond their figure is not free [40.P8]", () => {
  const free = (usedGib: number, oursGib: number | null, settled = true): number => {
    const card = aGpu("a/0", { usedMib: usedGib * GIB, foreignMib: null });
    const holding = aHolding("a", {
      gpuUuids: ["a/0"],
      perGpuMib: 60 * GIB,
      settled,
      gpuUsedMib: oursGib === null ? null : { "a/0": oursGib * GIB },
    });
    return (fleetRoom([aNode("a", { gpus: [card] })], [holding]).rooms[0]?.cards[0]?.freeMib ?? -1) / GIB;
  };
  assert.equal(free(60, 60), 80);
  assert.equal(free(60, null), 80);
  assert.equal(free(75, 75), 65, "it uses more than it was given");
  assert.equal(free(90, 60), 50, "30 GiB are somebody else's");
  assert.equal(free(20, null, false), 60, "it still starts and nobody measured it: the 20 GiB may be another's");
});
