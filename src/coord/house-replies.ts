import type { Reply } from "../contract/reply.ts";
import { ClaimTable, laneKey, type ClaimName } from "../decide/replay/claims.ts";
import type { Clock } from "../kernel/clock.ts";
import { MemoryShelf } from "./local/memory-shelf.ts";
import type { BeginOutcome, FinishOutcome, FoundReply, ReplyStore, ReplyStoreStats } from "./reply-store.ts";
import { Watchers } from "./watchers.ts";

/** How long an answer that the shared store did not take is given again by this gateway, at most. */
const STAND_IN_MS = 300_000;
const STAND_IN_BYTES_MAX = 64 * 1024 * 1024;
/** Of a claim that is taken only to keep its answer. */
const FINISH_LEASE_MS = 5_000;

interface Question {
  readonly owner: string;
  readonly fingerprint: string;
  readonly answer: Promise<BeginOutcome>;
}

/**
 * A shared store as one gateway uses it: its own callers line up here first. So a store that is slow, full or away for a moment
 * lets one of the equal requests on this gateway through, not all of them, and they cost it one question, not one each.
 *
 * Invariants:
 *   H1. On this gateway a lane has one caller at a time that works on its answer, whatever the shared store says or does not say.
 *   H2. Equal callers that come while one asks the shared store are told what it is told.
 *   H3. An answer that the shared store did not take is given again here, from bounded memory, for a bounded time.
 */
export class HouseReplies implements ReplyStore {
  readonly #shared: ReplyStore;
  readonly #clock: Clock;
  readonly #claims = new ClaimTable();
  readonly #watchers = new Watchers();
  readonly #standIn: MemoryShelf;
  readonly #asking = new Map<string, Question>();
  /** Owners whose claim the shared store does not know of, as far as anybody was told. */
  readonly #alone = new Set<string>();

  constructor(shared: ReplyStore, clock: Clock) {
    this.#shared = shared;
    this.#clock = clock;
    this.#standIn = new MemoryShelf(STAND_IN_BYTES_MAX, clock);
  }

  /** Does not reject: where the shared store is away one caller takes the claim `alone`. */
  async begin(claim: ClaimName, fingerprint: string, leaseMs: number, withinMs?: number): Promise<BeginOutcome> {
    const lane = laneKey(claim);
    const asked = this.#asking.get(lane);
    if (asked === undefined || asked.owner === claim.owner) {
      const answer = this.#ask(claim, fingerprint, leaseMs, withinMs);
      if (asked === undefined) this.#asking.set(lane, { owner: claim.owner, fingerprint, answer });
      return answer;
    }
    const outcome = await asked.answer;
    if (asked.fingerprint !== fingerprint) return this.begin(claim, fingerprint, leaseMs, withinMs);
    return outcome.kind === "taken" ? { kind: "running" } : outcome;
  }

  find(key: string, fingerprint: string, withinMs?: number): Promise<FoundReply | null> {
    return this.#shared.find(key, fingerprint, withinMs);
  }

  renew(claims: readonly ClaimName[], leaseMs: number): Promise<readonly boolean[]> {
    const now = this.#clock.mono();
    for (const claim of claims) this.#claims.renew(claim, now, leaseMs);
    return this.#shared.renew(claims, leaseMs);
  }

  async finish(claim: ClaimName, fingerprint: string, reply: Reply, ttlMs: number): Promise<FinishOutcome> {
    let kept = true;
    try {
      const result = await this.#finishShared(claim, fingerprint, reply, ttlMs);
      kept = result !== "tooLarge";
      return result;
    } catch (error) {
      kept = await this.#standIn.put(claim.key, fingerprint, reply, Math.min(ttlMs, STAND_IN_MS));
      throw error;
    } finally {
      this.#end(claim, kept ? "kept" : "dropped");
    }
  }

  async keep(key: string, fingerprint: string, reply: Reply, ttlMs: number): Promise<FinishOutcome> {
    // What stands in for an older answer must not outlive it.
    if ((await this.#standIn.get(key)) !== null)
      await this.#standIn.put(key, fingerprint, reply, Math.min(ttlMs, STAND_IN_MS));
    return this.#shared.keep(key, fingerprint, reply, ttlMs);
  }

  async drop(claim: ClaimName): Promise<void> {
    try {
      await this.#shared.drop(claim);
    } finally {
      this.#end(claim, "dropped");
    }
  }

  watch(lane: { readonly key: string; readonly lane: string }, onChange: () => void): Disposable {
    const elsewhere = this.#shared.watch(lane, onChange);
    const here = this.#watchers.add(laneKey(lane), onChange);
    return {
      [Symbol.dispose]: () => {
        elsewhere[Symbol.dispose]();
        here[Symbol.dispose]();
      },
    };
  }

  stats(): ReplyStoreStats {
    return this.#shared.stats();
  }

  close(): Promise<void> {
    return this.#shared.close();
  }

  async #ask(
    claim: ClaimName,
    fingerprint: string,
    leaseMs: number,
    withinMs: number | undefined,
  ): Promise<BeginOutcome> {
    const lane = laneKey(claim);
    try {
      const found = await this.#standIn.get(claim.key);
      if (found !== null && found.fingerprint !== fingerprint) return { kind: "mismatch" };
      if (found !== null) return { kind: "found", reply: found.reply, ageMs: found.ageMs };
      const mine = this.#claims.take(claim, fingerprint, this.#clock.mono(), leaseMs);
      if (mine !== "taken") return (await this.#fromOtherLane(claim, fingerprint, withinMs)) ?? { kind: mine };
      const outcome = await this.#shared.begin(claim, fingerprint, leaseMs, withinMs);
      // Who waits for another gateway asks again by itself; nobody here works on it.
      if (outcome.kind !== "taken") this.#claims.end(claim, this.#clock.mono());
      return outcome;
    } catch {
      this.#alone.add(claim.owner);
      return { kind: "taken", alone: true };
    } finally {
      if (this.#asking.get(lane)?.owner === claim.owner) this.#asking.delete(lane);
    }
  }

  /** While this lane's caller works, another lane's may have finished: its answer serves all. */
  async #fromOtherLane(
    { key, lane }: ClaimName,
    fingerprint: string,
    withinMs: number | undefined,
  ): Promise<BeginOutcome | null> {
    if (lane === "") return null;
    const found = await this.#shared.find(key, fingerprint, withinMs).catch(() => null);
    return found === null ? null : { kind: "found", ...found };
  }

  /** A claim that was taken alone may be had now: then this answer counts on all gateways too. */
  async #finishShared(claim: ClaimName, fingerprint: string, reply: Reply, ttlMs: number): Promise<FinishOutcome> {
    if (this.#alone.has(claim.owner)) {
      const { kind } = await this.#shared.begin(claim, fingerprint, FINISH_LEASE_MS);
      if (kind !== "taken") throw new Error("another gateway has the claim that was taken alone");
    }
    return this.#shared.finish(claim, fingerprint, reply, ttlMs);
  }

  #end(claim: ClaimName, what: "kept" | "dropped"): void {
    this.#alone.delete(claim.owner);
    if (this.#claims.end(claim, this.#clock.mono())) this.#watchers.tell(laneKey(claim), what);
  }
}
