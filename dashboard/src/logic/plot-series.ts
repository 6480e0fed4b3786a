import { PLOT_SPAN_MS, type ByClass, type Plot, type UpstreamRow } from "../../../src/contract/board.ts";

/** From the bottom: batch lies where the line of `batch_max` can be compared with it. */
export const STACK = ["batch", "system", "interactive"] as const satisfies readonly (keyof ByClass)[];

export interface Point {
  readonly at: number;
  readonly inUse: ByClass;
  readonly slots: number;
  readonly batchMax: number;
}

/** A gap longer than this is drawn as one. */
const GAP_MS = 12_000;

/** The points of the last 15 minutes of one upstream, the oldest first. */
export class PlotSeries {
  readonly points: Point[] = [];

  /** What the server remembers goes before what has been seen here. */
  takePlot({ at, inUse, slots, batchMax }: Plot): void {
    const first = this.points[0]?.at ?? Infinity;
    const before = at.flatMap((ms, index) =>
      ms < first
        ? [
            {
              at: ms,
              inUse: {
                interactive: inUse.interactive[index] ?? 0,
                system: inUse.system[index] ?? 0,
                batch: inUse.batch[index] ?? 0,
              },
              slots: slots[index] ?? 0,
              batchMax: batchMax[index] ?? 0,
            },
          ]
        : [],
    );
    this.points.unshift(...before);
  }

  takeRow(at: number, { inUse, slots, batchMax }: UpstreamRow): void {
    if (at <= (this.points.at(-1)?.at ?? -Infinity)) return;
    this.points.push({ at, inUse, slots, batchMax });
    let old = 0;
    while ((this.points[old]?.at ?? Infinity) < at - PLOT_SPAN_MS) old += 1;
    if (old > 0) this.points.splice(0, old);
  }
}

export type Columns = [at: number[], ...stacked: (number | null)[][]];

/**
 * The columns to draw: times in seconds, one for each class with those below it added, then `batch_max` and the slots. Where nobody
 * looked for a while there is a row of nothing, so that no line is drawn across it.
 */
export function plotColumns(points: readonly Point[]): Columns {
  const columns: Columns = [[], [], [], [], [], []];
  let before = Infinity;
  for (const point of points) {
    if (point.at - before > GAP_MS) pushRow(columns, before + 1, null);
    pushRow(columns, point.at, point);
    before = point.at;
  }
  return columns;
}

function pushRow([times, ...rest]: Columns, at: number, point: Point | null): void {
  times.push(at / 1_000);
  let below = 0;
  STACK.forEach((name, index) => rest[index]?.push(point === null ? null : (below += point.inUse[name])));
  rest[3]?.push(point === null ? null : point.batchMax);
  rest[4]?.push(point === null ? null : point.slots);
}

export const total = ({ interactive, system, batch }: ByClass): number => interactive + system + batch;
