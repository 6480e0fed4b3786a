import type { StoreFailure } from "../slot-store.ts";
import type { KeyAnswer, KeyEntry } from "../../decide/limits/key-account.ts";

/** What is told and asked of some keys, in one step. */
export interface LimitRequest {
  readonly gateway: string;
  /** Grows with each request that adjusts; told again under the same number, it is done once. 0: it adjusts nothing. */
  readonly seq: number;
  /** By the store's clock: after this nothing is done. 0: whenever. */
  readonly notAfter: number;
  /** How long what is in flight counts without being renewed. */
  readonly ttlMs: number;
  /** Names an account that is made now. */
  readonly nonce: string;
  readonly entries: readonly KeyEntry[];
}

export type LimitAnswer =
  | { readonly kind: "done"; readonly now: number; readonly keys: readonly KeyAnswer[] }
  | { readonly kind: "late"; readonly now: number }
  | StoreFailure;

/** How many keys one request may name. */
export const ENTRIES_MAX = 64;

/** Where the counts of keys lie. */
export interface LimitStore {
  readonly kind: "local" | "redis";
  /** `done` is called once; at once where the store is in this process and knows the keys. Never throws. */
  ask(request: LimitRequest, done: (answer: LimitAnswer) => void): void;
}
