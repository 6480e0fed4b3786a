const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
/** The one form that senders may make, and the two old ones that readers must take (RFC 9110, 5.6.7). */
const DATE_FORMS = [
  /^[A-Z][a-z]{2}, (?<day>\d{2}) (?<month>[A-Z][a-z]{2}) (?<year>\d{4}) (?<h>\d{2}):(?<m>\d{2}):(?<s>\d{2}) GMT$/,
  /^[A-Z][a-z]{5,8}, (?<day>\d{2})-(?<month>[A-Z][a-z]{2})-(?<year>\d{2}) (?<h>\d{2}):(?<m>\d{2}):(?<s>\d{2}) GMT$/,
  /^[A-Z][a-z]{2} (?<month>[A-Z][a-z]{2}) (?<day>[ \d]\d) (?<h>\d{2}):(?<m>\d{2}):(?<s>\d{2}) (?<year>\d{4})$/,
];
const SECONDS_MAX = 86_400 * 365;

/** Milliseconds to wait by a `Retry-After` value, seconds or a date; `undefined` when it can't be read. A date in the past is 0. */
export function parseRetryAfter(value: string, nowEpochMs: number): number | undefined {
  const text = value.trim();
  if (/^\d{1,10}$/.test(text)) return Math.min(Number(text), SECONDS_MAX) * 1_000;
  const at = parseHttpDate(text);
  return at === undefined ? undefined : Math.min(Math.max(0, at - nowEpochMs), SECONDS_MAX * 1_000);
}

/** A `Retry-After` value: whole seconds, never 0, as that would invite a tight loop. */
export const renderRetryAfter = (ms: number): string =>
  String(Math.min(SECONDS_MAX, Math.max(1, Math.ceil(ms / 1_000))));

function parseHttpDate(text: string): number | undefined {
  for (const form of DATE_FORMS) {
    const parts = form.exec(text)?.groups;
    if (parts === undefined) continue;
    const month = MONTHS.indexOf(parts["month"]!);
    const [day, h, m, s] = [Number(parts["day"]), Number(parts["h"]), Number(parts["m"]), Number(parts["s"])];
    if (month < 0 || day < 1 || day > 31 || h > 23 || m > 59 || s > 60) return undefined;
    let year = Number(parts["year"]);
    if (parts["year"]!.length === 2) year += year < 70 ? 2_000 : 1_900;
    return ((daysSinceEpoch(year, month + 1, day) * 24 + h) * 60 + m) * 60_000 + s * 1_000;
  }
  return undefined;
}

/** Gregorian calendar with years that begin in March, so that the leap day is the last. */
function daysSinceEpoch(year: number, month: number, day: number): number {
  const y = month <= 2 ? year - 1 : year;
  const dayOfYear = Math.floor((153 * (month + (month > 2 ? -3 : 9)) + 2) / 5) + day - 1;
  return y * 365 + Math.floor(y / 4) - Math.floor(y / 100) + Math.floor(y / 400) + dayOfYear - 719_468;
}
