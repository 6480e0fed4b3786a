import type { Sample } from "../telemetry/prometheus-text.ts";

const INNER_RANKS: ReadonlySet<string> = new Set(["tp_rank", "pp_rank", "moe_ep_rank"]);

/**
 * Looks metrics up by any of their names, newest first: engines rename them between versions, and OpenMetrics pages put an underscore
 * for the colon. Only the first name that the page has counts, so that a page with old and new names is not counted twice.
 */
export class MetricSeries {
  readonly #byName = new Map<string, Sample[]>();

  constructor(samples: readonly Sample[]) {
    for (const sample of samples) {
      const list = this.#byName.get(sample.name);
      if (list === undefined) this.#byName.set(sample.name, [sample]);
      else list.push(sample);
    }
  }

  /** The sum over replicas (data-parallel ranks) and kinds; of the ranks inside one replica, which all count the same work, the highest. */
  sum(...names: readonly string[]): number | undefined {
    const values = this.#perReplica(names);
    return values.length === 0 ? undefined : values.reduce((total, value) => total + value, 0);
  }

  /** The highest share over all ranks, 0 to 1. */
  share(...names: readonly string[]): number | undefined {
    const values = this.#perReplica(names);
    return values.length === 0 ? undefined : Math.min(1, Math.max(0, ...values));
  }

  #perReplica(names: readonly string[]): number[] {
    const groups = new Map<string, number>();
    for (const [key, sample] of totalsOnly(this.#find(names))) {
      const highest = groups.get(key);
      groups.set(key, highest === undefined ? sample.value : Math.max(highest, sample.value));
    }
    return [...groups.values()];
  }

  /** One sample per series, the last one said; NaN is no measurement, and neither is a count or a share below zero. */
  #find(names: readonly string[]): Sample[] {
    for (const name of names) {
      const samples = this.#byName.get(name) ?? this.#byName.get(name.replace(":", "_"));
      if (samples === undefined) continue;
      const series = new Map(samples.map((sample) => [seriesKey(sample, () => true), sample]));
      const known = [...series.values()].filter(({ value }) => Number.isFinite(value) && value >= 0);
      if (known.length > 0) return known;
    }
    return [];
  }
}

/** Where one series is the total over priorities (its `priority` is empty or absent), those of single priorities are left out. */
function totalsOnly(samples: readonly Sample[]): [string, Sample][] {
  const totals = samples.filter((sample) => (sample.labels["priority"] ?? "") === "");
  return (totals.length > 0 ? totals : samples).map((sample) => [
    seriesKey(sample, (label) => !INNER_RANKS.has(label)),
    sample,
  ]);
}

const seriesKey = (sample: Sample, counts: (label: string) => boolean): string =>
  JSON.stringify(
    Object.entries(sample.labels)
      .filter(([label]) => counts(label))
      .toSorted(([a], [b]) => (a < b ? -1 : 1)),
  );
