import type { MonoMs } from "../../kernel/clock.ts";

export const RETRIES_FREE = 3;
export const RECENT_MS = 10_000;
const BUCKETS = 10;
const BUCKET_MS = RECENT_MS / BUCKETS;
/** Sums of a ratio such as 0.2 fall a little short of the whole. */
const ROUNDING = 1e-9;

/**
 * Bounds the retries of one upstream: an engine that fails everything gets at most 1 + ratio times the requests that came,
 * and three more, over a whole run and not only over a window.
 *
 * Each request earns a part (`ratio`) of a retry, each retry spends one. Unspent credit is kept up to what the requests of the
 * last 10 s earned and three more, so an endpoint that dies with many requests on it costs their clients nothing. After 10 s
 * without a request the three are there again: amplification is a matter of load.
 */
export class RetryBudget {
  #ratio: number;
  #credit = RETRIES_FREE;
  readonly #requests = Array.from({ length: BUCKETS }, () => 0);
  #bucket: number;
  #recent = 0;
  #lastAt: MonoMs;

  /** `ratio`: retries per request, 0.2 for 20 percent. */
  constructor(ratio: number, now: MonoMs) {
    this.#ratio = ratio;
    this.#bucket = Math.floor(now / BUCKET_MS);
    this.#lastAt = now;
  }

  setRatio(ratio: number): void {
    this.#ratio = ratio;
  }

  onRequest(now: MonoMs): void {
    this.#roll(now);
    if (now - this.#lastAt >= RECENT_MS) this.#credit = Math.max(this.#credit, RETRIES_FREE);
    this.#lastAt = now;
    this.#requests[this.#bucket % BUCKETS]! += 1;
    this.#recent += 1;
    this.#credit = Math.min(this.#credit + this.#ratio, this.#creditMax());
  }

  mayRetry(now: MonoMs): boolean {
    this.#roll(now);
    return Math.min(this.#credit, this.#creditMax()) >= 1 - ROUNDING;
  }

  onRetry(now: MonoMs): void {
    this.#roll(now);
    this.#credit = Math.min(this.#credit, this.#creditMax()) - 1;
  }

  #creditMax(): number {
    return RETRIES_FREE + this.#ratio * this.#recent;
  }

  #roll(now: MonoMs): void {
    const bucket = Math.floor(now / BUCKET_MS);
    const passed = Math.min(bucket - this.#bucket, BUCKETS);
    for (let i = 0; i < passed; i++) {
      const place = (bucket - i) % BUCKETS;
      this.#recent -= this.#requests[place]!;
      this.#requests[place] = 0;
    }
    this.#bucket = Math.max(bucket, this.#bucket);
  }
}
