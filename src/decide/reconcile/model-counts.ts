import type { Model } from "../../contract/catalog.ts";
import type { ModelDoc, NodeState, ReplicaDoc, ReplicaState } from "../../contract/fleet.ts";
import { clearFailures, forProfiles, type StartEvidence } from "./model-failures.ts";
import type { PassDraft } from "./pass-draft.ts";
import { stopReplica } from "./replica-life.ts";
import { isGone, type Observed } from "./observe.ts";

/** Ended replicas of a model whose documents are kept for people to read. */
const ENDED_KEPT_MAX = 3;

/** A model's replicas, those that ended and those on their way out included. */
export type ByModel = ReadonlyMap<string, readonly ReplicaDoc[]>;

export const byModel = (replicas: Iterable<ReplicaDoc>): ByModel => Map.groupBy(replicas, ({ model }) => model);

const isRunning = (doc: ReplicaDoc): boolean => doc.desired === "run" && !isGone(doc);

export const runningOf = (replicas: readonly ReplicaDoc[]): readonly ReplicaDoc[] => replicas.filter(isRunning);

/** Of a model's running replicas, those that count: one that starts beside what it replaces does not, while that is to run. */
export function servingOf(running: readonly ReplicaDoc[]): readonly ReplicaDoc[] {
  if (!running.some(({ replaces }) => (replaces ?? null) !== null)) return running;
  const ids = new Set(running.map(({ id }) => id));
  return running.filter(({ replaces }) => (replaces ?? null) === null || !ids.has(replaces!.id));
}

/** Replicas that should run and have not ended, by model; a model without any is not named. */
export function countRunning(replicas: Iterable<ReplicaDoc>): Map<string, number> {
  const counts = new Map<string, number>();
  for (const doc of replicas) if (isRunning(doc)) counts.set(doc.model, (counts.get(doc.model) ?? 0) + 1);
  return counts;
}

/**
 * How many should run: as many as were asked for, else the minimum, or one of a model that runs on demand once somebody asked for it or
 * it runs already. Scaled to 0 it runs again when somebody asks.
 */
export function wantedCount(model: Model, doc: ModelDoc, running: number): number {
  const { min, max } = model.replicas;
  const scaledTo = doc.scaledTo ?? null;
  if (scaledTo !== null && scaledTo > 0) return Math.max(Math.min(scaledTo, max), Math.min(min, max));
  if (min > 0) return Math.min(min, max);
  return Math.min(max, doc.demandedAt !== null || (running > 0 && scaledTo === null) ? 1 : 0);
}

export function startEvidence(model: Model, doc: ModelDoc, running: readonly ReplicaDoc[]): StartEvidence {
  const starting = running.filter(({ state }) => state !== "ready");
  const isNow = ({ attempt }: ReplicaDoc): boolean => attempt === doc.failuresInRow;
  return {
    starting: starting.length,
    startingNow: starting.filter(isNow).length,
    readyWithProfile: running.some(
      ({ state, profileHash }) => state === "ready" && model.profiles.some(({ hash }) => hash === profileHash),
    ),
    readyNow: running.some((replica) => replica.state === "ready" && isNow(replica)),
  };
}

/** Brings each model's document up to the catalog, the demand and what runs; drops those of models that are gone. */
export function noteModels(draft: PassDraft, models: ByModel, observed: Observed): void {
  const { catalog, docs, demanded } = draft.snapshot;
  for (const name of new Set([...docs.models.keys(), ...demanded])) {
    const model = catalog.models.get(name);
    if (model === undefined) {
      if (docs.models.has(name) && !models.has(name)) draft.deleteModel(name);
      continue;
    }
    const before = draft.model(name);
    let doc = forProfiles(before, model);
    if (doc.demandedAt === null && demanded.has(name) && model.replicas.min === 0)
      doc = { ...doc, demandedAt: draft.today };
    if (doc.failuresInRow > 0 && hasStable(draft, doc, models.get(name) ?? [], observed)) doc = clearFailures(doc);
    if ((doc.displacedBy ?? null) !== null && (models.get(name) ?? []).some(({ state }) => state === "ready"))
      doc = { ...doc, displacedBy: null };
    if (before.parked !== null && doc.parked === null)
      draft.event("modelReleased", { model: name }, "its profiles changed");
    if (doc !== before) draft.writeModel(doc);
  }
}

/** Whether one that was placed since the last failure has been ready for so long that the failures are history. */
function hasStable(draft: PassDraft, doc: ModelDoc, replicas: readonly ReplicaDoc[], observed: Observed): boolean {
  const { stableMs } = draft.snapshot.settings;
  return replicas.some((replica) => {
    if (replica.state !== "ready" || replica.attempt !== doc.failuresInRow) return false;
    const shards = observed.get(replica.id) ?? [];
    return shards.length > 0 && shards.every(({ shard }) => shard.state === "ready" && shard.since >= stableMs);
  });
}

const STOP_ORDER: Readonly<Record<ReplicaState, number>> = {
  failed: 0,
  stopped: 0,
  placing: 1,
  fetching: 2,
  starting: 3,
  stopping: 4,
  draining: 4,
  ready: 5,
};

/** Which of a model's replicas go first when there are too many: what serves least today. */
export function stopOrder(
  model: Model | undefined,
  stateOf: (nodeId: string) => NodeState,
): (a: ReplicaDoc, b: ReplicaDoc) => number {
  const isHeard = ({ shards }: ReplicaDoc): number => Number(shards.every(({ nodeId }) => stateOf(nodeId) === "ready"));
  const isCurrent = ({ profileHash }: ReplicaDoc): number =>
    Number(model?.profiles.some(({ hash }) => hash === profileHash) === true);
  return (a, b) =>
    STOP_ORDER[a.state] - STOP_ORDER[b.state] ||
    isHeard(a) - isHeard(b) ||
    isCurrent(a) - isCurrent(b) ||
    (a.createdAt < b.createdAt ? 1 : Number(a.createdAt > b.createdAt) * -1) ||
    (a.id < b.id ? 1 : -1);
}

/** Stops what is too much. Only what was too much in an earlier pass too, and only while the fleet can be trusted. */
export function stopSurplus(draft: PassDraft, models: ByModel): void {
  const { catalog, fleet } = draft.snapshot;
  for (const [name, replicas] of models) {
    const running = servingOf(runningOf(replicas));
    if (running.length === 0) continue;
    const model = catalog.models.get(name);
    const wanted = model === undefined ? 0 : wantedCount(model, draft.model(name), running.length);
    if (running.length <= wanted) continue;
    const why = model === undefined ? "its model is not in the catalog" : `${wanted} wanted, ${running.length} run`;
    const order = stopOrder(model, (nodeId) => fleet.nodes.get(nodeId)?.state ?? "lost");
    for (const doc of running.toSorted(order).slice(0, running.length - wanted))
      if (draft.confirmed(`surplus ${doc.id}`) && draft.mayStop) stopReplica(draft, doc, why);
  }
}

/** Documents of replicas that ended are kept until the model runs again, three at most. */
export function dropEnded(draft: PassDraft, models: ByModel): void {
  for (const [name, replicas] of models) {
    const ended = replicas.filter(isGone);
    if (ended.length === 0) continue;
    const newestReady = replicas.reduce(
      (newest, { state, createdAt }) => (state === "ready" && createdAt > newest ? createdAt : newest),
      "",
    );
    const kept = draft.snapshot.catalog.models.has(name)
      ? ended
          .filter(({ createdAt }) => createdAt > newestReady)
          .toSorted((a, b) => (a.createdAt < b.createdAt ? 1 : -1))
      : [];
    const keptIds = new Set(kept.slice(0, ENDED_KEPT_MAX).map(({ id }) => id));
    for (const { id } of ended) if (!keptIds.has(id)) draft.deleteReplica(id);
  }
}
