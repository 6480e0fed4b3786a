import type { UsageFlush, UsageRow } from "../../decide/usage/usage-book.ts";
import type { StoreFailure } from "../slot-store.ts";

export type UsageWritten = { readonly kind: "done" } | StoreFailure;

export interface UsageAsk {
  readonly fromDay: number;
  /** Included. */
  readonly toDay: number;
  /** Null: all. */
  readonly keyId: string | null;
}

/** What was read last. */
export interface UsagePlaceRead {
  readonly day: number;
  readonly keyId: string;
  readonly model: string;
}

export interface UsagePiece {
  readonly rows: readonly UsageRow[];
  /** Null: that was all. */
  readonly next: UsagePlaceRead | null;
}

/** How much is kept apart, so that names that somebody makes up fill no store. What comes beyond is counted as "(others)". */
export interface UsageBounds {
  readonly keysPerDay: number;
  readonly modelsPerKey: number;
}

export const USAGE_BOUNDS: UsageBounds = { keysPerDay: 10_000, modelsPerKey: 1_000 };

/** For so long a gateway that was away may tell again what it may have told before. */
export const TOLD_KEPT_MS = 31 * 86_400_000;

/** Where all that was used lies. */
export interface UsageStore {
  readonly kind: "local" | "redis";
  /** The same for gateways that count in the same place. Rejects where the store can't be used. */
  id(): Promise<string>;
  /** Adds all rows, once for each number of a gateway. Settles within the store's own deadline; never rejects. */
  add(gateway: string, flush: UsageFlush): Promise<UsageWritten>;
  /** Some of what there is, in order of days and keys, behind `after`. Rejects where the store can't be used. */
  read(ask: UsageAsk, after: UsagePlaceRead | null): Promise<UsagePiece>;
  close(): Promise<void>;
}
