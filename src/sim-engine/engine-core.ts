import type { Clock, Timer } from "../kernel/clock.ts";
import { EngineStats, type EngineGauges } from "./engine-stats.ts";
import { CONTEXT_TOKENS_DEFAULT, type SimEngineOptions } from "./options.ts";
import { BLOCK_TOKENS, blockHashes, PrefixCache } from "./prefix-cache.ts";
import { Schedule, type Job, type Progress } from "./schedule.ts";

/** What the finish reasons are called in the engine's counters. */
export type FinishReason = "stop" | "length" | "tool_calls";

export interface WorkRequest {
  readonly promptText: string;
  readonly promptTokens: number;
  readonly outputTokens: number;
  readonly priority: number;
  readonly finish: FinishReason;
  readonly choices: number;
  readonly gapMs?: number;
  readonly firstDelayMs?: number;
  readonly stallAfter?: number;
}

/** What the engine tells the request's handler; none of it comes before `submit` has returned a handle. */
export interface WorkListener {
  /** No slot was free. */
  queued(): void;
  started(cachedTokens: number): void;
  tokens(from: number, count: number): void;
  ended(): void;
  /** The engine gives the request up: its process died or stops. */
  failed(why: "dead" | "stopping"): void;
}

export interface Work {
  readonly cachedTokens: number;
  /** Takes the work out of queue or slot. Safe to call when it has ended. */
  leave(): void;
}

interface Tracked {
  readonly job: Job;
  readonly request: WorkRequest;
  readonly listener: WorkListener;
}

/**
 * The engine behind the HTTP surface: one schedule, one prefix cache, one timer.
 *
 * Invariants:
 *   E1. There is at most one timer, and none while nothing is due.
 *   E2. A frozen engine keeps its connections and gives nothing: no token, no counter moves.
 */
export class EngineCore {
  readonly stats = new EngineStats();
  readonly #schedule: Schedule;
  readonly #cache: PrefixCache;
  readonly #clock: Clock;
  readonly #kvBlocks: number;
  readonly #startedEpochS: number;
  readonly #tracked = new Set<Tracked>();
  readonly #gapMs: number;
  #timer: Timer | undefined;
  #timerAtMs = Number.POSITIVE_INFINITY;
  #frozen = false;
  #looking = false;

  constructor(options: SimEngineOptions) {
    const rate = (tps: number): number => (tps > 0 ? tps : Number.POSITIVE_INFINITY);
    this.#clock = options.clock;
    this.#gapMs = 1_000 / rate(options.decodeTps);
    this.#schedule = new Schedule({
      slots: options.slots,
      prefillTps: rate(options.prefillTps),
      decodeTps: rate(options.decodeTps),
    });
    const context = options.contextTokens ?? CONTEXT_TOKENS_DEFAULT;
    this.#kvBlocks = options.kvBlocks ?? Math.ceil((options.slots * context) / (4 * BLOCK_TOKENS));
    this.#cache = new PrefixCache(this.#kvBlocks);
    this.#startedEpochS = options.clock.wall() / 1_000;
  }

  get frozen(): boolean {
    return this.#frozen;
  }

  submit(request: WorkRequest, listener: WorkListener): Work {
    const arrivedMs = this.#clock.mono();
    let cachedTokens = 0;
    let startedMs: number = arrivedMs;
    let firstMs = Number.NaN;
    let begun = false;
    const job: Job = {
      priority: request.priority,
      outputTokens: request.outputTokens,
      ...(request.gapMs === undefined ? {} : { gapMs: request.gapMs }),
      ...(request.firstDelayMs === undefined ? {} : { firstDelayMs: request.firstDelayMs }),
      ...(request.stallAfter === undefined ? {} : { stallAfter: request.stallAfter }),
      begin: (atMs) => {
        begun = true;
        startedMs = atMs;
        cachedTokens = this.#cache.use(blockHashes(request.promptText), request.promptTokens);
        this.stats.prefixQueries += request.promptTokens;
        this.stats.cachedTokens += cachedTokens;
        this.stats.promptTokens += request.promptTokens;
        listener.started(cachedTokens);
        return request.promptTokens - cachedTokens;
      },
      tokens: (from, count) => {
        const nowMs = this.#clock.mono();
        if (from === 0) {
          firstMs = nowMs;
          this.stats.ttftSeconds.observe((nowMs - arrivedMs) / 1_000);
        }
        const gapMs = request.gapMs ?? this.#gapMs;
        this.stats.itlSeconds.observe(gapMs / 1_000, (from === 0 ? count - 1 : count) * request.choices);
        this.stats.generationTokens += count * request.choices;
        listener.tokens(from, count);
      },
      end: () => {
        this.#tracked.delete(tracked);
        this.#count(request, arrivedMs, startedMs, firstMs);
        listener.ended();
      },
    };
    const tracked: Tracked = { job, request, listener };
    this.#tracked.add(tracked);
    this.#schedule.add(job, arrivedMs);
    // The look comes after the caller holds the handle, so that a listener may use it.
    queueMicrotask(() => {
      this.#look();
      if (!begun && this.#tracked.has(tracked)) listener.queued();
    });
    return {
      get cachedTokens() {
        return cachedTokens;
      },
      leave: () => {
        if (!this.#tracked.delete(tracked)) return;
        this.#schedule.remove(job, this.#clock.mono());
        this.#look();
      },
    };
  }

  /** Every request in queue or slot is given up. */
  failAll(why: "dead" | "stopping"): void {
    const nowMs = this.#clock.mono();
    const given = [...this.#tracked];
    this.#tracked.clear();
    for (const { job } of given) this.#schedule.remove(job, nowMs);
    for (const { listener } of given) listener.failed(why);
  }

  /** Requests that have a slot, or can have one now, keep it; nothing moves any more. */
  freeze(): void {
    if (!this.#frozen) this.#schedule.admit(this.#clock.mono());
    this.#frozen = true;
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#timerAtMs = Number.POSITIVE_INFINITY;
  }

  /** What was due meanwhile comes at once, as from a process that was stopped and continued. */
  thaw(): void {
    this.#frozen = false;
    this.#look();
  }

  get running(): number {
    return this.#schedule.runningCount;
  }

  get waiting(): number {
    return this.#schedule.waitingCount;
  }

  gauges(): EngineGauges {
    let tokens = this.#schedule.outputHeld;
    const runs = this.runningWork();
    for (const run of runs) tokens += run.request.promptTokens;
    return {
      running: this.running,
      waiting: this.waiting,
      kvUsage: Math.min(1, Math.ceil(tokens / BLOCK_TOKENS) / this.#kvBlocks),
      kvBlocks: this.#kvBlocks,
      startedEpochS: this.#startedEpochS,
    };
  }

  runningWork(): { readonly request: WorkRequest; readonly emitted: number }[] {
    const byJob = new Map([...this.#tracked].map((tracked) => [tracked.job, tracked.request]));
    return this.#schedule.runningJobs().flatMap(({ job, emitted }) => {
      const request = byJob.get(job);
      return request === undefined ? [] : [{ request, emitted }];
    });
  }

  close(): void {
    this.#frozen = true;
    this.#timer?.cancel();
    this.#tracked.clear();
  }

  #look(): void {
    // A listener that leaves calls back in here; the look under way sees the free slot itself.
    if (this.#frozen || this.#looking) return;
    this.#looking = true;
    const busy = this.running;
    let progress: Progress;
    try {
      progress = this.#schedule.advance(this.#clock.mono());
    } finally {
      this.#looking = false;
    }
    if (progress.steps > 0) {
      const tokens = progress.prefillTokens + progress.outputTokens;
      this.stats.steps += progress.steps;
      this.stats.busySlotSteps += progress.steps * Math.max(1, busy, this.running);
      this.stats.stepTokens.observe(tokens / progress.steps, progress.steps);
    }
    this.#arm();
  }

  #arm(): void {
    const dueMs = this.#schedule.nextMs();
    if (dueMs === this.#timerAtMs) return;
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#timerAtMs = dueMs;
    if (dueMs === Number.POSITIVE_INFINITY) return;
    this.#timer = this.#clock.after(Math.max(0, dueMs - this.#clock.mono()), () => {
      this.#timer = undefined;
      this.#timerAtMs = Number.POSITIVE_INFINITY;
      this.#look();
    });
  }

  #count(request: WorkRequest, arrivedMs: number, startedMs: number, firstMs: number): void {
    const endMs = this.#clock.mono();
    const decodeMs = Number.isNaN(firstMs) ? 0 : endMs - firstMs;
    const stats = this.stats;
    stats.decodeMs += decodeMs;
    stats.prefillMs += endMs - startedMs - decodeMs;
    stats.sequenceTokensMax = Math.max(stats.sequenceTokensMax, request.promptTokens + request.outputTokens);
    stats.finished[request.finish === "length" ? "length" : "stop"] += 1;
    stats.requestPromptTokens.observe(request.promptTokens);
    stats.requestGenerationTokens.observe(request.outputTokens * request.choices);
    stats.queueSeconds.observe((startedMs - arrivedMs) / 1_000);
    stats.inferenceSeconds.observe((endMs - startedMs) / 1_000);
    stats.prefillSeconds.observe((endMs - startedMs - decodeMs) / 1_000);
    stats.decodeSeconds.observe(decodeMs / 1_000);
    stats.e2eSeconds.observe((endMs - arrivedMs) / 1_000);
    if (request.outputTokens > 1) stats.perTokenSeconds.observe(decodeMs / 1_000 / (request.outputTokens - 1));
  }
}
