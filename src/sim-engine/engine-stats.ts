/** Counts per upper bound, as Prometheus wants them. */
export class Histogram {
  readonly bounds: readonly number[];
  readonly #counts: number[];
  sum = 0;
  count = 0;

  constructor(bounds: readonly number[]) {
    this.bounds = bounds;
    this.#counts = bounds.map(() => 0);
  }

  observe(value: number, times = 1): void {
    this.sum += value * times;
    this.count += times;
    const index = this.bounds.findIndex((bound) => value <= bound);
    if (index >= 0) this.#counts[index] = (this.#counts[index] ?? 0) + times;
  }

  /** Cumulative counts, one for each bound. */
  cumulative(): number[] {
    let total = 0;
    return this.#counts.map((count) => (total += count));
  }
}

const LATENCY_S = [0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1_920, 7_680];
const TTFT_S = [
  0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2_560,
];
const ITL_S = [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80];
const STEP_TOKENS = [1, 8, 16, 32, 64, 128, 256, 512, 1_024, 2_048, 4_096, 8_192, 16_384];
const REQUEST_TOKENS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000];

/** What the engine has done since its start. Durations in milliseconds unless a name says seconds. */
export class EngineStats {
  promptTokens = 0;
  cachedTokens = 0;
  prefixQueries = 0;
  generationTokens = 0;
  steps = 0;
  prefillMs = 0;
  decodeMs = 0;
  busySlotSteps = 0;
  sequenceTokensMax = 0;
  readonly finished = { stop: 0, length: 0, abort: 0, error: 0, repetition: 0 };
  readonly stepTokens = new Histogram(STEP_TOKENS);
  readonly ttftSeconds = new Histogram(TTFT_S);
  readonly itlSeconds = new Histogram(ITL_S);
  readonly perTokenSeconds = new Histogram(ITL_S);
  readonly e2eSeconds = new Histogram(LATENCY_S);
  readonly queueSeconds = new Histogram(LATENCY_S);
  readonly prefillSeconds = new Histogram(LATENCY_S);
  readonly decodeSeconds = new Histogram(LATENCY_S);
  readonly inferenceSeconds = new Histogram(LATENCY_S);
  readonly requestPromptTokens = new Histogram(REQUEST_TOKENS);
  readonly requestGenerationTokens = new Histogram(REQUEST_TOKENS);
}

/** Values of the moment, read at a scrape. */
export interface EngineGauges {
  readonly running: number;
  readonly waiting: number;
  /** 0 to 1. */
  readonly kvUsage: number;
  readonly kvBlocks: number;
  readonly startedEpochS: number;
}
