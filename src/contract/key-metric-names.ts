import type { MetricDefinition } from "./metric-definition.ts";

/** Of the limits of keys. */
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
} as const satisfies Record<string, MetricDefinition>;
