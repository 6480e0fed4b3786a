import type { AuditEvent, AuditQuery, AuditRecord } from "../../contract/audit-event.ts";

/**
 * An event as it is stored: an array in the order of ROW_FIELDS. Rows of many events are one JSON text, because turning
 * them into text costs 2 µs an event where handing the objects to another thread costs 10.
 */
export const ROW_FIELDS = [
  "time",
  "requestId",
  "keyId",
  "class",
  "method",
  "route",
  "model",
  "upstream",
  "endpoint",
  "status",
  "outcome",
  "errorCode",
  "queueMs",
  "firstByteMs",
  "totalMs",
  "promptTokens",
  "completionTokens",
  "cachedTokens",
  "bytesIn",
  "bytesOut",
  "attempts",
  "idempotentReplay",
  "cacheHit",
  "shed",
  "overflow",
] as const satisfies readonly (keyof AuditEvent)[];

/** Fails to compile when AuditEvent gains a field that ROW_FIELDS does not list. New fields go to the end. */
type Unlisted = Exclude<keyof AuditEvent, (typeof ROW_FIELDS)[number]>;
const allListed: [Unlisted] extends [never] ? true : never = true;
void allListed;

export type AuditRow = readonly (string | number | boolean | null)[];

/** Written out instead of mapped over ROW_FIELDS: this runs once per request. A test holds the two equal. */
export function rowOf(e: AuditEvent): AuditRow {
  return [
    e.time,
    e.requestId,
    e.keyId,
    e.class,
    e.method,
    e.route,
    e.model,
    e.upstream,
    e.endpoint,
    e.status,
    e.outcome,
    e.errorCode,
    e.queueMs,
    e.firstByteMs,
    e.totalMs,
    e.promptTokens,
    e.completionTokens,
    e.cachedTokens,
    e.bytesIn,
    e.bytesOut,
    e.attempts,
    e.idempotentReplay,
    e.cacheHit,
    e.shed,
    e.overflow,
  ];
}

/** Rows come from our own database, written by `rowOf`; a shorter row of an older version reads as null at its end. */
export function recordOf(seq: number, row: AuditRow): AuditRecord {
  const record: Record<string, string | number | boolean | null> = { seq };
  for (let i = 0; i < ROW_FIELDS.length; i += 1) record[ROW_FIELDS[i] as string] = row[i] ?? null;
  return record as unknown as AuditRecord;
}

const index = (field: (typeof ROW_FIELDS)[number]): number => ROW_FIELDS.indexOf(field);
const AT = {
  time: index("time"),
  requestId: index("requestId"),
  keyId: index("keyId"),
  model: index("model"),
  upstream: index("upstream"),
  outcome: index("outcome"),
} as const;

/** Whether a stored row is what the query asks for; `afterSeq` and `limit` are the store's business. */
export function rowMatches(row: AuditRow, query: AuditQuery): boolean {
  const time = row[AT.time] as number;
  return (
    (query.sinceMs === undefined || time >= query.sinceMs) &&
    (query.untilMs === undefined || time < query.untilMs) &&
    (query.keyId === undefined || row[AT.keyId] === query.keyId) &&
    (query.model === undefined || row[AT.model] === query.model) &&
    (query.upstream === undefined || row[AT.upstream] === query.upstream) &&
    (query.outcome === undefined || row[AT.outcome] === query.outcome) &&
    (query.requestId === undefined || row[AT.requestId] === query.requestId)
  );
}

/** Rough bytes of one event in memory: a fixed part for the numbers and object, two bytes a character for the free strings. */
export function eventBytes(e: AuditEvent): number {
  return (
    320 +
    2 *
      (e.requestId.length +
        e.route.length +
        (e.keyId === null ? 0 : e.keyId.length) +
        (e.model === null ? 0 : e.model.length) +
        (e.overflow === null ? 0 : e.overflow.length))
  );
}
