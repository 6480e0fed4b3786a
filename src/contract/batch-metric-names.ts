import type { MetricDefinition } from "./metric-definition.ts";

/** Metrics of files and batches. */
export const BATCH_METRICS = {
  batchesEnded: {
    name: "yardmaster_batches_ended_total",
    type: "counter",
    labels: ["state"],
    help: "Batches that this gateway brought to their end.",
  },
  batchLines: {
    name: "yardmaster_batch_lines_total",
    type: "counter",
    labels: ["outcome"],
    help: "Lines of batches that ended: completed, failed, or expired with the batch's window.",
  },
  batchesOpen: {
    name: "yardmaster_batches_open",
    type: "gauge",
    labels: [],
    help: "Batches that have not ended, of all gateways that share them; absent while unknown.",
  },
  filesKept: {
    name: "yardmaster_files_kept",
    type: "gauge",
    labels: [],
    help: "Files and batches that are kept, of all gateways that share them; absent while unknown.",
  },
  filesBytes: {
    name: "yardmaster_files_bytes",
    type: "gauge",
    labels: [],
    help: "Bytes of files that are kept, of all gateways that share them; absent while unknown.",
  },
} as const satisfies Record<string, MetricDefinition>;
