import type { StoreFailure } from "../slot-store.ts";
import type { Reply } from "./redis-connection.ts";
import type { StepOutcome } from "./redis-link.ts";

/** What a step came to for who waits for it. `read` tells undefined for a reply that is none of its own. */
export function answerOf<T>(outcome: StepOutcome, read: (reply: Reply) => T | undefined): T | StoreFailure {
  switch (outcome.kind) {
    case "reply":
      return read(outcome.reply) ?? { kind: "unknown", reason: "an answer that can't be read" };
    case "refused":
    case "notSent":
      return { kind: "failed", reason: outcome.why };
    case "unknown":
      return { kind: "unknown", reason: outcome.why };
  }
}
