import type { Catalog } from "../../contract/catalog.ts";
import type { NodeReport, ReplicaDoc } from "../../contract/fleet.ts";
import { isCacheName, isDamagedName } from "./holding.ts";

/**
 * What lies in the nodes' caches, and what of it nobody wants.
 *
 * Invariants:
 *   G1. Wanted is what the catalog in force or the one before names, and what any replica that is on record runs with.
 *   G2. Only what a node reports as its own, under a name of the computed form, is ever asked for; of a node that is not heard,
 *       nothing.
 *   G3. Where the control plane may be wrong about the fleet, nothing is asked for at all (`whyNothing`).
 */
export interface CacheFacts {
  /** The one in force, and the one before. */
  readonly catalogs: readonly Catalog[];
  readonly replicas: Iterable<ReplicaDoc>;
  /** Nodes that are heard. */
  readonly nodes: readonly { readonly nodeId: string; readonly report: NodeReport }[];
}

export interface CachedWeights {
  readonly nodeId: string;
  readonly name: string;
  /** Null: nobody measured it. */
  readonly bytes: number | null;
  readonly kind: "whole" | "partial" | "damaged" | "foreign";
  readonly inUse: boolean;
  /** Names of models, in order. */
  readonly wantedBy: readonly string[];
  /** Whether it may go without a further word. */
  readonly isUnwanted: boolean;
}

/**
 * What is asked for: what nobody wants, or what nodes have set aside. The two never go together: what is damaged was written to by
 * somebody, who may want to look at it.
 */
export const toCollect = (cached: readonly CachedWeights[], damaged: boolean): readonly CachedWeights[] =>
  cached.filter(({ kind, name, isUnwanted }) => (damaged ? kind === "damaged" && isDamagedName(name) : isUnwanted));

export function listCaches({ catalogs, replicas, nodes }: CacheFacts): CachedWeights[] {
  const wanted = new Map<string, Set<string>>();
  const want = (name: string | null, model: string): void => {
    if (name !== null) wanted.set(name, (wanted.get(name) ?? new Set()).add(model));
  };
  for (const { models } of catalogs)
    for (const model of models.values()) for (const profile of model.profiles) want(profile.weightsName, model.name);
  for (const { profile, model } of replicas) want(profile.weightsName, model);
  return nodes.flatMap(({ nodeId, report }) => {
    const cached = (name: string, bytes: number | null, kind: CachedWeights["kind"], inUse: boolean): CachedWeights => {
      const wantedBy = [...(wanted.get(name) ?? [])].toSorted();
      const isFetched = kind === "whole" || kind === "partial";
      const isUnwanted = isFetched && isCacheName(name) && wantedBy.length === 0 && !inUse;
      return { nodeId, name, bytes, kind, inUse, wantedBy, isUnwanted };
    };
    return [
      ...report.weights.map(({ name, bytes, inUse }) => cached(name, bytes, "whole", inUse)),
      ...report.leftovers.map(({ name, bytes, kind, damaged }) =>
        cached(name, bytes, damaged === true ? "damaged" : kind, false),
      ),
    ];
  });
}

/** Why nothing may be removed now, in words; null when it may. */
export function whyNothing(facts: {
  readonly restored: boolean;
  readonly braked: boolean;
  readonly settling: boolean;
  readonly revision: number;
  /** Whether the catalog before the one in force could be read, or there was none. */
  readonly knowsBefore: boolean;
}): string | null {
  if (facts.restored)
    return "the store is an old copy, which does not know what was fetched since: confirm first what runs (`ctl leader confirm-restored`)";
  if (facts.braked) return "most of the fleet is silent";
  if (facts.settling) return "the leader is new, and not all nodes have reported yet";
  if (!facts.knowsBefore) return "the catalog before the one in force can't be read, so what it wants is not known";
  return facts.revision === 0 ? "there is no catalog yet, so nothing is known to be wanted" : null;
}
