import { METRICS } from "../../contract/metric-names.ts";
import type { LimitName } from "../../decide/limits/key-limits.ts";
import type { Registry } from "../../metrics/registry.ts";

export interface KeyMetrics {
  limited(limit: LimitName | "too_large" | "uncounted"): void;
  countedAway(): void;
}

export function createKeyMetrics(registry: Registry): KeyMetrics {
  const { keyLimited, keyCountedAway } = METRICS;
  const limited = registry.counter(keyLimited.name, keyLimited.help, keyLimited.labels);
  const away = registry.counter(keyCountedAway.name, keyCountedAway.help, keyCountedAway.labels).labels();
  return {
    limited: (limit) => limited.labels(limit).inc(),
    countedAway: () => away.inc(),
  };
}
