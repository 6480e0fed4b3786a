import type { JobError, JobPart } from "../../contract/job.ts";
import type { Random } from "../../kernel/random.ts";
import { retryDelayMs } from "./job-delays.ts";
import type { CallVerdict } from "./judge-run.ts";

/**
 * Which part of a job runs next, and what the parts make of the whole.
 *
 * Invariants:
 *   F1. At most `atOnce` parts run; a part that is done or failed for good is never started again.
 *   F2. A part is tried at most `attemptsMax` times in one claim, each after the last one's delay.
 *   F3. Without `allowPartial` the first part that failed for good ends the whole: nothing new is started.
 *   F4. A part that was postponed postpones the whole once nothing else runs: the parts that are done stay done. Where others are done
 *       meanwhile it waits for its turn here, and no more run at once than did then: so work behind a limit goes on at its pace.
 */
export interface FanOutOptions {
  readonly total: number;
  readonly atOnce: number;
  readonly attemptsMax: number;
  readonly allowPartial: boolean;
  /** Known from an earlier claim. */
  readonly finished: readonly JobPart[];
}

export type FanOutVerdict =
  | { readonly kind: "running" }
  | { readonly kind: "done"; readonly failed: readonly number[] }
  | { readonly kind: "failed"; readonly failed: readonly number[] }
  | { readonly kind: "postponed"; readonly error: JobError; readonly afterMs: number };

interface Waiting {
  readonly index: number;
  readonly tries: number;
  readonly readyAt: number;
}

/** Named in an error at most. */
const NAMED_MAX = 20;

export class FanOut {
  readonly #options: FanOutOptions;
  readonly #tries = new Map<number, number>();
  readonly #failed: number[] = [];
  #done = 0;
  #next = 0;
  readonly #known = new Set<number>();
  #later: Waiting[] = [];
  /** Parts at once, as long as more were only put off. */
  #width: number;
  #postponed: { readonly error: JobError; readonly afterMs: number } | null = null;

  constructor(options: FanOutOptions) {
    this.#options = options;
    this.#width = options.atOnce;
    for (const part of options.finished) {
      this.#known.add(part.index);
      if (part.error === null) this.#done += 1;
      else this.#failed.push(part.index);
    }
  }

  get running(): number {
    return this.#tries.size;
  }

  /** Parts to start now. */
  start(now: number): number[] {
    const started: number[] = [];
    while (this.running < Math.floor(this.#width) && !this.#stopping) {
      const part = this.#takeNext(now);
      if (part === undefined) break;
      this.#tries.set(part.index, part.tries + 1);
      started.push(part.index);
    }
    return started;
  }

  /** When the next part that waits for its delay may start; undefined when none does, or when one that runs must end first. */
  get nextAt(): number | undefined {
    return this.#later.length === 0 || this.#stopping || this.running >= Math.floor(this.#width)
      ? undefined
      : Math.min(...this.#later.map((part) => part.readyAt));
  }

  /** The part's try has ended. True: it has ended for good, and is to be stored. */
  ended(index: number, verdict: CallVerdict, now: number, random: Random): boolean {
    const tries = this.#tries.get(index);
    if (tries === undefined) throw new Error(`part ${index} ended without having run`);
    this.#tries.delete(index);
    switch (verdict.kind) {
      case "done":
        this.#done += 1;
        this.#postponed = null;
        // One more at once after as many as run: a limit that has grown is found, and one that has not costs few refusals.
        this.#width = Math.min(this.#options.atOnce, this.#width + 1 / this.#width);
        return true;
      case "postpone":
        this.#postponed ??= { error: verdict.error, afterMs: verdict.afterMs };
        this.#later.push({ index, tries: tries - 1, readyAt: now });
        this.#width = Math.max(1, Math.min(this.#width, this.running));
        return false;
      case "again":
        if (tries < this.#options.attemptsMax) {
          this.#later.push({ index, tries, readyAt: now + retryDelayMs(tries, random) });
          return false;
        }
        break;
      default:
        break;
    }
    this.#failed.push(index);
    return true;
  }

  verdict(): FanOutVerdict {
    const failed = this.#failed.toSorted((a, b) => a - b);
    // Who runs while the whole has failed is aborted by the caller; it changes nothing any more.
    if (failed.length > 0 && !this.#options.allowPartial) return { kind: "failed", failed };
    if (this.#done + failed.length === this.#options.total)
      return failed.length === this.#options.total ? { kind: "failed", failed } : { kind: "done", failed };
    if (this.#postponed !== null && this.running === 0) return { kind: "postponed", ...this.#postponed };
    return { kind: "running" };
  }

  get #stopping(): boolean {
    return this.#postponed !== null || (this.#failed.length > 0 && !this.#options.allowPartial);
  }

  #takeNext(now: number): { readonly index: number; readonly tries: number } | undefined {
    const due = this.#later.findIndex((part) => part.readyAt <= now);
    if (due >= 0) return this.#later.splice(due, 1)[0];
    while (this.#next < this.#options.total && this.#known.has(this.#next)) this.#next += 1;
    if (this.#next >= this.#options.total) return undefined;
    this.#next += 1;
    return { index: this.#next - 1, tries: 0 };
  }
}

export function partsError(failed: readonly number[], total: number): JobError {
  const named = failed.slice(0, NAMED_MAX).join(", ");
  const more = failed.length > NAMED_MAX ? ` and ${failed.length - NAMED_MAX} more` : "";
  return { code: "JOB_PARTS_FAILED", message: `${failed.length} of ${total} parts failed: ${named}${more}` };
}
