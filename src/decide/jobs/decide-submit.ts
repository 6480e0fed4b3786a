import type { JobRecord } from "../../contract/job.ts";
import type { ErrorCode } from "../../kernel/errors.ts";

/** What a submit with an idempotency key comes to, by the job that the key names already. */
export type SubmitDecision =
  | { readonly kind: "new" }
  /** The same request again: it gets the job that there is. */
  | { readonly kind: "replay" }
  | { readonly kind: "mismatch" }
  /** The job failed for a reason that passes: a new one takes its place under the key. */
  | { readonly kind: "afresh"; readonly instead: string };

/** Reasons that say nothing about the request, so that asking again later is right. */
const PASSING: ReadonlySet<ErrorCode> = new Set([
  "GPU_SATURATED",
  "UPSTREAM_UNAVAILABLE",
  "QUEUE_TIMEOUT",
  "QUEUE_FULL",
  "COLD_START",
  "DRAINING",
  "RATE_LIMITED",
  "KEY_QUOTA_SPENT",
  "KEY_COUNTS_UNAVAILABLE",
]);

export const isPassing = (code: ErrorCode): boolean => PASSING.has(code);

export function decideSubmit(existing: JobRecord | undefined, fingerprint: string): SubmitDecision {
  if (existing === undefined) return { kind: "new" };
  if (existing.idempotency?.fingerprint !== fingerprint) return { kind: "mismatch" };
  if (existing.state === "failed" && existing.error !== null && isPassing(existing.error.code))
    return { kind: "afresh", instead: existing.id };
  return { kind: "replay" };
}
