import type { Model } from "../../contract/catalog.ts";
import type { ReplicaDoc, ReplicaRestart } from "../../contract/fleet.ts";
import type { FleetRoom } from "../placement/fleet-room.ts";
import { fitsSomewhere, type PlacementOutcome, placeReplica } from "../placement/place-replica.ts";
import { judgeRestart, type RestartFacts, type RestartVerdict } from "./judge-restart.ts";
import { keepRoom } from "./kept-rooms.ts";
import { runningOf, servingOf, startEvidence, wantedCount } from "./model-counts.ts";
import { startsAllowed, whyNoStart } from "./model-failures.ts";
import { isGone } from "./observe.ts";
import { aboutReplica, type PassDraft } from "./pass-draft.ts";
import { addReplica, describeNoRoom, type PassRoom, wishFor } from "./placing.ts";
import { stopReplica } from "./replica-life.ts";
import { isHeard, refuseRestart } from "./restart-queue.ts";

/** Replacements that one pass places: each may cost a look at the whole fleet's room. */
const BEGUN_MAX = 16;

/**
 * Begins the restarts whose turn it is: models by priority, within a model by the order of the requests.
 *
 * Invariants:
 *   B1. A replica that is stopped for its replacement and the replacement that takes its room are written by the same plan.
 *   B2. No restart begins that takes the ready replicas of a model, by this hand, below its pace.
 *   B3. What is stopped for its replacement leaves its room to its model, until one of it serves in its stead (`kept-rooms.ts`).
 *   B4. Of a rollout over several models one model at a time is touched, in the order of the requests.
 */
export function beginRestarts(draft: PassDraft, room: PassRoom): void {
  const waiting = [...draft.replicas()].filter(({ restart }) => restart?.state === "queued");
  if (waiting.length === 0 || !draft.mayStop) return;
  const { catalog } = draft.snapshot;
  const priorityOf = ({ model }: ReplicaDoc): number => catalog.models.get(model)?.priority ?? 0;
  const order = waiting.toSorted(
    (a, b) => priorityOf(b) - priorityOf(a) || a.restart!.seq - b.restart!.seq || (a.id < b.id ? -1 : 1),
  );
  const held = { asked: new Set<string>(), lasting: new Set<string>() };
  let begun = 0;
  for (const { id, model: name } of order) {
    const model = catalog.models.get(name);
    const doc = draft.replica(id);
    if (model === undefined || doc?.restart?.state !== "queued") continue;
    const kind = isLasting(doc.restart) ? "lasting" : "asked";
    if (held[kind].has(name) && !doc.restart.stopFirst) continue;
    if (begun >= BEGUN_MAX) {
      draft.wake(draft.now.mono);
      return;
    }
    if (isBehindItsRollout(draft, doc, doc.restart)) continue;
    const verdict = beginOne(draft, room, model, doc, doc.restart);
    // What waits holds those behind it, but not what an operator asks for behind a node that can't be emptied.
    if (verdict.kind === "wait") {
      held.lasting.add(name);
      if (kind === "asked") held.asked.add(name);
    } else begun += 1;
  }
}

function beginOne(
  draft: PassDraft,
  room: PassRoom,
  model: Model,
  doc: ReplicaDoc,
  restart: ReplicaRestart,
): RestartVerdict {
  const found: { placed: PlacementOutcome | null } = { placed: null };
  const fitsIn = (settled: FleetRoom | null): boolean =>
    settled !== null && fitsSomewhere(settled, wishFor(draft, model));
  const verdict = judgeRestart({
    ...factsOf(draft, model, restart),
    isHeard: isHeard(draft, doc),
    placeBeside: () => {
      found.placed = placeReplica(room.now, wishFor(draft, model));
      return found.placed.kind === "placed" ? null : describeNoRoom(draft, room.now, model);
    },
    fitsInstead: () => {
      const freed = room.without(new Set([doc.id]));
      found.placed = placeReplica(freed, wishFor(draft, model));
      return found.placed.kind === "placed" ? null : describeNoRoom(draft, freed, model);
    },
    willFitBeside: () => isSoonSettled(draft, doc) && fitsIn(room.settled()),
    willFitInstead: () => fitsIn(room.settled(doc.id)),
  });
  const { placed } = found;
  if (verdict.kind === "wait") {
    if (restart.why !== verdict.why) draft.writeReplica({ ...doc, restart: { ...restart, why: verdict.why } });
  } else if (verdict.kind === "refuse") refuseRestart(draft, doc, restart, verdict.why);
  else if (placed?.kind === "placed") replace(draft, room, model, doc, restart, placed, verdict);
  return verdict;
}

function replace(
  draft: PassDraft,
  room: PassRoom,
  model: Model,
  doc: ReplicaDoc,
  restart: ReplicaRestart,
  placed: Extract<PlacementOutcome, { kind: "placed" }>,
  verdict: Extract<RestartVerdict, { kind: "beside" | "inPlace" }>,
): void {
  const { rollout, seq } = restart;
  const inPlace = verdict.kind === "inPlace";
  const replacement = addReplica(draft, model, placed, {
    replaces: { id: doc.id, seq, rollout },
    waitsFor: inPlace ? [doc.id] : [],
  });
  const next: ReplicaDoc = { ...doc, restart: { ...restart, state: inPlace ? "inPlace" : "replacing", why: null } };
  draft.writeReplica(next);
  const how = verdict.kind === "inPlace" ? `in its place, since ${verdict.why}` : "beside it";
  draft.event("restartBegun", aboutReplica(doc), `${replacement.id} replaces it ${how}`);
  if (!inPlace) {
    room.noteReplaced();
    return;
  }
  stopReplica(draft, next, `${replacement.id} takes its place`);
  keepRoom(draft, next, replacement);
  room.renew();
}

function factsOf(
  draft: PassDraft,
  model: Model,
  restart: ReplicaRestart,
): Omit<RestartFacts, "isHeard" | "placeBeside" | "fitsInstead" | "willFitBeside" | "willFitInstead"> {
  const { settings } = draft.snapshot;
  const { stopFirst, pace } = restart;
  const its = [...draft.replicas()].filter((replica) => replica.model === model.name);
  const doc = draft.model(model.name);
  const running = runningOf(its);
  const serving = servingOf(running);
  const dueAt =
    doc.backoffMs === null || doc.failuresInRow === 0
      ? 0
      : draft.since(`backoff ${model.name} ${doc.failuresInRow}`).at + doc.backoffMs;
  const evidence = startEvidence(model, doc, running);
  const isBackedOff = draft.now.mono < dueAt || startsAllowed(doc, evidence, settings) <= 0;
  const backedOffSince = isBackedOff ? draft.since(`restart backed off ${model.name}`).at : draft.now.mono;
  for (const at of isBackedOff ? [dueAt, backedOffSince + settings.drainGraceMs] : [])
    if (at > draft.now.mono) draft.wake(at);
  return {
    model: model.name,
    parked: doc.parked?.why ?? null,
    stopFirst,
    pace,
    isMadeRoomFor: its.some(({ waitsFor = [], replaces }) => waitsFor.length > 0 && (replaces ?? null) === null),
    isBackedOff,
    backedOffWhy: isBackedOff
      ? (whyNoStart(doc, evidence, settings) ?? "another start is to show first that it can")
      : "",
    backedOffMs: draft.now.mono - backedOffSince,
    drainGraceMs: settings.drainGraceMs,
    beside: its.filter(({ restart, ...rest }) => restart?.state === "replacing" && !isGone(rest)).length,
    wanted: wantedCount(model, doc, serving.length),
    running: serving.length,
    ready: serving.filter((each) => each.state === "ready" && isHeard(draft, each)).length,
    isLasting: isLasting(restart),
  };
}

/** What is being replaced has deadlines of its own; for what is only on its way out nobody waits longer than a drain may last. */
function isSoonSettled(draft: PassDraft, { id }: ReplicaDoc): boolean {
  for (const { restart } of draft.replicas()) if (restart?.state === "replacing") return true;
  const endsAt = draft.since(`room beside ${id}`).at + draft.snapshot.settings.drainGraceMs;
  if (draft.now.mono >= endsAt) return false;
  draft.wake(endsAt);
  return true;
}

const isLasting = ({ cause }: ReplicaRestart): boolean => cause === "auto" || cause === "drain";

/** An earlier model of its rollout is not through yet. */
function isBehindItsRollout(draft: PassDraft, doc: ReplicaDoc, { rollout, seq }: ReplicaRestart): boolean {
  if (rollout === null) return false;
  for (const { model, restart, replaces } of draft.replicas()) {
    if (model === doc.model) continue;
    const isOpen = restart !== undefined && restart !== null && restart.state !== "refused";
    if (isOpen && restart.rollout?.id === rollout.id && restart.seq < seq) return true;
    if (replaces?.rollout?.id === rollout.id && replaces.seq < seq) return true;
  }
  return false;
}
