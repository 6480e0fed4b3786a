import { METRICS } from "../../contract/metric-names.ts";
import type { LimitName } from "../../decide/limits/key-limits.ts";
import type { UsageWritten } from "../../coord/usage/usage-store.ts";
import type { Registry } from "../../metrics/registry.ts";

export interface KeyMetrics {
  limited(limit: LimitName | "too_large" | "uncounted"): void;
  countedAway(): void;
  usageWritten(outcome: UsageWritten["kind"], unwritten: number): void;
}

export function createKeyMetrics(registry: Registry): KeyMetrics {
  const { keyLimited, keyCountedAway, usageWrites, usageUnwritten } = METRICS;
  const limited = registry.counter(keyLimited.name, keyLimited.help, keyLimited.labels);
  const away = registry.counter(keyCountedAway.name, keyCountedAway.help, keyCountedAway.labels).labels();
  const writes = registry.counter(usageWrites.name, usageWrites.help, usageWrites.labels);
  const unwritten = registry.gauge(usageUnwritten.name, usageUnwritten.help, usageUnwritten.labels).labels();
  return {
    limited: (limit) => limited.labels(limit).inc(),
    countedAway: () => away.inc(),
    usageWritten: (outcome, rows) => {
      writes.labels(outcome).inc();
      unwritten.set(rows);
    },
  };
}
