/** One series of a metric. The request path holds these and writes plain numbers; no lookup, no allocation. */
export class CounterSeries {
  value = 0;

  /** A negative or not-a-number amount is a bug elsewhere; it must not make a counter go back. */
  inc(amount = 1): void {
    if (amount > 0) this.value += amount;
  }

  /** For totals that something else counts: sets the value as it is read at a scrape. */
  setTotal(total: number): void {
    this.value = total;
  }
}

export class GaugeSeries {
  value = 0;

  set(value: number): void {
    this.value = value;
  }
}

export class HistogramSeries {
  readonly bounds: readonly number[];
  /** Not cumulative; the last cell is above all bounds. */
  readonly counts: Float64Array;
  sum = 0;

  constructor(bounds: readonly number[]) {
    this.bounds = bounds;
    this.counts = new Float64Array(bounds.length + 1);
  }

  /** A value that is no number, or below zero because a clock is coarse, is taken as 0. */
  observe(value: number): void {
    const sane = value > 0 ? value : 0;
    const { bounds } = this;
    let i = 0;
    // At most 16 bounds: a straight walk is as fast as halving, and most values are found early.
    while (i < bounds.length && sane > (bounds[i] as number)) i += 1;
    this.counts[i] = (this.counts[i] as number) + 1;
    this.sum += sane;
  }
}
