import { controlEvent, type NewEvent, type StoredEvent } from "../../contract/control-event.ts";
import { asEpoch, isoTime } from "../../kernel/clock.ts";
import { placeholders, type SqlDriver, type SqlRow, type Step } from "./sql-driver.ts";

/** Kept at most. */
export const EVENTS_KEPT = 10_000;
/** Of one transaction; a pass that has more to tell tells how many are missing. */
export const EVENTS_AT_ONCE_MAX = 500;
const WHY_CHARS_MAX = 2_000;

export interface EventQuery {
  readonly limit: number;
  /** Oldest first, from behind this one; absent: the newest. */
  readonly afterSeq?: number;
  readonly kind?: string;
}

/** Steps that append events and drop the oldest. Who appends waits for whoever does at the moment, so numbers have no gaps. */
export function eventSteps(events: readonly NewEvent[]): Step[] {
  if (events.length === 0) return [];
  const kept = events.slice(0, EVENTS_AT_ONCE_MAX);
  if (kept.length < events.length) kept.push(controlEvent("eventsLost", `${events.length - kept.length} more`));
  const count = kept.length;
  return [
    {
      text: "UPDATE ym_counters SET value = value + CAST($1 AS BIGINT) WHERE name = 'events'",
      values: [count],
    },
    {
      text: `INSERT INTO ym_events (seq, at_ms, event)
        SELECT ym_counters.value - CAST($${2 * count + 1} AS BIGINT) + CAST(fresh.column1 AS BIGINT), ym_clock.now_ms, fresh.column2
        FROM ym_counters, ym_clock, (VALUES ${placeholders(count, 2)}) AS fresh WHERE ym_counters.name = 'events'`,
      values: [...kept.flatMap((event, index) => [index + 1, renderEvent(event)]), count],
    },
    {
      text: "DELETE FROM ym_events WHERE seq <= (SELECT max(seq) FROM ym_events) - CAST($1 AS BIGINT)",
      values: [EVENTS_KEPT],
    },
  ];
}

const renderEvent = ({ kind, model, replicaId, nodeId, why, by }: NewEvent): string =>
  JSON.stringify({ kind, model, replicaId, nodeId, why: why.slice(0, WHY_CHARS_MAX), by: by ?? null });

/** Oldest first. */
export async function readEvents(driver: SqlDriver, query: EventQuery): Promise<StoredEvent[]> {
  const { limit, afterSeq } = query;
  const order = afterSeq === undefined ? "DESC" : "ASC";
  const rows = await driver.query({
    text: `SELECT seq, at_ms, event FROM ym_events WHERE seq > $1 ORDER BY seq ${order} LIMIT $2`,
    values: [afterSeq ?? 0, query.kind === undefined ? limit : EVENTS_KEPT],
  });
  const events = rows.map(readEvent).filter(({ kind }) => query.kind === undefined || kind === query.kind);
  const found = events.slice(0, limit);
  return afterSeq === undefined ? found.toReversed() : found;
}

function readEvent(row: SqlRow): StoredEvent {
  const event = JSON.parse(String(row["event"])) as Omit<StoredEvent, "seq" | "at">;
  return { seq: Number(row["seq"]), at: isoTime(asEpoch(Number(row["at_ms"]))), ...event };
}
