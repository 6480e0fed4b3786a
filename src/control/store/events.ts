import { z } from "zod";
import { controlEvent, type NewEvent, type StoredEvent } from "../../contract/control-event.ts";
import { asEpoch, isoTime } from "../../kernel/clock.ts";
import { checksum } from "./checksum.ts";
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

function renderEvent({ kind, model, replicaId, nodeId, why, by }: NewEvent): string {
  const text = JSON.stringify({ kind, model, replicaId, nodeId, why: why.slice(0, WHY_CHARS_MAX), by: by ?? null });
  return `${checksum(text)} ${text}`;
}

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

/** One that is not what was written costs itself alone: what is told of it is that it was there. */
function readEvent(row: SqlRow): StoredEvent {
  const [seq, atMs] = [Number(row["seq"]), Number(row["at_ms"])];
  const at = isoTime(asEpoch(Number.isSafeInteger(atMs) && Math.abs(atMs) < TIME_MS_MAX ? atMs : 0));
  return { seq, at, ...(parseEvent(String(row["event"])) ?? DAMAGED) };
}

const TIME_MS_MAX = 8.64e15;
const DAMAGED: Omit<StoredEvent, "seq" | "at"> = {
  ...controlEvent("eventDamaged", "the database has this event no more as it was written"),
  by: null,
};
const words = z.string().nullable();
const eventShape = z.object({
  kind: z.string(),
  model: words,
  replicaId: words,
  nodeId: words,
  why: z.string(),
  by: words,
});

/** The checksum stands before the event; without one is an event from before there were any. Undefined: damaged. */
function parseEvent(stored: string): Omit<StoredEvent, "seq" | "at"> | undefined {
  const [, sum, text = ""] = /^(?:([0-9a-f]{8}) )?(\{.*\})$/s.exec(stored) ?? [];
  if (sum !== undefined && sum !== checksum(text)) return undefined;
  try {
    return eventShape.safeParse(JSON.parse(text)).data;
  } catch {
    return undefined;
  }
}
