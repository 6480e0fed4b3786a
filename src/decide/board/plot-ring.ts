import { PLOT_SPAN_MS, type Plot, type UpstreamRow } from "../../contract/board.ts";

const LOOKS_MAX = 900;
const UPSTREAMS_MAX = 20_000;

interface Point {
  readonly at: number;
  readonly values: readonly number[];
}

/**
 * The last quarter of an hour of each upstream.
 *
 * Invariants:
 *   P1. A value is kept when it changes, so what stands still costs nothing; the looks are kept once for all.
 *   P2. Between two looks nothing is made up: a plot has a point for each look, and none where nobody looked.
 */
export class PlotRing {
  /** When reports were taken, epoch ms. */
  readonly #looks: number[] = [];
  readonly #points = new Map<string, Point[]>();

  /** One look: every upstream that somebody told of. */
  note(rows: Iterable<UpstreamRow>, at: number): void {
    this.#looks.push(at);
    while (this.#looks.length > LOOKS_MAX || (this.#looks[0] ?? at) < at - PLOT_SPAN_MS) this.#looks.shift();
    const seen = new Set<string>();
    for (const row of rows) {
      seen.add(row.id);
      this.#noteRow(row, at);
    }
    for (const [id, points] of this.#points) {
      const [first, second] = points;
      // The one before the span's beginning still says what held there.
      if (first !== undefined && second !== undefined && second.at < at - PLOT_SPAN_MS) points.shift();
      if (!seen.has(id) && (points.at(-1)?.at ?? 0) < at - PLOT_SPAN_MS) this.#points.delete(id);
    }
  }

  plot(id: string): Plot {
    const points = this.#points.get(id) ?? [];
    const [first] = points;
    const at = first === undefined ? [] : this.#looks.filter((look) => look >= first.at);
    let index = 0;
    const values = at.map((look) => {
      while ((points[index + 1]?.at ?? Infinity) <= look) index += 1;
      return points[index]?.values ?? [];
    });
    const column = (of: number): number[] => values.map((each) => each[of] ?? 0);
    return {
      upstream: id,
      at,
      inUse: { interactive: column(0), system: column(1), batch: column(2) },
      waiting: { interactive: column(3), system: column(4), batch: column(5) },
      slots: column(6),
      batchMax: column(7),
    };
  }

  /** How many waited so long ago; null: not known. */
  waitingAt(id: string, at: number): number | null {
    const point = this.#points.get(id)?.findLast((each) => each.at <= at);
    if (point === undefined || !this.#looks.some((look) => look <= at)) return null;
    return (point.values[3] ?? 0) + (point.values[4] ?? 0) + (point.values[5] ?? 0);
  }

  #noteRow({ id, inUse, waiting, slots, batchMax }: UpstreamRow, at: number): void {
    const values = [
      inUse.interactive,
      inUse.system,
      inUse.batch,
      waiting.interactive,
      waiting.system,
      waiting.batch,
      slots,
      batchMax,
    ];
    const points = this.#points.get(id);
    if (points === undefined) {
      if (this.#points.size < UPSTREAMS_MAX) this.#points.set(id, [{ at, values }]);
      return;
    }
    const last = points.at(-1)?.values;
    if (last !== undefined && values.every((value, index) => value === last[index])) return;
    points.push({ at, values });
    if (points.length > LOOKS_MAX) points.shift();
  }
}
