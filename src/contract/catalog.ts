/**
 * The catalog in the control plane's own words: nothing optional, times in milliseconds, sizes in MiB. A snapshot: a change
 * makes a new one with a higher revision, and whoever works with the old one ends with it.
 */
export const REPLICA_ENGINES = ["vllm", "sglang", "llama.cpp", "tei", "comfyui", "command", "sim"] as const;
export type ReplicaEngine = (typeof REPLICA_ENGINES)[number];

export interface Profile {
  /** SHA-256 of everything below in one fixed spelling: a replica with another hash is outdated. */
  readonly hash: string;
  readonly engine: ReplicaEngine;
  /** URL or path; null for an engine that needs no weights. */
  readonly source: string | null;
  /** Of the source's file, 64 lower-case hex digits; null when the catalog gives none. */
  readonly sha256: string | null;
  /** Name of the source in a node's cache: a hash of it, revision included. */
  readonly weightsName: string | null;
  /** Null: runs on the CPU. */
  readonly gpu: {
    /** Lower-case, in the order of preference. */
    readonly classes: readonly string[];
    readonly count: number;
    /** On each card. */
    readonly memoryMib: number;
  } | null;
  readonly cpu: { readonly cores: number; readonly memoryMib: number } | null;
  readonly diskMib: number;
  readonly args: Readonly<Record<string, string | number | boolean | null>>;
  readonly env: Readonly<Record<string, string>>;
  /** Program and arguments of engine `command`; null for the others. */
  readonly command: readonly string[] | null;
  /** It may be given weights in pickle formats, which run code when they are loaded. Absent: it may not. */
  readonly allowPickle?: true;
}

export interface Model {
  readonly name: string;
  readonly aliases: readonly string[];
  /** Who may preempt whom; the higher wins. */
  readonly priority: number;
  readonly replicas: { readonly min: number; readonly max: number };
  /** Null: never stopped for being idle. */
  readonly idleStopMs: number | null;
  /** Null: as many as were asked for. */
  readonly autoscale: {
    /** Part of the slots in use to aim at, 0 to 1. */
    readonly target: number;
    readonly upAfterMs: number;
    readonly downAfterMs: number;
  } | null;
  readonly slotsPerReplica: number;
  readonly rollout: "manual" | "auto";
  /** Tried in order. */
  readonly profiles: readonly Profile[];
  readonly nodes: {
    readonly require: Readonly<Record<string, string>>;
    readonly avoid: Readonly<Record<string, string>>;
    /** The only cards that may be used; empty: any. */
    readonly gpuUuids: readonly string[];
  };
  readonly multiNode: { readonly nodes: number; readonly fabric: "same" } | null;
}

export interface Catalog {
  /** 0: nobody has given a catalog yet. */
  readonly revision: number;
  readonly models: ReadonlyMap<string, Model>;
}
