import type { UpstreamSettings, UpstreamTimeouts } from "../../contract/gateway-config.ts";
import type { RequestClass } from "../../contract/request-class.ts";
import type { CallLimit } from "../../decide/calls/call-deadlines.ts";
import type { EngineAdapter } from "../../decide/engines/adapter.ts";
import type { RetryCause } from "../../decide/routing/retry-policy.ts";
import { blamesRequest } from "../../decide/sse/refusal-event.ts";
import { assertNever } from "../../kernel/assert-never.ts";
import type { ErrorCode } from "../../kernel/errors.ts";
import type { UpstreamHead } from "../upstream/port.ts";
import type { Endpoint } from "../upstreams/endpoint.ts";
import type { LeaveQueue } from "../upstreams/slot-seeker.ts";
import type { TryResult } from "../upstreams/try-result.ts";
import type { AttemptFailure } from "./attempt-outcome.ts";

/** Of an engine's error answer, what is read to know its kind. */
const ERROR_TEXT_BYTES = 8 * 1024;

/** What a request is told that leaves the queue without a slot. */
export function refusalOf(
  why: LeaveQueue,
  waitedMs: number,
  requestClass: RequestClass,
  detail: string,
): { readonly code: ErrorCode; readonly message: string } {
  const waited = Math.round(waitedMs);
  switch (why) {
    case "queueTimeout":
      return { code: "QUEUE_TIMEOUT", message: `no slot became free within ${waited} ms (class ${requestClass})` };
    case "startTimeout": {
      const reason = detail === "" ? "" : `: ${detail}`;
      return { code: "COLD_START", message: `the model was not started within ${waited} ms${reason}` };
    }
    case "notStarted":
      return { code: "UPSTREAM_UNAVAILABLE", message: detail };
    case "deadline":
    case "deadlineSpent":
      return { code: "QUEUE_TIMEOUT", message: `the request's own deadline was spent after ${waited} ms in the queue` };
    case "queueFull":
      return { code: "QUEUE_FULL", message: "the upstream's queue is full" };
    case "queueBytesFull":
      return { code: "QUEUE_FULL", message: "the bodies in the upstream's queue take all the memory allowed for them" };
    case "displaced":
      return {
        code: "QUEUE_FULL",
        message: "the upstream's queue is full, and a request with precedence took this place",
      };
    case "draining":
      return { code: "DRAINING", message: "the gateway is stopping" };
    case "removed":
      return { code: "UPSTREAM_UNAVAILABLE", message: "the upstream was removed from the configuration" };
    default:
      return assertNever(why, "reason to leave the queue");
  }
}

export interface FailureFacts {
  readonly cause: RetryCause;
  readonly message: string;
  readonly answer: { readonly head: UpstreamHead; readonly body: Buffer } | undefined;
}

export function retryCauseOf(failure: AttemptFailure, adapter: EngineAdapter): FailureFacts {
  switch (failure.kind) {
    case "status": {
      const { head, body } = failure;
      const text = body.subarray(0, ERROR_TEXT_BYTES).toString("utf8");
      return {
        cause: { kind: "status", status: head.status, error: adapter.classifyError(head.status, text) },
        message: `the engine answered ${head.status}`,
        answer: { head, body },
      };
    }
    case "transport":
      return {
        cause: { kind: "transport", failure: failure.failure, reused: failure.reused, ours: failure.ours === true },
        message: failure.message,
        answer: undefined,
      };
    case "errorFirst":
      return { cause: { kind: "errorFirst" }, message: failure.message, answer: undefined };
    case "emptyAnswer":
      return { cause: { kind: "emptyAnswer" }, message: "the engine's answer was empty", answer: undefined };
    case "garbage":
      return { cause: { kind: "garbage" }, message: failure.message, answer: undefined };
    default:
      return assertNever(failure, "attempt failure");
  }
}

export function codeOfCause(cause: RetryCause): ErrorCode {
  switch (cause.kind) {
    case "stalled":
      return "UPSTREAM_TIMEOUT";
    case "emptyAnswer":
    case "garbage":
      return "UPSTREAM_PROTOCOL";
    case "transport":
      return cause.failure === "protocol" ? "UPSTREAM_PROTOCOL" : "UPSTREAM_ERROR";
    case "errorFirst":
    case "status":
      return "UPSTREAM_ERROR";
    default:
      return assertNever(cause, "cause of a failed try");
  }
}

/** What an answer says of its engine that broke off; `status`: what its own error event stands for, if there was one. */
export const breakResult = (status: number | undefined): TryResult =>
  status !== undefined && blamesRequest(status)
    ? { kind: "status", status, error: "clientFault" }
    : { kind: "truncated" };

/** No connection came about, so nothing was asked of an engine. */
export const UNREACHED_MESSAGE = "the engine can't be reached";

/** Where the engines are is for the log alone. */
export const messageForClient = (cause: RetryCause, message: string): string => {
  if (cause.kind !== "transport" || cause.failure !== "connect") return message;
  return cause.ours === true ? "the gateway could not open a connection" : UNREACHED_MESSAGE;
};

/** For the log: where it was, and what was said, without what lets us in there. */
export const failureFacts = (
  { id, engineKey }: UpstreamSettings,
  endpoint: Endpoint | null,
  said: string,
): Readonly<Record<string, string | null>> => ({
  upstream: id,
  endpoint: endpoint?.id ?? null,
  message: (endpoint?.engineKey ?? engineKey)?.maskIn(said) ?? said,
});

/** What a client is told whose answer took too long. */
export function limitMessage(limit: Exclude<CallLimit, "clientStalled">, timeouts: UpstreamTimeouts): string {
  switch (limit) {
    case "total":
      return `the answer took longer than ${timeouts.totalMs / 1000} s`;
    case "deadline":
      return "the request's own deadline was spent";
    case "firstByte":
      return `the engine sent no first event within ${timeouts.firstByteMs / 1000} s`;
    case "idle":
      return `the engine was silent for ${timeouts.idleMs / 1000} s`;
    default:
      return assertNever(limit, "limit of a call");
  }
}
