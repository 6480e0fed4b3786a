import type { MetricDefinition } from "../../contract/metric-definition.ts";
import { METRICS } from "../../contract/metric-names.ts";
import type { CounterFamily, GaugeFamily, Registry } from "../../metrics/registry.ts";

/** Gauges of cards, read at each scrape. While no card is looked at none of them has a series. */
export interface GpuFamilies {
  readonly utilization: GaugeFamily;
  readonly memoryUsed: GaugeFamily;
  readonly memoryFree: GaugeFamily;
  readonly temperature: GaugeFamily;
  readonly power: GaugeFamily;
  readonly faulted: GaugeFamily;
  readonly stale: GaugeFamily;
  readonly sampleAge: GaugeFamily;
  readonly fieldLost: GaugeFamily;
  readonly known: GaugeFamily;
  readonly sourceState: GaugeFamily;
  readonly saturated: GaugeFamily;
  readonly guardedEndpoints: GaugeFamily;
}

export interface GpuMetrics {
  shed(upstream: string, site: "sync" | "document" | "job"): void;
  guarded(upstream: string, fault: string): void;
  wouldShed(upstream: string): void;
  wouldGuard(upstream: string): void;
  readonly collected: GpuFamilies;
}

export function createGpuMetrics(registry: Registry): GpuMetrics {
  const counter = ({ name, help, labels }: MetricDefinition): CounterFamily => registry.counter(name, help, labels);
  const gauge = ({ name, help, labels }: MetricDefinition): GaugeFamily => registry.gauge(name, help, labels);
  const shed = counter(METRICS.gpuShed);
  const guards = counter(METRICS.gpuGuards);
  const dryRun = counter(METRICS.gpuDryRun);
  return {
    shed: (upstream, site) => shed.labels(upstream, site).inc(),
    guarded: (upstream, fault) => guards.labels(upstream, fault).inc(),
    wouldShed: (upstream) => dryRun.labels(upstream, "shed").inc(),
    wouldGuard: (upstream) => dryRun.labels(upstream, "guard").inc(),
    collected: {
      utilization: gauge(METRICS.gpuUtilization),
      memoryUsed: gauge(METRICS.gpuMemoryUsed),
      memoryFree: gauge(METRICS.gpuMemoryFree),
      temperature: gauge(METRICS.gpuTemperature),
      power: gauge(METRICS.gpuPower),
      faulted: gauge(METRICS.gpuFaulted),
      stale: gauge(METRICS.gpuStale),
      sampleAge: gauge(METRICS.gpuSampleAge),
      fieldLost: gauge(METRICS.gpuFieldLost),
      known: gauge(METRICS.gpuKnown),
      sourceState: gauge(METRICS.gpuSourceState),
      saturated: gauge(METRICS.gpuSaturated),
      guardedEndpoints: gauge(METRICS.gpuGuardedEndpoints),
    },
  };
}
