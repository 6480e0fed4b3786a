import { type AnySeries, type Collect, Family, type FamilyInfo } from "./family.ts";
import { type MetricsFormat, renderFamily } from "./render.ts";
import { CounterSeries, GaugeSeries, HistogramSeries } from "./series.ts";

export type CounterFamily = Family<CounterSeries>;
export type GaugeFamily = Family<GaugeSeries>;
export type HistogramFamily = Family<HistogramSeries>;

export interface RegistryHooks {
  /** A metric has reached its bound and new label values count as "other". */
  readonly onCollapsed?: (metric: string) => void;
  /** A collector threw; its metric is left out of the page. */
  readonly onCollectError?: (metric: string, err: unknown) => void;
}

const SERIES_MAX = 2_000;
const BUCKETS_MAX = 16;
const METRIC_NAME = /^[a-z][a-z0-9_]*$/;
const LABEL_NAME = /^[a-z][a-z0-9_]*$/;

/** All metrics of a process: plain numbers that are turned into text when somebody asks. */
export class Registry {
  hooks: RegistryHooks = {};
  readonly #seriesMax: number;
  readonly #families = new Map<string, { readonly type: string; readonly family: Family<AnySeries> }>();

  constructor(seriesMax = SERIES_MAX) {
    this.#seriesMax = seriesMax;
  }

  counter(name: string, help: string, labelNames: readonly string[], collect?: Collect): CounterFamily {
    if (!name.endsWith("_total")) throw new Error(`the counter ${name} must end in _total`);
    return this.#add("counter", { name, help, labelNames }, () => new CounterSeries(), collect);
  }

  gauge(name: string, help: string, labelNames: readonly string[], collect?: Collect): GaugeFamily {
    if (name.endsWith("_total")) throw new Error(`the gauge ${name} must not end in _total`);
    return this.#add("gauge", { name, help, labelNames }, () => new GaugeSeries(), collect);
  }

  histogram(name: string, help: string, labelNames: readonly string[], buckets: readonly number[]): HistogramFamily {
    const sorted = buckets.every(
      (bound, i) => Number.isFinite(bound) && (i === 0 || bound > (buckets[i - 1] as number)),
    );
    if (!sorted || buckets.length === 0 || buckets.length > BUCKETS_MAX || labelNames.includes("le")) {
      throw new Error(`the histogram ${name} needs 1 to ${BUCKETS_MAX} ascending bounds and no label "le"`);
    }
    return this.#add("histogram", { name, help, labelNames }, () => new HistogramSeries(buckets));
  }

  /** What a label named has left the configuration: its series go from all metrics. */
  forget(label: string, value: string): void {
    for (const { family } of this.#families.values()) family.forget(label, value);
  }

  render(format: MetricsFormat): string {
    for (const { family } of this.#families.values()) {
      try {
        family.refresh();
      } catch (err) {
        this.hooks.onCollectError?.(family.info.name, err);
      }
    }
    const out: string[] = [];
    for (const { type, family } of this.#families.values()) renderFamily(out, family, type, format);
    if (format === "openmetrics") out.push("# EOF");
    return out.length === 0 ? "" : `${out.join("\n")}\n`;
  }

  #add<S extends AnySeries>(type: string, info: FamilyInfo, make: () => S, collect?: Collect): Family<S> {
    const names = [info.name, ...info.labelNames];
    if (
      !METRIC_NAME.test(info.name) ||
      !info.labelNames.every((label) => LABEL_NAME.test(label)) ||
      new Set(names).size !== names.length
    ) {
      throw new Error(`the metric ${info.name} has a name or label that scrapers can't read, or a label twice`);
    }
    if (this.#families.has(info.name)) throw new Error(`the metric ${info.name} exists already`);
    const family = new Family<S>(info, make, this.#seriesMax, (metric) => this.hooks.onCollapsed?.(metric));
    if (collect !== undefined) family.collectWith(collect);
    this.#families.set(info.name, { type, family });
    return family;
  }
}
