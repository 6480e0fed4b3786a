import assert from "node:assert/strict";
import { test } from "node:test";
import type { Catalog } from "../../contract/catalog.ts";
import { catalogFile } from "../../contract/catalog-schema.ts";
import type { GpuReport, NodeReport } from "../../contract/fleet.ts";
import { resolveCatalog } from "../../contract/resolve-catalog.ts";
import type { Exclusion } from "../../decide/placement/exclusion.ts";
import { aModelDoc } from "../../testing/fleet-builders.ts";
import { aNodeDoc, aReplicaDoc } from "../../testing/fleet-docs.ts";
import type { ClusterSnapshot, SeenNode } from "./cluster-view.ts";
import { describeExclusion } from "../../decide/placement/describe-exclusion.ts";
import { statusParts } from "./status-parts.ts";
import { gpuViews, modelViews, nodeViews, placementView, replicaViews } from "./views.ts";

const catalog = (...models: readonly Record<string, unknown>[]): Catalog =>
  resolveCatalog(
    catalogFile.parse({ models: models.map((model) => ({ profiles: [{ engine: "sim" }], ...model })) }),
    1,
  );

const gpu = (uuid: string, facts: Partial<GpuReport> = {}): GpuReport => ({
  uuid,
  index: 0,
  name: "NVIDIA H200",
  class: "h200",
  memoryMib: 143_771,
  usedMib: 0,
  foreignMib: 0,
  utilization: null,
  temperatureC: null,
  health: "ok",
  healthWhy: null,
  ...facts,
});

const report = (nodeId: string, facts: Partial<NodeReport> = {}): NodeReport => ({
  nodeId,
  name: nodeId,
  bootId: "b",
  agentVersion: "1",
  address: "10.0.0.1",
  labels: { zone: "a" },
  fabric: null,
  cores: 64,
  memoryMib: 500_000,
  memoryFreeMib: null,
  diskFreeMib: null,
  weights: [],
  leftovers: [],
  engines: ["sim"],
  commands: [],
  gpus: [],
  gpuDiscovery: "nvidia-smi",
  gpuDiscoveryWhy: null,
  shards: [],
  highestEpoch: null,
  highestCommit: 0,
  proofs: { epoch: "", commit: "" },
  ...facts,
});

const seen = (id: string, facts: Partial<SeenNode> = {}): SeenNode => ({
  doc: aNodeDoc(id, { name: `name-of-${id}` }),
  state: "ready",
  silentMs: 400,
  report: report(id),
  ...facts,
});

const snapshot = (facts: Partial<ClusterSnapshot> = {}): ClusterSnapshot => ({
  catalog: catalog(),
  nodes: [],
  replicas: [],
  models: [],
  memory: [],
  unplaced: new Map(),
  use: new Map(),
  restored: false,
  ...facts,
});

const on = (nodeId: string, ...gpuUuids: readonly string[]) => [
  { nodeId, gpuUuids, memoryMib: 0, rendezvousPort: null },
];

test("what nobody measured is null, and a silent node does not speak of now", () => {
  const cards = [gpu("g1"), gpu("g2", { health: "sick", healthWhy: "XID 79" })];
  const nodes = [
    seen("a", { report: report("a", { gpus: cards }) }),
    seen("b", { state: "unreachable", silentMs: 12_400, report: report("b", { gpus: cards, memoryFreeMib: 9 }) }),
    seen("c", { report: report("c", { gpuDiscovery: "failed", gpuDiscoveryWhy: "the driver hangs" }) }),
    seen("d", { state: "never_seen", silentMs: null, report: null }),
  ];
  const views = nodeViews(snapshot({ nodes, replicas: [aReplicaDoc("r", { shards: on("b") })] }));
  assert.deepEqual(
    views.map(({ id, silent_s, gpus, sick_gpus, memory_free_mib, gpu_discovery, replicas }) => [
      id,
      silent_s,
      gpus,
      sick_gpus,
      memory_free_mib,
      gpu_discovery,
      replicas,
    ]),
    [
      ["a", 0, 2, 1, null, null, 0],
      ["b", 12, null, null, null, null, 1],
      ["c", 0, null, null, null, "the driver hangs", 0],
      ["d", null, null, null, null, null, 0],
    ],
  );
  assert.deepEqual(
    gpuViews(snapshot({ nodes })).map(({ node, uuid, utilization }) => [node, uuid, utilization]),
    [
      ["name-of-a", "g1", null],
      ["name-of-a", "g2", null],
    ],
  );
});

test("a sick card is neither used nor free, and cards of a silent node are unknown", () => {
  const nodes = [
    seen("a", {
      report: report("a", { gpus: [gpu("g1"), gpu("g2"), gpu("g3", { health: "sick" }), gpu("g4", { class: "a40" })] }),
    }),
    seen("b", { state: "lost", report: report("b", { gpus: [gpu("g5")] }) }),
  ];
  const {
    gpus,
    nodes: states,
    replicas,
  } = statusParts(
    snapshot({
      nodes,
      replicas: [
        aReplicaDoc("r", { shards: on("a", "g1", "g3"), state: "ready" }),
        // Ended: its card is free.
        aReplicaDoc("f", { shards: on("a", "g2"), state: "failed" }),
      ],
    }),
  );
  assert.deepEqual(
    gpuViews(snapshot({ nodes, replicas: [aReplicaDoc("f", { shards: on("a", "g1"), state: "failed" })] }))[0]
      ?.replicas,
    [],
  );
  assert.deepEqual(gpus, [
    { class: "a40", cards: 1, used: 0, kept: 0, free: 1, sick: 0, unknown: 0 },
    { class: "h200", cards: 4, used: 1, kept: 0, free: 1, sick: 1, unknown: 1 },
  ]);
  assert.deepEqual(
    [states, replicas],
    [
      { ready: 1, lost: 1 },
      { ready: 1, failed: 1 },
    ],
  );
});

const states: readonly {
  readonly name: string;
  readonly model?: Record<string, unknown>;
  readonly facts?: Partial<ClusterSnapshot>;
  readonly expect: readonly [state: string, why: RegExp | null];
}[] = [
  { name: "wanted and not placed yet", expect: ["starting", null] },
  { name: "on its way", facts: { replicas: [aReplicaDoc("r", { state: "fetching" })] }, expect: ["starting", null] },
  {
    name: "as many ready as are kept running",
    facts: { replicas: [aReplicaDoc("r", { state: "ready" })] },
    expect: ["ready", null],
  },
  { name: "started on demand, and nobody asks", model: { replicas: { min: 0 } }, expect: ["stopped", null] },
  { name: "without room", facts: { unplaced: new Map([["m", "12 nodes are full"]]) }, expect: ["waiting", /12 nodes/] },
  {
    name: "backing off",
    facts: { models: [aModelDoc("m", { failuresInRow: 3, backoffMs: 8_000 })] },
    expect: ["waiting", /3 times.*8 s/],
  },
  {
    name: "after its first failure",
    facts: { models: [aModelDoc("m", { failuresInRow: 1, backoffMs: 2_000 })] },
    expect: ["waiting", /^failed once; the next start waits 2 s$/],
  },
  {
    name: "as many ready as are wanted, after a failure [40.V1]",
    facts: {
      models: [aModelDoc("m", { failuresInRow: 1, backoffMs: 10_000 })],
      replicas: [aReplicaDoc("r", { state: "ready" })],
    },
    expect: ["ready", null],
  },
  {
    name: "fewer ready than are wanted, after a failure [40.V1]",
    model: { replicas: { min: 2 } },
    facts: {
      models: [aModelDoc("m", { failuresInRow: 2, backoffMs: 10_000 })],
      replicas: [aReplicaDoc("r", { state: "ready" })],
    },
    expect: ["waiting", /2 times in a row.*10 s/],
  },
  {
    name: "parked, whatever else",
    facts: {
      models: [aModelDoc("m", { parked: { why: "5 failures: gpuOom", at: "" } })],
      unplaced: new Map([["m", "x"]]),
    },
    expect: ["parked", /gpuOom/],
  },
];
for (const { name, model = {}, facts = {}, expect } of states) {
  test(`a model's state: ${name}`, () => {
    const [view] = modelViews(snapshot({ catalog: catalog({ name: "m", ...model }), ...facts }));
    assert.equal(view?.state, expect[0]);
    if (expect[1] === null) assert.equal(view?.why, null);
    else assert.match(view?.why ?? "", expect[1]);
  });
}

test("a replica of another profile than its model has now is outdated, and one of a removed model too", () => {
  const models = catalog({ name: "m" });
  const hash = models.models.get("m")?.profiles[0]?.hash ?? "";
  const replicas = [
    aReplicaDoc("now", { profileHash: hash }),
    aReplicaDoc("old"),
    aReplicaDoc("gone", { model: "x", profileHash: hash }),
  ];
  assert.deepEqual(
    replicaViews(snapshot({ catalog: models, replicas })).map(({ id, outdated }) => [id, outdated]),
    [
      ["now", false],
      ["old", true],
      ["gone", true],
    ],
  );
  assert.ok(!JSON.stringify(replicaViews(snapshot({ replicas }))).includes("CANARY"));
});

const reasons: readonly (readonly [Exclusion, RegExp])[] = [
  [{ kind: "neverSeen" }, /not been heard/],
  [{ kind: "unreachable", silentMs: 14_200 }, /14 s/],
  [{ kind: "lost", silentMs: null }, /lost/],
  [{ kind: "cordoned" }, /cordoned/],
  [{ kind: "labelMissing", label: "zone", wanted: "a", found: null }, /zone must be a, and is not set/],
  [{ kind: "labelAvoided", label: "pool", value: "test" }, /pool is test/],
  [{ kind: "avoided" }, /replaced/],
  [{ kind: "failedTooOften", failures: 3, failuresMax: 3 }, /3 times, of 3/],
  [{ kind: "engineMissing", engine: "vllm" }, /vllm/],
  [{ kind: "commandNotAllowed", command: "/bin/x" }, /\/bin\/x/],
  [{ kind: "gpuDiscoveryFailed", why: "no driver" }, /no driver/],
  [{ kind: "pinnedGpuAbsent", uuids: ["GPU-1"] }, /pinned GPU-1/],
  [{ kind: "gpuClass", wanted: ["b200", "h200"], found: ["a40"] }, /b200 or h200, and has a40/],
  [{ kind: "gpuClass", wanted: ["h200"], found: [] }, /has no card/],
  [{ kind: "gpuCount", needed: 4, found: 2 }, /4 cards, and has 2/],
  [{ kind: "gpuSick", needed: 2, healthy: 1, sick: 3 }, /1 are healthy \(3 sick\)/],
  [{ kind: "gpuMemoryUnknown", needed: 1, known: 0 }, /the memory of 0 is known/],
  [{ kind: "gpuTooSmall", ranOutAtMib: 40_960, largestMib: 46_068 }, /40\.0 GiB.*45\.0 GiB/],
  [
    { kind: "gpuMemory", neededMib: 71_680, cardsNeeded: 2, cardsFitting: 1, freeMib: 512, foreignMib: 2_048 },
    /70\.0 GiB on each of 2 cards; 1 have that.*512 MiB; others use 2\.0 GiB/,
  ],
  [{ kind: "cores", needed: 8, free: 2 }, /8 cores, and 2/],
  [{ kind: "memory", neededMib: 1_024, freeMib: 100 }, /1\.0 GiB of memory, and 100 MiB/],
  [{ kind: "memoryUnknown" }, /not known/],
  [{ kind: "disk", neededMib: 2_048, freeMib: 1_024 }, /2\.0 GiB of disk/],
  [{ kind: "diskUnknown" }, /not known/],
  [{ kind: "fabricMissing" }, /no fabric/],
  [{ kind: "fabricTooSmall", fabric: "ib-1", needed: 2, fitting: 1 }, /2 nodes of one fabric, and on ib-1 there are 1/],
];
for (const [why, words] of reasons)
  test(`the reason ${why.kind} is told in words and numbers [40.P4]`, () =>
    assert.match(describeExclusion(why), words));

test("an explanation tells for each profile and node whether it fits, in words and for programs [40.P4]", () => {
  const [profile] = catalog({ name: "m" }).models.get("m")?.profiles ?? [];
  assert.ok(profile !== undefined);
  const nodes = [
    { nodeId: "a", verdict: { kind: "fits", gpuUuids: ["g1"], perGpuMib: 5 } } as const,
    { nodeId: "b", verdict: { kind: "cores", needed: 8, free: 2 } } as const,
  ];
  const view = placementView("m", { profiles: [{ profile, nodes }], notes: ["parked"] }, [seen("a"), seen("b")]);
  assert.deepEqual([view.fits, view.notes], [true, ["parked"]]);
  assert.deepEqual(view.profiles[0]?.nodes, [
    { node: "name-of-a", fits: true, why: null, reason: { kind: "fits", gpuUuids: ["g1"], perGpuMib: 5 } },
    {
      node: "name-of-b",
      fits: false,
      why: "needs 8 cores, and 2 are free",
      reason: { kind: "cores", needed: 8, free: 2 },
    },
  ]);
});
