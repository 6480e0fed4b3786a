import type { RequestOutcome } from "../../contract/audit-event.ts";
import type { JobError } from "../../contract/job.ts";
import { ERRORS, type ErrorCode } from "../../kernel/errors.ts";
import { isPassing } from "./decide-submit.ts";

/** How one call of a job ended, as the client in memory and the call's own record tell it. */
export type CallReport =
  | { readonly kind: "answered"; readonly status: number; readonly outcome: RequestOutcome | null }
  | {
      readonly kind: "refused";
      readonly code: ErrorCode;
      readonly message: string;
      readonly retryAfterMs: number;
      /** No connection to any engine came about. */
      readonly unreached: boolean;
    }
  | { readonly kind: "brokenOff"; readonly code: ErrorCode | null }
  | { readonly kind: "tooLarge"; readonly bytesMax: number };

export type CallVerdict =
  | { readonly kind: "done" }
  /** Another try would come to the same. `keepsAnswer`: the engine's words are kept as the result. */
  | { readonly kind: "final"; readonly error: JobError; readonly keepsAnswer: boolean }
  /** An engine was asked, in vain. */
  | { readonly kind: "again"; readonly error: JobError; readonly keepsAnswer: boolean }
  /** Nobody was asked; it costs no attempt. */
  | { readonly kind: "postpone"; readonly error: JobError; readonly afterMs: number };

/** Error answers of engines that say "not now": the same request may succeed later. */
const LATER: ReadonlySet<number> = new Set([408, 409, 423, 425, 429, 500, 502, 503, 504, 507, 529]);

export function judgeCall(report: CallReport, onShed: "requeue" | "fail"): CallVerdict {
  switch (report.kind) {
    case "answered":
      return judgeAnswer(report.status, report.outcome);
    case "tooLarge":
      return {
        kind: "final",
        error: { code: "RESULT_TOO_LARGE", message: `the answer is larger than ${report.bytesMax} bytes` },
        keepsAnswer: false,
      };
    case "brokenOff":
      return {
        kind: "again",
        error: { code: report.code ?? "UPSTREAM_ERROR", message: "the answer broke off" },
        keepsAnswer: false,
      };
    default:
      return judgeRefusal(report, onShed);
  }
}

function judgeAnswer(status: number, outcome: RequestOutcome | null): CallVerdict {
  if (status >= 400) {
    const error: JobError = { code: "ENGINE_ERROR", message: `the engine answered ${status}` };
    return { kind: LATER.has(status) ? "again" : "final", error, keepsAnswer: true };
  }
  if (outcome === "ok") return { kind: "done" };
  // An error event inside a stream that ended properly, or an end without a finish reason, is no result.
  const error: JobError = { code: "UPSTREAM_ERROR", message: "the engine reported an error inside its answer" };
  return { kind: "again", error, keepsAnswer: false };
}

function judgeRefusal(report: Extract<CallReport, { kind: "refused" }>, onShed: "requeue" | "fail"): CallVerdict {
  const error: JobError = { code: report.code, message: report.message };
  if (report.code === "GPU_SATURATED" && onShed === "fail") return { kind: "final", error, keepsAnswer: false };
  if (isPassing(report.code) || report.unreached) return { kind: "postpone", error, afterMs: report.retryAfterMs };
  return { kind: ERRORS[report.code].retry === "never" ? "final" : "again", error, keepsAnswer: false };
}
