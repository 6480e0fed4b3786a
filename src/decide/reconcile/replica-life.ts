import type { ReplicaDoc, ReplicaState, ShardFailure, ShardReport } from "../../contract/fleet.ts";
import { sendForget, sendStart, sendStop } from "./commands.ts";
import { noteFailure } from "./model-failures.ts";
import { noteOutOfMemory } from "./memory-truth.ts";
import { aggregateState, isGone, type Observed, type ShardSight, sightOf } from "./observe.ts";
import { aboutReplica, PLACING, type PassDraft } from "./pass-draft.ts";

/**
 * One replica from its placement to its end, as its node's reports tell it.
 *
 * Invariants:
 *   L1. A replica that was seen ends only by what is seen: a report of its end, two reports without it, its node's restart or
 *       loss. Silence ends nothing.
 *   L2. Its cards stay held until it is seen gone. A start that was sent may still be on its way: before the node has told of
 *       it, `commandLifeMs` must pass too.
 *   L3. One shard's failure ends the replica: the others are stopped, and then it has failed.
 *   L4. Failures count for the model; lost nodes, restarted machines, engines that were stopped on the node itself and starts that
 *       never arrived do not.
 */
export function liveReplica(
  draft: PassDraft,
  doc: ReplicaDoc,
  observed: Observed,
  rebooted: ReadonlySet<string>,
): void {
  if (isGone(doc)) {
    forgetEnded(draft, doc, observed);
    return;
  }
  const sights = doc.shards.map((_, index) => sightOf(doc, index, draft.snapshot.fleet, observed));
  if (doc.desired === "stop") endReplica(draft, doc, sights, rebooted);
  else runReplica(draft, doc, sights, rebooted);
}

/** The document of an ended replica outlives it, so that people can read why; the agent's record need not. */
function forgetEnded(draft: PassDraft, doc: ReplicaDoc, observed: Observed): void {
  for (const { nodeId, shard } of observed.get(doc.id) ?? [])
    if (isGone(shard)) sendForget(draft, nodeId, doc.id, shard.generation);
    else if (draft.mayStop) sendStop(draft, nodeId, doc.id, shard.generation, "the control plane saw it end");
}

function runReplica(
  draft: PassDraft,
  doc: ReplicaDoc,
  sights: readonly ShardSight[],
  rebooted: ReadonlySet<string>,
): void {
  const failure = failureIn(sights);
  if (failure !== null) {
    failReplica(draft, doc, failure);
    return;
  }
  const stopped = sights.findIndex((sight) => sight.kind === "reported" && wasStopped(sight.shard));
  if (stopped >= 0) {
    const { nodeId } = doc.shards[stopped]!;
    const why = `it was stopped on node ${draft.nodeName(nodeId)} itself`;
    draft.event("replicaVanished", aboutReplica(doc, nodeId), why);
    for (const [index, sight] of sights.entries())
      if (sight.kind === "reported" && isGone(sight.shard))
        sendForget(draft, doc.shards[index]!.nodeId, doc.id, sight.shard.generation);
    abandon(draft, doc, sights, why);
    return;
  }
  const lost = sights.findIndex((sight) => sight.kind === "lost");
  if (lost >= 0) {
    const { nodeId } = doc.shards[lost]!;
    draft.event("replicaLost", aboutReplica(doc, nodeId), `its node ${draft.nodeName(nodeId)} is lost`);
    abandon(draft, doc, sights, `node ${draft.nodeName(nodeId)} is lost`);
    return;
  }
  const vanished =
    doc.state === "placing" ? -1 : sights.findIndex((sight, at) => vanishedAt(draft, doc, sight, at, rebooted));
  if (vanished >= 0) {
    const { nodeId } = doc.shards[vanished]!;
    const why = rebooted.has(nodeId)
      ? `node ${draft.nodeName(nodeId)} was restarted`
      : `node ${draft.nodeName(nodeId)} no longer reports it`;
    draft.event("replicaVanished", aboutReplica(doc, nodeId), why);
    abandon(draft, doc, sights, why);
    return;
  }
  if (doc.state === "placing") startShards(draft, doc, sights);
  const seen = aggregateState(sights);
  const port = portOf(doc, sights);
  const state = seen === null || seen === "placing" ? doc.state : seen;
  if (state === doc.state && port === doc.port) return;
  if (state === doc.state) draft.writeReplica({ ...doc, port });
  else
    draft.writeReplica({ ...doc, state, port, readyAt: state === "ready" ? draft.today : doc.readyAt, reason: null });
  if (state === "ready" && doc.state !== "ready") draft.event("replicaReady", aboutReplica(doc), "ready");
}

/** Where gateways find it: what the head's report last said. */
function portOf({ port }: ReplicaDoc, [head]: readonly ShardSight[]): number | null {
  return head?.kind === "reported" ? (head.shard.port ?? port) : port;
}

/** An engine that ends by itself has failed, however quietly it did so. */
function failureIn(sights: readonly ShardSight[]): ShardFailure | null {
  for (const sight of sights) {
    if (sight.kind !== "reported" || !isGone(sight.shard) || wasStopped(sight.shard)) continue;
    const { failure } = sight.shard;
    return failure ?? { kind: "exit", message: "ended unasked", signal: null, exitCode: null, lastLines: [] };
  }
  return null;
}

/** Nobody here asked for it, so the agent did: it was told to end with its engines. Ends by themselves are reported as failures. */
const wasStopped = ({ state, failure }: ShardReport): boolean => state === "stopped" && failure === null;

function vanishedAt(
  draft: PassDraft,
  doc: ReplicaDoc,
  sight: ShardSight,
  index: number,
  rebooted: ReadonlySet<string>,
): boolean {
  if (sight.kind !== "absent") return false;
  return rebooted.has(doc.shards[index]!.nodeId) || draft.confirmed(`absent ${doc.id} ${index}`, sight.seq);
}

/** Whether the replicas whose room it takes are not seen gone yet: until then it is not started. */
export const isWaiting = (draft: PassDraft, { waitsFor = [] }: ReplicaDoc): boolean =>
  waitsFor.some((id) => {
    const other = draft.replica(id);
    return other !== undefined && !isGone(other);
  });

function startShards(draft: PassDraft, doc: ReplicaDoc, sights: readonly ShardSight[]): void {
  if (isWaiting(draft, doc)) return;
  for (const [index, sight] of sights.entries()) if (sight.kind === "absent") sendStart(draft, doc, index);
}

/** Whether a node that reports has had the start for so long without telling of it that it can't have got it. */
export function isUnacknowledged(draft: PassDraft, doc: ReplicaDoc, observed: Observed): boolean {
  const { fleet, settings } = draft.snapshot;
  if (doc.state !== "placing" || doc.desired !== "run" || isWaiting(draft, doc)) return false;
  const absent = doc.shards.some((_, index) => sightOf(doc, index, fleet, observed).kind === "absent");
  if (!absent) return false;
  const { at } = draft.since(PLACING + doc.id);
  if (draft.now.mono - at >= settings.acknowledgeMs) return true;
  draft.wake(at + settings.acknowledgeMs);
  return false;
}

function failReplica(draft: PassDraft, doc: ReplicaDoc, failure: ShardFailure): void {
  const nodeIds = doc.shards.map((shard) => shard.nodeId);
  const why = `${failure.kind}: ${failure.message}`;
  draft.event("replicaFailed", aboutReplica(doc), why);
  const before = draft.model(doc.model);
  // How a profile failed that the model no longer has says nothing of those that it has.
  if (draft.snapshot.catalog.models.get(doc.model)?.profiles.some(({ hash }) => hash === doc.profileHash) === true) {
    const after = noteFailure(
      before,
      { ...failure, nodeIds, attempt: doc.attempt },
      draft.snapshot.settings,
      draft.today,
    );
    draft.writeModel(after);
    if (after.parked !== null && before.parked === null)
      draft.event("modelParked", { model: doc.model }, after.parked.why);
    else if (after.backoffMs !== null && after.failuresInRow > before.failuresInRow)
      draft.event("modelBackedOff", { model: doc.model }, `next start in ${after.backoffMs / 1_000} s at the earliest`);
  }
  if (failure.kind === "gpuOom") noteOutOfMemory(draft, doc);
  // With other shards still running it ends as "failed" once they are gone.
  const state: ReplicaState = doc.shards.length === 1 ? "failed" : "stopping";
  draft.writeReplica({ ...doc, desired: "stop", state, failure, reason: why });
}

/** Takes a replica off the books that is gone in part: at once where nothing of it can be left, else once the rest is stopped. */
function abandon(draft: PassDraft, doc: ReplicaDoc, sights: readonly ShardSight[], why: string): void {
  const left = sights.some((sight) => {
    if (sight.kind === "reported") return !isGone(sight.shard);
    return sight.kind === "silent" || (sight.kind === "absent" && doc.state === "placing");
  });
  if (left) stopReplica(draft, doc, why, "stopping");
  else draft.deleteReplica(doc.id);
}

/** From now on it is to end; a ready one lets its requests finish first. */
export function stopReplica(draft: PassDraft, doc: ReplicaDoc, why: string, state?: "stopping"): void {
  const next = state ?? (doc.state === "ready" ? "draining" : "stopping");
  draft.writeReplica({ ...doc, desired: "stop", state: next, reason: why });
  if (next === "draining") draft.since(`drain ${doc.id}`);
  draft.event(next === "draining" ? "replicaDraining" : "replicaStopping", aboutReplica(doc), why);
}

function endReplica(
  draft: PassDraft,
  doc: ReplicaDoc,
  sights: readonly ShardSight[],
  rebooted: ReadonlySet<string>,
): void {
  let current = doc;
  if (doc.state === "draining" && isDrained(draft, doc)) {
    current = { ...doc, state: "stopping" };
    draft.writeReplica(current);
  }
  let gone = true;
  for (const [index, sight] of sights.entries()) {
    const { nodeId } = doc.shards[index]!;
    switch (sight.kind) {
      case "silent":
        gone = false;
        break;
      case "lost":
        break;
      case "absent":
        if (!rebooted.has(nodeId) && !absentForGood(draft, doc, index, sight.seq)) gone = false;
        break;
      case "reported":
        if (isGone(sight.shard)) break;
        gone = false;
        if (current.state === "stopping" && !draft.snapshot.restored)
          sendStop(draft, nodeId, doc.id, sight.shard.generation, doc.reason ?? "");
        break;
    }
  }
  if (!gone) return;
  // The agents' records of its shards are the proof that it is gone, so they go last.
  for (const [index, sight] of sights.entries())
    if (sight.kind === "reported") sendForget(draft, doc.shards[index]!.nodeId, doc.id, sight.shard.generation);
  if (doc.failure !== null) draft.writeReplica({ ...doc, state: "failed" });
  else {
    draft.deleteReplica(doc.id);
    draft.event("replicaStopped", aboutReplica(doc), doc.reason ?? "");
  }
}

function isDrained(draft: PassDraft, doc: ReplicaDoc): boolean {
  if (draft.snapshot.idle.has(doc.id)) return true;
  const endsAt = draft.since(`drain ${doc.id}`).at + draft.snapshot.settings.drainGraceMs;
  if (draft.now.mono >= endsAt) return true;
  draft.wake(endsAt);
  return false;
}

function absentForGood(draft: PassDraft, doc: ReplicaDoc, index: number, seq: number): boolean {
  const key = `absent ${doc.id} ${index}`;
  if (!draft.confirmed(key, seq)) return false;
  if (doc.readyAt !== null) return true;
  const sureAt = draft.since(key).at + draft.snapshot.settings.commandLifeMs;
  if (draft.now.mono < sureAt) draft.wake(sureAt);
  return draft.now.mono >= sureAt;
}
