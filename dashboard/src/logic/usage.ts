import { readIso, writeIso } from "./iso-time.ts";

const DAY_MS = 86_400_000;

/** A day of UTC, as usage is counted. */
export const dayOf = (ms: number): string => writeIso(ms).slice(0, 10);

export const usageQuery = (
  today: string,
  days: number,
  group: string,
): { from: string; to: string; group: string } => ({
  from: dayOf(readIso(`${today}T00:00:00Z`) - (days - 1) * DAY_MS),
  to: today,
  group,
});
