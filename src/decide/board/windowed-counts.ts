import type { MonoMs } from "../../kernel/clock.ts";

const WINDOW_MS = 60_000;
/** How finely the window's beginning is known. */
const MARK_MS = 5_000;

/** Counters that only grow, looked back at over the last minute. */
export class WindowedCounts {
  readonly #marks: { readonly at: MonoMs; readonly cells: readonly number[] }[] = [];
  #latest: readonly number[] = [];
  #changedAt: MonoMs;

  constructor(cells: readonly number[], now: MonoMs) {
    this.#latest = cells;
    this.#changedAt = now;
    this.#marks.push({ at: now, cells });
  }

  note(cells: readonly number[], now: MonoMs): void {
    if (cells.length === this.#latest.length && cells.every((cell, at) => cell === this.#latest[at])) return;
    const newest = this.#marks.at(-1);
    // A mark is the value up to its moment: what comes now is not in it.
    if (newest === undefined || now - newest.at >= MARK_MS) this.#marks.push({ at: now, cells: this.#latest });
    this.#latest = cells;
    this.#changedAt = now;
    while ((this.#marks[1]?.at ?? Infinity) <= now - WINDOW_MS) this.#marks.shift();
  }

  /** Whether anything was counted so lately that looking back may show something. */
  isLively(now: MonoMs): boolean {
    return now - this.#changedAt <= WINDOW_MS + MARK_MS;
  }

  /** What was counted in the last minute, and in how many ms that really was. A cell that did not exist then began at 0. */
  over(now: MonoMs): { readonly cells: number[]; readonly ms: number } {
    const from = now - WINDOW_MS;
    if (this.#changedAt <= from) return { cells: this.#latest.map(() => 0), ms: WINDOW_MS };
    const base = this.#marks.findLast(({ at }) => at <= from) ?? this.#marks[0];
    const cells = this.#latest.map((cell, at) => Math.max(0, cell - (base?.cells[at] ?? 0)));
    return { cells, ms: base === undefined ? 0 : Math.min(WINDOW_MS + MARK_MS, now - base.at) };
  }
}
