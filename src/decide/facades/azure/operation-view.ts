import type { JobError, JobState } from "../../../contract/job.ts";
import { asEpoch, formatIsoTime } from "../../../kernel/clock.ts";
import type { ErrorCode } from "../../../kernel/errors.ts";
import { parseJsonObject } from "../../engines/readings.ts";

/** What is known of the job behind an operation. Times are epoch milliseconds by one clock. */
export interface OperationJob {
  readonly state: JobState;
  readonly createdAt: number;
  readonly startedAt: number | null;
  readonly endedAt: number | null;
  /** Not run before this time. */
  readonly readyAt: number;
  readonly now: number;
  readonly error: JobError | null;
}

export interface OperationView {
  readonly text: string;
  /** For `Retry-After`; null once there is nothing to wait for. */
  readonly retryAfterMs: number | null;
}

const RETRY_AFTER_MS_MIN = 1_000;
const RETRY_AFTER_MS_MAX = 10_000;
const STATUS = { queued: "notStarted", running: "running", cancelled: "canceled" } as const;

/** What is told of a job without a result of its own. `answer`: what the analyzer said last, of a job that failed. */
export function viewOperation(job: OperationJob, answer: string | null): OperationView {
  const times = {
    createdDateTime: formatIsoTime(asEpoch(job.createdAt)),
    lastUpdatedDateTime: formatIsoTime(asEpoch(job.endedAt ?? job.startedAt ?? job.createdAt)),
  };
  if (job.state === "failed" || job.state === "completed")
    return {
      text: JSON.stringify({ status: "failed", ...times, error: errorOf(job.error, answer) }),
      retryAfterMs: null,
    };
  const status = STATUS[job.state];
  const waits = job.state === "queued" ? job.readyAt - job.now : 0;
  return {
    text: JSON.stringify({ status, ...times }),
    retryAfterMs: job.state === "cancelled" ? null : Math.min(RETRY_AFTER_MS_MAX, Math.max(RETRY_AFTER_MS_MIN, waits)),
  };
}

/** Reasons for which the document itself is at fault, or how it was asked for; the others may pass. */
const OF_THE_REQUEST: ReadonlySet<ErrorCode> = new Set(["BAD_REQUEST", "BAD_JSON", "BODY_TOO_LARGE"]);

function errorOf(error: JobError | null, answer: string | null): Record<string, unknown> {
  const ours = error ?? { code: "INTERNAL", message: "there is no result" };
  const inner = { code: ours.code, message: ours.message };
  const said = answer === null ? undefined : parseJsonObject(answer)?.["error"];
  if (typeof said === "object" && said !== null && "code" in said && "message" in said)
    // As they are: clients show the innermost code, and it should be the analyzer's.
    return { ...said };
  const code = OF_THE_REQUEST.has(ours.code) ? "InvalidRequest" : "InternalServerError";
  return { code, message: ours.message, innererror: inner };
}
