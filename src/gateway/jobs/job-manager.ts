import type { AuditEvent } from "../../contract/audit-event.ts";
import type { JobRecord } from "../../contract/job.ts";
import type { JobSettings } from "../../contract/gateway-config.ts";
import type { RequestClass } from "../../contract/request-class.ts";
import type { JobCounts, JobStore } from "../../coord/jobs/job-store.ts";
import { planClaims, type ClaimRoom } from "../../decide/jobs/plan-claims.ts";
import type { Clock, MonoMs, Timer } from "../../kernel/clock.ts";
import { untilAborted } from "../../kernel/deadline.ts";
import type { Logger } from "../../kernel/log.ts";
import type { Random } from "../../kernel/random.ts";
import type { Upstream } from "../upstreams/upstream.ts";
import type { UpstreamRegistry } from "../upstreams/upstream-registry.ts";
import type { CallbackSender } from "./callback-sender.ts";
import type { JobMetrics } from "../metrics/job-metrics.ts";
import type { OverflowDesk } from "../overflow/overflow-desk.ts";
import type { Errands } from "../overflow/run-errand.ts";
import { JobRun, type JobRunPorts } from "./run-job.ts";

export interface JobManagerDeps {
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  readonly store: JobStore;
  readonly registry: UpstreamRegistry;
  readonly settings: () => JobSettings;
  readonly metrics: JobMetrics;
  readonly run: JobRunPorts;
  readonly callbacks: CallbackSender;
  /** Whether batch jobs for the upstream would only be refused, for its GPUs. */
  readonly shedsJobs: (upstream: Upstream) => boolean;
  readonly overflow: { readonly desk: OverflowDesk; readonly errands: Errands };
  /** The store's life is another than the one known before. */
  readonly onEpoch: () => void;
  /** A job has ended by something that this gateway did. */
  readonly onEnded: (job: JobRecord, last: AuditEvent | null) => void;
}

/** How long a change is waited for before the manager looks by itself; also how soon a delay that is over is seen. */
const LOOK_MS = 1_000;
const CALLBACKS_MAX = 16;

/**
 * Takes jobs that this gateway has room for, runs them, and lets the store's time pass.
 *
 * Invariants:
 *   M1. One look at a time; a change that comes during a look is looked at once more after it.
 *   M2. Never more jobs of a class with an upstream than that class has slots there, and one; never more than `heldMax`. Those that could
 *       go to a tier come on top, and one that is with a tier is with its upstream no longer.
 *   M3. After `stop` nothing new is taken, and each claim has been handed back or has ended, or is left to run out; no run waits for the
 *       store any more.
 */
export class JobManager {
  readonly #deps: JobManagerDeps;
  readonly #runs = new Map<string, JobRun>();
  readonly #upstreamOf = new Map<JobRun, Upstream>();
  readonly #listening: Disposable;
  readonly #over = new AbortController();
  #timer: Timer | undefined;
  #looking: Promise<void> | null = null;
  #again = false;
  #stopped = false;
  #storeAway = false;
  #sweptAt: MonoMs | undefined;
  #sending = 0;
  #epoch: string | undefined;
  /** Undefined until the store told, and while it is away. */
  counts: JobCounts | undefined;

  constructor(deps: JobManagerDeps) {
    this.#deps = deps;
    this.#epoch = deps.store.epoch;
    this.#listening = deps.store.onChange((id) => this.#onChange(id));
    this.#lookSoon(0);
  }

  get running(): number {
    return this.#runs.size;
  }

  /** Hands back what runs. Resolves when the store has all of it, or the signal is aborted. */
  async stop(hurry: AbortSignal): Promise<void> {
    this.#stopped = true;
    this.#timer?.cancel();
    this.#listening[Symbol.dispose]();
    const over = untilAborted(hurry);
    const handedBack = (async (): Promise<void> => {
      await this.#looking;
      await Promise.all([...this.#runs.values()].map((run) => run.handBack()));
    })();
    await Promise.race([handedBack, over]);
    this.#over.abort();
    this.#deps.callbacks.close();
  }

  #onChange(id: string | null): void {
    if (id !== null) this.#runs.get(id)?.look();
    this.#lookSoon(0);
  }

  #lookSoon(ms: number): void {
    if (this.#stopped) return;
    if (this.#looking !== null) {
      this.#again = true;
      return;
    }
    this.#timer?.cancel();
    this.#timer = this.#deps.clock.after(ms, () => {
      this.#looking = this.#look().finally(() => {
        this.#looking = null;
        const again = this.#again;
        this.#again = false;
        this.#lookSoon(again ? 0 : LOOK_MS * (0.75 + this.#deps.random.next() / 2));
      });
    });
  }

  async #look(): Promise<void> {
    const { store, log, settings, clock } = this.#deps;
    try {
      const now = clock.mono();
      const sweeps = this.#sweptAt === undefined || now - this.#sweptAt >= LOOK_MS / 2;
      if (sweeps) {
        this.#sweptAt = now;
        await this.#sweep();
      }
      this.#lookAtCards(sweeps);
      const wishes = planClaims(this.#rooms(), settings().heldMax, sweeps);
      if (wishes.length > 0 && !this.#stopped)
        for (const job of await store.claim(wishes, settings().claimMs)) this.#start(job);
      if (sweeps) {
        this.counts = await store.counts();
        await this.#sendCallbacks();
      }
      if (this.#storeAway) log.info("jobs.store", { state: "back" });
      this.#storeAway = false;
    } catch (error) {
      this.counts = undefined;
      if (!this.#storeAway)
        log.warn("jobs.store", { state: "away", message: error instanceof Error ? error.message : String(error) });
      this.#storeAway = true;
    }
  }

  async #sweep(): Promise<void> {
    const { store, metrics } = this.#deps;
    const before = this.#epoch;
    for (const job of await store.sweep()) {
      if (job.error?.code === "JOB_INTERRUPTED") metrics.reclaimed(job);
      this.#deps.onEnded(job, null);
    }
    const lost = store.takeLost();
    if (lost > 0) this.#onJobsLost(lost);
    if (store.epoch === before) return;
    this.#epoch = store.epoch;
    this.#deps.onEpoch();
    if (before !== undefined) this.#onStoreEmptied(before);
  }

  #onJobsLost(jobs: number): void {
    this.#deps.metrics.jobsLost(jobs);
    this.#deps.log.error("jobs.lost", {
      jobs,
      effect:
        "a server took over that had not heard of the last jobs; set jobs.replicas so that a job is only accepted when a replica has it",
    });
  }

  #onStoreEmptied(before: string): void {
    this.#deps.metrics.storeLost();
    this.#deps.log.error("jobs.store_lost", {
      epoch: before,
      effect: "jobs that were accepted before are gone; asked for, they are answered 410 STORE_LOST",
    });
  }

  #rooms(): ClaimRoom[] {
    return this.#deps.registry.all().map((upstream) => {
      const held: Record<RequestClass, number> = { interactive: 0, system: 0, batch: 0 };
      for (const [run, where] of this.#upstreamOf) if (where === upstream) held[run.job.class] += 1;
      const { id, models, limits } = upstream.settings;
      return {
        lanes: [`u:${id}`, ...models.map((model) => `m:${model}`)],
        slots: limits.slots,
        batchMax: limits.batchMax,
        away: upstream.unavailable("", true)?.reason ?? null,
        shedsBatch: this.#deps.shedsJobs(upstream),
        overflow: this.#deps.overflow.desk.room(id),
        held,
      };
    });
  }

  /** Claims do not wait for it: the next ones know what it found. */
  #lookAtCards(sweeps: boolean): void {
    const { desk } = this.#deps.overflow;
    if (!sweeps || desk.policies.length === 0) return;
    void desk.refresh().then((changed) => {
      if (changed) this.#lookSoon(0);
    });
  }

  #start(job: JobRecord): void {
    const { metrics, settings, store } = this.#deps;
    if (job.attempts > 1 && job.plan.at(-2)?.what === "reclaimed") metrics.reclaimed(job);
    const run: JobRun = new JobRun(
      {
        ...this.#deps.run,
        store,
        claimMs: () => settings().claimMs,
        fanoutMax: () => settings().fanoutMax,
        onEnded: this.#deps.onEnded,
        onLost: (id, why) => {
          metrics.claimLost(why);
          this.#deps.log.warn("job.claim_lost", { job: id, why });
        },
        onVerdict: (verdict) => metrics.verdict(verdict),
        errands: this.#deps.overflow.errands,
        onLeft: () => {
          this.#upstreamOf.delete(run);
          this.#lookSoon(0);
        },
        over: this.#over.signal,
      },
      job,
    );
    this.#runs.set(job.id, run);
    const upstream = this.#upstreamFor(job);
    if (upstream !== undefined) this.#upstreamOf.set(run, upstream);
    if (upstream !== undefined && job.attempts === 1 && job.startedAt !== null)
      upstream.waits.note(job.startedAt - job.createdAt, this.#deps.clock.mono());
    void run.ended.finally(() => {
      if (this.#runs.get(job.id) === run) this.#runs.delete(job.id);
      this.#upstreamOf.delete(run);
      this.#lookSoon(0);
    });
  }

  #upstreamFor(job: JobRecord): Upstream | undefined {
    const { registry } = this.#deps;
    return job.model === null ? registry.byId(job.upstream ?? "") : registry.byModel(job.model);
  }

  async #sendCallbacks(): Promise<void> {
    const room = CALLBACKS_MAX - this.#sending;
    if ((this.counts?.callbacks ?? 0) === 0 || room <= 0) return;
    for (const job of await this.#deps.store.dueCallbacks(room)) {
      this.#sending += 1;
      void this.#deps.callbacks.send(job).finally(() => (this.#sending -= 1));
    }
  }
}
