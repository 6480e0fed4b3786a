import { CounterSeries, GaugeSeries, type HistogramSeries } from "./series.ts";

export type AnySeries = CounterSeries | GaugeSeries | HistogramSeries;

/** Sets values at a scrape. A value of undefined (unknown) leaves the series out of the page. */
export type Collect = (set: (values: readonly string[], value: number | undefined) => void) => void;

export interface FamilyInfo {
  readonly name: string;
  readonly help: string;
  readonly labelNames: readonly string[];
}

export interface Entry<S extends AnySeries> {
  readonly values: readonly string[];
  readonly series: S;
}

export const OTHER = "other";

/**
 * All series of one metric.
 *
 * Invariants:
 *   F1. Never more than `seriesMax` series, and one more whose label values are all "other".
 *   F2. With `collectWith`, the series are those of the last scrape and nothing older.
 */
export class Family<S extends AnySeries> {
  readonly info: FamilyInfo;
  readonly #make: () => S;
  readonly #seriesMax: number;
  readonly #onCollapsed: (metric: string) => void;
  readonly #entries = new Map<string, Entry<S>>();
  #other: Entry<S> | undefined;
  #collect: Collect | undefined;

  constructor(info: FamilyInfo, make: () => S, seriesMax: number, onCollapsed: (metric: string) => void) {
    this.info = info;
    this.#make = make;
    this.#seriesMax = seriesMax;
    this.#onCollapsed = onCollapsed;
  }

  /** The series of these label values, made at first use. Callers keep it. */
  labels(...values: readonly string[]): S {
    if (values.length !== this.info.labelNames.length) {
      throw new Error(`${this.info.name} has ${this.info.labelNames.length} labels, got ${values.length}`);
    }
    const key = JSON.stringify(values);
    const known = this.#entries.get(key);
    if (known !== undefined) return known.series;
    if (this.#entries.size >= this.#seriesMax) {
      this.#onCollapsed(this.info.name);
      this.#other ??= { values: values.map(() => OTHER), series: this.#make() };
      return this.#other.series;
    }
    const entry: Entry<S> = { values, series: this.#make() };
    this.#entries.set(key, entry);
    return entry.series;
  }

  /** Forgets all series with this value of this label: what it named left the configuration. Handles that are still held count for nobody. */
  forget(label: string, value: string): void {
    const at = this.info.labelNames.indexOf(label);
    if (at < 0) return;
    for (const [key, entry] of this.#entries) if (entry.values[at] === value) this.#entries.delete(key);
  }

  /** From now on the values are read at each scrape. */
  collectWith(collect: Collect): void {
    this.#collect = collect;
  }

  /** Throws what the collector throws; the family is then empty. */
  refresh(): void {
    if (this.#collect === undefined) return;
    this.#entries.clear();
    this.#other = undefined;
    try {
      this.#collect((values, value) => {
        if (value === undefined) return;
        const series = this.labels(...values);
        if (series instanceof CounterSeries) series.setTotal(value);
        else if (series instanceof GaugeSeries) series.set(value);
      });
    } catch (err) {
      this.#entries.clear();
      this.#other = undefined;
      throw err;
    }
  }

  *entries(): Iterable<Entry<S>> {
    yield* this.#entries.values();
    if (this.#other !== undefined) yield this.#other;
  }
}
