import { parseReply, renderReplyHead, replyBytes, type Reply } from "../../contract/reply.ts";
import { laneKey, type ClaimName } from "../../decide/replay/claims.ts";
import type { Clock } from "../../kernel/clock.ts";
import type { BeginOutcome, FinishOutcome, FoundReply, ReplyStore, ReplyStoreStats } from "../reply-store.ts";
import { Watchers } from "../watchers.ts";
import { itemsOf, type Reply as Said } from "./redis-connection.ts";
import type { RedisLink, StepOutcome } from "./redis-link.ts";
import { loadScript } from "./script.ts";
import type { RedisSubscriber } from "./subscriber.ts";
import { whyNothing } from "./step-answer.ts";

const BEGIN = loadScript(new URL("./reply-begin.lua", import.meta.url));
const FINISH = loadScript(new URL("./reply-finish.lua", import.meta.url));
const DROP = loadScript(new URL("./reply-drop.lua", import.meta.url));
const RENEW = loadScript(new URL("./reply-renew.lua", import.meta.url));

/** Nobody waits for an answer to be kept but those who wait for the answer, and a large one takes its time. */
const FINISH_MS_MAX = 2_000;
/** Claims of one renewal; more are renewed in several steps. */
const RENEWED_AT_ONCE = 500;

export interface RedisRepliesOptions {
  readonly link: RedisLink;
  readonly subscriber: RedisSubscriber;
  readonly clock: Clock;
  /** What the answers are for; part of all keys' hash tag, so that a cluster keeps them on one node. */
  readonly purpose: string;
  /** Of all kept answers together. */
  readonly bytesMax: number;
}

/**
 * Answers that gateways share.
 *
 * Invariants:
 *   Q1. Time is the server's: leases, times to live and ages. A question that the server reads after its asker's deadline does
 *       nothing there, so no claim is left behind that nobody knows of.
 *   Q2. Those who wait on this gateway are told directly of what ends here, and by the channel of what ends elsewhere.
 */
export class RedisReplies implements ReplyStore {
  readonly #link: RedisLink;
  readonly #clock: Clock;
  readonly #tag: string;
  readonly #watchers = new Watchers();
  #bytesMax: number;
  readonly #listening: Disposable;
  /** The server's clock less ours; undefined until it was told. */
  #ahead: number | undefined;
  #entries: number | null = null;
  #bytes: number | null = null;
  #evicted = 0;

  constructor(options: RedisRepliesOptions) {
    this.#link = options.link;
    this.#clock = options.clock;
    this.#tag = `{${options.link.settings.keyPrefix}:${options.purpose}}`;
    this.#bytesMax = options.bytesMax;
    // From the beginning: a connection that is made when the first one waits comes too late for it.
    this.#listening = options.subscriber.listen(this.#channel, {
      onMessage: (message) => this.#onMessage(message),
      // What was said before was not heard; who waits asks again by itself.
      onListening: () => {},
    });
  }

  setBytesMax(bytesMax: number): void {
    this.#bytesMax = bytesMax;
  }

  async begin(claim: ClaimName, fingerprint: string, leaseMs: number, withinMs?: number): Promise<BeginOutcome> {
    const said = await this.#ask(claim.key, laneKey(claim), claim.owner, fingerprint, leaseMs, withinMs);
    switch (said.kind) {
      case "taken":
      case "running":
      case "mismatch":
        return { kind: said.kind };
      case "found":
        return { kind: "found", reply: said.reply, ageMs: said.ageMs };
      default:
        throw new Error("the store of answers read a question too late");
    }
  }

  async find(key: string, fingerprint: string, withinMs?: number): Promise<FoundReply | null> {
    const said = await this.#ask(key, key, "", fingerprint, 0, withinMs);
    return said.kind === "found" ? { reply: said.reply, ageMs: said.ageMs } : null;
  }

  async renew(claims: readonly ClaimName[], leaseMs: number): Promise<readonly boolean[]> {
    const kept: boolean[] = [];
    for (let from = 0; from < claims.length; from += RENEWED_AT_ONCE) {
      const some = claims.slice(from, from + RENEWED_AT_ONCE);
      const keys = some.map((claim) => this.#claimKey(laneKey(claim)));
      const owners = some.map(({ owner }) => owner);
      const said = replyOf(await this.#link.run(RENEW, keys, [leaseMs, ...owners], { evenIfOpen: true }));
      kept.push(...itemsOf(said).map((flag) => flag === 1));
    }
    return kept;
  }

  finish(claim: ClaimName, fingerprint: string, reply: Reply, ttlMs: number): Promise<FinishOutcome> {
    return this.#keep(claim, fingerprint, reply, ttlMs);
  }

  keep(key: string, fingerprint: string, reply: Reply, ttlMs: number): Promise<FinishOutcome> {
    return this.#keep({ key, lane: "", owner: "" }, fingerprint, reply, ttlMs);
  }

  async drop(claim: ClaimName): Promise<void> {
    const lane = laneKey(claim);
    const args = [claim.owner, this.#channel, lane];
    const said = replyOf(await this.#link.run(DROP, [this.#claimKey(lane)], args, { evenIfOpen: true }));
    if (said === 1) this.#watchers.tell(lane, "dropped");
  }

  watch(lane: { readonly key: string; readonly lane: string }, onChange: () => void): Disposable {
    return this.#watchers.add(laneKey(lane), onChange);
  }

  stats(): ReplyStoreStats {
    return { entries: this.#entries, bytes: this.#bytes, evicted: this.#evicted };
  }

  close(): Promise<void> {
    this.#listening[Symbol.dispose]();
    return Promise.resolve();
  }

  get #channel(): string {
    return `${this.#tag}:ended`;
  }

  #claimKey(lane: string): string {
    return `${this.#tag}:claim:${lane}`;
  }

  async #ask(
    key: string,
    lane: string,
    owner: string,
    fingerprint: string,
    leaseMs: number,
    withinMs: number | undefined,
  ): Promise<
    { readonly kind: "taken" | "running" | "mismatch" | "none" | "late" } | ({ readonly kind: "found" } & FoundReply)
  > {
    const keys = [`${this.#tag}:kept:${key}`, this.#claimKey(lane), `${this.#tag}:use`];
    const timeoutMs = Math.min(this.#link.settings.timeoutMs, withinMs ?? Number.POSITIVE_INFINITY);
    if (timeoutMs <= 0) throw new Error("the store of answers is not asked: the call has no time left for it");
    const notAfter = this.#ahead === undefined ? 0 : Math.floor(this.#clock.mono() + this.#ahead + timeoutMs);
    const args = [owner, fingerprint, leaseMs, notAfter, key];
    const said = replyOf(await this.#link.run(BEGIN, keys, args, { buffers: true, timeoutMs }));
    const [kind, now, age, head, body] = itemsOf(said);
    const time = Number(String(now));
    if (!Number.isFinite(time)) throw new Error("the store of answers said what can't be read");
    this.#ahead = time - this.#clock.mono();
    const what = String(kind);
    if (what === "taken" || what === "running" || what === "mismatch" || what === "none" || what === "late")
      return { kind: what };
    const reply = Buffer.isBuffer(body) ? parseReply(String(head), body) : undefined;
    // Of another version: as good as none, but nobody knows whose it is.
    if (what !== "found" || reply === undefined) throw new Error("the store of answers holds what can't be read");
    return { kind: "found", reply, ageMs: Math.max(0, Number(String(age))) };
  }

  async #keep(claim: ClaimName, fingerprint: string, reply: Reply, ttlMs: number): Promise<FinishOutcome> {
    const lane = laneKey(claim);
    const keys = [`${this.#tag}:kept:${claim.key}`, this.#claimKey(lane), `${this.#tag}:use`, `${this.#tag}:sizes`];
    const bytes = replyBytes(reply);
    const args = [
      claim.owner,
      fingerprint,
      renderReplyHead(reply),
      reply.body,
      ttlMs,
      bytes,
      this.#bytesMax,
      claim.key,
      `${this.#tag}:kept:`,
      this.#channel,
      lane,
    ];
    const said = replyOf(await this.#link.run(FINISH, keys, args, { timeoutMs: FINISH_MS_MAX }));
    const [result, entries, total, evicted] = itemsOf(said);
    if (result === "lost") return "lost";
    if (result !== "kept" && result !== "tooLarge") throw new Error("the store of answers said what can't be read");
    this.#entries = Number(entries);
    this.#bytes = Number(total);
    this.#evicted += Number(evicted);
    if (claim.owner !== "") this.#watchers.tell(lane, result === "kept" ? "kept" : "dropped");
    return result;
  }

  #onMessage(message: string): void {
    const at = message.indexOf(" ");
    const what = message.slice(0, at);
    if (what === "kept" || what === "dropped") this.#watchers.tell(message.slice(at + 1), what);
  }
}

/** What the server said; anything else rejects. */
function replyOf(outcome: StepOutcome): Said {
  switch (outcome.kind) {
    case "reply":
      return outcome.reply;
    case "refused":
      throw new Error(`the store of answers refused: ${outcome.message}`);
    default:
      throw new Error(`the store of answers is away: ${whyNothing(outcome)}`);
  }
}
