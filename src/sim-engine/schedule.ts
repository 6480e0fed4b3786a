/**
 * Who runs when, and how many tokens are due: the engine's timing as a state machine without a clock.
 *
 * Invariants:
 *   S1. At most `slots` jobs run. A waiting job starts at the moment a slot is free, not at the next look.
 *   S2. Lower priority numbers start first, ties in order of arrival. A running job is never displaced.
 *   S3. Every slot works at its own rates: jobs do not slow each other down.
 */
export interface Rates {
  readonly slots: number;
  /** Prompt tokens a second of one slot; Infinity for none of the time. */
  readonly prefillTps: number;
  /** Output tokens a second of one slot; Infinity for all at once. */
  readonly decodeTps: number;
}

export interface Job {
  readonly priority: number;
  readonly outputTokens: number;
  /** Milliseconds between output tokens when they differ from the engine's rate. */
  readonly gapMs?: number;
  /** Added before the first token; Infinity never gives one. */
  readonly firstDelayMs?: number;
  /** The job holds its slot and gives nothing more after so many tokens. */
  readonly stallAfter?: number;
  /** Called when a slot is taken: the prompt tokens that must be computed. */
  begin(atMs: number): number;
  tokens(from: number, count: number): void;
  end(atMs: number): void;
}

/** Work done since the last look, for the engine's counters. */
export interface Progress {
  /** Forward passes. */
  steps: number;
  prefillTokens: number;
  outputTokens: number;
}

interface Waiting {
  readonly job: Job;
  readonly arrivedMs: number;
}

interface Running {
  readonly job: Job;
  readonly firstAtMs: number;
  readonly gapMs: number;
  readonly prefillTokens: number;
  readonly chunks: number;
  readonly chunkMs: number;
  readonly startedMs: number;
  chunksDone: number;
  emitted: number;
  nextMs: number;
}

/** As many tokens as one look may give one job, so that an engine without a rate stays fair to its sockets. */
const BURST_MAX = 512;
const CHUNK_TOKENS_MAX = 2_048;
/** A step of prefill lasts at most this long, so that a long prompt shows as moving counters. */
const CHUNK_MS_MAX = 250;
const EPSILON_MS = 1e-6;

export class Schedule {
  readonly #rates: Rates;
  readonly #waiting: Waiting[] = [];
  readonly #running = new Map<Job, Running>();
  /** Since when each free slot is free; ascending. */
  #freeSince: number[];

  constructor(rates: Rates) {
    this.#rates = rates;
    this.#freeSince = Array.from({ length: rates.slots }, () => 0);
  }

  get runningCount(): number {
    return this.#running.size;
  }

  get waitingCount(): number {
    return this.#waiting.length;
  }

  /** Tokens that running jobs hold in the cache beyond their prompts. */
  get outputHeld(): number {
    let held = 0;
    for (const run of this.#running.values()) held += run.emitted;
    return held;
  }

  runningJobs(): readonly { readonly job: Job; readonly emitted: number }[] {
    return [...this.#running.values()];
  }

  add(job: Job, nowMs: number): void {
    let index = this.#waiting.length;
    while (index > 0 && (this.#waiting[index - 1]?.job.priority ?? 0) > job.priority) index -= 1;
    this.#waiting.splice(index, 0, { job, arrivedMs: nowMs });
  }

  /** True when the job was there. Its slot is free from now. */
  remove(job: Job, nowMs: number): boolean {
    const index = this.#waiting.findIndex((entry) => entry.job === job);
    if (index >= 0) this.#waiting.splice(index, 1);
    const ran = this.#running.delete(job);
    if (ran) this.#free(nowMs);
    return ran || index >= 0;
  }

  advance(nowMs: number): Progress {
    const progress: Progress = { steps: 0, prefillTokens: 0, outputTokens: 0 };
    for (;;) {
      this.#admit(nowMs, progress);
      let ended = false;
      // A job may leave while another's tokens are delivered; the map's own iteration then passes it over.
      for (const run of this.#running.values()) {
        if (run.nextMs <= nowMs + EPSILON_MS) ended = this.#work(run, nowMs, progress) || ended;
      }
      if (!ended || this.#waiting.length === 0) return progress;
    }
  }

  /** Gives free slots to waiting jobs without doing any of their work. */
  admit(nowMs: number): void {
    this.#admit(nowMs, { steps: 0, prefillTokens: 0, outputTokens: 0 });
  }

  /** The time of the next event, Infinity when nothing will happen by itself. */
  nextMs(): number {
    let next = Number.POSITIVE_INFINITY;
    for (const run of this.#running.values()) if (run.nextMs < next) next = run.nextMs;
    return next;
  }

  #free(atMs: number): void {
    this.#freeSince.push(atMs);
    this.#freeSince.sort((a, b) => a - b);
  }

  #admit(nowMs: number, progress: Progress): void {
    while (this.#freeSince.length > 0 && (this.#freeSince[0] ?? 0) <= nowMs) {
      const next = this.#waiting.shift();
      if (next === undefined) return;
      const startedMs = Math.max(next.arrivedMs, this.#freeSince.shift() ?? 0);
      const prefillTokens = next.job.begin(startedMs);
      progress.prefillTokens += prefillTokens;
      const chunkTokens = Math.min(
        CHUNK_TOKENS_MAX,
        Math.max(1, Math.floor((this.#rates.prefillTps * CHUNK_MS_MAX) / 1_000)),
      );
      const prefillMs = (prefillTokens * 1_000) / this.#rates.prefillTps;
      const chunks = Math.max(1, Math.ceil(prefillTokens / chunkTokens));
      const firstAtMs = startedMs + prefillMs + (next.job.firstDelayMs ?? 0);
      this.#running.set(next.job, {
        job: next.job,
        startedMs,
        firstAtMs,
        gapMs: next.job.gapMs ?? 1_000 / this.#rates.decodeTps,
        prefillTokens,
        chunks,
        chunkMs: prefillMs / chunks,
        chunksDone: 0,
        emitted: 0,
        nextMs: Math.min(firstAtMs, startedMs + prefillMs / chunks),
      });
    }
  }

  /** True when the job has ended. */
  #work(run: Running, nowMs: number, progress: Progress): boolean {
    const chunksDue = run.chunkMs > 0 ? Math.floor((nowMs - run.startedMs + EPSILON_MS) / run.chunkMs) : run.chunks;
    const chunks = Math.min(run.chunks, chunksDue) - run.chunksDone;
    run.chunksDone += chunks;
    const from = run.emitted;
    const count = this.#dueTokens(run, nowMs);
    if (count > 0) {
      run.emitted += count;
      run.job.tokens(from, count);
    }
    progress.outputTokens += count;
    progress.steps = Math.max(progress.steps, Math.max(0, chunks) + Math.max(0, count - (from === 0 ? 1 : 0)));
    if (!this.#running.has(run.job)) return true; // Left while its tokens were delivered; its slot is free already.
    const stalled = run.job.stallAfter !== undefined && run.emitted >= run.job.stallAfter;
    if (run.emitted >= run.job.outputTokens && nowMs + EPSILON_MS >= run.firstAtMs && !stalled) {
      const endMs = Math.min(nowMs, run.firstAtMs + Math.max(0, run.job.outputTokens - 1) * run.gapMs);
      this.#running.delete(run.job);
      this.#free(endMs);
      run.job.end(endMs);
      return true;
    }
    run.nextMs = this.#nextOf(run, stalled);
    return false;
  }

  #dueTokens(run: Running, nowMs: number): number {
    const sinceFirst = nowMs + EPSILON_MS - run.firstAtMs;
    if (sinceFirst < 0) return 0;
    const due = run.gapMs > 0 ? Math.floor(sinceFirst / run.gapMs) + 1 : run.job.outputTokens;
    const limit = Math.min(
      run.job.outputTokens,
      run.job.stallAfter ?? Number.POSITIVE_INFINITY,
      run.emitted + BURST_MAX,
    );
    return Math.max(0, Math.min(due, limit) - run.emitted);
  }

  #nextOf(run: Running, stalled: boolean): number {
    if (run.chunksDone < run.chunks) return Math.min(run.firstAtMs, run.startedMs + (run.chunksDone + 1) * run.chunkMs);
    if (stalled) return Number.POSITIVE_INFINITY;
    return run.firstAtMs + run.emitted * run.gapMs;
  }
}
