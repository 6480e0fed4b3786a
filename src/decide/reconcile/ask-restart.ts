import type { Catalog } from "../../contract/catalog.ts";
import type { ReplicaDoc, RestartPace, RolloutMark } from "../../contract/fleet.ts";
import { isBegun, isOutdated, isServing, nextSeq, queued } from "./restart-queue.ts";

/** What operators ask for of replicas, as the documents that say so. */
export type Asked =
  | { readonly kind: "asked"; readonly replicas: readonly ReplicaDoc[] }
  /** There is no such replica or model. */
  | { readonly kind: "unknown" }
  | { readonly kind: "refused"; readonly why: string };

export interface Fleet {
  readonly catalog: Catalog;
  readonly replicas: ReadonlyMap<string, ReplicaDoc>;
}

export interface RestartWish {
  readonly stopFirst: boolean;
  readonly pace: RestartPace;
}

/** An earlier refusal is forgotten; one that is being replaced already goes on. */
export function askRestart({ catalog, replicas }: Fleet, id: string, wish: RestartWish): Asked {
  const doc = replicas.get(id);
  if (doc === undefined) return { kind: "unknown" };
  if (isBegun(doc)) return { kind: "asked", replicas: [] };
  if (!isServing(doc))
    return { kind: "refused", why: `replica ${id} is ${doc.state}: only a ready one can be restarted` };
  const model = catalog.models.get(doc.model);
  if (model === undefined)
    return { kind: "refused", why: `model ${doc.model} of replica ${id} is no longer in the catalog` };
  const next = queued(doc, model, nextSeq(replicas.values()), { ...wish, cause: "asked", rollout: null });
  return { kind: "asked", replicas: [next] };
}

/** All ready replicas of a model, or with null the outdated ones of all models, which come by name. */
export function askRollout(
  { catalog, replicas }: Fleet,
  name: string | null,
  { pace, rollout }: { readonly pace: RestartPace; readonly rollout: RolloutMark },
): Asked {
  if (name !== null && !catalog.models.has(name)) return { kind: "unknown" };
  let seq = nextSeq(replicas.values());
  const asked: ReplicaDoc[] = [];
  for (const doc of [...replicas.values()].toSorted(byModelThenAge)) {
    const model = catalog.models.get(doc.model);
    if (model === undefined || !isServing(doc) || isBegun(doc)) continue;
    if (name === null ? !isOutdated(doc, model) : doc.model !== name) continue;
    asked.push(queued(doc, model, seq, { stopFirst: false, pace, cause: "rollout", rollout }));
    seq += 1;
  }
  if (asked.length > 0) return { kind: "asked", replicas: asked };
  const why =
    name === null ? "no ready replica is outdated" : `model ${name} has no ready replica that waits for nothing`;
  return { kind: "refused", why };
}

const compare = (a: string, b: string): number => (a < b ? -1 : Number(a > b));

const byModelThenAge = (a: ReplicaDoc, b: ReplicaDoc): number =>
  compare(a.model, b.model) || compare(a.createdAt, b.createdAt) || compare(a.id, b.id);
