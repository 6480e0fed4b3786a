import type { Elsewhere, GateWaiting } from "../admission/gate.ts";
import type { Rank } from "../admission/ranks.ts";

export interface BookLimits {
  readonly slots: number;
  readonly batchMax: number;
}

export interface BookEndpoint {
  /** The same in every gateway for the same engine: its URL. */
  readonly token: string;
  readonly slots: number;
}

/** What the book must know of its surroundings whenever something is told. */
export interface BookFrame {
  readonly limits: BookLimits;
  readonly store: StoreView;
}

/** What it must know beside that to make a request. */
export interface BookView extends BookFrame {
  readonly waiting: readonly [GateWaiting, GateWaiting, GateWaiting];
  /** 0 for one that is no longer configured. */
  slotsOf(endpoint: string): number;
  /** For each of the first `count` of the class that ask for the group the endpoints that can take it, the best first. */
  readonly plan: (group: string, count: number, rank: Rank) => readonly (readonly string[])[];
}

/** What is known of the store as a whole. */
export interface StoreView {
  /** Steps are sent. */
  readonly up: boolean;
  /** Within this time an answer is of use. */
  readonly stepMs: number;
  /** Last seen, this one included; at least 1. */
  readonly gateways: number;
  /** It is older than SETTLE_MS. */
  readonly settled: boolean;
}

export type BookMode = "joining" | "shared" | "open";

export interface BookEffects {
  /** Somebody who waits may go now. */
  readonly mayAdmit: boolean;
  readonly lost: number;
  readonly emptied: boolean;
  /** Of the other gateways; null when nothing new was told. */
  readonly elsewhere: Elsewhere | null;
}
