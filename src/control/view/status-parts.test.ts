import assert from "node:assert/strict";
import { test } from "node:test";
import type { KeptRoom, NodeReport } from "../../contract/fleet.ts";
import { newModelDoc } from "../../decide/reconcile/model-failures.ts";
import { asEpoch, parseIsoTime } from "../../kernel/clock.ts";
import { aCatalog, aGpu, aModel, aNodeDoc, aNodeReport, aReplicaDoc, GIB } from "../../testing/fleet-builders.ts";
import type { ClusterSnapshot, GatewaySeen, SeenNode } from "./cluster-view.ts";
import { gatewayParts, idleParts, statusParts } from "./status-parts.ts";
import { modelViews, NO_LEASE, replicaViews } from "./views.ts";

const node = (id: string, part: Partial<NodeReport> = {}, over: Partial<SeenNode> = {}): SeenNode => ({
  doc: aNodeDoc(id),
  state: "ready",
  silentMs: 0,
  report: aNodeReport(id, { gpus: [aGpu(`${id}/0`), aGpu(`${id}/1`)], fabric: "nv1", ...part }),
  ...over,
});
const cluster = (part: Partial<ClusterSnapshot> = {}): ClusterSnapshot => ({
  catalog: aCatalog([]),
  nodes: [],
  replicas: [],
  models: [],
  memory: [],
  unplaced: new Map(),
  use: new Map(),
  restored: false,
  ...part,
});

test("a whole node is free when it is heard, open and well with nothing on it; what is not known of is not counted as free [40.V1]", () => {
  const nodes = [
    node("free"),
    node("held"),
    node("others", { gpus: [aGpu("others/0", { foreignMib: GIB })] }),
    node("sick", { gpus: [aGpu("sick/0", { health: "sick" }), aGpu("sick/1")] }),
    node("cordoned", {}, { doc: { ...aNodeDoc("cordoned"), cordoned: true } }),
    node("silent", {}, { state: "unreachable" }),
    node("unread", { gpus: [aGpu("unread/0", { usedMib: null })] }),
    node("alone", { fabric: null }),
    node("cpu", { gpus: [] }),
  ];
  const replicas = [aReplicaDoc("r1", aModel("m"), "held")];
  assert.deepEqual(statusParts(cluster({ nodes, replicas })).fabrics, [
    { fabric: "nv1", nodes: 7, free: 1, unknown: 2 },
    { fabric: null, nodes: 1, free: 1, unknown: 0 },
  ]);
});

test("a card that a model keeps for the replacement of a stopped replica is neither free nor in use, and its node is not free whole [40.V1]", () => {
  const keeps = (of: string, heir: string | null, nodeId: string, uuid: string): KeptRoom => ({
    of,
    heir,
    nodes: [{ nodeId, cards: { [uuid]: GIB }, cores: 0, memoryMib: 0 }],
  });
  const m = aModel("m");
  const rooms = [keeps("r0", null, "a", "a/0"), keeps("r1", "r2", "b", "b/0")];
  const parts = statusParts(
    cluster({
      nodes: [node("a"), node("b"), node("c")],
      models: [{ ...newModelDoc("m", m), keepsRoom: rooms }],
      replicas: [aReplicaDoc("r2", m, "b")],
    }),
  );
  assert.deepEqual(
    parts.gpus.map(({ cards, used, kept, free }) => [cards, used, kept, free]),
    [[6, 1, 1, 4]],
    "the card of a replacement that holds it is in use",
  );
  assert.deepEqual(
    parts.fabrics.map(({ nodes, free }) => [nodes, free]),
    [[3, 1]],
  );
});

test("what nobody asks for is told with its time, of a model with several replicas by the last request to any; what is not known is no idleness [40.V1 40.P6]", () => {
  const ready = (id: string, name: string): ClusterSnapshot["replicas"][number] =>
    aReplicaDoc(id, aModel(name), "a", { state: "ready" });
  const replicas = [
    ready("a1", "a"),
    ready("a2", "a"),
    ready("b1", "b"),
    ready("c1", "c"),
    ready("c2", "c"),
    ready("d1", "d"),
  ];
  const use = new Map([
    ["a1", { inFlight: 0, idleMs: 900_000 }],
    ["a2", { inFlight: 0, idleMs: 600_000 }],
    ["b1", { inFlight: 0, idleMs: 3_600_000 }],
    ["c1", { inFlight: 0, idleMs: 5_000_000 }],
    ["d1", { inFlight: 0, idleMs: 2_000 }],
  ]);
  const now = parseIsoTime("2026-01-01T12:00:00.000Z") ?? asEpoch(0);
  assert.deepEqual(idleParts(cluster({ replicas, use }), now), {
    not_asked: [
      { model: "b", replicas: 1, idle_s: 3_600, since: "2026-01-01T11:00:00.000Z" },
      { model: "a", replicas: 2, idle_s: 600, since: "2026-01-01T11:50:00.000Z" },
    ],
    use_unknown: 1,
  });
});

test("jobs of gateways that share a store are counted once, and nothing is said of them when none has told [40.V1]", () => {
  const gateway = (id: string, jobs: GatewaySeen["jobs"]): GatewaySeen => ({
    id,
    name: id,
    version: "1",
    silentMs: 0,
    at: 1,
    behind: id === "b",
    waiting: 1,
    inFlight: 2,
    jobs,
  });
  const shared = { store: "s", queued: 3, running: 1 };
  const all = [gateway("a", shared), gateway("b", shared), gateway("c", { store: "t", queued: 1, running: 0 })];
  assert.deepEqual(gatewayParts(all), {
    gateways: { connected: 3, behind: 1, waiting: 3, in_flight: 6 },
    jobs: { queued: 4, running: 1 },
  });
  assert.equal(gatewayParts([gateway("a", null)]).jobs, null);
});

test("while no control plane holds the lease, models that want more and replicas that wait for a restart say so [40.P4 40.V1]", () => {
  const model = aModel("m");
  const restart = {
    state: "queued",
    cause: "asked",
    seq: 1,
    stopFirst: false,
    pace: { maxSurge: 1, maxUnavailable: 0, minAvailable: 0 },
    rollout: null,
    profiles: "",
    why: "its node is not heard",
  } as const;
  const waiting = aReplicaDoc("r1", model, "a", { state: "ready", restart });
  const seen = cluster({ catalog: aCatalog([model, aModel("none")]), replicas: [waiting], nodes: [node("a")] });
  const why = ({ leaderless }: { leaderless: boolean }): readonly unknown[] => [
    modelViews({ ...seen, leaderless }).find(({ name }) => name === "none")?.why,
    replicaViews({ ...seen, leaderless })[0]?.restart_why,
  ];
  assert.deepEqual(why({ leaderless: true }), [NO_LEASE, NO_LEASE]);
  assert.deepEqual(why({ leaderless: false }), [null, "its node is not heard"]);
});

test("a model whose starts have not shown yet that it can start says how many there are, and of how many [40.P4]", () => {
  const model = aModel("m", { replicas: { min: 8, max: 8 } });
  const starting = Array.from({ length: 5 }, (_, at) => aReplicaDoc(`r${at}`, model, "a", { state: "starting" }));
  const doc = {
    name: "m",
    failuresInRow: 0,
    backoffMs: null,
    failedOn: {},
    profileHashes: [],
    lastFailure: null,
    parked: null,
    demandedAt: null,
  };
  const [view] = modelViews(cluster({ catalog: aCatalog([model]), replicas: starting, models: [doc] }));
  assert.deepEqual(
    [view?.state, view?.why],
    ["starting", "5 replicas start that have not shown yet that it can, of 5 allowed"],
  );
});
