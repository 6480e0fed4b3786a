import type { Model } from "../../contract/catalog.ts";
import type { ReplicaDoc } from "../../contract/fleet.ts";
import { placeReplica } from "../placement/place-replica.ts";
import { autoscale } from "./autoscale.ts";
import { stopIdle } from "./idle-stop.ts";
import { RoomMaker } from "./make-room.ts";
import { followKeptRooms, giveUpUnusable, keepers, keepsRoom, whoKeeps } from "./kept-rooms.ts";
import { noteMemory } from "./memory-truth.ts";
import {
  type ByModel,
  byModel,
  dropEnded,
  noteModels,
  runningOf,
  servingOf,
  startEvidence,
  stopSurplus,
  wantedCount,
} from "./model-counts.ts";
import { startsAllowed } from "./model-failures.ts";
import { noteNodes } from "./node-facts.ts";
import { observe, type Observed } from "./observe.ts";
import { aboutReplica, PassDraft } from "./pass-draft.ts";
import { PassRoom, placeOne, wishFor } from "./placing.ts";
import { isUnacknowledged, liveReplica, stopReplica } from "./replica-life.ts";
import { beginRestarts } from "./restarts.ts";
import { followRestarts } from "./restart-queue.ts";
import type { PassMemory, PassMint, PassPlan, PassSnapshot, PassTime, PlacementRefusal } from "./snapshot.ts";
import { settleUnknown } from "./unknown-engines.ts";
import { whyNotDisplaced } from "./why-withheld.ts";

/**
 * One comparison of what should be with what is. Level-triggered: it looks at the whole state, whatever changed, so the pass
 * after a crash is the everyday pass; and a second pass over the same state changes nothing.
 *
 * Invariants:
 *   P1. Nothing is started or stopped that the writes of the same plan do not say; commands follow the commit.
 *   P2. What is certain comes first (what ended), then what is found (unknown engines), then what is too much, then what is
 *       missing: so nothing is started that already runs somewhere, and what was freed is there to be used.
 *   P3. Missing replicas are placed in the order of priority, then of waiting time, then of name.
 *   P4. Room that is freed for a purpose is given to it in the step that frees it: the replica that is to have it is written down
 *       together with the end of the one that has it, and holds it from then on.
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
  followRestarts(draft);
  const models = byModel(draft.replicas());
  noteModels(draft, models, observed);
  followKeptRooms(draft, models, observed);
  dropEnded(draft, models);
  const room = new PassRoom(draft, observed);
  const mayPlace = !snapshot.fleet.settling && !draft.isHeld;
  const unplaced = mayPlace ? placeMissing(draft, models, observed, room) : [];
  if (mayPlace) beginRestarts(draft, room);
  autoscale(draft, models);
  stopIdle(draft, models, observed);
  stopSurplus(draft, models);
  dropFigures(draft, models);
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

/** Models that keep room and are placed in one pass: each costs a look at the whole fleet's room. */
const KEEPING_MAX = 16;

interface Missing {
  readonly model: Model;
  readonly count: number;
  readonly since: number;
}

function placeMissing(
  draft: PassDraft,
  models: ByModel,
  observed: Observed,
  room: PassRoom,
): readonly PlacementRefusal[] {
  const missing = listMissing(draft, models);
  const late: ReplicaDoc[] = [];
  for (const { id, state } of draft.snapshot.docs.replicas.values()) {
    const doc = state === "placing" ? draft.replica(id) : undefined;
    if (doc !== undefined && isUnacknowledged(draft, doc, observed)) late.push(doc);
  }
  if (missing.length === 0 && late.length === 0) return [];
  for (const doc of late) moveUnacknowledged(draft, room, doc);
  const maker = new RoomMaker(draft, room, observed);
  const kept = keepers(draft);
  let keeping = 0;
  const unplaced: PlacementRefusal[] = [];
  for (const { model, count } of missing) {
    if (keepsRoom(draft, model.name) && ++keeping > KEEPING_MAX) {
      draft.wake(draft.now.mono + draft.snapshot.settings.confirmMs);
      continue;
    }
    for (let placed = 0; placed < count; placed++) {
      const refusal = placeOne(draft, room, model);
      if (refusal === null) continue;
      const isFirst = runningOf(models.get(model.name) ?? []).length + placed === 0;
      const made = isFirst ? maker.makeFor(model) : "none";
      if (made === "made") continue;
      if (made === "soon" || isRoomComing(draft, room, model)) break;
      const tenants = isFirst ? withTenants(draft, observed, model, refusal) : refusal.why;
      const why = [tenants, ...whoKeeps(draft, observed, kept, model, TENANTS.toldMax)].join("; ");
      giveUpUnusable(draft, model);
      unplaced.push({ model: model.name, ...refusal, why });
      if (draft.isNews(`unplaced ${model.name}`)) draft.event("modelUnplaced", { model: model.name }, why);
      break;
    }
  }
  return unplaced;
}

/** It fits as soon as those are gone that are on their way out: nobody is to be turned away for that moment. */
function isRoomComing(draft: PassDraft, room: PassRoom, model: Model): boolean {
  const leaving = room.leaving(model.name);
  return leaving !== null && placeReplica(leaving, wishFor(draft, model)).kind === "placed";
}

/** A pass may have thousands of models to say this of. */
const TENANTS = { toldMax: 3, lookedMax: 64 };

/** Of a model that only lacks room that others have: why these keep it. */
function withTenants(
  draft: PassDraft,
  observed: Observed,
  model: Model,
  { nodes, why }: Omit<PlacementRefusal, "model">,
): string {
  if (nodes.gpuMemory === undefined && nodes.memory === undefined && nodes.cores === undefined) return why;
  return [why, ...whyNotDisplaced(draft, model, observed, TENANTS)].join("; ");
}

function listMissing(draft: PassDraft, models: ByModel): readonly Missing[] {
  const { catalog, settings } = draft.snapshot;
  const missing: Missing[] = [];
  for (const model of catalog.models.values()) {
    const doc = draft.model(model.name);
    const running = runningOf(models.get(model.name) ?? []);
    const serving = servingOf(running).length;
    const count = wantedCount(model, doc, serving) - serving;
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

/** A start that never arrived is placed elsewhere, where there is room; else it goes on being sent. */
function moveUnacknowledged(draft: PassDraft, room: PassRoom, doc: ReplicaDoc): void {
  const nodeIds = doc.shards.map((shard) => shard.nodeId);
  if (draft.isNews(`unacknowledged ${doc.id}`))
    draft.event("unacknowledged", aboutReplica(doc), "its node reports, but tells nothing of the start it was given");
  const model = draft.snapshot.catalog.models.get(doc.model);
  if (model === undefined || placeOne(draft, room, model, new Set(nodeIds)) !== null) return;
  stopReplica(draft, doc, "its node never told of the start; it is started elsewhere", "stopping");
}
