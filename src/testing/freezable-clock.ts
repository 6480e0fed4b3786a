import type { Clock, EpochMs, MonoMs, Timer } from "../kernel/clock.ts";

/**
 * One process's view of a shared clock, which can stand still as a process does that is stopped: time goes on, and what was due
 * happens when it wakes, in order.
 */
export class FreezableClock implements Clock {
  readonly #clock: Clock;
  #held: (() => void)[] | null = null;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  mono(): MonoMs {
    return this.#clock.mono();
  }

  wall(): EpochMs {
    return this.#clock.wall();
  }

  freeze(): void {
    this.#held ??= [];
  }

  thaw(): void {
    const due = this.#held ?? [];
    this.#held = null;
    for (const callback of due) callback();
  }

  /** Now, or when the process wakes. */
  whenAwake(callback: () => void): void {
    if (this.#held === null) callback();
    else this.#held.push(callback);
  }

  after(ms: number, callback: () => void): Timer {
    let cancelled = false;
    const timer = this.#clock.after(ms, () =>
      this.whenAwake(() => {
        if (!cancelled) callback();
      }),
    );
    return {
      cancel: () => {
        cancelled = true;
        timer.cancel();
      },
    };
  }

  sleep(ms: number, signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      if (signal.aborted) return reject(signal.reason);
      const timer = this.after(ms, resolve);
      signal.addEventListener(
        "abort",
        () => {
          timer.cancel();
          reject(signal.reason);
        },
        { once: true },
      );
      return undefined;
    });
  }
}
