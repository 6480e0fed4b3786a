import type { MetricDefinition } from "./metric-definition.ts";

/** Of the limits and the usage of keys. */
export const KEY_METRICS = {
  keyLimited: {
    name: "yardmaster_key_limited_total",
    type: "counter",
    labels: ["limit"],
    help: "Requests refused for a limit of their key, by the limit's name; `too_large` alone over one, `uncounted` where money can't be counted.",
  },
  keyCountedAway: {
    name: "yardmaster_key_counted_away_total",
    type: "counter",
    labels: [],
    help: "Requests let in by this gateway's part of their key's limits, because the shared store was away.",
  },
  usageWrites: {
    name: "yardmaster_usage_writes_total",
    type: "counter",
    labels: ["outcome"],
    help: "Writes of what keys have used to its store: `done`, `failed`, or `unknown` where no answer came; the same is written again then.",
  },
  usageUnwritten: {
    name: "yardmaster_usage_unwritten_rows",
    type: "gauge",
    labels: [],
    help: "Sums of a key and model that wait in memory for the store of usage.",
  },
} as const satisfies Record<string, MetricDefinition>;
