import { asMono, type MonoMs } from "../../kernel/clock.ts";

export const FAILURES_MAX = 3;
export const SPENT_MS_MAX = 300;
export const WINDOW_MS = 1_000;
/** From an opening or a failed probe to the next probe, plus up to a quarter of it by chance. */
export const PROBE_MS = 1_000;

/** In "halfOpen" a probe is under way; requests still do without. */
export type LinkState = "closed" | "open" | "halfOpen";

/**
 * Whether the shared store is asked at all. While it is not, nobody waits for it: one probe at a time finds out whether it
 * is back. Time comes in with each call.
 *
 * Invariants:
 *   K1. Closed, it opens at the third failure, or at 300 ms spent on failures, within one second.
 *   K2. Open, only a probe changes its state: what was asked before it opened, and is answered late, says nothing.
 *   K3. Probes begin at least PROBE_MS apart, whatever happens in between.
 */
export class LinkBreaker {
  #state: LinkState = "closed";
  #reason = "";
  /** Failures of the last second, oldest first; never more than FAILURES_MAX. */
  #failures: { readonly at: MonoMs; readonly spentMs: number }[] = [];
  #probeAt: MonoMs = asMono(0);
  #changedAt: MonoMs;

  constructor(now: MonoMs) {
    this.#changedAt = now;
  }

  get state(): LinkState {
    return this.#state;
  }

  /** Of the present opening, in words; empty when closed. */
  get reason(): string {
    return this.#reason;
  }

  get changedAt(): MonoMs {
    return this.#changedAt;
  }

  /** When the next probe is due; undefined while closed or while one is under way. */
  get probeAt(): MonoMs | undefined {
    return this.#state === "open" ? this.#probeAt : undefined;
  }

  /** Something asked failed after `spentMs`. `chance` in [0, 1) spreads the probes. True when it opens by this. */
  failed(reason: string, spentMs: number, chance: number, now: MonoMs): boolean {
    if (this.#state !== "closed") return false;
    this.#failures = this.#failures.filter(({ at }) => now - at < WINDOW_MS);
    this.#failures.push({ at: now, spentMs });
    const spent = this.#failures.reduce((sum, failure) => sum + failure.spentMs, 0);
    if (this.#failures.length < FAILURES_MAX && spent < SPENT_MS_MAX) return false;
    this.open(reason, chance, now);
    return true;
  }

  /** Opens on certain evidence: a server that never was there, or that lacks what is needed. */
  open(reason: string, chance: number, now: MonoMs): void {
    if (this.#state === "closed") this.#changedAt = now;
    this.#state = "open";
    this.#reason = reason;
    this.#failures = [];
    this.#probeAt = asMono(now + PROBE_MS * (1 + chance / 4));
  }

  /** False when it is not time for a probe. */
  beginProbe(now: MonoMs): boolean {
    if (this.#state !== "open" || now < this.#probeAt) return false;
    this.#state = "halfOpen";
    return true;
  }

  /** `failure` is undefined when the probe showed that the store works. */
  endProbe(failure: string | undefined, chance: number, now: MonoMs): void {
    if (this.#state !== "halfOpen") return;
    if (failure !== undefined) {
      this.open(failure, chance, now);
      return;
    }
    this.#state = "closed";
    this.#reason = "";
    this.#changedAt = now;
  }
}
