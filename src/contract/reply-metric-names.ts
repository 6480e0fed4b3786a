import type { MetricDefinition } from "./metric-definition.ts";

/** Of answers that are given again. */
export const REPLY_METRICS = {
  cacheRequests: {
    name: "yardmaster_cache_requests_total",
    type: "counter",
    labels: ["upstream", "result"],
    help: "Requests to an upstream that keeps answers: hit, waited for an equal request, miss, bypass, refused from memory, or unavailable because the store was away.",
  },
  repliesNotKept: {
    name: "yardmaster_replies_not_kept_total",
    type: "counter",
    labels: ["purpose", "why"],
    help: "Answers that could have been kept to be given again, and were not.",
  },
  replyWaiting: {
    name: "yardmaster_reply_waiting",
    type: "gauge",
    labels: [],
    help: "Requests that look for a kept answer, or wait for that of an equal request.",
  },
  replies: {
    name: "yardmaster_replies",
    type: "gauge",
    labels: ["purpose"],
    help: "Kept answers. Absent where nobody has counted them.",
  },
  replyBytes: {
    name: "yardmaster_reply_bytes",
    type: "gauge",
    labels: ["purpose"],
    help: "Bytes of kept answers. Absent where nobody has counted them.",
  },
  repliesEvicted: {
    name: "yardmaster_replies_evicted_total",
    type: "counter",
    labels: ["purpose"],
    help: "Kept answers that had to leave before their time, for others.",
  },
} as const satisfies Record<string, MetricDefinition>;
