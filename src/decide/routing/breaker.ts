import type { MonoMs } from "../../kernel/clock.ts";

export const CONNECT_FAILURES_MAX = 3;
export const WINDOW_MS = 20_000;
export const WINDOW_RESULTS_MIN = 10;
export const FAILED_SHARE_MAX = 0.5;
export const OPEN_MS_MIN = 5_000;
export const OPEN_MS_MAX = 60_000;
/** A probe that never reports must not keep an endpoint away for ever. */
export const PROBE_MS_MAX = 120_000;

const BUCKETS = 20;
const BUCKET_MS = WINDOW_MS / BUCKETS;

/** In "halfOpen" one request at a time may show whether the endpoint is back. */
export type BreakerState = "closed" | "open" | "halfOpen";

/**
 * ok: a first event or a whole good answer came (say it then, not at the end of a long stream); connectFailed: no connection, or the
 * engine says that it is dead; failed: the engine's failure after a connection; clientFault: an answer that speaks neither
 * for nor against the engine (4xx, 429); abandoned: ended from our side before any judgement.
 */
export type ResultKind = "ok" | "connectFailed" | "failed" | "clientFault" | "abandoned";

/** "connect" and "stalled" are certain evidence, "errors" is a comparison that outlier ejection bounds (see outlier.ts). */
export type BreakerCause = "connect" | "stalled" | "errors";

/**
 * The breaker of one endpoint. Time comes in with each call and never goes back.
 *
 * Invariants:
 *   B1. An error rate is one of the present period: opening and closing forget the results before.
 *   B2. Half-open admits one request; the next only after that one's result, or PROBE_MS_MAX.
 *   B3. A client's fault changes no state; it ends a row of failed connections, because a connection was made.
 *   B4. Each opening lasts twice as long as the one before, until the endpoint has been well for OPEN_MS_MAX: an endpoint
 *       that answers one request and fails the next is not asked every five seconds for ever.
 */
export class Breaker {
  #state: BreakerState = "closed";
  #cause: BreakerCause | undefined;
  #reason: string | undefined;
  #failedShare = 0;
  #changedAt: MonoMs;
  #openMs = 0;
  #probeAt: MonoMs | undefined;
  #connectFailures = 0;
  /** A page's answer has shortened an opening since it was last closed. */
  #wasReached = false;
  readonly #ok = Array.from({ length: BUCKETS }, () => 0);
  readonly #failed = Array.from({ length: BUCKETS }, () => 0);
  #bucket = 0;

  constructor(now: MonoMs) {
    this.#changedAt = now;
  }

  state(now: MonoMs): BreakerState {
    if (this.#state === "open" && now - this.#changedAt >= this.#openMs) {
      this.#state = "halfOpen";
      this.#changedAt = now;
      this.#probeAt = undefined;
    }
    return this.#state;
  }

  /** Whether a request may be sent now. */
  mayTry(now: MonoMs): boolean {
    const state = this.state(now);
    return state === "closed" || (state === "halfOpen" && this.probeFree(now));
  }

  probeFree(now: MonoMs): boolean {
    return this.#probeAt === undefined || now - this.#probeAt >= PROBE_MS_MAX;
  }

  /** The request that goes out now is the probe, if the breaker is half-open: true then. */
  beginProbe(now: MonoMs): boolean {
    if (this.state(now) !== "halfOpen") return false;
    this.#probeAt = now;
    return true;
  }

  onResult(kind: ResultKind, now: MonoMs): void {
    const state = this.state(now);
    if (kind !== "abandoned") this.#connectFailures = kind === "connectFailed" ? this.#connectFailures + 1 : 0;
    if (kind === "clientFault" || kind === "abandoned") {
      this.#probeAt = undefined;
      return;
    }
    if (state === "closed") return this.#count(kind, now);
    // One that is open for errors may still be in use (see outlier.ts), and die meanwhile.
    if (this.#cause === "errors" && this.#connectFailures >= CONNECT_FAILURES_MAX) return this.#openForConnect(1, now);
    // Other results of requests that were under way before it opened say nothing new.
    if (state === "open") return;
    if (kind === "ok") this.#close(now);
    else this.#open(this.#cause ?? "errors", this.#reason ?? "", this.#failedShare, now);
  }

  /** Opens on evidence that is not a result, such as a stall. */
  trip(cause: BreakerCause, reason: string, now: MonoMs): void {
    if (this.state(now) === "open") return;
    this.#open(cause, reason, 1, now);
  }

  /**
   * Its health page says that it is well: who could not be connected to may be probed now, so that an engine that was only started anew is
   * not away for the rest of the time. Once until it has closed: a page that is well before an engine that is not must not undo B4.
   *
   * A probe that is there for longer than a connection takes has one, which is all that was in doubt: its answer may take minutes, and
   * the others need not wait for that.
   */
  reached(now: MonoMs, connectMs: number): void {
    if (this.#cause !== "connect") return;
    const isThere = this.#probeAt !== undefined && now - this.#probeAt > connectMs;
    if (this.state(now) === "halfOpen" && isThere) return this.#close(now);
    if (this.#state !== "open" || this.#wasReached) return;
    this.#wasReached = true;
    this.#state = "halfOpen";
    this.#changedAt = now;
    this.#probeAt = undefined;
  }

  /** Why it is not closed, for status pages and error messages; `undefined` when closed. */
  reason(): string | undefined {
    return this.#reason;
  }

  cause(): BreakerCause | undefined {
    return this.#cause;
  }

  /** Share of failed results when it opened. */
  failedShare(): number {
    return this.#failedShare;
  }

  /** Until it half-opens; 0 when it is not open. */
  retryInMs(now: MonoMs): number {
    return this.state(now) === "open" ? this.#changedAt + this.#openMs - now : 0;
  }

  #count(kind: "ok" | "connectFailed" | "failed", now: MonoMs): void {
    const bucket = this.#roll(now);
    (kind === "ok" ? this.#ok : this.#failed)[bucket]! += 1;
    if (kind === "ok") return;
    const failed = sum(this.#failed);
    const results = failed + sum(this.#ok);
    if (this.#connectFailures >= CONNECT_FAILURES_MAX) {
      this.#openForConnect(failed / results, now);
    } else if (results >= WINDOW_RESULTS_MIN && failed >= results * FAILED_SHARE_MAX) {
      this.#open("errors", `${failed} of ${results} requests in ${WINDOW_MS / 1_000} s failed`, failed / results, now);
    }
  }

  #openForConnect(failedShare: number, now: MonoMs): void {
    this.#open("connect", `${this.#connectFailures} connections in a row failed`, failedShare, now);
  }

  /** The present bucket's place, after emptying those whose time has passed. */
  #roll(now: MonoMs): number {
    const bucket = Math.floor(now / BUCKET_MS);
    const passed = Math.min(bucket - this.#bucket, BUCKETS);
    for (let i = 0; i < passed; i++) {
      const place = (bucket - i) % BUCKETS;
      this.#ok[place] = 0;
      this.#failed[place] = 0;
    }
    this.#bucket = Math.max(bucket, this.#bucket);
    return this.#bucket % BUCKETS;
  }

  #open(cause: BreakerCause, reason: string, failedShare: number, now: MonoMs): void {
    const wasWell = this.#state === "closed" && now - this.#changedAt >= OPEN_MS_MAX;
    this.#openMs = this.#openMs === 0 || wasWell ? OPEN_MS_MIN : Math.min(OPEN_MS_MAX, this.#openMs * 2);
    this.#state = "open";
    this.#cause = cause;
    this.#reason = reason;
    this.#failedShare = failedShare;
    this.#forget(now);
  }

  #close(now: MonoMs): void {
    this.#state = "closed";
    this.#cause = undefined;
    this.#reason = undefined;
    this.#failedShare = 0;
    this.#connectFailures = 0;
    this.#wasReached = false;
    this.#forget(now);
  }

  #forget(now: MonoMs): void {
    this.#changedAt = now;
    this.#probeAt = undefined;
    this.#ok.fill(0);
    this.#failed.fill(0);
  }
}

function sum(values: readonly number[]): number {
  let total = 0;
  for (const value of values) total += value;
  return total;
}
