import type { ErrorCode } from "../kernel/errors.ts";
import type { RequestClass } from "./request-class.ts";

export const JOB_STATES = ["queued", "running", "completed", "failed", "cancelled"] as const;
export type JobState = (typeof JOB_STATES)[number];

/** One thing that was decided about a job, and why. At most the newest 32 are kept. */
export interface PlanStep {
  /** By the store's clock, epoch milliseconds. */
  readonly at: number;
  readonly what: "queued" | "claimed" | "postponed" | "retried" | "reclaimed" | "handed_back" | "overflow" | "ended";
  readonly why: string;
}

/** What the work came to, besides the bytes, which are kept apart. */
export interface JobResult {
  readonly status: number;
  readonly contentType: string;
  readonly bytes: number;
}

export interface JobError {
  readonly code: ErrorCode;
  readonly message: string;
}

/** A worker's time-limited right to run a job. Whoever does not hold the token changes nothing. */
export interface JobClaim {
  readonly token: string;
  /** By the store's clock. */
  readonly until: number;
}

/** How far the message about a job's end has come. */
export interface JobCallback {
  readonly url: string;
  readonly state: "idle" | "waiting" | "delivered" | "given_up";
  readonly tries: number;
  /** Not before this time, by the store's clock; a try under way pushes it on. */
  readonly nextAt: number;
  /** Of who is sending it now. */
  readonly token: string | null;
  readonly lastError: string | null;
}

/** What became of a job that was to be sent to a tier. Amounts are millionths of the currency. */
export interface JobErrand {
  readonly tier: string;
  /** Where the tier was when it was asked: an id of a task means something else at another place. Absent: not noted. */
  readonly place?: string;
  /** In the ledger. */
  readonly reservation: string;
  readonly micros: number;
  readonly currency: string;
  /** Null until the tier has taken the job; stored before anything else is done with it. */
  readonly taskId: string | null;
  readonly paidMicros: number | null;
  readonly state: "intended" | "accepted" | "ended";
}

/** How it was last decided whether the job runs here or on a tier. */
export interface JobOverflow {
  readonly card: "free" | "loaded" | "unreachable";
  readonly why: string;
  readonly decision: "local" | "held" | "tier";
  readonly tier: string | null;
  readonly signals: readonly JobSignal[];
  /** What each tier that was asked lacks. */
  readonly lacks: readonly { readonly tier: string; readonly lacks: readonly string[] }[];
  readonly errand: JobErrand | null;
}

export interface JobSignal {
  readonly kind: string;
  readonly state: "busy" | "not_busy" | "broken";
  readonly reachable: boolean | null;
  readonly value: number | null;
  readonly threshold: number | null;
  readonly reason: string;
}

/**
 * A job as it is stored, without its bytes. Times are epoch milliseconds by the clock of the store, which alone decides about
 * leases and deadlines; gateways only measure durations.
 */
export interface JobRecord {
  readonly id: string;
  /** Grows from job to job; lists are in its order. */
  readonly seq: number;
  /** Grows by one with each change: a change is stored only over the version that it was made from. */
  readonly version: number;

  // What was asked for; never changes.
  readonly keyId: string;
  readonly weight: number;
  readonly allowExternal: boolean;
  readonly class: RequestClass;
  readonly model: string | null;
  readonly upstream: string | null;
  readonly method: string;
  readonly path: string;
  readonly contentType: string | null;
  /** How many sub-calls; null for one call whose answer is the result. */
  readonly parts: number | null;
  readonly allowPartial: boolean;
  /** The batch whose lines the parts are. Absent: it is a job of its own. */
  readonly batch?: string;
  readonly onShed: "requeue" | "fail";
  /** JSON, as the client gave it. */
  readonly metadata: Readonly<Record<string, unknown>> | null;
  readonly idempotency: { readonly scope: string; readonly fingerprint: string } | null;
  readonly createdAt: number;
  /** A job that has not ended by then fails. */
  readonly deadlineAt: number;
  /** How long the job is kept after its end. */
  readonly keepMs: number;
  readonly attemptsMax: number;
  /** Of what was asked, all parts together. */
  readonly bodyBytes: number;

  // Where it stands.
  readonly state: JobState;
  /** Claims that may have reached an engine. */
  readonly attempts: number;
  /** Attempts that were given back since parts had ended in them, and how many had at the last time. Absent: none was. */
  readonly givenBack?: { readonly times: number; readonly parts: number };
  /** How often in a row it was put back without an engine having been asked. */
  readonly postponed: number;
  /** Place in its lane; lower goes first. */
  readonly order: number;
  /** Not claimed before this time. */
  readonly readyAt: number;
  readonly claim: JobClaim | null;
  /** The claim that wrote the outcome. */
  readonly settledBy: string | null;
  readonly startedAt: number | null;
  readonly endedAt: number | null;
  readonly expiresAt: number | null;
  /** How far the engine said that it is with the job's one call, 0 to 100; null where none says so. */
  readonly percent: number | null;
  /** Why it was last put back; the code with which it fails if its time runs out. */
  readonly lastError: JobError | null;
  readonly error: JobError | null;
  readonly result: JobResult | null;
  readonly callback: JobCallback | null;
  readonly plan: readonly PlanStep[];
  /** Absent: nobody has asked yet whether it runs here. `heldSince`: when it was first kept off a loaded card, or null. */
  readonly overflow?: JobOverflow & { readonly at: number; readonly heldSince: number | null };
}

/** What is known of one finished part of a job. */
export interface JobPart {
  readonly index: number;
  /** Of the call that came to this; absent in what an earlier version has stored. */
  readonly requestId?: string;
  readonly result: JobResult | null;
  readonly error: JobError | null;
}

/** A tier may have the job, or has it: whoever claims it goes on with that, and asks no engine. */
export const onErrand = ({ overflow }: Pick<JobRecord, "overflow">): boolean =>
  overflow?.errand !== undefined && overflow.errand !== null && overflow.errand.state !== "ended";

export const isOpen = (state: JobState): boolean => state === "queued" || state === "running";

/** Jobs of one lane and class wait in one line: the lane names what they need. */
export const laneOf = (job: Pick<JobRecord, "model" | "upstream">): string =>
  job.model === null ? `u:${job.upstream ?? ""}` : `m:${job.model}`;
