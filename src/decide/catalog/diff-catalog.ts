import type { Catalog, Model } from "../../contract/catalog.ts";

export type ModelField = Exclude<keyof Model, "name">;

export interface ModelChange {
  readonly model: string;
  readonly fields: readonly ModelField[];
}

export interface CatalogDiff {
  readonly added: readonly string[];
  readonly removed: readonly string[];
  readonly changed: readonly ModelChange[];
}

const FIELDS: readonly ModelField[] = [
  "aliases",
  "priority",
  "replicas",
  "idleStopMs",
  "autoscale",
  "slotsPerReplica",
  "rollout",
  "profiles",
  "nodes",
  "multiNode",
];

/** By the models' names; the lists are in the order of the catalogs. */
export function diffCatalogs(before: Catalog, after: Catalog): CatalogDiff {
  const changed: ModelChange[] = [];
  for (const [name, model] of after.models) {
    const old = before.models.get(name);
    if (old === undefined) continue;
    const fields = FIELDS.filter((field) => !equal(old[field], model[field]));
    if (fields.length > 0) changed.push({ model: name, fields });
  }
  return {
    added: [...after.models.keys()].filter((name) => !before.models.has(name)),
    removed: [...before.models.keys()].filter((name) => !after.models.has(name)),
    changed,
  };
}

export const isEmptyDiff = ({ added, removed, changed }: CatalogDiff): boolean =>
  added.length + removed.length + changed.length === 0;

/** Of plain values, as a catalog is made of; the order of an object's members says nothing. */
function equal(a: unknown, b: unknown): boolean {
  if (a === b) return true;
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return false;
  if (Array.isArray(a) !== Array.isArray(b)) return false;
  const [left, right] = [a as Record<string, unknown>, b as Record<string, unknown>];
  const keys = Object.keys(left);
  return (
    keys.length === Object.keys(right).length &&
    keys.every((key) => Object.hasOwn(right, key) && equal(left[key], right[key]))
  );
}

export interface DiffHarm {
  /** Replicas that there are or should be now. */
  readonly replicas: number;
  /** Of these, how many the change takes away. */
  readonly lost: number;
  /** Models that have a replica now and none after. */
  readonly emptied: readonly string[];
  /** Whether it waits for a confirmation. */
  readonly destructive: boolean;
}

/** A change that takes away a larger part is confirmed first. */
export const LOST_PART_MAX = 0.3;

/** What a change stops. `running` are the replicas of a model that run now; those that the catalog wants count as well. */
export function judgeHarm(before: Catalog, after: Catalog, running: (model: string) => number): DiffHarm {
  let replicas = 0;
  let lost = 0;
  const emptied: string[] = [];
  for (const [name, old] of before.models) {
    const model = after.models.get(name);
    const now = Math.max(running(name), old.replicas.min);
    const less = model === undefined ? now : Math.min(now, lostOf(old, model, now));
    replicas += now;
    lost += less;
    if (now > 0 && less === now) emptied.push(name);
  }
  return { replicas, lost, emptied, destructive: emptied.length > 0 || lost > replicas * LOST_PART_MAX };
}

/** Fewer are kept running, or fewer are allowed. */
const lostOf = (old: Model, model: Model, now: number): number =>
  Math.max(0, old.replicas.min - model.replicas.min, now - model.replicas.max);
