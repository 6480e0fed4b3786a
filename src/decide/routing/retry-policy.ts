import { assertNever } from "../../kernel/assert-never.ts";
import type { EngineErrorKind } from "../engines/adapter.ts";

/** Why a try failed before the client saw a byte of its answer. */
export type RetryCause =
  /** As the upstream client says it; `reused`: on a connection that had served before; `ours`: it was none of the engine's doing. */
  | {
      readonly kind: "transport";
      readonly failure: "connect" | "reset" | "truncated" | "protocol";
      readonly reused: boolean;
      readonly ours?: boolean;
    }
  /** An error answer; `error` is the engine adapter's reading of it. */
  | { readonly kind: "status"; readonly status: number; readonly error: EngineErrorKind }
  /** A 200 whose first event is an error. */
  | { readonly kind: "errorFirst" }
  /** A 200 without a byte, or without an event that says anything. */
  | { readonly kind: "emptyAnswer" }
  /** A 200 whose body is not what the route answers with. */
  | { readonly kind: "garbage" }
  | { readonly kind: "stalled" };

export interface RetryView {
  readonly cause: RetryCause;
  /** Asking twice does no harm: the inference calls, and safe methods. */
  readonly idempotent: boolean;
  /**
   * An attempt of a job, whoever counts which counts what it can do to engines, or a call that costs money each time it is sent: it
   * starts one engine at most.
   */
  readonly startsOnce: boolean;
  /** Tries after the first that this request has had, without those that no engine heard of. */
  readonly retries: number;
  readonly retriesMax: number;
  /** Whether the upstream's retry budget has room. */
  readonly budget: boolean;
}

export type RetryDecision =
  /**
   * "other": another endpoint, and the budget is charged. "unsent": another endpoint, while there is one that was not tried, beyond
   * `retriesMax` too and whatever the budget holds: no engine had any work of it, and the breakers end it. "same": the same endpoint once more on a fresh connection, since the engine
   * had closed the idle one and never saw the request.
   */
  | { readonly kind: "retry"; readonly on: "other" | "unsent" | "same" }
  | {
      readonly kind: "giveUp";
      readonly why: "notRetryable" | "notIdempotent" | "started" | "attemptsSpent" | "budget";
    };

const ON_OTHER: RetryDecision = { kind: "retry", on: "other" };
const ON_OTHER_UNSENT: RetryDecision = { kind: "retry", on: "unsent" };
const ON_SAME: RetryDecision = { kind: "retry", on: "same" };
const RETRYABLE_STATUS = new Set([429, 502, 503, 504]);

/** For a try of which the client has seen nothing; after the first byte there is no second try. */
export function mayRetryAttempt(view: RetryView): RetryDecision {
  const { cause } = view;
  if (!isRetryable(cause)) return { kind: "giveUp", why: "notRetryable" };
  // Without a connection nothing was sent, so nothing can have been done.
  const nothingSent = cause.kind === "transport" && cause.failure === "connect";
  if (!view.idempotent && !nothingSent) return { kind: "giveUp", why: "notIdempotent" };
  if (view.startsOnce && mayHaveKilled(cause)) return { kind: "giveUp", why: "started" };
  // Once: a fresh connection can't be stale, so a second break is the engine's.
  if (cause.kind === "transport" && cause.failure === "reset" && cause.reused && view.retries === 0) return ON_SAME;
  if (nothingSent && view.retriesMax > 0) return ON_OTHER_UNSENT;
  if (view.retries >= view.retriesMax) return { kind: "giveUp", why: "attemptsSpent" };
  return view.budget ? ON_OTHER : { kind: "giveUp", why: "budget" };
}

/** The engine went away with the request in its hands. */
const mayHaveKilled = (cause: RetryCause): boolean =>
  (cause.kind === "transport" && cause.failure !== "connect") ||
  (cause.kind === "status" && cause.error === "engineDead");

function isRetryable(cause: RetryCause): boolean {
  switch (cause.kind) {
    case "transport":
      return cause.failure !== "protocol";
    case "status":
      return (
        cause.error !== "clientFault" &&
        (RETRYABLE_STATUS.has(cause.status) ||
          (cause.status >= 500 && (cause.error === "engineDead" || cause.error === "shuttingDown")))
      );
    case "errorFirst":
    case "emptyAnswer":
    case "stalled":
      return true;
    // An engine that speaks wrongly is as likely to do so for the request's sake: the client is told at once.
    case "garbage":
      return false;
    default:
      return assertNever(cause, "cause of a failed try");
  }
}
