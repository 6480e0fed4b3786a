import type { BodyFacts } from "../http/body-usage.ts";
import { blamesRequest } from "../sse/refusal-event.ts";
import { streamSucceeded, type StreamVerdict } from "../sse/stream-watcher.ts";

/**
 * What becomes of a whole answer. `facts`: null for bodies that are not JSON. `mayGoOn`: somebody else is there to go on with the request,
 * for whom an error with a good status is no answer, unless it is the request's own.
 */
export type WholeEnding =
  | { readonly kind: "send"; readonly outcome: "ok" | "engine_error" }
  | { readonly kind: "garbage"; readonly why: string }
  /** Comments have made it a stream already. */
  | { readonly kind: "notAStream" };

export function judgeWhole(facts: BodyFacts | null, begun: boolean, fits: boolean, mayGoOn: boolean): WholeEnding {
  if (facts?.looksComplete === false) return { kind: "garbage", why: "the engine's answer is not valid JSON" };
  if (begun) return { kind: "notAStream" };
  if (!fits) return { kind: "garbage", why: "the engine's answer is not what this route answers with" };
  if (mayGoOn && facts?.isError === true && !blamesRequest(facts.errorStatus))
    return { kind: "garbage", why: "the engine answered with an error in place of a result" };
  return { kind: "send", outcome: facts?.isError === true ? "engine_error" : "ok" };
}

/**
 * How a stream that went to its client ends there, and whether the answer was good. An engine's own error event, or its
 * [DONE], goes on as it came, and is a failure all the same without a finish; any other cut is told by an error event.
 */
export interface StreamEnding {
  readonly send: "end" | "cut" | "errorEvent";
  readonly good: boolean;
}

/** `broken`: the connection to the engine broke. `needsFinish`: the route's streams say when they are finished. */
export function judgeStream(verdict: StreamVerdict, broken: boolean, needsFinish: boolean): StreamEnding {
  const finished = streamSucceeded(verdict) || (!needsFinish && !verdict.errorSeen && !verdict.overflow);
  if (broken) return { send: verdict.errorSeen ? "cut" : "errorEvent", good: false };
  if (finished) return { send: "end", good: true };
  return { send: verdict.errorSeen || verdict.doneSeen ? "end" : "errorEvent", good: false };
}
