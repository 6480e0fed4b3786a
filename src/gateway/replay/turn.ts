import type { FoundReply, ReplyStore } from "../../coord/reply-store.ts";
import type { StepBudget } from "../../decide/coordination/step-budget.ts";
import type { ClaimName } from "../../decide/replay/claims.ts";
import type { Clock, MonoMs } from "../../kernel/clock.ts";
import type { Random } from "../../kernel/random.ts";
import { CLAIM_LEASE_MS } from "./claim-keeper.ts";

/** What came of asking a store for an answer or the claim to work on it. */
export type Turn =
  /** `alone`: others on this gateway wait for it, those on other gateways do not. */
  | { readonly kind: "taken"; readonly alone?: true }
  | ({ readonly kind: "found"; readonly waited: boolean } & FoundReply)
  | { readonly kind: "mismatch" }
  /** Somebody else still works on it. */
  | { readonly kind: "waitedLong" }
  /** The store is away: nothing is known, and nothing is protected. */
  | { readonly kind: "away" }
  /** `Patience.end` was called. */
  | { readonly kind: "ended" };

/** Between two questions when no hint comes: hints may be lost. */
const POLL_MS = 1_000;

/** Lets one waiting request be ended from outside, and told of changes. */
export class Patience {
  #ended = false;
  #wake: (() => void) | null = null;
  #hinted = false;

  get ended(): boolean {
    return this.#ended;
  }

  end(): void {
    this.#ended = true;
    this.#wake?.();
  }

  readonly hint = (): void => {
    this.#hinted = true;
    this.#wake?.();
  };

  /** Until a hint, the end, or `ms`. */
  wait(clock: Clock, ms: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = clock.after(ms, () => this.#wake?.());
      this.#wake = () => {
        this.#wake = null;
        this.#hinted = false;
        timer.cancel();
        resolve();
      };
      if (this.#hinted || this.#ended) this.#wake();
    });
  }
}

/**
 * Asks until there is an answer, the claim, or no more time. Whoever gets "taken" must finish or drop the claim. `budget` pays for
 * the questions until there is somebody to wait for, and for a question after that which the store left without an answer.
 */
export async function takeTurn(
  store: ReplyStore,
  claim: ClaimName,
  fingerprint: string,
  until: MonoMs,
  patience: Patience,
  budget: StepBudget,
  { clock, random }: { readonly clock: Clock; readonly random: Random },
): Promise<Turn> {
  let watch: Disposable | undefined;
  let waited = false;
  try {
    for (;;) {
      if (patience.ended) return { kind: "ended" };
      const askedAt = clock.mono();
      const outcome = await store.begin(claim, fingerprint, CLAIM_LEASE_MS, waited ? undefined : budget.leftMs);
      if (!waited || (outcome.kind === "taken" && outcome.alone === true)) budget.spend(clock.mono() - askedAt);
      if (outcome.kind === "found") return { ...outcome, waited };
      if (outcome.kind !== "running") return outcome;
      if (watch === undefined) {
        // Asked again at once: the change may have come before there was anybody to tell of it.
        watch = store.watch(claim, patience.hint);
        continue;
      }
      const left = until - clock.mono();
      if (left <= 0) return { kind: "waitedLong" };
      waited = true;
      // Jitter, so that those who wait on many gateways do not ask in step.
      await patience.wait(clock, Math.min(left, POLL_MS * (0.75 + random.next() / 2)));
    }
  } catch {
    return { kind: "away" };
  } finally {
    watch?.[Symbol.dispose]();
  }
}
