/** A small named text, or that there is none. */
export type Doc = string | null;

export interface DocWrite {
  /** `kind/…`; the kind is what `open` lists. */
  readonly name: string;
  readonly text: string;
  /** Listed until it is written with false; from then on it is kept for a time and forgotten. */
  readonly open: boolean;
}

export interface DocCommit {
  /** What each must be for anything to be written. */
  readonly from: readonly (readonly [name: string, doc: Doc])[];
  readonly writes: readonly DocWrite[];
}

export type CommitOutcome =
  | "done"
  /** Something was written since it was read: nothing is done. */
  | "changed"
  /** As many are open as may be. */
  | "full";

/**
 * Where the ledger lies: texts that are written together, over what they were made from, or not at all. Every method ends, and
 * rejects where the store can't be used: nobody can know then whether a commit took effect.
 */
export interface DocStore {
  readonly kind: "local" | "redis";
  /** As of one moment, with the store's clock in epoch milliseconds. */
  load(names: readonly string[]): Promise<{ readonly docs: readonly Doc[]; readonly now: number }>;
  /** Resolved with "done": as durable as the store is. */
  commit(commit: DocCommit): Promise<CommitOutcome>;
  /** Names of the open ones of a kind, oldest first, and their texts. */
  open(kind: string): Promise<readonly (readonly [name: string, text: string])[]>;
  close(): Promise<void>;
}

/** Of each kind. Who has so many open has other worries than one more. */
export const OPEN_DOCS_MAX = 10_000;
/** How long a closed one is kept: a charged reservation must not be forgotten while its job could come again. */
export const CLOSED_KEPT_MS = 40 * 86_400_000;

export const kindOf = (name: string): string => name.slice(0, name.indexOf("/") < 0 ? undefined : name.indexOf("/"));
