import type { MonoMs } from "../../kernel/clock.ts";

/** Waits are looked back at for so long; before that the queue was another one. */
const WINDOW_MS = 300_000;
const KEPT_MAX = 512;
const PART = 0.9;

/** How long those that came through a queue of late had waited in it: the newest few hundred. */
export class WaitMeter {
  readonly #at: number[] = [];
  readonly #ms: number[] = [];
  #next = 0;

  note(waitedMs: number, now: MonoMs): void {
    this.#at[this.#next] = now;
    this.#ms[this.#next] = waitedMs;
    this.#next = (this.#next + 1) % KEPT_MAX;
  }

  /** In milliseconds; null where nothing came through of late. Nine in ten waited no longer. */
  p90(now: MonoMs): number | null {
    const fresh = this.#ms.filter((_, index) => now - (this.#at[index] ?? 0) <= WINDOW_MS).toSorted((a, b) => a - b);
    return fresh[Math.ceil(fresh.length * PART) - 1] ?? null;
  }
}
