import type {
  GatewayAnswer,
  GpuAnswer,
  ModelAnswer,
  NodeAnswer,
  PlacementAnswer,
  ReplicaAnswer,
} from "../../contract/control-api.ts";
import type { Model } from "../../contract/catalog.ts";
import type { ModelDoc, ReplicaDoc, ShardReport } from "../../contract/fleet.ts";
import { describeExclusion } from "../../decide/placement/describe-exclusion.ts";
import type { ModelExplanation } from "../../decide/reconcile/explain-model.ts";
import { restartState } from "../../decide/reconcile/judge-restart.ts";
import { byModel, runningOf, startEvidence, wantedCount } from "../../decide/reconcile/model-counts.ts";
import { describeKept } from "../../decide/reconcile/kept-rooms.ts";
import { failedInRow, newModelDoc, whyNoStart } from "../../decide/reconcile/model-failures.ts";
import { isGone } from "../../decide/reconcile/observe.ts";
import { isOutdated } from "../../decide/reconcile/restart-queue.ts";
import { PASS_DEFAULTS } from "../../decide/reconcile/snapshot.ts";
import { PICKLE_RUNS_CODE } from "../../decide/weights/formats.ts";
import type { ClusterSnapshot, GatewaySeen, SeenNode } from "./cluster-view.ts";

// What the API shows, computed from a snapshot. What nobody measured is null; what a node that is not heard said is not shown as
// if it were so now.

export const NO_LEASE = "no control plane holds the lease: nothing is started";
const seconds = (ms: number | null): number | null => (ms === null ? null : Math.round(ms / 1000));
/** The document of one that has ended is kept for people to read, and takes no room. */
export const holds = (replica: ReplicaDoc): boolean => !isGone(replica);
/** Only a node that is heard speaks of now. */
export const current = (node: SeenNode): SeenNode["report"] => (node.state === "ready" ? node.report : null);

export function nodeViews({ nodes, replicas }: ClusterSnapshot): NodeAnswer[] {
  const held = new Map<string, number>();
  for (const { shards } of replicas.filter(holds))
    for (const nodeId of new Set(shards.map((shard) => shard.nodeId))) held.set(nodeId, (held.get(nodeId) ?? 0) + 1);
  return nodes.map((node) => {
    const { doc, report } = node;
    const now = current(node);
    const known = now !== null && now.gpuDiscovery !== "failed";
    return {
      id: doc.id,
      name: doc.name,
      state: node.state,
      silent_s: seconds(node.silentMs),
      cordoned: doc.cordoned,
      draining: doc.draining === true,
      agent_version: report?.agentVersion ?? null,
      address: report?.address ?? null,
      labels: { ...(report?.labels ?? doc.labels) },
      fabric: report?.fabric ?? null,
      cores: report?.cores ?? null,
      memory_mib: report?.memoryMib ?? null,
      memory_free_mib: now?.memoryFreeMib ?? null,
      disk_free_mib: now?.diskFreeMib ?? null,
      gpus: known ? now.gpus.length : null,
      sick_gpus: known ? now.gpus.filter(({ health }) => health === "sick").length : null,
      gpu_discovery: now?.gpuDiscoveryWhy ?? null,
      replicas: held.get(doc.id) ?? 0,
    };
  });
}

export function gpuViews({ nodes, replicas }: ClusterSnapshot): GpuAnswer[] {
  const tenants = new Map<string, string[]>();
  for (const { id, shards } of replicas.filter(holds))
    for (const uuid of shards.flatMap((shard) => shard.gpuUuids)) tenants.set(uuid, [...(tenants.get(uuid) ?? []), id]);
  return nodes.flatMap((node) =>
    (current(node)?.gpus ?? []).map((gpu) => ({
      node: node.doc.name,
      uuid: gpu.uuid,
      index: gpu.index,
      name: gpu.name,
      class: gpu.class,
      health: gpu.health,
      health_why: gpu.healthWhy,
      memory_mib: gpu.memoryMib,
      used_mib: gpu.usedMib,
      foreign_mib: gpu.foreignMib,
      utilization: gpu.utilization,
      temperature_c: gpu.temperatureC,
      replicas: tenants.get(gpu.uuid) ?? [],
    })),
  );
}

export function replicaViews({ catalog, nodes, replicas, use, leaderless = false }: ClusterSnapshot): ReplicaAnswer[] {
  const byId = new Map(nodes.map((node) => [node.doc.id, node]));
  return replicas.map((replica) => ({
    id: replica.id,
    model: replica.model,
    engine: replica.profile.engine,
    state: replica.state,
    generation: replica.generation,
    nodes: replica.shards.map(({ nodeId }) => byId.get(nodeId)?.doc.name ?? nodeId),
    gpus: replica.shards.flatMap(({ gpuUuids }) => gpuUuids),
    outdated: isOutdated(replica, catalog.models.get(replica.model)),
    restart: restartState(replica),
    restart_why: replica.restart?.state === "queued" ? (leaderless ? NO_LEASE : replica.restart.why) : null,
    replaces: replica.replaces?.id ?? null,
    idle_s: seconds(use.get(replica.id)?.idleMs ?? null),
    fetch: replica.state === "fetching" ? fetchOf(replica, byId) : null,
    created: replica.createdAt,
    ready: replica.readyAt,
    why: whyOf(replica, byId),
  }));
}

/** Why it is in its state, and what its nodes say stands in the way of the next one: a full disk, somebody else's process on the card. */
function whyOf(replica: ReplicaDoc, byId: ReadonlyMap<string, SeenNode>): string | null {
  const told = replica.reason ?? replica.failure?.message ?? null;
  if (replica.state === "ready" || isGone(replica)) return told;
  const inTheWay = shardsOf(replica, byId).flatMap(({ blockedBy }) => blockedBy ?? []);
  return [...new Set([...(told === null ? [] : [told]), ...inTheWay])].join("; ") || null;
}

/** What the nodes that are heard report of a replica. */
const shardsOf = ({ id, shards }: ReplicaDoc, byId: ReadonlyMap<string, SeenNode>): readonly ShardReport[] =>
  [...new Set(shards.map(({ nodeId }) => nodeId))]
    .flatMap((nodeId) => byId.get(nodeId) ?? [])
    .flatMap((node) => (current(node)?.shards ?? []).filter(({ replicaId }) => replicaId === id));

/** Over all nodes of the replica; a part that nobody told is not known of the whole either. */
function fetchOf(replica: ReplicaDoc, byId: ReadonlyMap<string, SeenNode>): ReplicaAnswer["fetch"] {
  const told = shardsOf(replica, byId).flatMap(({ fetch }) => fetch ?? []);
  if (told.length === 0) return null;
  const sum = (of: readonly (number | null)[]): number | null =>
    of.reduce<number | null>((all, one) => (all === null || one === null ? null : all + one), 0);
  const left = told.map(({ leftS }) => leftS);
  return {
    bytes: sum(told.map(({ bytes }) => bytes)) ?? 0,
    total_bytes: sum(told.map(({ totalBytes }) => totalBytes)),
    bytes_per_s: sum(told.map(({ bytesPerS }) => bytesPerS)),
    left_s: left.includes(null) ? null : Math.max(...left.map((one) => one ?? 0)),
  };
}

export const gatewayViews = (gateways: readonly GatewaySeen[]): GatewayAnswer[] =>
  gateways.map(({ id, name, version, silentMs, at, behind, waiting, inFlight }) => ({
    id,
    name,
    version,
    silent_s: seconds(silentMs),
    at,
    behind,
    waiting,
    in_flight: inFlight,
  }));

export function modelViews(snapshot: ClusterSnapshot): ModelAnswer[] {
  const docs = new Map(snapshot.models.map((doc) => [doc.name, doc]));
  const replicas = byModel(snapshot.replicas);
  const names = new Map(snapshot.nodes.map(({ doc }) => [doc.id, doc.name]));
  const listed = [...snapshot.catalog.models.values()].map((model) =>
    modelView(model, replicas.get(model.name) ?? [], docs.get(model.name), {
      unplaced: snapshot.unplaced.get(model.name),
      leaderless: snapshot.leaderless === true,
      nodeName: (nodeId) => names.get(nodeId) ?? nodeId,
    }),
  );
  // A model that left the catalog is shown until its last replica is gone.
  const removed = [...replicas].filter(([name]) => !snapshot.catalog.models.has(name));
  return [...listed, ...removed.map(([name, left]) => removedModel(name, left))];
}

function modelView(
  model: Model,
  replicas: readonly ReplicaDoc[],
  doc: ModelDoc | undefined,
  held: HeldBy,
): ModelAnswer {
  const ready = replicas.filter(({ state }) => state === "ready").length;
  const running = runningOf(replicas).length;
  const { state, why } = judgeModel(model, replicas, doc, held);
  return {
    name: model.name,
    aliases: [...model.aliases],
    priority: model.priority,
    min: model.replicas.min,
    max: model.replicas.max,
    wanted: wantedCount(model, doc ?? newModelDoc(model.name, model), running),
    ready,
    replicas: replicas.length,
    state,
    why,
    warnings: model.profiles.some(({ allowPickle }) => allowPickle === true)
      ? [`allow_pickle is set: ${PICKLE_RUNS_CODE}`]
      : [],
    failures_in_row: doc?.failuresInRow ?? 0,
  };
}

/** What keeps further replicas of a model from being started, beside what it did itself. */
interface HeldBy {
  readonly unplaced: string | undefined;
  readonly leaderless: boolean;
  readonly nodeName: (nodeId: string) => string;
}

/** The first thing that stands in the way, as `ctl explain-placement` has it too. */
function judgeModel(
  model: Model,
  its: readonly ReplicaDoc[],
  doc: ModelDoc | undefined,
  { unplaced, leaderless, nodeName }: HeldBy,
): Pick<ModelAnswer, "state" | "why"> {
  const { replicas } = model;
  const running = runningOf(its).length;
  const ready = its.filter(({ state }) => state === "ready").length;
  const missing = wantedCount(model, doc ?? newModelDoc(model.name, model), running) > running;
  if (leaderless && missing) return { state: "waiting", why: NO_LEASE };
  if (doc !== undefined && doc.parked !== null) return { state: "parked", why: doc.parked.why };
  if (unplaced !== undefined) return { state: "waiting", why: unplaced };
  const wanted = Math.max(1, replicas.min);
  // A pause after a failure is nobody's trouble while there are as many as are wanted.
  if (doc !== undefined && doc.backoffMs !== null && running <= ready && ready < wanted)
    return {
      state: "waiting",
      why: [
        failedInRow(doc.failuresInRow),
        `the next start waits ${Math.round(doc.backoffMs / 1000)} s`,
        ...describeKept(doc, nodeName),
      ].join("; "),
    };
  const held =
    missing && doc !== undefined ? whyNoStart(doc, startEvidence(model, doc, runningOf(its)), PASS_DEFAULTS) : null;
  if (running > ready || ready < replicas.min) return { state: "starting", why: held };
  return { state: ready > 0 ? "ready" : "stopped", why: null };
}

const removedModel = (name: string, replicas: readonly ReplicaDoc[]): ModelAnswer => ({
  name,
  aliases: [],
  priority: 0,
  min: 0,
  max: 0,
  wanted: 0,
  ready: replicas.filter(({ state }) => state === "ready").length,
  replicas: replicas.length,
  state: "removed",
  why: "it is no longer in the catalog",
  warnings: [],
  failures_in_row: 0,
});

export function placementView(
  model: string,
  { profiles, notes }: ModelExplanation,
  nodes: readonly SeenNode[],
): PlacementAnswer {
  const names = new Map(nodes.map(({ doc }) => [doc.id, doc.name]));
  const shown = profiles.map(({ profile, nodes: verdicts }) => ({
    engine: profile.engine,
    nodes: verdicts.map(({ nodeId, verdict }) => ({
      node: names.get(nodeId) ?? nodeId,
      fits: verdict.kind === "fits",
      why: verdict.kind === "fits" ? null : describeExclusion(verdict),
      reason: { ...verdict },
    })),
  }));
  return {
    model,
    fits: shown.some((profile) => profile.nodes.some(({ fits }) => fits)),
    profiles: shown,
    notes: [...notes],
  };
}

export function countBy<T>(items: readonly T[], keyOf: (item: T) => string): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const item of items) counts[keyOf(item)] = (counts[keyOf(item)] ?? 0) + 1;
  return counts;
}
