import { randomBytes } from "node:crypto";
import type { RequestOutcome } from "../../contract/audit-event.ts";
import type { Reply } from "../../contract/reply.ts";
import type { RequestClass } from "../../contract/request-class.ts";
import type { FoundReply } from "../../coord/reply-store.ts";
import type { BodyForm } from "../../decide/idempotency/body-fingerprint.ts";
import { StepBudget } from "../../decide/coordination/step-budget.ts";
import { idempotencyScope } from "../../decide/idempotency/idempotency-key.ts";
import { contentKey, hashParts } from "../../decide/replay/content-key.ts";
import {
  errorCodesOf,
  isEmptyCompletion,
  judgeForContent,
  whyNotForKey,
  type EndedAnswer,
  type NotKept,
} from "../../decide/replay/keep-answer.ts";
import type { ReplayPlan } from "../../decide/replay/plan-replay.ts";
import { asMono, type MonoMs } from "../../kernel/clock.ts";
import type { ErrorCode } from "../../kernel/errors.ts";
import { LIMIT_HEADERS, withoutHeaders } from "../calls/answer-headers.ts";
import { recordCall } from "../calls/call-record.ts";
import { cutIfNotTaken } from "../calls/client-writer.ts";
import type { ClientReply } from "../http/client-port.ts";
import type { RequestContext } from "../http/request-context.ts";
import type { Upstream } from "../upstreams/upstream.ts";
import type { ClaimKeeper, HeldClaim } from "./claim-keeper.ts";
import { bodyAsksForSameAnswer, fingerprintBody, sha256 } from "./fingerprint-body.ts";
import { RecordingReply } from "./recording-reply.ts";
import type { ReplayDeps } from "./replay-deps.ts";
import { Patience, takeTurn, type Turn } from "./turn.ts";

/** A request whose body and upstream are known, before anything is decided about a slot. */
export interface ReplayRequest {
  readonly context: RequestContext;
  readonly upstream: Upstream;
  readonly class: RequestClass;
  readonly model: string;
  /** As the engine is asked. */
  readonly path: string;
  readonly chunks: readonly Buffer[];
  readonly bytes: number;
  readonly form: BodyForm;
  readonly deadline: MonoMs | undefined;
  readonly plan: ReplayPlan;
  /** On to admission with this client; `onEnded` is called once, whatever becomes of it. */
  admit(res: ClientReply, onEnded: OnEnded): void;
  refuse(code: ErrorCode, message: string, retryAfterMs?: number): void;
  /** It was answered here: what the request holds can go. */
  done(): void;
}

/** `empty`: the engine finished its stream and said nothing. */
export type OnEnded = (outcome: RequestOutcome, empty: boolean) => void;

type Stage = "goOn" | "over";

const RETRY_IN_PROGRESS_MS = 2_000;
/** Of one answer in a cache, whatever the size of the cache. */
const CACHED_BYTES_MAX = 16 * 1024 * 1024;
const REFUSAL_BYTES_MAX = 64 * 1024;
/** Belong to the request that was answered first. */
const PERSONAL: ReadonlySet<string> = new Set([
  "x-request-id",
  "x-yardmaster-queue-ms",
  "x-yardmaster-choice",
  "retry-after",
  "age",
  ...LIMIT_HEADERS,
]);

/**
 * One request on its way past the memories of answers: first the one for its idempotency key, then its upstream's.
 *
 * Invariants:
 *   N1. Each claim that was taken is finished or dropped once, whatever becomes of the request.
 *   N2. Nothing here makes a request fail but its own key: where a store is away the request goes on as if there were none, and
 *       its answer says so. All steps together wait for stores no longer than one of them may.
 *   N3. What is given again is what its first client was given, byte for byte, but for the headers of `PERSONAL`.
 */
export class ReplayRun {
  readonly #deps: ReplayDeps;
  readonly #keeper: ClaimKeeper;
  readonly #request: ReplayRequest;
  readonly #follow: (storing: Promise<void>) => void;
  readonly #patience = new Patience();
  readonly #budget: StepBudget;
  #draining = false;
  #keyClaim: HeldClaim | null = null;
  #cacheClaim: HeldClaim | null = null;
  /** Where a content's answer belongs that was asked for without looking. */
  #contentKey: string | null = null;
  #refreshes = false;
  readonly #added: string[] = [];

  constructor(deps: ReplayDeps, keeper: ClaimKeeper, request: ReplayRequest, follow: (storing: Promise<void>) => void) {
    this.#deps = deps;
    this.#keeper = keeper;
    this.#request = request;
    this.#follow = follow;
    this.#budget = new StepBudget(deps.config().coordinationTimeoutMs);
  }

  /** Resolves when the request is answered, refused, or on its way to its upstream. */
  async start(): Promise<void> {
    const { context, chunks, form } = this.#request;
    context.res.onGone = () => this.#patience.end();
    if (context.res.gone) this.#patience.end();
    const body = `${await fingerprintBody(chunks, form)} ${context.query}`;
    if ((await this.#askKey(body)) === "over" || (await this.#askUpstream(body)) === "over") return;
    if (this.#isOver()) return;
    this.#admit();
  }

  abortForDrain(): void {
    this.#draining = true;
    this.#patience.end();
  }

  /** The client left, or the gateway's time is over: nobody waits any more. */
  #isOver(): boolean {
    if (!this.#patience.ended && !this.#request.context.res.gone) return false;
    this.#dropClaims();
    if (this.#draining) this.#request.refuse("DRAINING", "the gateway is stopping");
    else this.#request.refuse("CLIENT_CLOSED", "the client left while it waited for another request's answer");
    return true;
  }

  async #askKey(fingerprint: string): Promise<Stage> {
    const { context, plan } = this.#request;
    if (plan.idempotencyKey === null) return "goOn";
    const { metrics, clock, stores, config } = this.#deps;
    const scope = idempotencyScope(context.key.id, context.path, plan.idempotencyKey);
    const store = stores.forKeys(config());
    const name = { key: hashParts([scope], sha256), lane: "", owner: newOwner() };
    const claim: HeldClaim = { store, name, fingerprint };
    const turn = await this.#turn(claim, clock.mono() + config().idempotency.waitMs);
    switch (turn.kind) {
      case "taken":
        this.#keyClaim = claim;
        if (turn.alone === true) this.#unprotected();
        else metrics.idempotency("first");
        return "goOn";
      case "found":
        metrics.idempotency(turn.waited ? "waited" : "replayed");
        this.#give(turn.reply, "idempotent", ["idempotent-replayed", "true", "age", seconds(turn.ageMs)]);
        return "over";
      case "mismatch":
        metrics.idempotency("mismatch");
        this.#request.refuse(
          "IDEMPOTENCY_MISMATCH",
          "this Idempotency-Key was used before with another request; use a new key",
        );
        return "over";
      case "waitedLong":
        metrics.idempotency("in_progress");
        this.#request.refuse(
          "IDEMPOTENCY_IN_PROGRESS",
          "a request with this Idempotency-Key is still running; ask again with the same key",
          RETRY_IN_PROGRESS_MS,
        );
        return "over";
      case "ended":
        return this.#isOver() ? "over" : "goOn";
      default:
        this.#unprotected();
        return "goOn";
    }
  }

  #unprotected(): void {
    this.#deps.metrics.idempotency("unprotected");
    this.#added.push("x-yardmaster-idempotency", "unprotected");
  }

  async #askUpstream(body: string): Promise<Stage> {
    const { plan, upstream, context, model, path, chunks } = this.#request;
    const cache = await settleCache(plan.cache, chunks);
    if (cache === "off" && plan.refusals === "off") return "goOn";
    if (cache === "bypass") this.#note("bypass");
    if (cache === "bypass" && plan.refusals === "off") return "goOn";
    const { settings } = upstream;
    const key = contentKey(
      {
        upstreamId: settings.id,
        model,
        method: context.req.method,
        path,
        query: context.query,
        keyId: settings.cache?.shared === true ? null : context.key.id,
        body,
        rawHeaders: context.req.rawHeaders,
        mode: settings.kind === "http" ? "http" : "engine",
        extra: upstream.forwardHeaders,
      },
      sha256,
    );
    this.#contentKey = key;
    if (cache === "use") return this.#askCache(key);
    this.#refreshes = cache === "refresh";
    if (this.#refreshes) this.#note("bypass");
    if (plan.refusals !== "use") return "goOn";
    const found = await this.#findRefusal(key);
    if (found === null || found.reply.kind !== "refusal") return "goOn";
    return this.#giveCached(found.reply, found.ageMs, false);
  }

  async #findRefusal(key: string): Promise<FoundReply | null> {
    const { stores, clock } = this.#deps;
    const askedAt = clock.mono();
    const store = stores.forUpstream(this.#request.upstream.settings);
    const found = await store.find(key, "", this.#budget.leftMs).catch(() => null);
    this.#budget.spend(clock.mono() - askedAt);
    return found;
  }

  async #askCache(key: string): Promise<Stage> {
    const { upstream, class: requestClass } = this.#request;
    const { settings } = upstream;
    const store = this.#deps.stores.forUpstream(settings);
    // A lane for each class: people never wait for a batch request's turn in the queue.
    const claim: HeldClaim = { store, name: { key, lane: requestClass, owner: newOwner() }, fingerprint: "" };
    const turn = await this.#turn(claim, this.#deps.clock.mono() + settings.limits.queueTimeoutMs[requestClass]);
    switch (turn.kind) {
      case "taken":
        this.#cacheClaim = claim;
        this.#note(turn.alone === true ? "unavailable" : "miss");
        return "goOn";
      case "found":
        return this.#giveCached(turn.reply, turn.ageMs, turn.waited);
      case "waitedLong":
        this.#contentKey = null;
        this.#note("miss");
        return "goOn";
      case "ended":
        return this.#isOver() ? "over" : "goOn";
      default:
        this.#contentKey = null;
        this.#note("unavailable");
        return "goOn";
    }
  }

  async #turn(claim: HeldClaim, until: number): Promise<Turn> {
    const { deadline } = this.#request;
    const limit = asMono(deadline === undefined ? until : Math.min(until, deadline));
    const turn = await takeTurn(
      claim.store,
      claim.name,
      claim.fingerprint,
      limit,
      this.#patience,
      this.#budget,
      this.#deps,
    );
    if (turn.kind === "taken") this.#keeper.hold(claim);
    // The question may have had its effect all the same.
    if (turn.kind === "away") void claim.store.drop(claim.name).catch(() => {});
    return turn;
  }

  #note(result: "miss" | "bypass" | "unavailable"): void {
    this.#deps.metrics.forUpstream(this.#request.upstream.settings.id).cached(result);
    this.#added.push("x-yardmaster-cache", result);
  }

  #giveCached(reply: Reply, ageMs: number, waited: boolean): Stage {
    const refused = reply.kind === "refusal";
    this.#deps.metrics
      .forUpstream(this.#request.upstream.settings.id)
      .cached(refused ? "refused" : waited ? "waited" : "hit");
    const says = refused ? ["x-yardmaster-refusal", "remembered"] : ["x-yardmaster-cache", "hit"];
    this.#give(reply, "cache", [...says, "age", seconds(ageMs)]);
    const key = this.#keyClaim;
    if (key !== null) this.#follow(this.#finish(key, "idempotency", reply, this.#deps.config().idempotency.ttlMs));
    this.#keyClaim = null;
    return "over";
  }

  #give(reply: Reply, from: "idempotent" | "cache", says: readonly string[]): void {
    const { context, upstream, class: requestClass, model, bytes } = this.#request;
    const { settings } = upstream;
    if (context.res.gone) {
      this.#request.refuse("CLIENT_CLOSED", "the client left while it waited for another request's answer");
      return;
    }
    const own = ["x-request-id", context.requestId, "x-yardmaster-queue-ms", "0"];
    context.res.onGone = null;
    const limits = context.hold?.headers ?? [];
    context.res.sendWhole(reply.status, [...reply.headers, ...own, ...limits, ...this.#added, ...says], reply.body);
    this.#request.done();
    recordCall(this.#deps, context, {
      upstream,
      endpoint: null,
      class: requestClass,
      model: settings.kind === "http" ? null : model,
      outcome: reply.status < 400 ? "ok" : "engine_error",
      code: null,
      status: reply.status,
      queueMs: 0,
      firstByteMs: null,
      usage: null,
      bytesIn: bytes,
      bytesOut: reply.body.length,
      attempts: 0,
      span: null,
      from,
    });
    const stalls = this.#deps.metrics.forUpstream(settings.id).clientStalls;
    cutIfNotTaken(context.res, this.#deps, settings.timeouts.writeStallMs, stalls);
  }

  #admit(): void {
    const { context, upstream } = this.#request;
    context.res.onGone = null;
    const { cache } = upstream.settings;
    const forUpstream = this.#contentKey !== null;
    const bytesMax = Math.max(
      this.#keyClaim === null ? 0 : this.#deps.config().idempotency.bytesMax,
      forUpstream ? Math.min(cache?.bytesMax ?? REFUSAL_BYTES_MAX, CACHED_BYTES_MAX) : 0,
    );
    const res = new RecordingReply(context.res, this.#deps.budget, bytesMax, this.#added);
    this.#request.admit(res, (outcome, empty) => this.#onEnded(res, outcome, empty));
    if (this.#budget.short) upstream.sharer?.hurry(this.#budget.leftMs);
  }

  #onEnded(res: RecordingReply, outcome: RequestOutcome, empty: boolean): void {
    const { status, headers, body, lostTo, whole } = res.recording();
    const answer: EndedAnswer = {
      outcome,
      whole,
      status,
      headers,
      empty: empty || (body !== null && isEmptyCompletion(body)),
      errorCodes: () => (body === null ? [] : errorCodesOf(body)),
    };
    const kept = (kind: Reply["kind"]): Reply | null =>
      body === null ? null : { kind, status, headers: withoutHeaders(headers, PERSONAL), body };
    const storing: Promise<void>[] = [];
    const key = this.#keyClaim;
    if (key !== null) {
      const reply = kept("answer");
      const { ttlMs, bytesMax } = this.#deps.config().idempotency;
      const tooLarge = reply !== null && reply.body.length > bytesMax ? "too_large" : null;
      const why = whyNotForKey(answer) ?? lostTo ?? tooLarge;
      if (why === null && reply !== null) storing.push(this.#finish(key, "idempotency", reply, ttlMs));
      else storing.push(this.#drop(key, "idempotency", why ?? "no_memory"));
    }
    storing.push(...this.#keepForUpstream(answer, kept, lostTo));
    this.#keyClaim = this.#cacheClaim = null;
    if (storing.length === 0) res.release();
    else this.#follow(Promise.all(storing).then(() => res.release()));
  }

  /** The upstream's own memories: a good answer in its cache, or one of its lasting refusals. */
  #keepForUpstream(
    answer: EndedAnswer,
    kept: (kind: Reply["kind"]) => Reply | null,
    lostTo: NotKept | null,
  ): Promise<void>[] {
    const key = this.#contentKey;
    const claim = this.#cacheClaim;
    if (claim === null && key === null) return [];
    const { upstream, plan } = this.#request;
    const judged = judgeForContent(answer, upstream.settings, plan.refusals !== "off");
    const reply = judged.kind === "keep" ? kept(judged.as) : null;
    if (judged.kind === "not" || reply === null) {
      const why = judged.kind === "not" ? judged.why : (lostTo ?? "no_memory");
      return claim === null ? [] : [this.#drop(claim, "cache", why)];
    }
    if (claim !== null) return [this.#finish(claim, "cache", reply, judged.ttlMs)];
    if (key === null || (judged.as === "answer" && !this.#refreshes)) return [];
    const { metrics, stores } = this.#deps;
    return [
      stores
        .forUpstream(upstream.settings)
        .keep(key, "", reply, judged.ttlMs)
        .then(
          (result) => (result === "kept" ? undefined : metrics.replyNotKept("cache", "too_large")),
          () => metrics.replyNotKept("cache", "store_away"),
        ),
    ];
  }

  #dropClaims(): void {
    for (const claim of [this.#keyClaim, this.#cacheClaim]) {
      if (claim === null) continue;
      this.#follow(this.#drop(claim, claim === this.#keyClaim ? "idempotency" : "cache", "unfinished"));
    }
    this.#keyClaim = this.#cacheClaim = null;
  }

  async #finish(claim: HeldClaim, store: "idempotency" | "cache", reply: Reply, ttlMs: number): Promise<void> {
    try {
      const result = await claim.store.finish(claim.name, claim.fingerprint, reply, ttlMs);
      if (result !== "kept") this.#deps.metrics.replyNotKept(store, result === "lost" ? "claim_lost" : "too_large");
    } catch {
      this.#deps.metrics.replyNotKept(store, "store_away");
      await claim.store.drop(claim.name).catch(() => {});
    } finally {
      this.#keeper.release(claim);
    }
  }

  async #drop(claim: HeldClaim, store: "idempotency" | "cache", why: NotKept): Promise<void> {
    this.#deps.metrics.replyNotKept(store, why);
    // A claim that can't be dropped ends with its lease.
    await claim.store.drop(claim.name).catch(() => {});
    this.#keeper.release(claim);
  }
}

const newOwner = (): string => randomBytes(12).toString("base64url");
const seconds = (ms: number): string => String(Math.floor(ms / 1000));

/** What the plan comes to for this body. */
async function settleCache(
  planned: ReplayPlan["cache"],
  chunks: readonly Buffer[],
): Promise<"off" | "bypass" | "use" | "refresh"> {
  if (planned !== "seeded" && planned !== "seededRefresh") return planned;
  if (!(await bodyAsksForSameAnswer(chunks))) return "bypass";
  return planned === "seeded" ? "use" : "refresh";
}
