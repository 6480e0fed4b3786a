import { type EpochMs, type MonoMs, asEpoch, asMono } from "../../kernel/clock.ts";

interface Planned {
  readonly at: number;
  readonly order: number;
  readonly run: () => void;
}

const START_EPOCH_MS = 1_767_225_600_000;

/** Virtual time for simulations of many small steps: no promises, every step runs to its end before the next. */
export class SimClock {
  /** Steps of the wall clock, which nothing may feel. */
  wallShiftMs = 0;
  steps = 0;
  #now = 0;
  #order = 0;
  readonly #heap: Planned[] = [];

  mono(): MonoMs {
    return asMono(this.#now);
  }

  wall(): EpochMs {
    return asEpoch(START_EPOCH_MS + this.#now + this.wallShiftMs);
  }

  after(ms: number, run: () => void): void {
    const heap = this.#heap;
    const entry: Planned = { at: this.#now + Math.max(0, ms), order: this.#order++, run };
    let at = heap.length;
    heap.push(entry);
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (before(heap[parent]!, entry)) break;
      heap[at] = heap[parent]!;
      at = parent;
    }
    heap[at] = entry;
  }

  /** Runs what is planned up to `until`, and calls `check` after every step. */
  run(until: number, check: () => void): void {
    for (let next = this.#heap[0]; next !== undefined && next.at <= until; next = this.#heap[0]) {
      this.#pop();
      this.#now = next.at;
      this.steps += 1;
      next.run();
      check();
    }
    this.#now = until;
  }

  #pop(): void {
    const heap = this.#heap;
    const last = heap.pop()!;
    if (heap.length === 0) return;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= heap.length) break;
      if (child + 1 < heap.length && before(heap[child + 1]!, heap[child]!)) child += 1;
      if (before(last, heap[child]!)) break;
      heap[at] = heap[child]!;
      at = child;
    }
    heap[at] = last;
  }
}

const before = (a: Planned, b: Planned): boolean => a.at < b.at || (a.at === b.at && a.order < b.order);
