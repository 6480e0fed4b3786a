import type { RequestOutcome } from "../../contract/audit-event.ts";
import type { CallLimit } from "../../decide/calls/call-deadlines.ts";
import { judgeStream, judgeWhole } from "../../decide/calls/judge-ending.ts";
import { readBodyUsage } from "../../decide/http/body-usage.ts";
import type { TokenUsage } from "../../decide/http/token-usage.ts";
import type { EndpointChoice } from "../../decide/routing/choose-endpoint.ts";
import type { RetryCause } from "../../decide/routing/retry-policy.ts";
import { streamSucceeded } from "../../decide/sse/stream-watcher.ts";
import { assertNever } from "../../kernel/assert-never.ts";
import type { MonoMs } from "../../kernel/clock.ts";
import type { ErrorCode } from "../../kernel/errors.ts";
import type { RequestContext } from "../http/request-context.ts";
import type { UpstreamMetrics } from "../metrics/gateway-metrics.ts";
import type { RequestSpan } from "../../trace/tracer.ts";
import type { UpstreamHead } from "../upstream/port.ts";
import type { Endpoint, RunningCall } from "../upstreams/endpoint.ts";
import type { LeaveQueue, SlotSeeker } from "../upstreams/slot-seeker.ts";
import type { Upstream } from "../upstreams/upstream.ts";
import { AskedCall } from "./asked-call.ts";
import { Attempt, type AttemptOwner } from "./attempt.ts";
import type { AttemptEnd, AttemptFailure } from "./attempt-outcome.ts";
import { CallClock } from "./call-clock.ts";
import type { CallDeps } from "./call-deps.ts";
import {
  breakResult,
  codeOfCause,
  failureFacts,
  limitMessage,
  messageForClient,
  refusalOf,
  type FailureFacts,
  retryCauseOf,
} from "./call-failure.ts";
import { recordCall } from "./call-record.ts";
import { CallTries } from "./call-tries.ts";
import { ClientAnswer } from "./client-answer.ts";
import { cutIfNotTaken, type ClientWriter } from "./client-writer.ts";
import { letGoOfBody, mayHoldStatus, moverOf, takerOf, type PreparedRequest } from "./prepared-request.ts";
import { buildUpstreamRequest } from "./upstream-request.ts";
import { SlotHold } from "./slot-hold.ts";
import { notesFor } from "./waiting-notes.ts";

/**
 * One request from the moment it asks for a slot to its one end. Owns the slot, the try that is under way, the answer to
 * the client and the clock over all of it.
 *
 * Invariants:
 *   C1. `#end` runs once; it gives back the slot, the endpoint, the timer and the body's memory, and writes the audit event.
 *   C2. A client that leaves ends the call in the same turn of the event loop: queue place or engine connection are gone.
 *   C3. The slot is held until the engine's answer has ended or its connection is torn down, and longer (lingering) for an
 *       engine that is known not to stop.
 *   C4. After the first of the engine's bytes went to the client there is no other try: the answer ends well, or with an
 *       error event and a broken connection.
 *   C5. A call that may be tried elsewhere while all others are full gives its slot back and waits again, ahead of its key's others.
 */
export class AdmittedCall extends AskedCall implements SlotSeeker, AttemptOwner, RunningCall {
  choice: EndpointChoice | null = null;
  endpoint: Endpoint | null = null;

  readonly writer: ClientWriter;
  dispatchedAt: MonoMs;

  readonly #deps: CallDeps;
  readonly #context: RequestContext;
  readonly #upstream: Upstream;
  readonly #metrics: UpstreamMetrics;
  readonly #span: RequestSpan | null;
  readonly #onEnded: (outcome: RequestOutcome | null, empty: boolean) => void;
  readonly #answer: ClientAnswer;
  readonly #tries: CallTries;
  readonly #clock: CallClock;
  readonly #hold: SlotHold;
  readonly #request: PreparedRequest;
  #phase: "waiting" | "running" | "over" = "waiting";
  #attempt: Attempt | null = null;
  #usage: TokenUsage | null = null;

  constructor(
    deps: CallDeps,
    context: RequestContext,
    upstream: Upstream,
    request: PreparedRequest,
    span: RequestSpan | null,
    onEnded: (outcome: RequestOutcome | null, empty: boolean) => void,
  ) {
    super(deps, context, upstream, request);
    this.#deps = deps;
    this.#context = context;
    this.#upstream = upstream;
    this.#request = request;
    this.#tries = new CallTries(upstream, this, request);
    this.#span = span;
    this.#onEnded = onEnded;
    this.#metrics = deps.metrics.forUpstream(upstream.settings.id);
    this.#answer = new ClientAnswer({
      context,
      clock: deps.clock,
      mode: this.mode,
      upstream: upstream.settings,
      showsEndpoint: deps.endpointHeader(),
      onBlocked: () => this.#clock.blocked(),
      onDrained: () => this.#onDrained(),
    });
    this.writer = this.#answer.writer;
    this.#hold = new SlotHold(upstream, this, request.wantsStream, deps);
    this.#clock = new CallClock(deps, upstream, request.deadline, this.askedAt, (limit) => this.#onLimit(limit));
    this.dispatchedAt = this.askedAt;
  }

  get lastProgressAt(): MonoMs | undefined {
    return this.#clock.lastProgressAt;
  }

  get tried(): ReadonlySet<string> {
    return this.#tries.failedOn;
  }

  /** Asks for a slot. All that follows happens by callbacks. */
  start(): void {
    this.#context.res.onGone = this.#onClientClose;
    this.#clock.notes = notesFor(this.#request, this.#upstream, this.id, this.#answer, this.askedAt);
    const admission = this.#upstream.arrive(this, this.askedAt);
    if (admission.kind === "admitted") this.onAdmitted(0);
    else if (admission.kind === "refused") this.onExpired(admission.why, 0, admission.retryAfterMs);
    else this.#clock.schedule();
  }

  // What the pool says

  onAdmitted(waitedMs: number): void {
    const endpoint = this.endpoint;
    if (endpoint === null) throw new Error("admitted without an endpoint");
    this.#hold.take();
    this.#span?.event("yardmaster.slot.taken", this.#deps.clock.wall());
    this.#phase = "running";
    const now = this.#deps.clock.mono();
    const again = this.#tries.count > 0;
    this.#answer.addWait(waitedMs);
    this.#clock.begin(now, again ? waitedMs : null);
    if (!again) {
      this.#metrics.class[this.class].queueSeconds.observe(waitedMs / 1000);
      this.#upstream.waits.note(waitedMs, now);
      this.#upstream.budget.onRequest(now);
    }
    this.#dispatch(endpoint, false);
  }

  onExpired(why: LeaveQueue, waitedMs: number, retryAfterMs: number, detail = ""): void {
    const taker = why === "removed" ? moverOf(this.#request, this.writer.committed) : null;
    if (taker !== null) return this.#handOver(taker);
    this.#answer.addWait(waitedMs);
    const { code, message } = refusalOf(why, waitedMs, this.class, detail);
    this.#metrics.refused(code);
    this.#answer.refuse(code, message, retryAfterMs);
    this.#end(code === "QUEUE_TIMEOUT" ? "queue_timeout" : "refused", code);
  }

  // The endpoint gives no sign of progress: a call whose client has seen nothing of an answer goes elsewhere. Where nobody
  // else can take it, it stays until its own limits: a slow engine may still answer, and nothing is won by leaving it.
  onStalled(): void {
    const [endpoint, attempt] = [this.endpoint, this.#attempt];
    if (this.#phase !== "running" || endpoint === null || attempt === null || attempt.committed) return;
    const cause: RetryCause = { kind: "stalled" };
    const now = this.#deps.clock.mono();
    const next = this.#tries.mayRetry(cause, now).kind === "retry" ? this.#tries.other(endpoint, true, now) : null;
    if (next === null) return;
    this.#leaveAttempt(attempt, endpoint, cause, now);
    this.#metrics.retried(cause.kind);
    this.#dispatch(next, false);
  }

  /** The gateway's drain time is over. */
  abortForDrain(): void {
    if (this.#phase === "waiting") this.onExpired("draining", this.#deps.clock.mono() - this.askedAt, 1_000);
    else if (this.#phase === "running") this.#cut("DRAINING", "the gateway is stopping", "drain_aborted", false);
  }

  // What the try says

  holdsStatus(status: number): boolean {
    return this.mode === "engine" ? status >= 400 : mayHoldStatus(this.#request, status) && !this.writer.committed;
  }

  commit(_attempt: Attempt, head: UpstreamHead, contentLength: number | undefined): boolean {
    this.#clock.notes?.stop();
    if (this.writer.committed) return true; // By comments: the head is out, only the body follows.
    this.#freeBody();
    if (this.#answer.begin(head, contentLength)) return true;
    this.#onClientClose();
    return false;
  }

  onInformational(status: number, rawHeaders: string[]): void {
    if (status === 102) this.endpoint?.progressed(this.#clock.atWork());
    this.#answer.informational(status, rawHeaders);
  }

  onProgress(attempt: Attempt, isEvent: boolean): void {
    const now = this.#deps.clock.mono();
    const previous = this.#clock.lastProgressAt;
    this.#clock.lastProgressAt = now;
    this.endpoint?.progressed(now);
    if (this.#clock.firstEventAt === undefined) {
      this.#clock.firstEventAt = now;
      if (!attempt.collects) this.#tries.answered(this.endpoint, attempt.head?.status ?? 500, now);
      this.#span?.event("yardmaster.first_byte", this.#deps.clock.wall());
      this.#metrics.class[this.class].firstByteSeconds.observe((now - this.#clock.startedAt) / 1000);
      // From the first-byte limit to the gap limit, which may come up earlier.
      this.#clock.schedule();
    } else if (isEvent && previous !== undefined) {
      this.#metrics.class[this.class].tokenGapSeconds.observe((now - previous) / 1000);
    }
  }

  onFailure(attempt: Attempt, failure: AttemptFailure): void {
    if (attempt !== this.#attempt) return;
    this.#giveUp(attempt, retryCauseOf(failure, (this.endpoint ?? this.#upstream).adapter));
  }

  onEnd(attempt: Attempt, end: AttemptEnd, trailers: readonly string[]): void {
    if (attempt !== this.#attempt) return;
    switch (end.kind) {
      case "whole":
        this.#endWhole(attempt, end);
        return;
      case "flow":
        this.#endFlow(end, trailers);
        return;
      case "stream":
        this.#endStream(end, trailers);
        return;
      default:
        assertNever(end, "attempt end");
    }
  }

  // Tries

  #dispatch(endpoint: Endpoint, freshConnection: boolean): void {
    this.endpoint = this.#answer.endpoint = endpoint;
    this.#answer.choice = this.choice;
    this.dispatchedAt = this.#deps.clock.mono();
    this.#clock.lastProgressAt = this.#clock.atWorkAt = undefined;
    this.#tries.count += 1;
    this.#hold.enter(endpoint);
    this.#span?.event("yardmaster.connect", this.#deps.clock.wall());
    const attempt = new Attempt(this, this.#context.req.rawHeaders);
    this.#attempt = attempt;
    attempt.exchange = this.#upstream.client.exchange(
      endpoint.target,
      buildUpstreamRequest(this.#upstream, endpoint, this.#request, this.#context, this.#span, {
        now: this.dispatchedAt,
        freshConnection,
      }),
      attempt,
    );
    this.#clock.schedule();
  }

  /** The try came to nothing and the client has seen nothing of it: the same again, another endpoint, or the end. */
  #giveUp(attempt: Attempt, { cause, message, answer }: FailureFacts): void {
    const now = this.#deps.clock.mono();
    const endpoint = this.endpoint;
    if (endpoint === null) throw new Error("a try without an endpoint failed");
    this.#leaveAttempt(attempt, endpoint, cause, now);
    const decision = this.#tries.mayRetry(cause, now);
    const next =
      decision.kind === "giveUp"
        ? null
        : decision.on === "same" && !endpoint.draining
          ? this.#tries.again(endpoint, now)
          : this.#tries.other(endpoint, decision.on !== "unsent", now);
    if (next !== null) {
      this.#metrics.retried(cause.kind);
      this.#dispatch(next, decision.kind === "retry" && decision.on === "same");
      return;
    }
    if (decision.kind === "giveUp" && decision.why === "budget") this.#metrics.retryBudgetExhausted.inc();
    const taker = takerOf(this.#request, this.writer.committed, cause);
    if (taker !== null) return this.#handOver(taker);
    if (answer !== undefined) this.#passErrorAnswer(answer.head, answer.body);
    else if (decision.kind === "giveUp" || !this.#waitAgain(decision.on !== "unsent", cause, now))
      this.#fail(codeOfCause(cause), message, "upstream_failed", messageForClient(cause, message));
  }

  /** C5. False: nobody is there to wait for, or no place is left in the queue. */
  #waitAgain(charged: boolean, cause: RetryCause, now: MonoMs): boolean {
    if (!this.#upstream.mayWaitAgain(this, now)) return false;
    this.#phase = "waiting";
    this.askedAt = now;
    this.#clock.pause();
    this.#hold.release(false);
    const admission = this.#upstream.arrive(this, now, true);
    if (admission.kind === "refused") return false;
    this.#tries.onWait(charged, now);
    this.#metrics.retried(cause.kind);
    if (admission.kind === "admitted") this.onAdmitted(0);
    else this.#clock.schedule();
    return true;
  }

  #leaveAttempt(attempt: Attempt, endpoint: Endpoint, cause: RetryCause, now: MonoMs): void {
    attempt.abandon();
    this.#attempt = null;
    this.#hold.leave(cause.kind === "stalled");
    this.#upstream.onResult(endpoint, cause, now);
  }

  /** The engine's own error goes on as it is, in a shape that clients can read. */
  #passErrorAnswer(head: UpstreamHead, body: Buffer): void {
    if (this.writer.committed) {
      const said = `the engine answered ${head.status}: ${body.subarray(0, 300).toString("utf8")}`;
      return this.#fail("UPSTREAM_ERROR", said, "engine_error");
    }
    this.#answer.engineError(head, body);
    this.#end("engine_error", null);
  }

  // Ends

  #endWhole(attempt: Attempt, { head, body, isJson }: Extract<AttemptEnd, { kind: "whole" }>): void {
    const facts = isJson ? readBodyUsage(body) : null;
    const { rewriteAnswer } = this.#request;
    const sent = rewriteAnswer === null ? body : rewriteAnswer(body);
    const ending = judgeWhole(facts, this.writer.committed, sent !== null, this.#request.goOn !== null);
    switch (ending.kind) {
      case "garbage":
        this.#giveUp(attempt, { cause: { kind: "garbage" }, message: ending.why, answer: undefined });
        return;
      case "notAStream":
        this.#fail("UPSTREAM_PROTOCOL", "the engine answered without a stream", "upstream_failed");
        return;
      case "send":
        this.#usage = facts?.usage ?? null;
        this.#tries.passed(this.endpoint, facts?.errorStatus ?? head.status, this.#deps.clock.mono());
        this.#answer.whole(head, sent ?? body);
        this.#end(ending.outcome, null);
        return;
      default:
        assertNever(ending, "ending of a whole answer");
    }
  }

  #endFlow({ error, facts, place }: Extract<AttemptEnd, { kind: "flow" }>, trailers: readonly string[]): void {
    this.#usage = facts?.usage ?? null;
    const broken = error?.message ?? (facts?.looksComplete === false ? "the answer stops inside its JSON" : null);
    if (broken === null) {
      this.writer.end(trailers);
      this.#tries.passed(this.endpoint, this.#answer.status, this.#deps.clock.mono());
      this.#end(this.#answer.status < 400 ? "ok" : "engine_error", null);
    } else {
      this.#answer.breakOff("UPSTREAM_ERROR", `the engine broke off: ${broken}`, place, error?.completeFraming);
      this.#endTruncated(broken);
    }
  }

  #endStream(end: Extract<AttemptEnd, { kind: "stream" }>, trailers: readonly string[]): void {
    const { verdict, error } = end;
    this.#usage = verdict.usage;
    const ending = judgeStream(verdict, error !== null, this.streamEnd === "finishReason");
    const message = error?.message ?? verdict.errorMessage ?? "the stream ended without finishing the answer";
    if (ending.send === "end") this.writer.end(trailers);
    else if (ending.send === "cut") this.writer.breakOff(null);
    else this.#answer.breakOff("UPSTREAM_ERROR", `the engine broke off: ${message}`, verdict, error?.completeFraming);
    if (ending.good) this.#end("ok", null, false, verdict.finishSeen && !verdict.contentSeen);
    else this.#endTruncated(message, verdict.errorStatus);
  }

  #endTruncated(message: string, status?: number): void {
    if (this.endpoint !== null) this.#upstream.onResult(this.endpoint, breakResult(status), this.#deps.clock.mono());
    this.#metrics.streamErrors.inc();
    this.#warn("request.broken_off", "UPSTREAM_ERROR", message);
    this.#end("upstream_truncated", "UPSTREAM_ERROR");
  }

  /** Nothing more can be tried. Before the first byte a clear error; after a comment an error event. */
  #fail(code: ErrorCode, message: string, outcome: RequestOutcome, forClient = message): void {
    this.#warn("request.failed", code, message);
    this.#answer.refuse(code, forClient);
    this.#end(outcome, code);
  }

  /** Ends a running answer from our side: its time is spent, or the gateway stops. `blamed`: the endpoint let the time pass. */
  #cut(code: ErrorCode, message: string, outcome: RequestOutcome, blamed: boolean): void {
    const attempt = this.#attempt;
    const begun = attempt?.committed === true;
    const watched = attempt?.watcher?.finish();
    const framing = begun ? attempt.exchange?.completeFraming() : undefined;
    attempt?.abandon();
    if (this.endpoint !== null && blamed)
      this.#upstream.onResult(this.endpoint, { kind: "timeout" }, this.#deps.clock.mono());
    this.#usage = watched?.usage ?? null;
    this.#warn("request.cut", code, message);
    if (begun) this.#answer.breakOff(code, message, watched ?? attempt.unwatched, framing);
    else this.#answer.refuse(code, message);
    this.#end(outcome, code, true);
  }

  readonly #onClientClose = (): void => {
    if (this.#phase === "over") return;
    if (this.#phase === "waiting") {
      this.#metrics.abortedQueued.inc();
      this.#answer.addWait(this.#deps.clock.mono() - this.askedAt);
      this.#upstream.withdraw(this);
      this.#end("client_aborted_queued", "CLIENT_CLOSED");
      return;
    }
    if (this.#attempt?.committed === true) this.#metrics.abortedStreaming.inc();
    else this.#metrics.abortedBeforeFirstByte.inc();
    this.#usage = this.#attempt?.watcher?.finish().usage ?? null;
    this.#attempt?.abandon();
    this.#end("client_aborted", "CLIENT_CLOSED", true);
  };

  #end(outcome: RequestOutcome, code: ErrorCode | null, aborted = false, empty = false): void {
    if (this.#phase === "over") return;
    if (empty) this.#metrics.emptyAnswers.inc();
    const taken = this.#attempt?.exchange?.requestTaken === true;
    this.#close(aborted);
    this.#freeBody(taken);
    recordCall(this.#deps, this.#context, {
      upstream: this.#upstream,
      endpoint: this.endpoint,
      class: this.class,
      model: this.mode === "http" ? null : this.model,
      outcome,
      code,
      status: code === "CLIENT_CLOSED" ? 499 : this.#answer.status,
      queueMs: this.#answer.queueMs,
      firstByteMs: this.#clock.firstEventAt === undefined ? null : this.#clock.firstEventAt - this.#clock.startedAt,
      usage: this.#usage,
      bytesIn: this.bytes,
      bytesOut: this.writer.bytesOut,
      attempts: this.#tries.count,
      span: this.#span,
    });
    const { writeStallMs } = this.#upstream.settings.timeouts;
    cutIfNotTaken(this.#context.res, this.#deps, writeStallMs, this.#metrics.clientStalls);
    this.#onEnded(outcome, empty);
  }

  /** C1, but for the body and the record: they are those of whoever goes on. */
  #handOver(taker: () => void): void {
    this.#attempt?.abandon();
    this.#close(this.#attempt !== null);
    this.#span?.end({}, "error", this.#deps.clock.wall());
    this.#onEnded(null, false);
    taker();
  }

  #close(aborted: boolean): void {
    this.#phase = "over";
    this.#clock.stop();
    this.#context.res.onGone = null;
    this.#hold.release(aborted);
    this.#attempt = null;
  }

  #freeBody(taken = this.#attempt?.exchange?.requestTaken === true): void {
    letGoOfBody(this.#request, taken); // Tries before it are torn down.
  }

  // Time

  #onLimit(limit: CallLimit): void {
    const verdict = limit === "idle" ? this.#attempt?.watcher?.finish() : undefined;
    if (verdict?.doneSeen === true && streamSucceeded(verdict)) {
      // All of the answer is there, and only the engine's own end of it is not.
      this.#attempt?.abandon();
      this.#usage = verdict.usage;
      this.writer.end([]);
      this.#end("ok", null, true, !verdict.contentSeen);
      return;
    }
    const taker = limit === "firstByte" ? takerOf(this.#request, this.writer.committed, { kind: "stalled" }) : null;
    if (taker !== null) return this.#handOver(taker);
    if (limit !== "clientStalled") {
      // A deadline of the client's may be too short for any engine, and a long answer is no fault.
      const blamed = limit !== "deadline" && (limit !== "total" || this.#clock.firstEventAt === undefined);
      this.#cut("UPSTREAM_TIMEOUT", limitMessage(limit, this.#upstream.settings.timeouts), "upstream_timeout", blamed);
      return;
    }
    this.#metrics.clientStalls.inc();
    this.#attempt?.abandon();
    this.writer.destroy();
    this.#end("client_stalled", "CLIENT_CLOSED", true);
  }

  #onDrained(): void {
    this.#clock.drained();
    this.#attempt?.exchange?.resume();
  }

  #warn(op: string, code: ErrorCode, said: string): void {
    const who = { request: this.#context.requestId, key: this.keyId, code, attempts: this.#tries.count };
    this.#deps.log.warn(op, { ...who, ...failureFacts(this.#upstream.settings, this.endpoint, said) });
  }
}
