import type { Percentiles } from "../../contract/board.ts";

const MS = 1_000;

/**
 * Out of a histogram: `cells` are not cumulative, the last one is above all bounds (in seconds). Within a cell values are taken to be
 * spread evenly; above the last bound nothing is known but that bound.
 */
export function percentilesOf(cells: readonly number[], bounds: readonly number[]): Percentiles {
  const count = cells.reduce((sum, cell) => sum + cell, 0);
  if (count === 0 || bounds.length === 0) return { p50: null, p95: null, count: 0 };
  return { p50: quantile(cells, bounds, count * 0.5), p95: quantile(cells, bounds, count * 0.95), count };
}

function quantile(cells: readonly number[], bounds: readonly number[], rank: number): number {
  let below = 0;
  for (const [at, cell] of cells.entries()) {
    if (below + cell >= rank && cell > 0) {
      const upper = bounds[at];
      if (upper === undefined) break;
      const lower = bounds[at - 1] ?? 0;
      return Math.round((lower + ((upper - lower) * (rank - below)) / cell) * MS);
    }
    below += cell;
  }
  return Math.round((bounds.at(-1) ?? 0) * MS);
}

export const addCells = (lists: readonly (readonly number[])[]): number[] =>
  Array.from({ length: Math.max(0, ...lists.map(({ length }) => length)) }, (_, at) =>
    lists.reduce((sum, cells) => sum + (cells[at] ?? 0), 0),
  );
