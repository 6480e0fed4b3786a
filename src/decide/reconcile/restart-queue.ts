import type { Model } from "../../contract/catalog.ts";
import {
  hasReplaced,
  type ReplicaDoc,
  type ReplicaRestart,
  type RestartPace,
  type RolloutMark,
} from "../../contract/fleet.ts";
import { hashesOf } from "./model-failures.ts";
import { isGone } from "./observe.ts";
import { aboutReplica, type PassDraft } from "./pass-draft.ts";
import { isWaiting, stopReplica } from "./replica-life.ts";

/**
 * Replicas that are to be replaced, kept at the replicas themselves, and what comes of those that are being replaced.
 *
 * Invariants:
 *   Q1. What is replaced beside its replacement is stopped only once that is ready on nodes that are heard.
 *   Q2. A restart ends with the old replica's document; a replacement that was lost on its way leaves the old one queued again.
 *   Q3. Only a ready replica is queued: whatever else becomes of it, its restart is no longer asked for.
 */
export const DEFAULT_PACE: RestartPace = { maxSurge: 1, maxUnavailable: 0, minAvailable: 0 };

/** The profiles of a model, for telling whether a refusal was about these. */
const profilesOf = (model: Model): string => hashesOf(model).join(" ");

/** Whether the model, if the catalog still has it, no longer has the replica's profile. */
export const isOutdated = (doc: ReplicaDoc, model: Model | undefined): boolean =>
  model?.profiles.some(({ hash }) => hash === doc.profileHash) !== true;

export const isServing = ({ state, desired }: ReplicaDoc): boolean => state === "ready" && desired === "run";

/** Whether its replacement was begun: that goes on, whatever is asked for meanwhile. */
export const isBegun = ({ restart }: ReplicaDoc): boolean =>
  restart?.state === "replacing" || restart?.state === "inPlace";

/** Before anything is placed: ends what is over, and takes in what the catalog and drained nodes ask for. */
export function followRestarts(draft: PassDraft): void {
  const replacements = new Map<string, ReplicaDoc>();
  for (const doc of draft.snapshot.docs.replicas.values()) {
    const now = draft.replica(doc.id);
    if (now === undefined) continue;
    if ((now.replaces ?? null) !== null) followReplacement(draft, now, replacements);
    if (now.waitsFor !== undefined && !isWaiting(draft, now)) endWait(draft, now);
  }
  for (const { id } of draft.snapshot.docs.replicas.values()) {
    const doc = draft.replica(id);
    if (doc === undefined) continue;
    const restart = doc.restart ?? null;
    if (restart !== null) followOld(draft, doc, restart, replacements);
    if (draft.mayStop) askByItself(draft, id);
  }
}

/** The replica with its place in the queue. */
export const queued = (
  doc: ReplicaDoc,
  model: Model,
  seq: number,
  facts: Pick<ReplicaRestart, "cause" | "pace" | "rollout" | "stopFirst">,
): ReplicaDoc => ({
  ...doc,
  restart: { state: "queued", ...facts, seq, profiles: profilesOf(model), why: null },
});

export function nextSeq(replicas: Iterable<ReplicaDoc>): number {
  let highest = 0;
  for (const { restart, replaces } of replicas) highest = Math.max(highest, restart?.seq ?? 0, replaces?.seq ?? 0);
  return highest + 1;
}

/** The replica serves on, and the reason stands there until somebody asks again. */
export function refuseRestart(draft: PassDraft, doc: ReplicaDoc, restart: ReplicaRestart, why: string): void {
  draft.writeReplica({ ...doc, restart: { ...restart, state: "refused", why } });
  draft.event("restartRefused", aboutReplica(doc), why);
}

function followReplacement(draft: PassDraft, doc: ReplicaDoc, replacements: Map<string, ReplicaDoc>): void {
  const { id, rollout } = doc.replaces!;
  const old = draft.replica(id);
  if (isGone(doc) || doc.failure !== null) {
    draft.writeReplica({ ...doc, replaces: null });
    const why = `its replacement ${doc.id} failed: ${doc.reason ?? "no reason was told"}`;
    if (rollout !== null && old?.restart?.state === "replacing" && isServing(old))
      refuseRestart(draft, old, old.restart, why);
    if (rollout !== null && !rollout.continues) stopRollout(draft, rollout, doc);
    return;
  }
  if (doc.desired === "run") replacements.set(id, doc);
  if (doc.state !== "ready" || !isHeard(draft, doc)) return;
  if (old === undefined || isGone(old)) {
    draft.writeReplica({ ...doc, replaces: null });
    draft.event("restartDone", aboutReplica(doc), hasReplaced(id));
  } else if (old.desired === "run" && draft.mayStop) stopReplica(draft, old, `replaced by ${doc.id}`);
}

function endWait(draft: PassDraft, doc: ReplicaDoc): void {
  const { waitsFor: _, ...rest } = doc;
  draft.writeReplica({ ...rest, reason: null });
  draft.wake(draft.now.mono);
}

function followOld(
  draft: PassDraft,
  doc: ReplicaDoc,
  restart: ReplicaRestart,
  replacements: ReadonlyMap<string, ReplicaDoc>,
): void {
  const isOver =
    restart.cause === "drain" &&
    !doc.shards.some(({ nodeId }) => draft.snapshot.docs.nodes.get(nodeId)?.draining === true);
  if (isGone(doc)) draft.writeReplica({ ...doc, restart: null });
  else if (restart.state === "queued" && (!isServing(doc) || isOver)) draft.writeReplica({ ...doc, restart: null });
  else if (restart.state === "refused" && isOver) draft.writeReplica({ ...doc, restart: null });
  else if (restart.state === "replacing" && doc.desired === "run" && !replacements.has(doc.id))
    draft.writeReplica({ ...doc, restart: { ...restart, state: "queued", why: "its replacement was lost" } });
}

/** A drained node's replicas are to run elsewhere; with `rollout: auto` those of another profile are to be as the catalog says. */
function askByItself(draft: PassDraft, id: string): void {
  const { catalog, docs } = draft.snapshot;
  const doc = draft.replica(id);
  if (doc === undefined || !isServing(doc)) return;
  const restart = doc.restart ?? null;
  const model = catalog.models.get(doc.model);
  if (model === undefined) return;
  const facts = { pace: DEFAULT_PACE, stopFirst: false };
  const enqueue = (cause: "drain" | "auto", rollout: RolloutMark | null, why: string): void => {
    draft.writeReplica(queued(doc, model, nextSeq(draft.replicas()), { ...facts, cause, rollout }));
    draft.event("restartQueued", aboutReplica(doc), why);
  };
  if (restart === null && doc.shards.some(({ nodeId }) => docs.nodes.get(nodeId)?.draining === true)) {
    enqueue("drain", null, "its node drains");
    return;
  }
  if (model.rollout !== "auto" || !isOutdated(doc, model)) return;
  if (restart !== null && (restart.state !== "refused" || restart.profiles === profilesOf(model))) return;
  enqueue("auto", { id: `auto ${model.name}`, continues: false }, "its profile changed");
}

/** What of it has not begun is refused; what has begun goes on. */
function stopRollout(draft: PassDraft, { id }: RolloutMark, failed: ReplicaDoc): void {
  const why = `the rollout stopped: ${failed.id} of ${failed.model}, a replacement, failed: ${failed.reason ?? "no reason was told"}`;
  draft.event("rolloutStopped", aboutReplica(failed), why);
  for (const doc of draft.replicas())
    if (doc.restart?.state === "queued" && doc.restart.rollout?.id === id && isServing(doc))
      draft.writeReplica({ ...doc, restart: { ...doc.restart, state: "refused", why } });
}

/** Whether all its nodes are heard, so that what is known of it is so now. */
export const isHeard = ({ snapshot: { fleet } }: PassDraft, { shards }: ReplicaDoc): boolean =>
  shards.every(({ nodeId }) => fleet.nodes.get(nodeId)?.state === "ready");
