import type { Clock, EpochMs, MonoMs, Timer } from "../kernel/clock.ts";

interface Entry {
  readonly at: number;
  readonly order: number;
  readonly fire: () => void;
}

const START_EPOCH_MS = 1_767_225_600_000; // 2026-01-01T00:00:00Z, a fixed date for records.

/** Time that moves only when told. Timers fire in order of their time, then of their making. */
export class VirtualClock implements Clock {
  #now = 0;
  #order = 0;
  #entries: Entry[] = [];

  mono(): MonoMs {
    return this.#now as MonoMs;
  }

  wall(): EpochMs {
    return (START_EPOCH_MS + this.#now) as EpochMs;
  }

  after(ms: number, callback: () => void): Timer {
    const entry: Entry = { at: this.#now + Math.max(0, ms), order: this.#order++, fire: callback };
    this.#entries.push(entry);
    return { cancel: () => (this.#entries = this.#entries.filter((other) => other !== entry)) };
  }

  sleep(ms: number, signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      if (signal.aborted) {
        reject(signal.reason);
        return;
      }
      const timer = this.after(ms, resolve);
      signal.addEventListener(
        "abort",
        () => {
          timer.cancel();
          reject(signal.reason);
        },
        { once: true },
      );
    });
  }

  /** Moves time forward, letting promises settle between timers. */
  async advance(ms: number): Promise<void> {
    const end = this.#now + ms;
    await settle();
    for (;;) {
      const next = this.#entries
        .filter((entry) => entry.at <= end)
        .toSorted((a, b) => a.at - b.at || a.order - b.order)[0];
      if (next === undefined) break;
      this.#entries = this.#entries.filter((entry) => entry !== next);
      this.#now = Math.max(this.#now, next.at);
      next.fire();
      await settle();
    }
    this.#now = end;
    await settle();
  }
}

const settle = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
