import type { Catalog } from "../../contract/catalog.ts";
import type { MemoryDoc, ModelDoc, NodeDoc, NodeReport, NodeState, ReplicaDoc } from "../../contract/fleet.ts";
import type { ProfileExplanation } from "../../decide/placement/place-replica.ts";

export interface SeenNode {
  readonly doc: NodeDoc;
  readonly state: NodeState;
  /** Since it was last heard, in ms; null: never. */
  readonly silentMs: number | null;
  /** The last one; null: none. */
  readonly report: NodeReport | null;
}

/** The whole cluster at one moment, as whoever decides sees it. */
export interface ClusterSnapshot {
  readonly catalog: Catalog;
  readonly nodes: readonly SeenNode[];
  readonly replicas: readonly ReplicaDoc[];
  readonly models: readonly ModelDoc[];
  readonly memory: readonly MemoryDoc[];
  /** Models for which the last pass found no room, and why. */
  readonly unplaced: ReadonlyMap<string, string>;
}

export type ActionOutcome =
  | { readonly kind: "done" }
  | { readonly kind: "unknownTarget" }
  /** Only the leader may. */
  | { readonly kind: "notLeader" }
  | { readonly kind: "storeUnavailable" };

/** What the API shows and does of the live cluster. Everything shown is computed from one snapshot when it is asked for. */
export interface ClusterView {
  snapshot(): Promise<ClusterSnapshot>;
  /** What keeps a further replica of the model from each node; undefined for an unknown model. */
  explain(model: string): Promise<readonly ProfileExplanation[] | undefined>;
  setCordon(nodeId: string, cordoned: boolean, by: string): Promise<ActionOutcome>;
  /** Lifts a model's park and back-off. */
  retry(model: string, by: string): Promise<ActionOutcome>;
  /** Shuts the node out and forgets it; its replicas are lost to the cluster. */
  removeNode(nodeId: string, by: string): Promise<ActionOutcome>;
}
