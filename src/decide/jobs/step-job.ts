import {
  isOpen,
  onErrand,
  type JobCallback,
  type JobError,
  type JobOverflow,
  type JobRecord,
  type JobResult,
  type PlanStep,
} from "../../contract/job.ts";
import { assertNever } from "../../kernel/assert-never.ts";
import type { Random } from "../../kernel/random.ts";
import { retryDelayMs, postponeDelayMs, callbackDelayMs, CALLBACK_TRIES_MAX } from "./job-delays.ts";

/**
 * The life of a job, as a function. Both stores put it around their own atomic write: a change is stored only over the version
 * that it was made from, so what is decided here is decided once.
 *
 * Invariants:
 *   J1. Only the holder of the claim's token renews it, hands it back or writes an outcome; everybody else is `stale`.
 *   J2. An ended job never changes but for its callback. There is one outcome, and it is the first.
 *   J3. `attempts` never exceeds `attemptsMax`. A claim costs an attempt; only a claim that is known not to have asked an engine
 *       gives it back, or, ten times, one in which a part was done. One that goes on with an errand to a tier asks no engine and costs
 *       none.
 *   J4. Every open job ends: by its outcome, by its last attempt, by `cancel`, or at `deadlineAt`.
 *   J5. The same event told twice (its answer was lost) changes nothing the second time.
 */
export type JobEvent =
  | { readonly kind: "claim"; readonly token: string; readonly leaseMs: number }
  /** `percent`: how far the engine is, where it said so. */
  | { readonly kind: "renew"; readonly token: string; readonly leaseMs: number; readonly percent?: number }
  | { readonly kind: "complete"; readonly token: string; readonly result: JobResult; readonly why: string }
  /** The outcome is a failure that another attempt would not change. */
  | { readonly kind: "fail"; readonly token: string; readonly error: JobError; readonly result: JobResult | null }
  /** An engine was asked, in vain; it may go better later. */
  | { readonly kind: "retry"; readonly token: string; readonly error: JobError; readonly result: JobResult | null }
  /** No engine was asked: the job goes back and nothing was tried. `afterMs`: what the refusal said, or 0. */
  | { readonly kind: "postpone"; readonly token: string; readonly error: JobError; readonly afterMs: number }
  /** Where the job is to run, and how far its errand to a tier has come. */
  | { readonly kind: "overflow"; readonly token: string; readonly overflow: JobOverflow }
  /** The worker stops; somebody else goes on at once. */
  | { readonly kind: "handBack"; readonly token: string }
  | { readonly kind: "cancel"; readonly by: string }
  /** Its client wants nothing kept of it, before its time is over. */
  | { readonly kind: "forget" }
  /** Time has passed. `partsDone`: parts that have ended; absent: none. */
  | { readonly kind: "tick"; readonly partsDone?: number }
  | { readonly kind: "takeCallback"; readonly token: string; readonly leaseMs: number }
  | { readonly kind: "callbackSent"; readonly token: string }
  | { readonly kind: "callbackFailed"; readonly token: string; readonly why: string; readonly final: boolean };

export type JobStep =
  /** `ended`: this very step ended the job, so whoever stores it tells of the end. */
  | { readonly kind: "moved"; readonly job: JobRecord; readonly ended: boolean }
  | { readonly kind: "same" }
  | { readonly kind: "refused"; readonly why: "stale" | "ended" | "notClaimable" | "open" }
  /** Its time after the end has passed, or it is wanted no more: it is forgotten with all that belongs to it. */
  | { readonly kind: "forgotten" };

export const PLAN_STEPS_MAX = 32;
const MESSAGE_CHARS_MAX = 500;
/** Of what a longer message tells of an earlier one. */
const CAUSE_CHARS_MAX = 250;

const SAME: JobStep = { kind: "same" };
const STALE: JobStep = { kind: "refused", why: "stale" };
const ENDED: JobStep = { kind: "refused", why: "ended" };
const NOT_CLAIMABLE: JobStep = { kind: "refused", why: "notClaimable" };

export function stepJob(job: JobRecord, event: JobEvent, now: number, random: Random): JobStep {
  switch (event.kind) {
    case "tick":
      return tick(job, event.partsDone ?? 0, now, random);
    case "takeCallback":
    case "callbackSent":
    case "callbackFailed":
      return stepCallback(job, event, now);
    case "claim":
      return claim(job, event, now);
    case "cancel":
      if (!isOpen(job.state)) return job.state === "cancelled" ? SAME : ENDED;
      return end(job, now, {
        state: "cancelled",
        error: null,
        result: null,
        token: null,
        why: `cancelled by ${event.by}`,
      });
    case "forget":
      return isOpen(job.state) ? { kind: "refused", why: "open" } : { kind: "forgotten" };
    case "renew":
    case "complete":
    case "fail":
    case "retry":
    case "postpone":
    case "overflow":
    case "handBack":
      return stepClaimed(job, event, now, random);
    default:
      return assertNever(event, "job event");
  }
}

function claim(job: JobRecord, event: Extract<JobEvent, { kind: "claim" }>, now: number): JobStep {
  if (job.claim?.token === event.token) return SAME;
  if (job.state !== "queued" || job.readyAt > now || job.deadlineAt <= now) return NOT_CLAIMABLE;
  const follows = onErrand(job);
  if (job.attempts >= job.attemptsMax && !follows) return NOT_CLAIMABLE;
  const attempts = job.attempts + Number(!follows);
  return move(job, {
    state: "running",
    attempts,
    claim: { token: event.token, until: now + event.leaseMs },
    startedAt: job.startedAt ?? now,
    plan: noted(
      job,
      now,
      "claimed",
      follows ? "to go on with its errand" : `attempt ${attempts} of ${job.attemptsMax}`,
    ),
  });
}

type ClaimedEvent = Extract<
  JobEvent,
  { kind: "renew" | "complete" | "fail" | "retry" | "postpone" | "overflow" | "handBack" }
>;

function stepClaimed(job: JobRecord, event: ClaimedEvent, now: number, random: Random): JobStep {
  if (job.claim?.token !== event.token) return job.settledBy === event.token && event.kind !== "renew" ? SAME : STALE;
  switch (event.kind) {
    case "renew":
      return move(job, {
        claim: { token: event.token, until: now + event.leaseMs },
        percent: event.percent ?? job.percent,
      });
    case "complete":
      return end(job, now, {
        state: "completed",
        error: null,
        result: event.result,
        token: event.token,
        why: event.why,
      });
    case "fail":
      return end(job, now, {
        state: "failed",
        error: event.error,
        result: event.result,
        token: event.token,
        why: "no other attempt would change it",
      });
    case "retry":
      if (job.attempts >= job.attemptsMax)
        return end(job, now, {
          state: "failed",
          error: event.error,
          result: event.result,
          token: event.token,
          why: `attempt ${job.attempts} was the last`,
        });
      return requeue(job, {
        readyAt: now + retryDelayMs(job.attempts, random),
        lastError: bounded(event.error),
        postponed: 0,
        settledBy: event.token,
        plan: noted(job, now, "retried", `${event.error.code}: ${event.error.message}`),
      });
    case "overflow":
      return move(job, {
        overflow: {
          ...event.overflow,
          at: now,
          heldSince: job.overflow?.heldSince ?? (event.overflow.decision === "held" ? now : null),
        },
        ...overflowNote(job, event.overflow, now),
      });
    case "postpone":
      return requeue(job, {
        attempts: job.attempts - Number(!onErrand(job)),
        readyAt: now + Math.max(event.afterMs, postponeDelayMs(job.postponed, random)),
        lastError: bounded(event.error),
        postponed: job.postponed + 1,
        settledBy: event.token,
        plan: notedOnce(job, now, "postponed", `${event.error.code}: ${event.error.message}`),
      });
    case "handBack":
      return requeue(job, {
        attempts: Math.max(0, job.attempts - Number(!onErrand(job))),
        readyAt: now,
        settledBy: event.token,
        plan: noted(job, now, "handed_back", "the gateway that ran it stops"),
      });
    default:
      return assertNever(event, "event of a claim");
  }
}

/**
 * Gateways that end again and again while a job with parts goes on are no fault of the job. One of its parts may be what ends them, though:
 * this bounds how often.
 */
const GIVEN_BACK_MAX = 10;

function tick(job: JobRecord, partsDone: number, now: number, random: Random): JobStep {
  if (job.expiresAt !== null) return job.expiresAt <= now ? { kind: "forgotten" } : SAME;
  if (job.deadlineAt <= now) {
    return end(job, now, {
      state: "failed",
      error: deadlineError(job),
      result: null,
      token: null,
      why: "its deadline passed",
    });
  }
  if (job.claim === null || job.claim.until > now) return SAME;
  if (onErrand(job))
    return requeue(job, {
      readyAt: now,
      plan: noted(job, now, "reclaimed", "the claim was not renewed; a tier may have the job"),
    });
  const { times, parts } = job.givenBack ?? { times: 0, parts: 0 };
  if (partsDone > parts && times < GIVEN_BACK_MAX)
    return requeue(job, {
      attempts: Math.max(0, job.attempts - 1),
      givenBack: { times: times + 1, parts: partsDone },
      readyAt: now + retryDelayMs(job.attempts, random),
      plan: noted(
        job,
        now,
        "reclaimed",
        `the claim of attempt ${job.attempts} was not renewed; parts were done in it, so it does not count`,
      ),
    });
  if (job.attempts >= job.attemptsMax) {
    const error: JobError = {
      code: "JOB_INTERRUPTED",
      message: `the process that ran it ended in each of ${job.attempts} attempts`,
    };
    return end(job, now, { state: "failed", error, result: null, token: null, why: "its last claim ran out" });
  }
  return requeue(job, {
    readyAt: now + retryDelayMs(job.attempts, random),
    plan: noted(job, now, "reclaimed", `the claim of attempt ${job.attempts} was not renewed`),
  });
}

/** The reason that it waited for comes first: it says what is to be mended before the same is submitted again. */
function deadlineError({ lastError, deadlineAt, createdAt, attempts }: JobRecord): JobError {
  const over = `its time was over ${Math.round((deadlineAt - createdAt) / 1_000)} s after it was submitted, and it is not tried again`;
  const reached = attempts === 0 ? "no engine had it" : "an engine may have done it already";
  return lastError === null
    ? {
        code: "JOB_DEADLINE",
        message: `${over}; ${reached}. Submit it anew with a longer deadline_s, and with another Idempotency-Key if it had one`,
      }
    : {
        code: lastError.code,
        message: `${lastError.message.slice(0, CAUSE_CHARS_MAX)}; ${over}; ${reached}. It can be submitted anew`,
      };
}

type CallbackEvent = Extract<JobEvent, { kind: "takeCallback" | "callbackSent" | "callbackFailed" }>;

function stepCallback(job: JobRecord, event: CallbackEvent, now: number): JobStep {
  const { callback } = job;
  if (callback?.state !== "waiting") return STALE;
  if (event.kind === "takeCallback") {
    if (callback.token === event.token) return SAME;
    if (callback.nextAt > now) return NOT_CLAIMABLE;
    return moveCallback(job, callback, { token: event.token, tries: callback.tries + 1, nextAt: now + event.leaseMs });
  }
  if (callback.token !== event.token) return STALE;
  if (event.kind === "callbackSent")
    return moveCallback(job, callback, { state: "delivered", token: null, lastError: null });
  const lastError = event.why.slice(0, MESSAGE_CHARS_MAX);
  if (event.final || callback.tries >= CALLBACK_TRIES_MAX)
    return moveCallback(job, callback, { state: "given_up", token: null, lastError });
  return moveCallback(job, callback, { token: null, lastError, nextAt: now + callbackDelayMs(callback.tries) });
}

interface Outcome {
  readonly state: "completed" | "failed" | "cancelled";
  readonly error: JobError | null;
  readonly result: JobResult | null;
  readonly token: string | null;
  readonly why: string;
}

function end(job: JobRecord, now: number, outcome: Outcome): JobStep {
  const { state, error, result } = outcome;
  const said = error === null ? outcome.why : `${error.code}: ${outcome.why}`;
  return {
    kind: "moved",
    ended: true,
    job: {
      ...job,
      version: job.version + 1,
      state,
      claim: null,
      settledBy: outcome.token,
      error: error === null ? null : bounded(error),
      result,
      endedAt: now,
      expiresAt: now + job.keepMs,
      callback: job.callback === null ? null : { ...job.callback, state: "waiting", nextAt: now },
      plan: noted(job, now, "ended", `${state}: ${said}`),
    },
  };
}

const requeue = (job: JobRecord, change: Partial<JobRecord>): JobStep =>
  move(job, { state: "queued", claim: null, percent: null, ...change });

const move = (job: JobRecord, change: Partial<JobRecord>): JobStep => ({
  kind: "moved",
  ended: false,
  job: { ...job, ...change, version: job.version + 1 },
});

const moveCallback = (job: JobRecord, callback: JobCallback, change: Partial<JobCallback>): JobStep =>
  move(job, { callback: { ...callback, ...change } });

const bounded = (error: JobError): JobError => ({
  code: error.code,
  message: error.message.slice(0, MESSAGE_CHARS_MAX),
});

function noted(job: JobRecord, at: number, what: PlanStep["what"], why: string): readonly PlanStep[] {
  const step: PlanStep = { at, what, why: why.slice(0, MESSAGE_CHARS_MAX) };
  // The first one tells where the job was sent, and stays.
  const kept = job.plan.length < PLAN_STEPS_MAX ? job.plan : [...job.plan.slice(0, 1), ...job.plan.slice(2)];
  return [...kept, step];
}

/** What is decided anew at each claim is noted where it is news. */
function overflowNote(job: JobRecord, next: JobOverflow, at: number): Partial<JobRecord> {
  const before = job.overflow;
  const same =
    before?.decision === next.decision && before.tier === next.tier && before.errand?.state === next.errand?.state;
  if (same || (before === undefined && next.card === "free")) return {};
  const where = next.tier === null ? next.decision : `tier ${next.tier}`;
  const errand = next.errand === null ? "" : `, ${next.errand.state}`;
  return { plan: noted(job, at, "overflow", `${where}${errand}${next.why === "" ? "" : `: ${next.why}`}`) };
}

/** A job may wait for hours: what is decided again and again for one reason stands there once, with the newest time. */
function notedOnce(job: JobRecord, at: number, what: PlanStep["what"], why: string): readonly PlanStep[] {
  const before = job.plan.at(-2);
  if (before?.what !== what || before.why !== why.slice(0, MESSAGE_CHARS_MAX)) return noted(job, at, what, why);
  return [...job.plan.slice(0, -2), { ...before, at }];
}
