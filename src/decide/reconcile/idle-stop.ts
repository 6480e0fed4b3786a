import type { Model } from "../../contract/catalog.ts";
import type { ReplicaDoc } from "../../contract/fleet.ts";
import { type ByModel, runningOf, servingOf } from "./model-counts.ts";
import type { Observed } from "./observe.ts";
import type { PassDraft } from "./pass-draft.ts";

/**
 * Models that run on demand stop once every gateway has said for long enough that nobody asks for them. What a gateway has not said
 * is unknown, and unknown is not idle.
 */
export function stopIdle(draft: PassDraft, models: ByModel, observed: Observed): void {
  const { catalog, demanded } = draft.snapshot;
  if (!draft.mayStop) return;
  for (const model of catalog.models.values()) {
    if (model.idleStopMs === null || model.replicas.min > 0 || demanded.has(model.name)) continue;
    const running = servingOf(runningOf(models.get(model.name) ?? []));
    const isIdle = running.length > 0 && running.every((doc) => isIdleReplica(draft, model, doc, observed));
    if (!isIdle || !draft.confirmed(`idle ${model.name}`)) continue;
    noteIdle(draft, model);
  }
}

/** From now on none of it is wanted, until somebody asks again. */
export function noteIdle(draft: PassDraft, model: Model): void {
  const doc = draft.model(model.name);
  // Its replicas run on until a second pass has confirmed that they are too many.
  if (doc.scaledTo === 0 && doc.demandedAt === null) return;
  draft.writeModel({ ...doc, scaledTo: 0, demandedAt: null });
  draft.event("modelIdle", { model: model.name }, `nobody has asked for it for ${(model.idleStopMs ?? 0) / 1_000} s`);
}

/** Known not to have been asked for as long as its model says, by every gateway, and ready for that long. */
export function isIdleReplica(draft: PassDraft, { idleStopMs }: Model, doc: ReplicaDoc, observed: Observed): boolean {
  if (idleStopMs === null || doc.state !== "ready") return false;
  const idleMs = draft.snapshot.use.get(doc.id)?.idleMs ?? null;
  return idleMs !== null && Math.min(idleMs, readyForMs(doc, observed)) >= idleStopMs;
}

/** For how long all its shards have been ready, by their nodes' reports; 0 where one is not heard. */
export function readyForMs(doc: ReplicaDoc, observed: Observed): number {
  const shards = observed.get(doc.id) ?? [];
  if (shards.length < doc.shards.length) return 0;
  return Math.min(...shards.map(({ shard }) => (shard.state === "ready" ? shard.since : 0)));
}
