/** What the fake ComfyUI shall do with one workflow; keys combine. Nothing set: it runs at once and gives one video. */
export interface ComfyAction {
  // The submission.
  /** The connection is reset before the prompt is taken, or after it in place of the answer. */
  readonly submit?: "resetBefore" | "resetAfter" | "invalid" | "unavailable";
  // The work.
  /** How long the prompt runs; default not at all. */
  readonly runMs?: number;
  /** "never": until it is interrupted or finished by the test. */
  readonly end?: "success" | "error" | "outOfMemory" | "never" | "nothing" | "text";
  /** Files that it writes; default 1. */
  readonly files?: number;
  readonly fileBytes?: number;
  /** Previews are kept as temporary files beside them. */
  readonly previews?: number;
  // Looks at it.
  /** "pruned": it has been forgotten, as the oldest are. */
  readonly history?: "serverError" | "garbage" | "reset" | "pruned";
  /** How many looks at the history `history` spoils; default all. */
  readonly spoiltLooks?: number;
  readonly view?: "missing" | "reset" | "serverError";
  /** The socket says nothing of it. */
  readonly mute?: boolean;
}

export interface ComfyRule {
  /** Text that the graph holds. */
  readonly holds?: string;
  /** At most so many prompts; default all. */
  readonly times?: number;
  readonly do: ComfyAction;
}

/** The rules in force. Where several fit, later ones override earlier ones key by key. */
export class ComfyScript {
  #rules: { readonly rule: ComfyRule; used: number }[] = [];

  add(rule: ComfyRule): void {
    this.#rules.push({ rule, used: 0 });
  }

  clear(): void {
    this.#rules = [];
  }

  actionFor(graph: string): ComfyAction {
    let action: ComfyAction = {};
    for (const entry of this.#rules) {
      const { rule } = entry;
      if (entry.used >= (rule.times ?? Number.POSITIVE_INFINITY) || !graph.includes(rule.holds ?? "")) continue;
      entry.used += 1;
      action = { ...action, ...rule.do };
    }
    return action;
  }
}
