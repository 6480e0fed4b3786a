import { z } from "zod";
import { asEpoch, formatIsoTime, parseIsoTime } from "../kernel/clock.ts";
import { csvLine, type CsvCell } from "../kernel/csv.ts";
import type { RequestOutcome } from "./audit-event.ts";

// What `GET /usage` is asked and answers, as the gateway reads it and `ctl usage` sends it.

/** How a request can end, in the words of the audit and of metrics. */
export const CALL_OUTCOMES = [
  "ok",
  "engine_error",
  "refused",
  "queue_timeout",
  "client_aborted_queued",
  "client_aborted",
  "upstream_failed",
  "upstream_truncated",
  "upstream_timeout",
  "client_stalled",
  "drain_aborted",
  "internal_error",
] as const satisfies readonly RequestOutcome[];

export const USAGE_GROUPS = ["day", "key", "model"] as const;
export type UsageGroup = (typeof USAGE_GROUPS)[number];

/** Not `key`: a parameter of that name is taken for a secret in the wrong place, on every route. */
export const USAGE_PARAMS = ["from", "to", "key_id", "model", "group", "format", "limit", "cursor"] as const;

export const USAGE_LIMIT_DEFAULT = 1_000;
export const USAGE_LIMIT_MAX = 10_000;
/** Days of one question. */
export const USAGE_DAYS_MAX = 400;
/** Days that are shown where nobody says from when. */
export const USAGE_DAYS_SHOWN = 31;
export const USAGE_DAY_HINT = "a day of UTC such as 2026-01-31";

/** Where the next page of a CSV begins. */
export const USAGE_CURSOR_HEADER = "x-yardmaster-next-cursor";

const DAY_MS = 86_400_000;
const DAY_TEXT = /^\d{4}-\d\d-\d\d$/;

/** Days since 1970; undefined where it is no day. */
export function parseDay(text: string): number | undefined {
  const ms = DAY_TEXT.test(text) ? parseIsoTime(`${text}T00:00:00Z`) : undefined;
  // A day that its month does not have is read as one of the next.
  return ms === undefined || formatDay(ms / DAY_MS) !== text ? undefined : ms / DAY_MS;
}

export const formatDay = (day: number): string => formatIsoTime(asEpoch(day * DAY_MS)).slice(0, 10);

const counted = z.number();
/** Null: something was used, and nobody has said how much. */
const tokens = z.number().nullable();

const usageSums = z.object({
  /** All, those from memory included. */
  requests: counted,
  /** By how they ended; those from memory are not among them. Only what there is. */
  outcomes: z.partialRecord(z.enum(CALL_OUTCOMES), counted),
  /** Given again for an idempotency key. */
  replays: counted,
  /** Given from an upstream's cache. */
  cache_hits: counted,
  prompt_tokens: tokens,
  completion_tokens: tokens,
  cached_tokens: tokens,
  /** Requests that an engine worked for without saying how many tokens it used. */
  tokens_unknown: counted,
  /** Time that slots of upstreams in the house were held. */
  gpu_seconds: counted,
  /** By currency. */
  cost: z.record(z.string(), counted),
});
export type UsageSums = z.output<typeof usageSums>;

/** Of what the answer is not parted by there is nothing; a model that is null was not known. */
const usageRowView = usageSums.extend({
  day: z.string().optional(),
  key: z.string().optional(),
  model: z.string().nullable().optional(),
});
export type UsageRowView = z.output<typeof usageRowView>;

export const usageView = z.object({
  from: z.string(),
  to: z.string(),
  group: z.array(z.enum(USAGE_GROUPS)),
  rows: z.array(usageRowView),
  /** Of all rows, on whatever page. */
  total: usageSums,
  next_cursor: z.string().nullable(),
  /** Sums of the gateway that answers which its store does not have yet. */
  unwritten: counted,
  /** Names the place that this was read from; gateways that share it tell the same. Absent: it was read from several. */
  store: z.string().optional(),
  /** Gateways that count by themselves and are not in it, since they did not answer. Absent: of one gateway. */
  missing: z.array(z.string()).optional(),
});
export type UsageView = z.output<typeof usageView>;

const FIGURES = [
  "replays",
  "cache_hits",
  "prompt_tokens",
  "completion_tokens",
  "cached_tokens",
  "tokens_unknown",
  "gpu_seconds",
] as const satisfies readonly (keyof UsageSums)[];

export const usageCsv = (group: readonly UsageGroup[], { rows, total }: Pick<UsageView, "rows" | "total">): string =>
  usageCsvHead(group, total) + rows.map((row) => usageCsvLine(group, row, total)).join("");

/** Names of columns; one for each currency of the whole answer, so that pages fit together. */
export const usageCsvHead = (group: readonly UsageGroup[], total: UsageSums): string =>
  csvLine([...group, "requests", ...CALL_OUTCOMES, ...FIGURES, ...currenciesOf(total).map((code) => `cost_${code}`)]);

export function usageCsvLine(group: readonly UsageGroup[], row: UsageRowView, total: UsageSums): string {
  const cells: CsvCell[] = [
    ...group.map((name) => row[name]),
    row.requests,
    ...CALL_OUTCOMES.map((outcome) => row.outcomes[outcome] ?? 0),
    ...FIGURES.map((name) => row[name]),
    ...currenciesOf(total).map((code) => row.cost[code] ?? 0),
  ];
  return csvLine(cells);
}

export const currenciesOf = (sums: UsageSums): string[] => Object.keys(sums.cost).toSorted();
