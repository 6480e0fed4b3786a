import type { Reply } from "../contract/reply.ts";
import type { ClaimName } from "../decide/replay/claims.ts";

/**
 * Keeps answers by a key, and lets one caller at a time work on an answer that is not there yet. One store holds the answers of
 * one purpose: those to idempotency keys, or one upstream's cache. Shared by gateways where the implementation is.
 *
 * A claim belongs to a *lane* of a key: callers of one lane wait for each other, callers of different lanes do not, and an answer
 * that is kept serves all. A claim ends with its lease unless it is renewed, so that nobody waits for a process that is gone.
 *
 * Every method but `watch` may reject: the store is away, or did not answer within its deadline. Then the outcome is unknown.
 * `withinMs` is that deadline where a caller has less time than the store's own; with 0 a store elsewhere is not asked at all.
 */
export interface ReplyStore {
  /** Finds the answer, or takes the claim, or says who is in the way. Asking again with the same owner changes nothing. */
  begin(claim: ClaimName, fingerprint: string, leaseMs: number, withinMs?: number): Promise<BeginOutcome>;
  /** Only looks; an answer under another fingerprint counts as none. */
  find(key: string, fingerprint: string, withinMs?: number): Promise<FoundReply | null>;
  /** Which of the claims are still their owners', in the same order. */
  renew(claims: readonly ClaimName[], leaseMs: number): Promise<readonly boolean[]>;
  /** Keeps the answer and ends the claim in one step, unless the claim was lost. */
  finish(claim: ClaimName, fingerprint: string, reply: Reply, ttlMs: number): Promise<FinishOutcome>;
  /** Keeps an answer without a claim, in the place of one that is there. */
  keep(key: string, fingerprint: string, reply: Reply, ttlMs: number): Promise<FinishOutcome>;
  /** Ends the claim with no answer: one of those who wait comes next. */
  drop(claim: ClaimName): Promise<void>;
  /**
   * Tells of ends of a lane's claim until disposed: all watchers of an answer that was kept, one of a claim that was dropped, in
   * the order of their coming. A hint that may be missing or wrong: whoever waits asks again from time to time.
   */
  watch(lane: { readonly key: string; readonly lane: string }, onChange: () => void): Disposable;
  stats(): ReplyStoreStats;
  /** Resolves when what was given is written or given up, within seconds. */
  close(): Promise<void>;
}

export interface FoundReply {
  readonly reply: Reply;
  readonly ageMs: number;
}

export type BeginOutcome =
  /** `alone`: as far as is known on this gateway only, because the shared store is away. */
  | { readonly kind: "taken"; readonly alone?: true }
  | ({ readonly kind: "found" } & FoundReply)
  /** Somebody else works on it. */
  | { readonly kind: "running" }
  /** The key was used with another fingerprint: an answer is kept, or somebody works on one. */
  | { readonly kind: "mismatch" };

export type FinishOutcome =
  | "kept"
  /** The lease had passed; whoever has the claim now keeps their own answer. */
  | "lost"
  | "tooLarge";

export interface ReplyStoreStats {
  /** Null: held by somebody who was not asked. */
  readonly entries: number | null;
  readonly bytes: number | null;
  /** Answers that had to leave before their time. */
  readonly evicted: number;
}
