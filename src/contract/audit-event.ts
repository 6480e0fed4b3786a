import type { ErrorCode } from "../kernel/errors.ts";
import type { RequestClass } from "./request-class.ts";

/** How a request ended, as audit and metrics name it. */
export type RequestOutcome =
  | "ok"
  /** The engine's own error answer, passed through. */
  | "engine_error"
  /** Refused by the gateway before anything reached an engine. */
  | "refused"
  /** Waited for a slot until its time was spent. */
  | "queue_timeout"
  | "client_aborted_queued"
  | "client_aborted"
  /** The engine broke off, or spoke no valid protocol. */
  | "upstream_failed"
  | "upstream_truncated"
  | "upstream_timeout"
  | "client_stalled"
  | "drain_aborted"
  /** A job that was cancelled. */
  | "cancelled"
  /** No request: an endpoint was taken out for a GPU under it, or let in again. */
  | "guarded"
  | "unguarded"
  /** No request: what was decided about money for a tier. `money_committed` is stored before the call. */
  | "money_committed"
  | "money_charged"
  | "money_freed"
  | "money_held"
  | "money_refused"
  | "internal_error";

/**
 * One event per request and per job, written once at its end; of what an administrator changes it is written before. An endpoint that
 * the GPU guard takes out or lets in again is one too. Never a prompt, never a key.
 * What nobody measured is null. Times are milliseconds.
 */
export interface AuditEvent {
  /** Epoch milliseconds of the arrival. */
  readonly time: number;
  readonly requestId: string;
  readonly keyId: string | null;
  readonly class: RequestClass | null;
  readonly method: string;
  /** The route's pattern, not the raw path; for what an administrator changed, the path with the id of it; for the guard, its reason. */
  readonly route: string;
  readonly model: string | null;
  readonly upstream: string | null;
  readonly endpoint: string | null;
  readonly status: number;
  readonly outcome: RequestOutcome;
  readonly errorCode: ErrorCode | null;
  readonly queueMs: number | null;
  readonly firstByteMs: number | null;
  readonly totalMs: number;
  readonly promptTokens: number | null;
  readonly completionTokens: number | null;
  readonly cachedTokens: number | null;
  readonly bytesIn: number;
  readonly bytesOut: number;
  readonly attempts: number;
  readonly idempotentReplay: boolean;
  readonly cacheHit: boolean;
  readonly shed: boolean;
  readonly overflow: string | null;
}

/** The part of an event that tells of a call, where none was made. */
export const NO_CALL = {
  class: null,
  model: null,
  queueMs: null,
  firstByteMs: null,
  promptTokens: null,
  completionTokens: null,
  cachedTokens: null,
  bytesIn: 0,
  bytesOut: 0,
  attempts: 0,
  idempotentReplay: false,
  cacheHit: false,
  shed: false,
  overflow: null,
} as const satisfies Partial<AuditEvent>;

/** What `ctl audit query` can ask for. All fields narrow; absent means any. */
export interface AuditQuery {
  readonly sinceMs?: number;
  readonly untilMs?: number;
  readonly keyId?: string;
  readonly model?: string;
  readonly upstream?: string;
  readonly outcome?: string;
  readonly requestId?: string;
  /** Only events with a sequence number above this one; for `tail`. */
  readonly afterSeq?: number;
  readonly limit: number;
}

/** A stored event; `seq` grows by one per event, so a gap shows what was lost. */
export interface AuditRecord extends AuditEvent {
  readonly seq: number;
}

/**
 * A place where the record is not whole: sequence numbers that were given to events which never reached the store, or a
 * process that ended without closing (kill -9, power), where nobody can know how many of its last events are missing.
 */
export interface AuditGap {
  /** The last sequence number before the gap. */
  readonly afterSeq: number;
  /** How many events are missing; null when unknown. */
  readonly missing: number | null;
  readonly why: "dropped" | "run_not_closed";
  /** Epoch milliseconds at which the gap was noted, or the run that did not close began. */
  readonly time: number;
}

export interface AuditPage {
  /** Oldest first. */
  readonly records: readonly AuditRecord[];
  /** The highest sequence number given so far: where a reader that follows goes on when `records` was not full. */
  readonly lastSeq: number;
  /** Gaps inside the stored range, oldest first; with `afterSeq` only those at or above it. */
  readonly gaps: readonly AuditGap[];
  /** Events that never reached the sink since this process started. */
  readonly dropped: number;
}

/** All fields of an event, in the order in which they are stored and listed. */
export const AUDIT_FIELDS = [
  "time",
  "requestId",
  "keyId",
  "class",
  "method",
  "route",
  "model",
  "upstream",
  "endpoint",
  "status",
  "outcome",
  "errorCode",
  "queueMs",
  "firstByteMs",
  "totalMs",
  "promptTokens",
  "completionTokens",
  "cachedTokens",
  "bytesIn",
  "bytesOut",
  "attempts",
  "idempotentReplay",
  "cacheHit",
  "shed",
  "overflow",
] as const satisfies readonly (keyof AuditEvent)[];

/** Fails to compile when AuditEvent gains a field that AUDIT_FIELDS does not list. New fields go to the end. */
type Unlisted = Exclude<keyof AuditEvent, (typeof AUDIT_FIELDS)[number]>;
const allListed: [Unlisted] extends [never] ? true : never = true;
void allListed;
