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

const SILENCES = {
  breakerOpen: "Redis was silent, and is only looked for until it answers",
  notConnected: "there is no connection to Redis",
  closed: "the connection to Redis is closed",
  timeout: "Redis did not answer in time",
  lost: "the connection to Redis broke off",
} as const satisfies Record<Exclude<StepOutcome, { kind: "reply" | "refused" }>["why"], string>;

/** Why a step brought nothing, for a person. */
export const whyNothing = (outcome: Exclude<StepOutcome, { kind: "reply" }>): string =>
  outcome.kind === "refused" ? outcome.message : SILENCES[outcome.why];
