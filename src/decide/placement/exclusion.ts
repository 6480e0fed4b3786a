import type { ReplicaEngine } from "../../contract/catalog.ts";

/** The first thing that kept a node from taking a replica, and by how much. Sizes in MiB. */
export type Exclusion =
  | { readonly kind: "neverSeen" }
  | { readonly kind: "unreachable"; readonly silentMs: number | null }
  | { readonly kind: "lost"; readonly silentMs: number | null }
  | { readonly kind: "cordoned" }
  | { readonly kind: "labelMissing"; readonly label: string; readonly wanted: string; readonly found: string | null }
  | { readonly kind: "labelAvoided"; readonly label: string; readonly value: string }
  /** It held the replica that is being replaced. */
  | { readonly kind: "avoided" }
  /** The model failed here as often as it may. */
  | { readonly kind: "failedTooOften"; readonly failures: number; readonly failuresMax: number }
  | { readonly kind: "engineMissing"; readonly engine: ReplicaEngine }
  | { readonly kind: "commandNotAllowed"; readonly command: string }
  | { readonly kind: "gpuDiscoveryFailed"; readonly why: string | null }
  | { readonly kind: "pinnedGpuAbsent"; readonly uuids: readonly string[] }
  | { readonly kind: "gpuClass"; readonly wanted: readonly string[]; readonly found: readonly string[] }
  | { readonly kind: "gpuCount"; readonly needed: number; readonly found: number }
  | { readonly kind: "gpuSick"; readonly needed: number; readonly healthy: number; readonly sick: number }
  | { readonly kind: "gpuMemoryUnknown"; readonly needed: number; readonly known: number }
  /** It ran out of memory with that figure, and the cards are no larger. */
  | { readonly kind: "gpuTooSmall"; readonly ranOutAtMib: number; readonly largestMib: number }
  | {
      readonly kind: "gpuMemory";
      readonly neededMib: number;
      readonly cardsNeeded: number;
      readonly cardsFitting: number;
      /** The most that is free on each of as many cards as are needed. */
      readonly freeMib: number;
      /** Used by others on the cards of this class. */
      readonly foreignMib: number;
    }
  | { readonly kind: "cores"; readonly needed: number; readonly free: number }
  | { readonly kind: "memoryUnknown" }
  | { readonly kind: "memory"; readonly neededMib: number; readonly freeMib: number }
  | { readonly kind: "diskUnknown" }
  | { readonly kind: "disk"; readonly neededMib: number; readonly freeMib: number }
  | { readonly kind: "fabricMissing" }
  | { readonly kind: "fabricTooSmall"; readonly fabric: string; readonly needed: number; readonly fitting: number };

export type ExclusionKind = Exclusion["kind"];
