import type { Reply } from "../../contract/reply.ts";
import { ClaimTable, laneKey, type ClaimName } from "../../decide/replay/claims.ts";
import type { Clock } from "../../kernel/clock.ts";
import type { BeginOutcome, FinishOutcome, FoundReply, ReplyStore, ReplyStoreStats } from "../reply-store.ts";
import { Watchers } from "../watchers.ts";

/** Where the answers of one process lie. */
export interface ReplyShelf {
  get(key: string): Promise<ShelvedReply | null>;
  /** False: too large. */
  put(key: string, fingerprint: string, reply: Reply, ttlMs: number): Promise<boolean>;
  stats(): ReplyStoreStats;
  close(): Promise<void>;
}

export interface ShelvedReply extends FoundReply {
  readonly fingerprint: string;
}

/**
 * The store of one gateway. Claims are in memory: who works on an answer ends with the process. Where answers lie is the
 * shelf's business.
 *
 * Invariants:
 *   L1. Taking a claim is one step in memory; looking for an answer before it may take time, but no answer is written without
 *       the claim being held until after.
 *   L2. A claim is held until its answer lies on the shelf: who comes in between waits, and finds it.
 */
export class LocalReplies implements ReplyStore {
  readonly #shelf: ReplyShelf;
  readonly #clock: Clock;
  readonly #claims = new ClaimTable();
  readonly #watchers = new Watchers();

  constructor(shelf: ReplyShelf, clock: Clock) {
    this.#shelf = shelf;
    this.#clock = clock;
  }

  async begin(claim: ClaimName, fingerprint: string, leaseMs: number): Promise<BeginOutcome> {
    const found = await this.#shelf.get(claim.key);
    if (found === null) return { kind: this.#claims.take(claim, fingerprint, this.#clock.mono(), leaseMs) };
    if (found.fingerprint !== fingerprint) return { kind: "mismatch" };
    return { kind: "found", reply: found.reply, ageMs: found.ageMs };
  }

  async find(key: string, fingerprint: string): Promise<FoundReply | null> {
    const found = await this.#shelf.get(key);
    return found?.fingerprint === fingerprint ? { reply: found.reply, ageMs: found.ageMs } : null;
  }

  renew(claims: readonly ClaimName[], leaseMs: number): Promise<readonly boolean[]> {
    const now = this.#clock.mono();
    return Promise.resolve(claims.map((claim) => this.#claims.renew(claim, now, leaseMs)));
  }

  async finish(claim: ClaimName, fingerprint: string, reply: Reply, ttlMs: number): Promise<FinishOutcome> {
    if (!this.#claims.holds(claim, this.#clock.mono())) return "lost";
    const kept = await this.#shelf.put(claim.key, fingerprint, reply, ttlMs);
    if (!this.#claims.end(claim, this.#clock.mono())) return "lost";
    this.#watchers.tell(laneKey(claim), kept ? "kept" : "dropped");
    return kept ? "kept" : "tooLarge";
  }

  async keep(key: string, fingerprint: string, reply: Reply, ttlMs: number): Promise<FinishOutcome> {
    return (await this.#shelf.put(key, fingerprint, reply, ttlMs)) ? "kept" : "tooLarge";
  }

  drop(claim: ClaimName): Promise<void> {
    if (this.#claims.end(claim, this.#clock.mono())) this.#watchers.tell(laneKey(claim), "dropped");
    return Promise.resolve();
  }

  watch(lane: { readonly key: string; readonly lane: string }, onChange: () => void): Disposable {
    return this.#watchers.add(laneKey(lane), onChange);
  }

  stats(): ReplyStoreStats {
    return this.#shelf.stats();
  }

  close(): Promise<void> {
    return this.#shelf.close();
  }
}
