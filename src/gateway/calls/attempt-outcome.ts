import type { BodyFacts } from "../../decide/http/body-usage.ts";
import type { StreamPlace, StreamVerdict } from "../../decide/sse/stream-watcher.ts";
import type { UpstreamError, UpstreamFailure, UpstreamHead } from "../upstream/port.ts";

/** Why a try came to nothing before the client saw a byte of it. */
export type AttemptFailure =
  | {
      readonly kind: "transport";
      readonly failure: UpstreamFailure;
      readonly reused: boolean;
      readonly ours?: boolean;
      readonly message: string;
    }
  /** An error answer of the engine, whole or its first part; or an error as first event that blames the request. It may be passed on as it is. */
  | { readonly kind: "status"; readonly head: UpstreamHead; readonly body: Buffer }
  /** A 200 whose first event is an error of the engine's own. */
  | { readonly kind: "errorFirst"; readonly message: string }
  /** A 200 without a byte, or with nothing but `[DONE]`. */
  | { readonly kind: "emptyAnswer" }
  | { readonly kind: "garbage"; readonly message: string };

/** How a try ended whose bytes (some or all) went to the client. */
export type AttemptEnd =
  | { readonly kind: "stream"; readonly verdict: StreamVerdict; readonly error: UpstreamError | null }
  | { readonly kind: "whole"; readonly head: UpstreamHead; readonly body: Buffer; readonly isJson: boolean }
  /** `facts`: what the two ends of a large JSON answer tell. `place`: of an event stream that nobody looked into. */
  | {
      readonly kind: "flow";
      readonly error: UpstreamError | null;
      readonly facts: BodyFacts | null;
      readonly place: StreamPlace | undefined;
    };
