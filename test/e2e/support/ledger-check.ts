import type { LedgerEntry } from "../../../src/sim-engine/sim-engine.ts";

// What an engine's own account says of the load on it. The gateway's figures are not asked.

export const entriesOf = (entries: readonly LedgerEntry[], tag: string): LedgerEntry[] =>
  entries.filter((entry) => entry.tag === tag);

/** The most requests that were open at one instant; one that ends in the moment another opens does not count with it. */
export function peakOf(entries: readonly LedgerEntry[]): number {
  const steps = entries.flatMap((entry) => [
    { at: entry.openedMs, by: 1 },
    { at: entry.endedMs ?? Number.POSITIVE_INFINITY, by: -1 },
  ]);
  steps.sort((a, b) => a.at - b.at || a.by - b.by);
  let now = 0;
  let peak = 0;
  for (const { by } of steps) {
    now += by;
    peak = Math.max(peak, now);
  }
  return peak;
}

/** Of two middle values the lower one. */
export const median = (values: readonly number[]): number =>
  values.toSorted((a, b) => a - b)[Math.floor((values.length - 1) / 2)] ?? Number.NaN;

export const quantile = (values: readonly number[], share: number): number =>
  values.toSorted((a, b) => a - b)[Math.min(values.length - 1, Math.floor(values.length * share))] ?? Number.NaN;
