/** What the fake analyzer shall do with one submitted document; keys combine. Nothing set: it is analysed as it should be. */
export interface AnalyzerAction {
  // The submission.
  readonly submitDelayMs?: number;
  /** This status with the error envelope in place of 202; nothing is taken in. */
  readonly submitStatus?: number;
  /** `Retry-After` of the answers to this document; null leaves it out. */
  readonly retryAfterS?: number | null;
  /** The connection is reset: before the document is taken in, or after it, in place of the 202. */
  readonly submitReset?: "before" | "after";
  /** How `Operation-Location` is told; "elsewhere" names another host, "unreadable" is no address. */
  readonly location?: "absent" | "relative" | "elsewhere" | "unreadable" | "otherPath";
  // The work.
  readonly startMs?: number;
  readonly analyzeMs?: number;
  readonly end?: "succeeded" | "failed" | "never";
  readonly error?: { readonly code: string; readonly message: string };
  /** The operation is forgotten after so many looks at it, as after a restart of the container. */
  readonly lostAfterLooks?: number;
  /** Bytes of recognised text, at least. */
  readonly textBytes?: number;
  // The looks at it.
  readonly lookDelayMs?: number;
  /** The first looks get this status with the error envelope. */
  readonly lookStatus?: number;
  /** The first looks are reset. */
  readonly lookReset?: boolean;
  readonly lookGarbage?: "html" | "halfJson" | "list" | "unknownStatus" | "noResult" | "empty";
  /** How many looks `lookStatus`, `lookReset` and `lookGarbage` spoil; absent: all. */
  readonly spoiltLooks?: number;
}

export interface AnalyzerRule {
  readonly match?: {
    readonly model?: string;
    /** Text that the document (its bytes, or its JSON) holds. */
    readonly holds?: string;
    /** At most so many documents. */
    readonly times?: number;
  };
  readonly do: AnalyzerAction;
}

/** The rules in force. Where several fit, later ones override earlier ones key by key. */
export class AnalyzerScript {
  #rules: { readonly rule: AnalyzerRule; used: number }[] = [];

  add(rule: AnalyzerRule): void {
    this.#rules.push({ rule, used: 0 });
  }

  clear(): void {
    this.#rules = [];
  }

  actionFor(model: string, document: Buffer): AnalyzerAction {
    let action: AnalyzerAction = {};
    for (const entry of this.#rules) {
      const { match = {}, do: what } = entry.rule;
      if (match.model !== undefined && match.model !== model) continue;
      if (match.holds !== undefined && !document.includes(match.holds)) continue;
      if (entry.used >= (match.times ?? Number.POSITIVE_INFINITY)) continue;
      entry.used += 1;
      action = { ...action, ...what };
    }
    return action;
  }
}
