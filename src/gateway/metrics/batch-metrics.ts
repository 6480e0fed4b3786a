import type { BatchRecord } from "../../contract/batch.ts";
import { BATCH_METRICS } from "../../contract/batch-metric-names.ts";
import type { Registry } from "../../metrics/registry.ts";

/** What is known of the store; undefined: nothing, or nobody has used it yet. */
export interface FileCounts {
  readonly open: number;
  readonly docs: number;
  readonly bytes: number;
}

export interface BatchMetrics {
  ended(batch: BatchRecord): void;
  /** Read at each scrape. */
  collect(counts: () => FileCounts | undefined): void;
}

export function createBatchMetrics(registry: Registry): BatchMetrics {
  const { batchesEnded, batchLines, batchesOpen, filesKept, filesBytes } = BATCH_METRICS;
  const ended = registry.counter(batchesEnded.name, batchesEnded.help, batchesEnded.labels);
  const lines = registry.counter(batchLines.name, batchLines.help, batchLines.labels);
  const gauges = [
    [registry.gauge(batchesOpen.name, batchesOpen.help, batchesOpen.labels), "open"],
    [registry.gauge(filesKept.name, filesKept.help, filesKept.labels), "docs"],
    [registry.gauge(filesBytes.name, filesBytes.help, filesBytes.labels), "bytes"],
  ] as const;
  return {
    ended: (batch) => {
      ended.labels(batch.state).inc();
      for (const result of batch.settled) {
        if (result === null) continue;
        lines.labels("completed").inc(result.completed);
        lines.labels("failed").inc(result.failed - result.expired);
        lines.labels("expired").inc(result.expired);
      }
    },
    collect: (counts) => {
      for (const [gauge, name] of gauges) gauge.collectWith((set) => set([], counts()?.[name]));
    },
  };
}
