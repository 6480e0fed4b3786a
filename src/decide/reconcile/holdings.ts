import type { NodeDoc, ReplicaDoc, ShardReport } from "../../contract/fleet.ts";
import type { NodeStatus } from "../fleet/node-watch.ts";
import { fleetRoom, type FleetRoom } from "../placement/fleet-room.ts";
import type { Holding, PlacementNode } from "../placement/node-room.ts";
import { isGone, type Observed, sightOf } from "./observe.ts";
import type { PassDraft } from "./pass-draft.ts";
import { keptHoldings } from "./kept-rooms.ts";
import { measuredMib } from "./memory-truth.ts";

const NOBODY: ReadonlySet<string> = new Set();

/** Whose eyes see the room. */
export interface RoomView {
  /** Replicas and kept rooms that are taken for gone. */
  readonly without?: ReadonlySet<string>;
  /** The model that is to be placed: what it keeps is there for it. */
  readonly model?: string;
}

/** What is held on each node. */
export function holdingsOf(
  draft: PassDraft,
  observed: Observed,
  { without = NOBODY, model }: RoomView = {},
): Holding[] {
  const holdings: Holding[] = keptHoldings(draft, observed, model, without);
  for (const doc of draft.replicas())
    if (!isGone(doc)) pushHoldings(draft, doc, observed, without.has(doc.id), holdings);
  for (const [id, shards] of observed) {
    if (draft.replica(id) !== undefined) continue;
    for (const { nodeId, shard } of shards) if (!isGone(shard)) holdings.push(ofUnknown(draft, nodeId, shard));
  }
  return holdings;
}

/**
 * What is free, after all that the store's replicas hold, what models keep, and all that runs without the store's knowledge.
 * A replica that waits for the room of others holds it beside them: until they are gone the room counts twice, and goes to nobody else.
 */
export const roomOf = (draft: PassDraft, observed: Observed, view: RoomView = {}): FleetRoom =>
  fleetRoom(nodesOf(draft), holdingsOf(draft, observed, view));

export const nodesOf = ({ snapshot: { docs, fleet } }: PassDraft): PlacementNode[] =>
  [...docs.nodes.values()].map((doc) => placementNode(doc, fleet.nodes.get(doc.id)));

const placementNode = ({ id, cordoned }: NodeDoc, status: NodeStatus | undefined): PlacementNode => ({
  nodeId: id,
  state: status?.state ?? "never_seen",
  silentMs: status?.silentMs ?? null,
  cordoned,
  report: status?.report ?? null,
});

function pushHoldings(
  draft: PassDraft,
  doc: ReplicaDoc,
  observed: Observed,
  leaves: boolean,
  holdings: Holding[],
): void {
  const { profile } = doc;
  for (const [index, { nodeId, gpuUuids, memoryMib }] of doc.shards.entries()) {
    const sight = sightOf(doc, index, draft.snapshot.fleet, observed);
    const shard = sight.kind === "reported" ? sight.shard : null;
    if (shard !== null && isGone(shard)) continue;
    const ready = shard?.state === "ready" || shard?.state === "draining";
    holdings.push({
      replicaId: doc.id,
      model: doc.model,
      nodeId,
      gpuUuids,
      perGpuMib: ready ? (measuredMib(draft, doc, nodeId, gpuUuids) ?? memoryMib) : memoryMib,
      cores: profile.cpu?.cores ?? 0,
      memoryMib: profile.cpu?.memoryMib ?? 0,
      diskMib: doc.state === "placing" || doc.state === "fetching" ? profile.diskMib : 0,
      weightsName: profile.weightsName,
      settled: ready,
      gpuUsedMib: shard?.gpuUsedMib ?? null,
      hostUsedMib: shard?.hostUsedMib ?? null,
      leaves,
    });
  }
}

function ofUnknown(draft: PassDraft, nodeId: string, shard: ShardReport): Holding {
  const model = draft.snapshot.catalog.models.get(shard.model);
  const profile = model?.profiles.find(({ hash }) => hash === shard.profileHash);
  return {
    replicaId: shard.replicaId,
    model: shard.model,
    nodeId,
    gpuUuids: shard.gpuUuids,
    // What it will take once it is ready is not known before.
    perGpuMib: shard.state === "ready" ? null : Number.POSITIVE_INFINITY,
    cores: profile?.cpu?.cores ?? 0,
    memoryMib: profile?.cpu?.memoryMib ?? 0,
    diskMib: 0,
    weightsName: profile?.weightsName ?? null,
    settled: shard.state === "ready",
    gpuUsedMib: shard.gpuUsedMib,
    hostUsedMib: shard.hostUsedMib,
    leaves: false,
  };
}
