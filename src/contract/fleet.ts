import type { Profile, ReplicaEngine } from "./catalog.ts";

// What agents report of their nodes and engines, and the documents that the control plane keeps of them. `null` always means
// that nobody measured it: it is never taken for 0, and never acted upon.

/** "unknown" neither forbids a start nor speaks against one; "sick" forbids it. */
export type GpuHealth = "ok" | "sick" | "unknown";

export interface GpuReport {
  readonly uuid: string;
  readonly index: number;
  readonly name: string;
  /** The kind of card as profiles name it: `h200`, `b200`, `a40`, … */
  readonly class: string;
  readonly memoryMib: number | null;
  /** By every process on the card. */
  readonly usedMib: number | null;
  /** By processes that the agent did not start. */
  readonly foreignMib: number | null;
  /** 0 to 1. */
  readonly utilization: number | null;
  readonly temperatureC: number | null;
  readonly health: GpuHealth;
  readonly healthWhy: string | null;
}

export type ShardState = "fetching" | "starting" | "ready" | "draining" | "stopping" | "stopped" | "failed";

/**
 * Why a start or a running engine failed. "refused": the node would not start it (a program that is not allowed, a GPU that is
 * not there). "unacknowledged": the node never told of the start it was given. The control plane finds the last one itself.
 */
export type FailureKind =
  | "exit"
  | "signal"
  | "stall"
  | "oom"
  | "gpuOom"
  | "port"
  | "noProgress"
  | "fetch"
  | "refused"
  | "unhealthy"
  | "unacknowledged";

export interface ShardFailure {
  readonly kind: FailureKind;
  readonly message: string;
  readonly signal: string | null;
  readonly exitCode: number | null;
  readonly lastLines: readonly string[];
}

export interface HeldWeights {
  /** A hash of the source, with its revision. */
  readonly name: string;
  readonly bytes: number;
  /** An engine of this node has been given it, or is about to. */
  readonly inUse: boolean;
}

export interface FetchReport {
  readonly bytes: number;
  /** Null until the server has told. */
  readonly totalBytes: number | null;
  readonly bytesPerS: number | null;
  /** Seconds that are left at this pace. */
  readonly leftS: number | null;
}

/** What a node did with weights that it was asked to remove from its cache. */
export interface RemovedWeights {
  readonly name: string;
  /** "refused": nothing was touched. "kept": something is still there, which is not the node's own or could not be removed. */
  readonly outcome: "removed" | "kept" | "refused" | "failed";
  readonly freedBytes: number;
  /** Null for "removed". */
  readonly why: string | null;
}

/** Something in a node's cache of weights that no engine can use as it is. */
export interface CacheLeftover {
  readonly name: string;
  readonly bytes: number | null;
  /** "partial": a download that has not ended. "foreign": the node did not put it there, and never touches it. */
  readonly kind: "partial" | "foreign";
  /**
   * The node set it aside: its own files, which are no longer what was fetched. Told as foreign besides, since a control plane that
   * does not know of this must not touch it.
   */
  readonly damaged?: boolean | undefined;
}

/**
 * One engine process of a replica on one node. "failed" and "stopped" say that its whole process group is gone and that its
 * GPU memory was seen free.
 */
export interface ShardReport {
  readonly replicaId: string;
  readonly generation: number;
  /** 0 is the head: the shard that clients' requests go to. */
  readonly shard: number;
  readonly model: string;
  readonly profileHash: string;
  readonly state: ShardState;
  /** For how many ms it has been in this state. */
  readonly since: number;
  /** Null where it has none: headless shards of multi-node replicas, and before it is known. */
  readonly port: number | null;
  readonly pid: number | null;
  readonly gpuUuids: readonly string[];
  /** Measured, by GPU uuid. */
  readonly gpuUsedMib: Readonly<Record<string, number>> | null;
  readonly hostUsedMib: number | null;
  /** How far its weights have come; null while nothing is fetched for it. */
  readonly fetch: FetchReport | null;
  readonly failure: ShardFailure | null;
  /** What stands in the way of its start, such as a foreign process on the card. */
  readonly blockedBy: string | null;
  /** Found running by an agent that was started again. */
  readonly adopted: boolean;
}

export interface NodeReport {
  readonly nodeId: string;
  readonly name: string;
  readonly bootId: string;
  readonly agentVersion: string;
  /** The host at which gateways reach its engines. */
  readonly address: string;
  readonly labels: Readonly<Record<string, string>>;
  /** The interconnect domain that all shards of a multi-node replica must share. */
  readonly fabric: string | null;
  readonly cores: number;
  readonly memoryMib: number;
  readonly memoryFreeMib: number | null;
  /** On the disk of the weights folder. */
  readonly diskFreeMib: number | null;
  /** What its cache holds whole and checked. */
  readonly weights: readonly HeldWeights[];
  readonly leftovers: readonly CacheLeftover[];
  readonly engines: readonly ReplicaEngine[];
  /** Programs that `command` profiles may start here. */
  readonly commands: readonly string[];
  readonly gpus: readonly GpuReport[];
  readonly gpuDiscovery: "nvidia-smi" | "amd-smi" | "none" | "failed";
  readonly gpuDiscoveryWhy: string | null;
  readonly shards: readonly ShardReport[];
  /** The leader that the agent has kept as the highest it ever obeyed. */
  readonly highestEpoch: { readonly clusterId: string; readonly epoch: number; readonly holder: string } | null;
  /** The highest `commit` of a command that the agent obeyed in this cluster; 0 before the first. */
  readonly highestCommit: number;
  /** What was said with these two numbers by the control planes that gave them; "" where nothing was. */
  readonly proofs: { readonly epoch: string; readonly commit: string };
}

export type NodeState = "never_seen" | "ready" | "unreachable" | "lost";
export type ReplicaState =
  | "placing"
  | "fetching"
  | "starting"
  | "ready"
  | "draining"
  | "stopping"
  | "stopped"
  | "failed";

// Documents of the control store: kept as JSON, written by the leader alone, under its epoch.

export interface NodeDoc {
  readonly id: string;
  readonly name: string;
  readonly cordoned: boolean;
  /** What runs there is to run elsewhere; absent: no. */
  readonly draining?: boolean;
  readonly bootId: string | null;
  readonly labels: Readonly<Record<string, string>>;
  /** As it was when its hardware or labels last changed; shards and readings in it are old. */
  readonly lastReport: NodeReport | null;
  readonly enrolledAt: string;
}

export interface ReplicaShardDoc {
  readonly nodeId: string;
  readonly gpuUuids: readonly string[];
  /** Held on each of its cards; 0 without cards. */
  readonly memoryMib: number;
  /** Of the head's shard; null for replicas on one node. */
  readonly rendezvousPort: number | null;
}

/** How many of a model's replicas a restart may double or take away at once. */
export interface RestartPace {
  /** Replacements that start while what they replace still serves. */
  readonly maxSurge: number;
  /** Replicas that are stopped before their replacement is ready. One that stands in its own way may be, even with 0. */
  readonly maxUnavailable: number;
  /** A restart that would leave fewer ready than this is refused. */
  readonly minAvailable: number;
}

/** Restarts that were asked for together: without `continues` the first replacement that fails ends the others. */
export interface RolloutMark {
  readonly id: string;
  readonly continues: boolean;
}

/** A ready replica that is to be replaced by a new one. */
export interface ReplicaRestart {
  /**
   * "replacing": its replacement starts while it serves, then it drains. "inPlace": it was stopped first, and its replacement waits for
   * its room. "refused": it serves on, until somebody asks again.
   */
  readonly state: "queued" | "replacing" | "inPlace" | "refused";
  /** "drain": its node is to be empty. "auto": its profile changed. */
  readonly cause: "asked" | "rollout" | "auto" | "drain";
  /** In the order of the requests. */
  readonly seq: number;
  /** To be stopped before its replacement starts, whatever room there is. */
  readonly stopFirst: boolean;
  readonly pace: RestartPace;
  readonly rollout: RolloutMark | null;
  /** The profiles that its model had when it was asked for, as one text. */
  readonly profiles: string;
  /** What it waits for, or why it was refused. */
  readonly why: string | null;
}

/** One engine at one place. It never moves: a replica elsewhere is another document with another id. */
export interface ReplicaDoc {
  readonly id: string;
  readonly model: string;
  readonly profileHash: string;
  readonly profile: Profile;
  /** Rises when it is started anew in its place; agents refuse lower ones. */
  readonly generation: number;
  readonly shards: readonly ReplicaShardDoc[];
  readonly desired: "run" | "stop";
  readonly state: ReplicaState;
  readonly createdAt: string;
  readonly readyAt: string | null;
  readonly reason: string | null;
  readonly failure: ShardFailure | null;
  readonly catalogRevision: number;
  /** The model's `failuresInRow` when it was placed: replicas of one round that fail together count once. */
  readonly attempt: number;
  /** Where its head listens, once a report told; null before. It outlives the leader that heard it. */
  readonly port: number | null;
  /**
   * What gateways show to the engine. Derived from the cluster's secret, the id and the generation, so that a control plane
   * that lost the document can still adopt the engine. Never in API answers, logs or events.
   */
  readonly engineKey: string;
  /** Null or absent: none was asked for. */
  readonly restart?: ReplicaRestart | null;
  /** What it replaces, until that is gone and this one is ready; null or absent: nothing. */
  readonly replaces?: { readonly id: string; readonly seq: number; readonly rollout: RolloutMark | null } | null;
  /** Replicas whose room it takes: it is not started before they are gone. Absent: none. */
  readonly waitsFor?: readonly string[];
}

/** What is kept of one node: MiB by card, and of the host. */
export interface KeptOnNode {
  readonly nodeId: string;
  readonly cards: Readonly<Record<string, number>>;
  readonly cores: number;
  readonly memoryMib: number;
}

/** Room of a replica that was stopped before its replacement served: its model's alone, until one serves in its stead. */
export interface KeptRoom {
  /** The replica that was stopped. */
  readonly of: string;
  /** The one that is to serve in its stead; null: the last one failed, and the next is not placed yet. */
  readonly heir: string | null;
  /** Of that replica and of those that were to follow it, on each card the most that one of them needs. */
  readonly nodes: readonly KeptOnNode[];
}

export interface ModelDoc {
  readonly name: string;
  readonly failuresInRow: number;
  /** The pause before the next start, from when the leader first read this document: no wall clock decides. */
  readonly backoffMs: number | null;
  /** Failed starts and crashes by node id, since the profiles last changed or an operator lifted the park. */
  readonly failedOn: Readonly<Record<string, number>>;
  /** The profiles that the counts are about. */
  readonly profileHashes: readonly string[];
  readonly lastFailure: FailureKind | null;
  readonly parked: { readonly why: string; readonly at: string } | null;
  /** When a gateway first asked for a model that runs on demand only. */
  readonly demandedAt: string | null;
  /** How many were asked for, within what the catalog allows; null or absent: as the catalog says. */
  readonly scaledTo?: number | null;
  /** The model that took its replica's room; until it has served again it displaces nobody. Null or absent: none. */
  readonly displacedBy?: string | null;
  /** Absent: none. */
  readonly keepsRoom?: readonly KeptRoom[];
}

/** What starts of a profile on a GPU class really took; "" is the class of replicas without a GPU. */
export interface MemoryDoc {
  readonly model: string;
  readonly profileHash: string;
  readonly gpuClass: string;
  /** The most that was measured on one card; null before anything was. */
  readonly perGpuMib: number | null;
  readonly hostMib: number | null;
  /** Running replicas that it was read from. */
  readonly samples: number;
  /** The highest figure with which an engine ran out of GPU memory; it is not tried again. */
  readonly oomAtMib: number | null;
}

/** What is known of the cluster as a whole, under the id "cluster". */
export interface ClusterDoc {
  /**
   * The store is an old copy, from this epoch or before: agents had obeyed it and the store did not know it, or the copy was made
   * under it. Nothing is stopped until an operator has looked at what runs.
   */
  readonly restoredAbove: number | null;
  /**
   * Grows with each commit that sends commands, and goes with them: an agent that has heard of a higher one has obeyed what this
   * store never held, however the epochs stand.
   */
  readonly commit: number;
}
export const NO_CLUSTER_DOC: ClusterDoc = { restoredAbove: null, commit: 0 };
export const CLUSTER_DOC_ID = "cluster";

export type StoreWrite =
  | DocWrite
  | { readonly kind: "cluster"; readonly id: typeof CLUSTER_DOC_ID; readonly doc: ClusterDoc | null };

export type DocWrite =
  | { readonly kind: "node"; readonly id: string; readonly doc: NodeDoc | null }
  | { readonly kind: "replica"; readonly id: string; readonly doc: ReplicaDoc | null }
  | { readonly kind: "model"; readonly id: string; readonly doc: ModelDoc | null }
  | { readonly kind: "memory"; readonly id: string; readonly doc: MemoryDoc | null };

export type FleetEventKind =
  | "nodeReady"
  | "nodeUnreachable"
  | "nodeLost"
  | "nodeRebooted"
  | "fleetSilent"
  | "zoneSilent"
  | "brakeReleased"
  | "storeWentBack"
  | "gpuAppeared"
  | "gpuVanished"
  | "gpuSick"
  | "gpuRecovered"
  | "replicaPlaced"
  | "replicaAdopted"
  | "replicaReady"
  | "replicaFailed"
  | "replicaVanished"
  | "replicaLost"
  | "replicaDraining"
  | "replicaStopping"
  | "replicaStopped"
  | "unknownEngine"
  | "unacknowledged"
  | "modelBackedOff"
  | "modelParked"
  | "modelReleased"
  | "modelUnplaced"
  | "estimateOff"
  | "pickleAllowed"
  | "replicaDisplaced"
  | "modelIdle"
  | "modelScaled"
  | "restartQueued"
  | "restartBegun"
  | "restartDone"
  | "restartRefused"
  | "rolloutStopped"
  | "roomKept"
  | "roomGivenUp";

/** What happened, to what, and why, in words for people. Holds no secret. */
export interface FleetEvent {
  readonly kind: FleetEventKind;
  readonly model: string | null;
  readonly replicaId: string | null;
  readonly nodeId: string | null;
  readonly why: string;
}

/** What the event `restartDone` of a replacement says; whoever did not look meanwhile finds by it what became of the replica. */
export const hasReplaced = (replicaId: string): string => `it has replaced ${replicaId}`;
