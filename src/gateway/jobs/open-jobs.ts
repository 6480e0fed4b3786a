import { existsSync } from "node:fs";
import { join } from "node:path";
import type { AuditEvent } from "../../contract/audit-event.ts";
import type { GatewayConfig } from "../../contract/gateway-config.ts";
import { isOpen, type JobRecord } from "../../contract/job.ts";
import type { JobStore } from "../../coord/jobs/job-store.ts";
import { ERRORS, YardmasterError } from "../../kernel/errors.ts";
import type { Clock, Timer } from "../../kernel/clock.ts";
import type { Resolve } from "../../kernel/judged-lookup.ts";
import { silentLogger, type Logger } from "../../kernel/log.ts";
import type { Random } from "../../kernel/random.ts";
import type { AuditSink } from "../audit/audit-sink.ts";
import { judgeModel, type ModelJudge } from "../batches/judge-model.ts";
import { Batches } from "../batches/open-batches.ts";
import type { RedisLink } from "../../coord/redis/redis-link.ts";
import type { Overflow } from "../overflow/open-overflow.ts";
import type { Upstream } from "../upstreams/upstream.ts";
import type { UpstreamRegistry } from "../upstreams/upstream-registry.ts";
import { CallbackSender } from "./callback-sender.ts";
import { JobDesk } from "./job-desk.ts";
import { JobManager } from "./job-manager.ts";
import type { BatchMetrics } from "../metrics/batch-metrics.ts";
import type { JobMetrics } from "../metrics/job-metrics.ts";
import type { JobService } from "./job-service.ts";
import { KnownStores } from "./known-stores.ts";
import type { JobRunPorts } from "./run-job.ts";

export interface JobsPorts {
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  readonly audit: AuditSink;
  readonly registry: UpstreamRegistry;
  readonly config: () => GatewayConfig;
  readonly draining: () => boolean;
  readonly link: RedisLink | null;
  readonly metrics: JobMetrics;
  readonly batchMetrics: BatchMetrics;
  readonly run: JobRunPorts;
  readonly shedsJobs: (upstream: Upstream) => boolean;
  readonly overflow: Overflow;
  /** For the models of batches. */
  readonly keyById: ModelJudge["keyById"];
  readonly catalogPending: ModelJudge["catalogPending"];
  readonly resolve?: Resolve;
}

/** What `/health` tells of jobs. */
export interface JobsHealth {
  readonly store: "local" | "redis" | "unused";
  readonly durability: string | null;
  /** Of this gateway. */
  readonly running: number;
  readonly counts: unknown;
}

export interface JobsTold {
  /** The same for gateways that share it. */
  readonly store: string;
  readonly queued: number;
  readonly running: number;
}

const sumOf = (counts: Readonly<Record<string, number>>): number =>
  Object.values(counts).reduce((sum, count) => sum + count, 0);

const REPLICAS_MS = 500;
const REOPEN_MS = 2_000;
const HAND_BACK_MS_MAX = 5_000;

/**
 * Durable jobs of one gateway. With `coordination: local` the database is opened at the start where there is one, else with the
 * first job: who uses no jobs has neither file nor thread.
 */
export class Jobs {
  readonly service: JobService;
  /** What is made of jobs. */
  readonly batches: Batches;
  readonly #ports: JobsPorts;
  readonly #known: KnownStores;
  #store: JobStore | null = null;
  #opening: Promise<JobStore> | null = null;
  #manager: JobManager | null = null;
  /** There may be jobs in a store that is not open. */
  #owed = false;
  #retry: Timer | undefined;
  #stopped = false;

  static async open(ports: JobsPorts): Promise<Jobs> {
    const jobs = new Jobs(ports);
    jobs.#owed = ports.link !== null || existsSync(jobs.#path);
    if (jobs.#owed) await jobs.#open().catch((error: unknown) => jobs.#openLater(error));
    await jobs.batches.begin();
    return jobs;
  }

  private constructor(ports: JobsPorts) {
    this.#ports = ports;
    this.#known = new KnownStores(ports.config().dataDir);
    this.service = new JobDesk({
      clock: ports.clock,
      store: async (forSubmit) => this.#store ?? ((forSubmit || this.#owed) && !this.#stopped ? this.#open() : null),
      known: this.#known,
      settings: () => ports.config().jobs,
      draining: ports.draining,
      metrics: ports.metrics,
      onEnded: (job, last) => this.#onEnded(job, last),
    });
    this.batches = new Batches({
      clock: ports.clock,
      log: ports.log,
      metrics: ports.batchMetrics,
      config: ports.config,
      link: ports.link,
      anotherLink: (link) => this.#anotherLink(link),
      jobs: this,
      judgeModel: (keyId, model) => judgeModel(ports, keyId, model),
    });
    ports.metrics.collect(() => this.#manager?.counts);
  }

  /** The store itself, for who makes jobs of something larger. */
  async store(): Promise<JobStore> {
    return this.#store ?? (await this.#open());
  }

  /** Ends a job of such a one where it has not ended. */
  async cancel(id: string, by: string): Promise<void> {
    const outcome = await (await this.store()).change(id, { kind: "cancel", by });
    if (outcome.kind === "moved" && outcome.ended) this.#onEnded(outcome.job, null);
  }

  /** Whether the job has still to come to its end. Rejects while nobody can know. */
  async isOpen(id: string): Promise<boolean> {
    const read = await (await this.store()).get(id);
    return read !== undefined && isOpen(read.job.state);
  }

  health(): JobsHealth {
    return {
      store: this.#store?.kind ?? "unused",
      durability: this.#store?.durability ?? null,
      running: this.#manager?.running ?? 0,
      counts: this.#manager?.counts ?? null,
    };
  }

  /** What control planes are told; null while it is not known. */
  told(): JobsTold | null {
    const [store, counts] = [this.#store?.epoch, this.#manager?.counts];
    if (store === undefined || counts === undefined) return null;
    return { store, queued: sumOf(counts.queued), running: sumOf(counts.running) };
  }

  /** Hands back what runs; the service refuses from then on. */
  async stop(hurry: AbortSignal): Promise<void> {
    this.#stopped = true;
    this.#retry?.cancel();
    const given = new AbortController();
    const limit = this.#ports.clock.after(HAND_BACK_MS_MAX, () => given.abort());
    // A store that is away does not hold up the stop: the claims run out by themselves.
    const soon = AbortSignal.any([hurry, given.signal]);
    await Promise.all([this.#manager?.stop(soon), this.batches.stop(soon)]);
    limit.cancel();
  }

  async close(): Promise<void> {
    await this.batches.close();
    await this.#store?.close();
  }

  get #path(): string {
    return join(this.#ports.config().dataDir, "jobs.db");
  }

  #open(): Promise<JobStore> {
    this.#opening ??= this.#openStore().then(
      (store) => {
        this.#store = store;
        this.#known.note(store);
        this.#ports.overflow.useJobs(store);
        this.#manager = this.#manage(store);
        return store;
      },
      (error: unknown) => {
        this.#opening = null;
        throw error;
      },
    );
    return this.#opening;
  }

  /** A full disk, say, keeps nobody from calls that need no job. Jobs are answered JOB_STORE_UNAVAILABLE until the store opens. */
  #openLater(error: unknown): void {
    if (!(error instanceof YardmasterError) || error.code !== "JOB_STORE_UNAVAILABLE") throw error;
    const { clock, log } = this.#ports;
    log.warn("jobs.store", { state: "away", message: error.message });
    const again = (): void => {
      if (this.#store !== null || this.#stopped) return;
      this.#open().then(
        () => log.info("jobs.store", { state: "back" }),
        () => (this.#retry = clock.after(REOPEN_MS, again)),
      );
    };
    this.#retry = clock.after(REOPEN_MS, again);
  }

  async #openStore(): Promise<JobStore> {
    const { clock, random, link, config } = this.#ports;
    const { jobsMax, bytesMax, replicas } = config().jobs;
    const limits = { jobsMax, bytesMax };
    if (link === null) {
      const { openLocalJobStore } = await import("../../coord/local/local-job-store.ts");
      return openLocalJobStore({ path: this.#path, limits, clock });
    }
    const { openRedisJobStore } = await import("../../coord/redis/redis-job-store.ts");
    return openRedisJobStore({
      link,
      bytesLink: await this.#anotherLink(link),
      limits,
      clock,
      random,
      replicas,
      replicasMs: REPLICAS_MS,
      waitingLink: replicas > 0 ? await this.#anotherLink(link) : null,
    });
  }

  /** What the first one tells of the server is told once. */
  async #anotherLink(link: RedisLink): Promise<RedisLink> {
    const { RedisLink: Link } = await import("../../coord/redis/redis-link.ts");
    const { clock, random } = this.#ports;
    const own = new Link(link.settings, { clock, random, log: silentLogger });
    // Steps wait for the connection within their own time.
    void own.open();
    return own;
  }

  #manage(store: JobStore): JobManager {
    const { clock, random, log, registry, config, metrics, run, resolve, shedsJobs, overflow } = this.#ports;
    const settings = (): GatewayConfig["jobs"] => config().jobs;
    return new JobManager({
      clock,
      random,
      log,
      store,
      registry,
      settings,
      metrics,
      run,
      shedsJobs,
      overflow,
      callbacks: new CallbackSender({ clock, store, settings, metrics, ...(resolve === undefined ? {} : { resolve }) }),
      onEnded: (job, last) => this.#onEnded(job, last),
      onEpoch: () => this.#known.note(store),
    });
  }

  /** The one audit event of a job, by whoever brought it to its end. */
  #onEnded(job: JobRecord, last: AuditEvent | null): void {
    this.#ports.metrics.ended(job.class, job.state);
    // Of a batch's lines each is on record by itself.
    if (job.batch !== undefined) return;
    const code = job.error?.code ?? null;
    const ended = job.endedAt ?? job.createdAt;
    this.#ports.audit.record({
      time: job.createdAt,
      requestId: job.id,
      keyId: job.keyId,
      class: job.class,
      method: job.method,
      route: "/v1/jobs",
      model: job.model,
      upstream: last?.upstream ?? job.upstream,
      endpoint: last?.endpoint ?? null,
      status: job.result?.status ?? (code === null ? (job.state === "cancelled" ? 499 : 200) : ERRORS[code].http),
      outcome: job.state === "completed" ? "ok" : job.state === "cancelled" ? "cancelled" : outcomeOf(code, last),
      errorCode: code,
      queueMs: job.startedAt === null ? null : job.startedAt - job.createdAt,
      firstByteMs: last?.firstByteMs ?? null,
      totalMs: ended - job.createdAt,
      promptTokens: last?.promptTokens ?? null,
      completionTokens: last?.completionTokens ?? null,
      cachedTokens: last?.cachedTokens ?? null,
      bytesIn: job.bodyBytes,
      bytesOut: job.result?.bytes ?? 0,
      attempts: job.attempts,
      idempotentReplay: false,
      cacheHit: false,
      shed: code === "GPU_SATURATED",
      overflow: job.overflow?.tier ?? null,
    });
  }
}

function outcomeOf(code: string | null, last: AuditEvent | null): AuditEvent["outcome"] {
  if (code === "ENGINE_ERROR" || code === "JOB_PARTS_FAILED") return "engine_error";
  if (last !== null && last.outcome !== "ok") return last.outcome;
  return code === "JOB_DEADLINE" ? "upstream_timeout" : "refused";
}
