import { parseIsoTime } from "../kernel/clock.ts";

/** The query parameters of `GET /admin/audit`, as the gateway reads them and `ctl audit` sends them. */
export const AUDIT_PARAMS = [
  "since",
  "until",
  // Not `key`: a parameter of that name is taken for a secret in the wrong place, on every route.
  "key_id",
  "model",
  "upstream",
  "outcome",
  "request_id",
  "after_seq",
  "limit",
] as const;
export type AuditParam = (typeof AUDIT_PARAMS)[number];

export const AUDIT_LIMIT_DEFAULT = 100;
export const AUDIT_LIMIT_MAX = 10_000;
export const AUDIT_TIME_HINT = "a duration such as 90s, 15m, 1h or 7d, or a time such as 2026-01-31T12:00:00Z";

const UNIT_MS: Readonly<Record<string, number>> = { s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** Only with a zone: a time without one would mean another hour on another machine. */
const MOMENT = /^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:\d\d)$/;

/** Epoch milliseconds; a duration counts back from `now`. Undefined when it is neither. */
export function parseAuditTime(text: string, now: number): number | undefined {
  const duration = /^(\d{1,9})([smhd])$/.exec(text);
  if (duration !== null) return now - Number(duration[1]) * (UNIT_MS[duration[2] as string] as number);
  return MOMENT.test(text) ? parseIsoTime(text) : undefined;
}
