import type { Rank } from "../admission/ranks.ts";

/**
 * What a gateway asks of the shared store about the slots of one upstream, and what it hears. All of a request is one step:
 * nobody gets in between. Leases are told by id; `batch` says that one counts towards `batchMax`. Endpoints are named once,
 * in `endpoints`, and by their place in that list elsewhere.
 */

export interface RequestedEndpoint {
  /** The same in every gateway for the same engine: made from its URL. */
  readonly token: string;
  readonly slots: number;
}

/** A lease that this gateway holds. */
export interface HeldLease {
  readonly id: string;
  readonly batch: boolean;
  readonly endpoint: number;
  /** The endpoint it was counted on before, when its call went elsewhere; else -1. */
  readonly movedFrom: number;
}

export interface LeaseRelease {
  readonly id: string;
  /** Where it may be counted: more than one for a lease of which it is not known whether and where it was granted. */
  readonly endpoints: readonly number[];
}

export interface LeaseWant {
  /** New for each try: an id whose fate is unknown is released, never asked for again. */
  readonly id: string;
  readonly rank: Rank;
  /** By its share's account it goes before the higher classes of all gateways. */
  readonly goesFirst: boolean;
  /** The best first. */
  readonly endpoints: readonly number[];
}

/** Those of one class that wait. */
export interface WaitingClass {
  readonly count: number;
  /** How long the first of them has waited. */
  readonly ageMs: number;
  /** The share of the class is due: one of them goes before the higher classes of all gateways. */
  readonly goesFirst: boolean;
  /** Where they could go; none when something else than a lease holds them up. */
  readonly endpoints: readonly number[];
}

export interface SlotRequest {
  readonly gateway: string;
  /** The store's nonce as this gateway knows it; "" when it knows none. */
  readonly boot: string;
  /** What the nonce becomes if there is none. */
  readonly nonce: string;
  /** `renew` is the truth about what runs here, to be counted whatever the limits say: after an outage, or a store that was emptied. */
  readonly reassert: boolean;
  /** It is time to say what is kept here: also a request that asks for more keeps alive what there is. */
  readonly renews: boolean;
  /** The store as a whole is known to be older than SETTLE_MS: an upstream it does not know is a new one. */
  readonly settled: boolean;
  /** Past this time of the store nothing is done; 0 for no such time. */
  readonly notAfter: number;
  readonly ttlMs: number;
  readonly slots: number;
  readonly batchMax: number;
  readonly endpoints: readonly RequestedEndpoint[];
  readonly release: readonly LeaseRelease[];
  readonly renew: readonly HeldLease[];
  readonly wants: readonly LeaseWant[];
  /** By rank. */
  readonly waiting: readonly [WaitingClass, WaitingClass, WaitingClass];
}

export interface LeaseGrant {
  readonly id: string;
  readonly endpoint: number;
}

export type SlotAnswer =
  /** It came after `notAfter`: nothing was done. */
  | { readonly kind: "late"; readonly now: number }
  /** The store has been emptied since: nothing was done. `boot` is its nonce now, "" when it has none yet. */
  | { readonly kind: "reset"; readonly now: number; readonly boot: string }
  | {
      readonly kind: "done";
      /** The store's time, in ms. */
      readonly now: number;
      readonly boot: string;
      /** Since the store began to count this upstream. */
      readonly bootAgeMs: number;
      /** Over all gateways, this one included. */
      readonly inUse: number;
      readonly batchInUse: number;
      /** By place in the request's list. */
      readonly endpointsInUse: readonly number[];
      readonly granted: readonly LeaseGrant[];
      /** Of `renew`: those that had lapsed and for which there is no room any more. */
      readonly lost: readonly string[];
      /** By rank: whether a class above it waits at another gateway. */
      readonly crowded: readonly [boolean, boolean, boolean];
      /** By rank: gateways at which the class waits, this one included. */
      readonly waitingGateways: readonly [number, number, number];
      /** Gateways that have told what runs there since the store began, this one included; each lease's time anew. */
      readonly here: number;
    };

/** After an emptied store came up, every gateway that saw it has come back by then: its probes are at most 1.25 s apart. */
export const SETTLE_MS = 3_000;
/** Who waits says so again within this time, or is taken to be gone. */
export const WAITING_TTL_MS = 2_500;
/** An upstream that nobody asks for is forgotten after this. */
export const BOOT_TTL_MS = 86_400_000;
