import type { Model, Profile } from "../../contract/catalog.ts";
import type { ReplicaDoc } from "../../contract/fleet.ts";
import type { MemoryTruth } from "../placement/memory-need.ts";
import { placeReplica, type PlacedShard, type PlacementWish } from "../placement/place-replica.ts";
import type { FleetRoom } from "../placement/fleet-room.ts";
import { sendStart } from "./commands.ts";
import { roomOf } from "./holdings.ts";
import { noteMemory } from "./memory-truth.ts";
import {
  type ByModel,
  byModel,
  dropEnded,
  noteModels,
  runningOf,
  startEvidence,
  stopSurplus,
  wantedCount,
} from "./model-counts.ts";
import { startsAllowed } from "./model-failures.ts";
import { noteNodes } from "./node-facts.ts";
import { observe, type Observed } from "./observe.ts";
import { aboutReplica, PassDraft, PLACING } from "./pass-draft.ts";
import { freeRendezvousPort } from "./rendezvous-port.ts";
import { isUnacknowledged, liveReplica, stopReplica } from "./replica-life.ts";
import {
  memoryDocId,
  type PassMemory,
  type PassMint,
  type PassPlan,
  type PassSnapshot,
  type PassTime,
  type PlacementRefusal,
} from "./snapshot.ts";
import { settleUnknown } from "./unknown-engines.ts";

/**
 * One comparison of what should be with what is. Level-triggered: it looks at the whole state, whatever changed, so the pass
 * after a crash is the everyday pass; and a second pass over the same state changes nothing.
 *
 * Invariants:
 *   P1. Nothing is started or stopped that the writes of the same plan do not say; commands follow the commit.
 *   P2. What is certain comes first (what ended), then what is found (unknown engines), then what is too much, then what is
 *       missing: so nothing is started that already runs somewhere, and what was freed is there to be used.
 *   P3. Missing replicas are placed in the order of priority, then of waiting time, then of name.
 */
export function planPass(snapshot: PassSnapshot, before: PassMemory, now: PassTime, mint: PassMint): PassPlan {
  const draft = new PassDraft(snapshot, before, now, mint);
  if (snapshot.fleet.nextChangeAt !== null) draft.wake(snapshot.fleet.nextChangeAt);
  const observed = observe(snapshot.fleet);
  const rebooted = noteNodes(draft);
  for (const doc of snapshot.docs.replicas.values()) {
    liveReplica(draft, doc, observed, rebooted);
    noteMemory(draft, doc, observed);
  }
  const unknown = settleUnknown(draft, observed);
  const models = byModel(draft.replicas());
  noteModels(draft, models, observed);
  dropEnded(draft, models);
  stopSurplus(draft, models);
  dropFigures(draft, models);
  const unplaced = snapshot.fleet.settling || draft.isHeld ? [] : placeMissing(draft, models, observed);
  return {
    writes: draft.writes(),
    commands: draft.commands,
    events: [...snapshot.fleet.events, ...draft.events],
    unplaced,
    unknown,
    memory: draft.memory,
    wakeAt: draft.wakeAt,
  };
}

/** Figures of profiles that neither the catalog nor a replica has any more. */
function dropFigures(draft: PassDraft, models: ByModel): void {
  const { catalog, docs } = draft.snapshot;
  for (const [id, { model, profileHash }] of docs.memories) {
    const isListed = catalog.models.get(model)?.profiles.some(({ hash }) => hash === profileHash) === true;
    if (!isListed && !(models.get(model) ?? []).some((doc) => doc.profileHash === profileHash)) draft.deleteMemory(id);
  }
}

interface Missing {
  readonly model: Model;
  readonly count: number;
  readonly since: number;
}

function placeMissing(draft: PassDraft, models: ByModel, observed: Observed): readonly PlacementRefusal[] {
  const missing = listMissing(draft, models);
  const late: ReplicaDoc[] = [];
  for (const { id, state } of draft.snapshot.docs.replicas.values()) {
    const doc = state === "placing" ? draft.replica(id) : undefined;
    if (doc !== undefined && isUnacknowledged(draft, doc, observed)) late.push(doc);
  }
  if (missing.length === 0 && late.length === 0) return [];
  const room = roomOf(draft, observed);
  for (const doc of late) moveUnacknowledged(draft, room, doc);
  const unplaced: PlacementRefusal[] = [];
  for (const { model, count } of missing) {
    for (let placed = 0; placed < count; placed++) {
      const nodes = placeOne(draft, room, model, new Set());
      if (nodes === null) continue;
      unplaced.push({ model: model.name, nodes });
      if (draft.isNews(`unplaced ${model.name}`))
        draft.event("modelUnplaced", { model: model.name }, describeRefusal(nodes));
      break;
    }
  }
  return unplaced;
}

/** In words, for events and for whoever waits for the model. */
export function describeRefusal(nodes: PlacementRefusal["nodes"]): string {
  const parts = Object.entries(nodes).map(([kind, count]) => `${kind} on ${count}`);
  return parts.length === 0 ? "there is no node" : `fits on no node: ${parts.join(", ")}`;
}

function listMissing(draft: PassDraft, models: ByModel): readonly Missing[] {
  const { catalog, settings } = draft.snapshot;
  const missing: Missing[] = [];
  for (const model of catalog.models.values()) {
    const doc = draft.model(model.name);
    const running = runningOf(models.get(model.name) ?? []);
    const count = wantedCount(model, doc, running.length) - running.length;
    if (count <= 0 || doc.parked !== null) continue;
    const { at: since } = draft.since(`missing ${model.name}`);
    if (doc.backoffMs !== null && doc.failuresInRow > 0) {
      const dueAt = draft.since(`backoff ${model.name} ${doc.failuresInRow}`).at + doc.backoffMs;
      if (draft.now.mono < dueAt) {
        draft.wake(dueAt);
        continue;
      }
    }
    const allowed = startsAllowed(doc, startEvidence(model, doc, running), settings);
    if (allowed > 0) missing.push({ model, count: Math.min(count, allowed), since });
  }
  return missing.toSorted(
    (a, b) => b.model.priority - a.model.priority || a.since - b.since || (a.model.name < b.model.name ? -1 : 1),
  );
}

/** Null: placed. Else what kept the nodes out. */
function placeOne(
  draft: PassDraft,
  room: FleetRoom,
  model: Model,
  avoidNodes: ReadonlySet<string>,
): PlacementRefusal["nodes"] | null {
  const outcome = placeReplica(room, wishFor(draft, model, avoidNodes));
  if (outcome.kind === "noRoom") return outcome.nodes;
  const doc = newReplica(draft, model, outcome.profile, outcome.shards);
  draft.writeReplica(doc);
  draft.since(PLACING + doc.id);
  const nodeIds = doc.shards.map((shard) => shard.nodeId).join(", ");
  draft.event("replicaPlaced", aboutReplica(doc), `on ${nodeIds}`);
  for (const index of doc.shards.keys()) sendStart(draft, doc, index);
  return null;
}

export const wishFor = (draft: PassDraft, model: Model, avoidNodes: ReadonlySet<string>): PlacementWish => ({
  model,
  truth: (profile: Profile, gpuClass: string): MemoryTruth | undefined =>
    draft.memoryOf(memoryDocId(model.name, profile.hash, gpuClass)),
  avoidNodes,
  failedOn: draft.model(model.name).failedOn,
  failuresPerNodeMax: draft.snapshot.settings.failuresPerNodeMax,
});

function newReplica(draft: PassDraft, model: Model, profile: Profile, shards: readonly PlacedShard[]): ReplicaDoc {
  const id = draft.mint.replicaId();
  const head = shards[0]?.nodeId;
  const rendezvousPort = shards.length > 1 && head !== undefined ? freeRendezvousPort(draft.replicas(), head) : null;
  return {
    id,
    model: model.name,
    profileHash: profile.hash,
    profile,
    generation: 1,
    shards: shards.map(({ nodeId, gpuUuids, perGpuMib }) => ({
      nodeId,
      gpuUuids,
      memoryMib: perGpuMib,
      rendezvousPort,
    })),
    desired: "run",
    state: "placing",
    createdAt: draft.today,
    readyAt: null,
    reason: null,
    failure: null,
    catalogRevision: draft.snapshot.catalog.revision,
    attempt: draft.model(model.name).failuresInRow,
    port: null,
    engineKey: draft.mint.engineKey(id, 1),
  };
}

/** A start that never arrived is placed elsewhere, where there is room; else it goes on being sent. */
function moveUnacknowledged(draft: PassDraft, room: FleetRoom, doc: ReplicaDoc): void {
  const nodeIds = doc.shards.map((shard) => shard.nodeId);
  if (draft.isNews(`unacknowledged ${doc.id}`))
    draft.event("unacknowledged", aboutReplica(doc), "its node reports, but tells nothing of the start it was given");
  const model = draft.snapshot.catalog.models.get(doc.model);
  if (model === undefined || placeOne(draft, room, model, new Set(nodeIds)) !== null) return;
  stopReplica(draft, doc, "its node never told of the start; it is started elsewhere", "stopping");
}
