import type { Catalog } from "../../contract/catalog.ts";
import type {
  MemoryDoc,
  ModelDoc,
  NodeDoc,
  NodeReport,
  NodeState,
  RemovedWeights,
  ReplicaDoc,
  RestartPace,
} from "../../contract/fleet.ts";
import type { ModelExplanation } from "../../decide/reconcile/explain-model.ts";
import type { ReplicaUse } from "../../decide/reconcile/snapshot.ts";
import type { CachedWeights } from "../../decide/weights/plan-collection.ts";
import type { RestartWish } from "../../decide/reconcile/ask-restart.ts";

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
  /** What every gateway knows of the use of replicas; one that is not here is unknown. */
  readonly use: ReadonlyMap<string, ReplicaUse>;
  /** The store is an old copy, and nothing is stopped until an operator confirms. */
  readonly restored: boolean;
  /** No control plane holds the lease: nothing is started or stopped. Absent: one does. */
  readonly leaderless?: boolean;
}

/** A gateway that is connected to this control plane. */
export interface GatewaySeen {
  readonly id: string;
  readonly name: string;
  readonly version: string;
  /** Since its last report, in ms; null: none yet. */
  readonly silentMs: number | null;
  /** The version of the feed that it goes by; null: of none, or of another leader. */
  readonly at: number | null;
  /** Behind the newest version. */
  readonly behind: boolean;
  readonly waiting: number;
  readonly inFlight: number;
  /** Of its store of jobs, which others may share; null: it has told of none. */
  readonly jobs: { readonly store: string; readonly queued: number; readonly running: number } | null;
}

export interface SeenWeights {
  readonly cached: readonly CachedWeights[];
  /** Null when it may be removed. */
  readonly held: string | null;
}

/** What was asked for, and what came of it, by node. */
export interface WeightsCollection {
  readonly kind: "collected";
  readonly nodes: readonly {
    readonly nodeId: string;
    readonly asked: readonly CachedWeights[];
    /** Null when the node did not answer, with the reason. */
    readonly results: readonly RemovedWeights[] | null;
    readonly why: string | null;
  }[];
}

export type ActionOutcome =
  /** `replicas`: those that it is about, where they were not named. */
  | { readonly kind: "done"; readonly replicas?: readonly string[] }
  | { readonly kind: "unknownTarget" }
  /** What it is about does not allow it now. */
  | { readonly kind: "refused"; readonly why: string }
  /** Only the leader may. */
  | { readonly kind: "notLeader" }
  | { readonly kind: "storeUnavailable" };

/** What the API shows and does of the live cluster. Everything shown is computed from one snapshot when it is asked for. */
export interface ClusterView {
  snapshot(): Promise<ClusterSnapshot>;
  /** What keeps a further replica of the model from each node; undefined for an unknown model. */
  explain(model: string): Promise<ModelExplanation | undefined>;
  setNode(nodeId: string, to: "open" | "cordoned" | "draining", by: string): Promise<ActionOutcome>;
  /** Replaces a ready replica by a new one. */
  restart(replicaId: string, wish: RestartWish, by: string): Promise<ActionOutcome>;
  /** Restarts all ready replicas of the model, or with null those of all models that are outdated. */
  rollout(model: string | null, pace: RestartPace, continues: boolean, by: string): Promise<ActionOutcome>;
  /** Asks for so many replicas, within what the catalog allows. */
  scale(model: string, replicas: number, by: string): Promise<ActionOutcome>;
  /** Lifts a model's park and back-off. */
  retry(model: string, by: string): Promise<ActionOutcome>;
  /** Shuts the node out and forgets it; its replicas are lost to the cluster. */
  removeNode(nodeId: string, by: string): Promise<ActionOutcome>;
  /** What runs may be brought to what the catalog wants again, after an old copy of the store was put back. */
  confirmRestored(by: string): Promise<ActionOutcome>;
  /**
   * The last lines of an engine's log; undefined for an unknown replica or shard. Throws NODE_SILENT or SHARD_UNKNOWN when its node
   * has none to give, NOT_LEADER on a standby.
   */
  logs(replicaId: string, shard: number, lines: number): Promise<readonly string[] | undefined>;
  gateways(): readonly GatewaySeen[];
  /** What lies in the caches of nodes, and why nothing of it may be removed now. */
  weights(): Promise<SeenWeights>;
  /**
   * Asks the nodes to remove what is damaged, or else what nobody wants; each looks again by itself. Throws WEIGHTS_HELD, and NOT_LEADER on a standby.
   * "storeUnavailable": nothing was asked for, as it could not be put on record.
   */
  collectWeights(damaged: boolean, by: string): Promise<WeightsCollection | Exclude<ActionOutcome, { kind: "done" }>>;
}
