import { assertNever } from "../../kernel/assert-never.ts";
import { YardmasterError } from "../../kernel/errors.ts";
import type { Leadership } from "../leader/leadership.ts";
import type { ActionOutcome } from "../view/cluster-view.ts";
import { type Answer, json } from "./answer.ts";

/** What came of an action, as an answer; throws what it was refused for, and `unknown` where its target is not there. */
export function answerOutcome(
  leadership: Pick<Leadership, "view">,
  outcome: ActionOutcome,
  unknown: YardmasterError,
  body: (replicas: readonly string[]) => unknown,
): Answer {
  switch (outcome.kind) {
    case "done":
      return json(body(outcome.replicas ?? []));
    case "unknownTarget":
      throw unknown;
    case "refused":
      throw new YardmasterError("ACTION_REFUSED", outcome.why);
    case "notLeader": {
      const { leader } = leadership.view();
      const who = leader === null ? "and who does is not known" : `${leader.holder} does`;
      throw new YardmasterError("NOT_LEADER", `this control plane does not lead, ${who}`);
    }
    case "storeUnavailable":
      throw new YardmasterError(
        "STORE_UNAVAILABLE",
        "the store did not take the change; it may have been made all the same",
      );
    default:
      return assertNever(outcome, "action outcome");
  }
}
