import type { FeedChange, FeedEndpoint, FeedMark, FeedModel } from "../../contract/feed.ts";

/**
 * What a gateway knows of models and replicas by the word of control planes, and whether a further word is taken. Values: a change
 * makes a new state, in which what did not change is the same object.
 *
 * Invariants:
 *   T1. A word of a lower epoch than the state's, or of another holder of the same one, changes nothing: a leader that was frozen
 *       still speaks.
 *   T2. Within one epoch versions only grow. A change whose base is not here asks for everything again.
 *   T3. Once a cluster has spoken to this process, no other cluster's word is taken. What comes from the disk is not so sure: the
 *       control planes that are configured now say whose it is.
 */
export interface FeedState {
  readonly mark: FeedMark;
  readonly models: ReadonlyMap<string, FeedModel>;
  /** By model, in the order of replica ids. */
  readonly endpoints: ReadonlyMap<string, readonly FeedEndpoint[]>;
}

export type FeedRefusal = "oldEpoch" | "otherHolder" | "otherCluster";

export type FeedOutcome =
  | { readonly kind: "taken"; readonly state: FeedState }
  /** It says nothing that is not known. */
  | { readonly kind: "known" }
  /** Something before it is missing: everything has to be asked for again. */
  | { readonly kind: "gap" }
  | { readonly kind: "refused"; readonly why: FeedRefusal };

export interface FeedHeld {
  readonly state: FeedState | null;
  /** Whether the state's cluster has spoken to this process; else it is from the disk. */
  readonly confirmed: boolean;
}

export function takeWhole(
  { state, confirmed }: FeedHeld,
  told: { readonly mark: FeedMark; readonly models: readonly FeedModel[]; readonly endpoints: readonly FeedEndpoint[] },
): FeedOutcome {
  const { mark } = told;
  if (state !== null && (confirmed || state.mark.clusterId === mark.clusterId)) {
    const why = refusalOf(state.mark, mark);
    if (why !== null) return { kind: "refused", why };
    if (mark.epoch === state.mark.epoch && mark.version < state.mark.version) return { kind: "known" };
  }
  const models = new Map(told.models.map((model) => [model.name, sameOr(state?.models.get(model.name), model)]));
  return { kind: "taken", state: { mark, models, endpoints: grouped(told.endpoints, state) } };
}

export function takeChange(
  { state }: FeedHeld,
  told: FeedChange & { readonly mark: FeedMark; readonly from: number },
): FeedOutcome {
  const { mark } = told;
  if (state === null) return { kind: "gap" };
  const why = refusalOf(state.mark, mark);
  if (why !== null) return { kind: "refused", why };
  if (mark.epoch > state.mark.epoch || told.from > state.mark.version) return { kind: "gap" };
  if (mark.version <= state.mark.version) return { kind: "known" };
  const models = new Map(state.models);
  for (const name of told.modelsGone) models.delete(name);
  for (const model of told.models) models.set(model.name, sameOr(models.get(model.name), model));
  return { kind: "taken", state: { mark, models, endpoints: changed(state, told) } };
}

/** Only models of which something is told are looked at: a change of one replica must cost no walk over a fleet's. */
function changed(state: FeedState, told: FeedChange): FeedState["endpoints"] {
  const gone = new Set([...told.endpointsGone, ...told.endpoints.map(({ replicaId }) => replicaId)]);
  const endpoints = new Map(state.endpoints);
  for (const [model, list] of state.endpoints)
    if (list.some(({ replicaId }) => gone.has(replicaId)))
      endpoints.set(
        model,
        list.filter(({ replicaId }) => !gone.has(replicaId)),
      );
  for (const endpoint of told.endpoints)
    endpoints.set(endpoint.model, [...(endpoints.get(endpoint.model) ?? []), endpoint]);
  for (const [model, list] of endpoints) {
    const before = state.endpoints.get(model);
    if (list === before) continue;
    if (list.length === 0) endpoints.delete(model);
    else endpoints.set(model, sameOr(before, list.toSorted(byId)));
  }
  return endpoints;
}

const byId = (a: FeedEndpoint, b: FeedEndpoint): number => (a.replicaId < b.replicaId ? -1 : 1);

/** Whether what is told beside the state comes from him whose state it is. */
export const isOfLeader = ({ state, confirmed }: FeedHeld, mark: FeedMark): boolean =>
  state !== null && confirmed && state.mark.epoch === mark.epoch && refusalOf(state.mark, mark) === null;

function refusalOf(held: FeedMark, told: FeedMark): FeedRefusal | null {
  if (told.clusterId !== held.clusterId) return "otherCluster";
  if (told.epoch < held.epoch) return "oldEpoch";
  return told.epoch === held.epoch && told.holder !== held.holder ? "otherHolder" : null;
}

function grouped(endpoints: readonly FeedEndpoint[], before: FeedState | null): FeedState["endpoints"] {
  const byModel = Map.groupBy(endpoints, ({ model }) => model);
  return new Map(
    [...byModel].map(([model, list]) => {
      return [model, sameOr<readonly FeedEndpoint[]>(before?.endpoints.get(model), list.toSorted(byId))];
    }),
  );
}

/** The old object where the new one says the same, so that whoever holds it sees that nothing changed. */
const sameOr = <T>(old: T | undefined, fresh: T): T =>
  old !== undefined && JSON.stringify(old) === JSON.stringify(fresh) ? old : fresh;

/** All replicas, as they are told in a whole state. */
export const endpointsOf = ({ endpoints }: FeedState): readonly FeedEndpoint[] => [...endpoints.values()].flat();
