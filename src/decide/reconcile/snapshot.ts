import type { Verb } from "../../contract/agent-link.ts";
import type { Catalog } from "../../contract/catalog.ts";
import type { DocWrite, FleetEvent, MemoryDoc, ModelDoc, NodeDoc, ReplicaDoc } from "../../contract/fleet.ts";
import type { EpochMs, MonoMs } from "../../kernel/clock.ts";
import type { FleetStatus } from "../fleet/node-watch.ts";
import type { ExclusionKind } from "../placement/exclusion.ts";

export interface PassSettings {
  /** Failures in a row after which a model is parked. */
  readonly parkAfter: number;
  readonly backoffMinMs: number;
  readonly backoffMaxMs: number;
  /** Failures of a model on one node after which it gets no more of it. */
  readonly failuresPerNodeMax: number;
  /** After failures on so many nodes, profiles that never got ready are tried on these again before any further one. */
  readonly nodesTriedMax: number;
  /** Starts at once of a model that has not shown yet that it can start. */
  readonly unprovenStartsMax: number;
  /** A replica that has been ready for so long clears its model's failures. */
  readonly stableMs: number;
  /** A node that reports, but tells nothing of a start for so long, did not get it. */
  readonly acknowledgeMs: number;
  /** Commands whose effect is not seen are sent again after this. */
  readonly resendMs: number;
  /** How long a start that was sent may still be on its way. */
  readonly commandLifeMs: number;
  /** Between the first sight of a reason to stop something and the stop. */
  readonly confirmMs: number;
  /** A replica that has served for less is not displaced by another model. */
  readonly minRunMs: number;
  /** The longest time that a draining replica's requests are waited for. */
  readonly drainGraceMs: number;
  readonly startStallMs: number;
  readonly stopGraceMs: number;
}

export const PASS_DEFAULTS: PassSettings = {
  parkAfter: 5,
  backoffMinMs: 10_000,
  backoffMaxMs: 300_000,
  failuresPerNodeMax: 5,
  nodesTriedMax: 3,
  unprovenStartsMax: 5,
  stableMs: 600_000,
  acknowledgeMs: 30_000,
  resendMs: 5_000,
  commandLifeMs: 15_000,
  confirmMs: 1_000,
  minRunMs: 300_000,
  drainGraceMs: 300_000,
  startStallMs: 600_000,
  stopGraceMs: 30_000,
};

/** Of one replica, by what every gateway says. */
export interface ReplicaUse {
  readonly inFlight: number;
  /** For how long it has had no request, at least; null: a gateway does not know. */
  readonly idleMs: number | null;
}
export const NO_USE: ReadonlyMap<string, ReplicaUse> = new Map();

export interface StoredDocs {
  readonly nodes: ReadonlyMap<string, NodeDoc>;
  readonly replicas: ReadonlyMap<string, ReplicaDoc>;
  readonly models: ReadonlyMap<string, ModelDoc>;
  /** By `memoryDocId`. */
  readonly memories: ReadonlyMap<string, MemoryDoc>;
}

/** Everything a pass looks at: values, which nobody changes meanwhile. */
export interface PassSnapshot {
  readonly catalog: Catalog;
  readonly docs: StoredDocs;
  readonly fleet: FleetStatus;
  /** Catalog names of models that gateways have requests waiting for. */
  readonly demanded: ReadonlySet<string>;
  /** Draining replicas on which every gateway is known to have no request left. */
  readonly idle: ReadonlySet<string>;
  /** What all gateways together know of the use of replicas; one that is not here is unknown. */
  readonly use: ReadonlyMap<string, ReplicaUse>;
  /**
   * Agents knew of a higher epoch than the store: it is an old copy, and engines that it does not know are nobody's mistake.
   * Until an operator confirms, nothing is stopped.
   */
  readonly restored: boolean;
  readonly settings: PassSettings;
}

/** What a pass can't make by itself. */
export interface PassMint {
  /** Random and never used before. */
  readonly replicaId: () => string;
  /** The same for the same arguments, whichever control plane asks; see `ReplicaDoc.engineKey`. */
  readonly engineKey: (replicaId: string, generation: number) => string;
}

export interface PassTime {
  readonly mono: MonoMs;
  /** For records only. */
  readonly wall: EpochMs;
}

/** What was seen first when, by key; a key that a pass does not name is forgotten. */
export interface Sighting {
  readonly at: MonoMs;
  /** Number of the report it was seen in; 0 where it was not a report. */
  readonly seq: number;
}

/** What one pass tells the next of the same term. A new leader begins with an empty one, which only makes it slower. */
export type PassMemory = ReadonlyMap<string, Sighting>;
export const NO_MEMORY: PassMemory = new Map();

export interface PlacementRefusal {
  readonly model: string;
  /** Nodes by the first thing that kept them out. */
  readonly nodes: Readonly<Partial<Record<ExclusionKind, number>>>;
  /** In words and numbers. */
  readonly why: string;
}

/** An engine that an agent reports and the store does not know. */
export interface UnknownEngine {
  readonly nodeId: string;
  readonly replicaId: string;
  readonly model: string;
  readonly fate: "kept" | "stopping";
}

export interface PassPlan {
  /** To be committed together, under the leader's epoch, before any command is sent. */
  readonly writes: readonly DocWrite[];
  readonly commands: readonly { readonly nodeId: string; readonly verb: Verb }[];
  readonly events: readonly FleetEvent[];
  readonly unplaced: readonly PlacementRefusal[];
  readonly unknown: readonly UnknownEngine[];
  /** For the next pass; to be kept only when the commit succeeded. */
  readonly memory: PassMemory;
  /** When the next pass has something to do though nothing else happens; null: never. */
  readonly wakeAt: MonoMs | null;
}

export const memoryDocId = (model: string, profileHash: string, gpuClass: string): string =>
  `${model}/${profileHash}/${gpuClass}`;
