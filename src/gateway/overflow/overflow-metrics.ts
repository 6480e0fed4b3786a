import type { MetricDefinition } from "../../contract/metric-definition.ts";
import { METRICS } from "../../contract/metric-names.ts";
import type { Lack } from "../../decide/overflow/decide-overflow.ts";
import type { SignalReading } from "../../decide/overflow/judge-signal.ts";
import type { SubmitOutcome } from "../../decide/overflow/providers/provider-work.ts";
import type { CounterFamily, GaugeFamily, Registry } from "../../metrics/registry.ts";

export interface OverflowFigures {
  readonly cards: readonly (readonly [upstream: string, readings: readonly SignalReading[]])[];
  readonly tiers: readonly (readonly [tier: string, inFlight: number])[];
}

export interface OverflowMetrics {
  decided(upstream: string, decision: "local" | "held" | "tier"): void;
  refused(tier: string, lack: Lack): void;
  submitted(tier: string, outcome: SubmitOutcome["kind"]): void;
  /** Read at each scrape. */
  collect(figures: () => OverflowFigures): void;
}

const BUSY = { busy: 1, not_busy: 0, broken: undefined } as const;

export function createOverflowMetrics(registry: Registry): OverflowMetrics {
  const counter = ({ name, help, labels }: MetricDefinition): CounterFamily => registry.counter(name, help, labels);
  const gauge = ({ name, help, labels }: MetricDefinition): GaugeFamily => registry.gauge(name, help, labels);
  const decisions = counter(METRICS.overflowDecisions);
  const refusals = counter(METRICS.overflowRefusals);
  const submissions = counter(METRICS.overflowSubmissions);
  const busy = gauge(METRICS.overflowSignalBusy);
  const broken = gauge(METRICS.overflowSignalBroken);
  const inFlight = gauge(METRICS.overflowInFlight);
  return {
    decided: (upstream, decision) => decisions.labels(upstream, decision).inc(),
    refused: (tier, lack) => refusals.labels(tier, lack).inc(),
    submitted: (tier, outcome) => submissions.labels(tier, outcome).inc(),
    collect(figures) {
      const ofSignals = (family: GaugeFamily, value: (state: SignalReading["state"]) => number | undefined): void =>
        family.collectWith((set) => {
          for (const [upstream, readings] of figures().cards)
            for (const [index, { kind, state }] of readings.entries())
              set([upstream, `${index + 1}`, kind], value(state));
        });
      ofSignals(busy, (state) => BUSY[state]);
      ofSignals(broken, (state) => Number(state === "broken"));
      inFlight.collectWith((set) => {
        for (const [tier, count] of figures().tiers) set([tier], count);
      });
    },
  };
}
