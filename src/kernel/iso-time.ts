/** ISO 8601 in UTC with milliseconds; undefined for a number that is no moment. */
export function isoTime(epochMs: number): string | undefined {
  const date = new Date(epochMs);
  return Number.isNaN(date.getTime()) ? undefined : date.toISOString();
}

/** A date and time without a zone would mean another hour on another machine: it is refused. */
const MOMENT = /^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:\d\d)$/;

/** Epoch milliseconds of an ISO 8601 date, time and zone; undefined for everything else. */
export function parseIsoTime(text: string): number | undefined {
  if (!MOMENT.test(text)) return undefined;
  const at = Date.parse(text);
  return Number.isNaN(at) ? undefined : at;
}
