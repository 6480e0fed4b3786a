import type { ResultKind } from "../../decide/routing/breaker.ts";
import type { RetryCause } from "../../decide/routing/retry-policy.ts";
import { assertNever } from "../../kernel/assert-never.ts";

/** How one try on an endpoint ended. */
export type TryResult = RetryCause | { readonly kind: "ok" | "truncated" | "timeout" | "abandoned" };

/** What a try says of the engine. */
export function resultKindOf(result: TryResult): ResultKind {
  switch (result.kind) {
    case "ok":
    case "abandoned":
      return result.kind;
    case "stalled":
      return "abandoned"; // The watch that found the stall has opened the breaker by itself.
    case "transport":
      if (result.failure === "connect") return result.ours === true ? "abandoned" : "connectFailed";
      return result.failure === "reset" && result.reused ? "abandoned" : "failed";
    case "status":
      if (result.error === "engineDead" || result.error === "shuttingDown") return "connectFailed";
      return result.error === "clientFault" || result.status === 429 ? "clientFault" : "failed";
    case "truncated":
    case "timeout":
    case "errorFirst":
    case "emptyAnswer":
    case "garbage":
      return "failed";
    default:
      return assertNever(result, "result of a try");
  }
}
