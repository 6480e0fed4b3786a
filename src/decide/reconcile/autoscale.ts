import type { Model } from "../../contract/catalog.ts";
import type { ReplicaDoc } from "../../contract/fleet.ts";
import { type ByModel, runningOf, servingOf, wantedCount } from "./model-counts.ts";
import type { PassDraft } from "./pass-draft.ts";
import { isHeard } from "./restart-queue.ts";

/**
 * Follows the load of models that say so: one replica more after a short time above the aim, one less after a long time below it.
 *
 * Invariants:
 *   A1. It acts only while every gateway's word on every replica of the model is known; a gap begins the time anew.
 *   A2. It acts only on a model whose replicas all serve, as many as are wanted: what is on its way has not been felt yet.
 *   A3. Never below `min`, one, or what the requests that run now need; never above `max`.
 */
export function autoscale(draft: PassDraft, models: ByModel): void {
  if (!draft.mayStop) return;
  for (const model of draft.snapshot.catalog.models.values()) {
    if (model.autoscale === null) continue;
    const serving = servingOf(runningOf(models.get(model.name) ?? []));
    const inFlight = knownLoad(draft, model, serving);
    if (inFlight === null) continue;
    const count = serving.length;
    const { target, upAfterMs, downAfterMs } = model.autoscale;
    const share = (replicas: number): number => inFlight / (replicas * model.slotsPerReplica);
    if (share(count) > target && count < model.replicas.max) step(draft, model, count + 1, upAfterMs, share(count));
    else if (count > Math.max(1, model.replicas.min) && share(count - 1) < target)
      step(draft, model, count - 1, downAfterMs, share(count));
  }
}

/** Requests that run on the model's replicas; null: unknown, or not to be acted upon now. */
function knownLoad(draft: PassDraft, model: Model, serving: readonly ReplicaDoc[]): number | null {
  if (serving.length === 0 || serving.length !== wantedCount(model, draft.model(model.name), serving.length))
    return null;
  let inFlight = 0;
  for (const doc of serving) {
    const use = draft.snapshot.use.get(doc.id);
    if (use === undefined || doc.state !== "ready" || !isHeard(draft, doc)) return null;
    inFlight += use.inFlight;
  }
  return inFlight;
}

function step(draft: PassDraft, model: Model, to: number, afterMs: number, share: number): void {
  const { at } = draft.since(`scale ${model.name} to ${to}`);
  if (draft.now.mono < at + afterMs) {
    draft.wake(at + afterMs);
    return;
  }
  draft.writeModel({ ...draft.model(model.name), scaledTo: to });
  const words = `${Math.round(share * 100)} % of its slots are in use, ${Math.round((model.autoscale?.target ?? 0) * 100)} % is the aim`;
  draft.event("modelScaled", { model: model.name }, `to ${to}: ${words}`);
}
