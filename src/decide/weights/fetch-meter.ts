/** How fast bytes come, over the last seconds. */
const WINDOW_MS = 10_000;
const SAMPLES_MAX = 50;

export interface Pace {
  readonly bytesPerS: number | null;
  /** Null while it can't be told. */
  readonly leftS: number | null;
}

export class FetchMeter {
  readonly #samples: { readonly at: number; readonly bytes: number }[] = [];

  /** `bytes`: all that have come so far; falls when a file begins anew. */
  note(bytes: number, nowMs: number): void {
    const last = this.#samples.at(-1);
    if (last !== undefined && bytes < last.bytes) this.#samples.length = 0;
    else if (last !== undefined && nowMs - last.at < WINDOW_MS / SAMPLES_MAX) return;
    this.#samples.push({ at: nowMs, bytes });
    // One sample from before the window stays: it is what the others are compared with.
    while (this.#samples.length > 2 && nowMs - (this.#samples[1]?.at ?? nowMs) > WINDOW_MS) this.#samples.shift();
  }

  pace(bytes: number, total: number | null, nowMs: number): Pace {
    const [first] = this.#samples;
    if (first === undefined || nowMs <= first.at) return { bytesPerS: null, leftS: null };
    const bytesPerS = Math.max(0, ((bytes - first.bytes) * 1_000) / (nowMs - first.at));
    const leftS = total === null || bytesPerS === 0 ? null : Math.max(0, total - bytes) / bytesPerS;
    return { bytesPerS: Math.round(bytesPerS), leftS: leftS === null ? null : Math.round(leftS) };
  }
}
