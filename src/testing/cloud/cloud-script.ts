/** What a fake cloud shall do with one submission; keys combine. Nothing set: the work is taken, done and charged as it should be. */
export interface CloudAction {
  // The submission.
  readonly submitDelayMs?: number;
  readonly submit?:
    | "rateLimited"
    | "unavailable"
    | "serverError"
    | "badRequest"
    | "badKey"
    | "noMoney"
    | "policy"
    /** An error that comes with status 200. */
    | "errorInside"
    /** The connection is reset before the work is taken, or after it, in place of the answer. */
    | "resetBefore"
    | "resetAfter"
    /** Taken, though the answer is that of "rateLimited". */
    | "takenRateLimited"
    /** Taken; the answer is no JSON, or names no task. */
    | "garbage"
    | "noTask"
    /** Taken, and no answer ever comes. */
    | "mute";
  /** Seconds in `Retry-After` of a refusal. */
  readonly retryAfterS?: number;
  // The work.
  /** Looks at the task that find it at work; default 1. */
  readonly looksUnder?: number;
  readonly end?: "succeeded" | "failed" | "never" | "noResult";
  /** The task is forgotten after so many looks. */
  readonly lostAfterLooks?: number;
  // The looks at it.
  readonly look?: "rateLimited" | "serverError" | "garbage" | "reset" | "errorInside" | "badKey";
  /** How many looks `look` spoils; default all. */
  readonly spoiltLooks?: number;
  /** What the cloud says that it charged, in place of its price. */
  readonly chargeTold?: unknown;
  // The result.
  readonly result?: "gone" | "reset" | "empty" | "serverError";
  readonly resultBytes?: number;
  /** Another address in place of the cloud's own. */
  readonly resultUrl?: string;
}

export interface CloudRule {
  /** At most so many submissions; default all. */
  readonly times?: number;
  /** Text that the submission's body holds. */
  readonly holds?: string;
  readonly do: CloudAction;
}

/** The rules in force. Where several fit, later ones override earlier ones key by key. */
export class CloudScript {
  #rules: { readonly rule: CloudRule; used: number }[] = [];

  add(rule: CloudRule): void {
    this.#rules.push({ rule, used: 0 });
  }

  clear(): void {
    this.#rules = [];
  }

  actionFor(body: string): CloudAction {
    let action: CloudAction = {};
    for (const entry of this.#rules) {
      const { rule } = entry;
      if (entry.used >= (rule.times ?? Number.POSITIVE_INFINITY) || !body.includes(rule.holds ?? "")) continue;
      entry.used += 1;
      action = { ...action, ...rule.do };
    }
    return action;
  }
}
