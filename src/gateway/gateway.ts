import type { GatewayConfig } from "../contract/gateway-config.ts";
import { formatListen } from "../contract/listen-address.ts";
import { PLACED_GPU_HEALTH } from "../contract/resolve-gpu-health.ts";
import { planUpstreams, type UpstreamPlan } from "../decide/feed/plan-upstreams.ts";
import type { Clock } from "../kernel/clock.ts";
import { Bag } from "../kernel/bag.ts";
import { requestIds } from "../kernel/ids.ts";
import { YardmasterError } from "../kernel/errors.ts";
import type { Logger } from "../kernel/log.ts";
import type { Random } from "../kernel/random.ts";
import type { Signer } from "../kernel/signer.ts";
import { TimerWheel } from "../kernel/timer-wheel.ts";
import type { GpuReport } from "../contract/fleet.ts";
import type { AuditSink } from "./audit/audit-sink.ts";
import { openAudit, type OpenedAudit } from "./audit/open-audit.ts";
import type { KeyAdmin } from "./auth/admin-keys.ts";
import { openKeyCounts, type KeyCounts } from "./limits/open-key-counts.ts";
import { ANONYMOUS } from "../access/request-key.ts";
import { KeyRing } from "../access/key-ring.ts";
import { KeptKeys } from "./auth/kept-keys.ts";
import { DocumentRoutes } from "./facades/azure/document-routes.ts";
import { UpstreamClients } from "./facades/upstream-clients.ts";
import { BatchRoutes } from "./batches/batch-routes.ts";
import { BufferBudget } from "./buffer-budget.ts";
import type { AdmittedCall } from "./calls/admitted-call.ts";
import type { CallDeps } from "./calls/call-deps.ts";
import type { FeedClient } from "./feed/feed-client.ts";
import { feedUser } from "./feed/feed-user.ts";
import { GpuHealth } from "./gpu/gpu-health.ts";
import { collectGpus } from "./gpu/gpu-view.ts";
import { Dispatcher } from "./http/dispatcher.ts";
import type { EdgeServer } from "./http/edge-port.ts";
import { InferenceHandler, type InferenceDeps } from "./http/inference-handler.ts";
import { OwnRoutes } from "./http/own-routes.ts";
import { isBatchHandler, isJobHandler, isOverflowHandler } from "./http/routes.ts";
import { LoopWatch } from "./loop-watch.ts";
import { ReplayDesk } from "./replay/replay-desk.ts";
import { openReplyStores, type ReplyStores } from "./replay/reply-stores.ts";
import { createGatewayMetrics, type GatewayMetrics } from "./metrics/gateway-metrics.ts";
import { collectProcessMetrics } from "../metrics/process-metrics.ts";
import { Registry } from "../metrics/registry.ts";
import { openTracer } from "../trace/open-tracer.ts";
import type { Tracer } from "../trace/tracer.ts";
import { coordinationHealth, openCoordination, type Coordination } from "./open-coordination.ts";
import { openClient } from "./upstream/open-client.ts";
import type { UpstreamClient } from "./upstream/port.ts";
import { CallRecords } from "./jobs/job-call.ts";
import { SubmissionReader } from "./jobs/submission-reader.ts";
import { JobRoutes } from "./jobs/job-routes.ts";
import { Jobs } from "./jobs/open-jobs.ts";
import { Overflow } from "./overflow/open-overflow.ts";
import { connectionsMaxOf, makeEdge, openFeed } from "./open-ends.ts";
import { lazySigner } from "../audit/open-signer.ts";
import { UpstreamRegistry } from "./upstreams/upstream-registry.ts";
import { collectGatewayMetrics } from "./views/metrics-collectors.ts";

export interface GatewayOptions {
  readonly config: GatewayConfig;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  readonly version: string;
  /** Keys that live as long as the process: the one-time key of `up`. */
  readonly sessionKeys?: GatewayConfig["auth"]["keys"];
  /** Told of the keys that are made while it runs, at start and after each change. */
  readonly onStoredKeys?: KeyAdmin["onStored"];
  readonly logLost?: () => number;
}

/** What a start has opened before there is a gateway. */
interface Opened {
  readonly wheel: TimerWheel;
  readonly signer: () => Promise<Signer>;
  readonly records: OpenedAudit;
  readonly tracer: Tracer;
  readonly client: UpstreamClient;
  readonly coordination: Coordination;
  readonly stores: ReplyStores;
  readonly keyCounts: KeyCounts;
  readonly feed: FeedClient | null;
  readonly metrics: GatewayMetrics;
  readonly metricsRegistry: Registry;
}

/** How often a stop looks whether the running answers have ended. */
const DRAIN_LOOK_MS = 25;
/** Given to broken-off answers to reach their clients. */
const LAST_BYTES_MS = 250;

/**
 * The data plane of one process, from the listening socket to the engines. Stopping is a state: nothing new is taken, what
 * runs may end, the rest is broken off, and what was recorded is written down.
 */
export class Gateway {
  readonly #options: GatewayOptions;
  #config: GatewayConfig;
  readonly #wheel: TimerWheel;
  readonly #client: UpstreamClient;
  readonly #budget: BufferBudget;
  readonly #keys: KeyRing;
  readonly #keptKeys: KeptKeys;
  readonly #audit: AuditSink;
  readonly #tracer: Tracer;
  readonly #metrics: GatewayMetrics;
  readonly #registry: UpstreamRegistry;
  readonly #calls = new Bag<AdmittedCall>();
  readonly #stores: ReplyStores;
  readonly #keyCounts: KeyCounts;
  readonly #replays: ReplayDesk;
  readonly #inferenceDeps: InferenceDeps;
  readonly #inference: InferenceHandler;
  readonly #documents: DocumentRoutes;
  readonly #dispatcher: Dispatcher;
  readonly #edge: EdgeServer;
  readonly #processMetrics: Disposable;
  readonly #loopWatch: LoopWatch;
  readonly #clients: UpstreamClients;
  readonly #coordination: Coordination;
  readonly #feed: FeedClient | null;
  #plan: UpstreamPlan | null = null;
  #gpuHealth: GpuHealth | null = null;
  #jobs: Jobs | null = null;
  readonly #overflow: Overflow;
  readonly #submissions: SubmissionReader;
  #draining = false;
  #reload: { ok: boolean; message: string | null } = { ok: true, message: null };
  #address = "";

  static async start(options: GatewayOptions): Promise<Gateway> {
    const { config, clock, random, log, version } = options;
    const wheel = new TimerWheel(clock);
    const metricsRegistry = new Registry();
    const metrics = createGatewayMetrics(metricsRegistry, version);
    // First, and by itself: what refuses the start must leave nothing else open.
    const coordination = await openCoordination(config, { clock, random, log, metrics });
    const stores = await openReplyStores(config, { clock, random, log, metrics });
    const keyCounts = await openKeyCounts(config, coordination, { clock, log, metrics: metrics.keys });
    const signer = lazySigner(config.dataDir, config.signingSecrets);
    const [records, tracer, client, feed] = await Promise.all([
      openAudit(config, coordination, signer, { clock, log }),
      openTracer(config.otel, version, { clock, log }),
      openClient(config, clock, wheel),
      openFeed(options, metrics),
    ]);
    const gateway = new Gateway(options, {
      wheel,
      signer,
      records,
      tracer,
      client,
      coordination,
      stores,
      keyCounts,
      feed,
      metrics,
      metricsRegistry,
    });
    try {
      await gateway.#overflow.apply();
      gateway.#jobs = await gateway.#openJobs();
      const address = await gateway.#edge.listen(config.listen.host, config.listen.port);
      gateway.#address = formatListen({ host: config.listen.host, port: address.port });
      gateway.#follow();
    } catch (error) {
      await gateway.stop(AbortSignal.abort());
      throw error;
    }
    return gateway;
  }

  private constructor(options: GatewayOptions, opened: Opened) {
    const { config, clock, random, log } = options;
    this.#options = options;
    this.#config = config;
    this.#wheel = opened.wheel;
    this.#audit = opened.records.audit;
    this.#tracer = opened.tracer;
    this.#client = opened.client;
    this.#budget = new BufferBudget(config.maxBufferedBytes);
    this.#keys = new KeyRing(clock, { config: config.auth.keys, session: options.sessionKeys ?? [] });
    const onStored = options.onStoredKeys;
    this.#keptKeys = new KeptKeys({ ring: this.#keys, dataDir: config.dataDir, clock, log, onStored });
    this.#coordination = opened.coordination;
    this.#feed = opened.feed;
    this.#metrics = opened.metrics;
    this.#processMetrics = collectProcessMetrics(this.#metrics.collected, clock);
    this.#loopWatch = new LoopWatch(clock, log);
    this.#submissions = new SubmissionReader(clock);
    this.#clients = new UpstreamClients(this.#client, { clock, isJobOpen: (id) => this.#openedJobs().isOpen(id) });
    this.#registry = this.#makeRegistry(opened.coordination.share);
    this.#applyUpstreams();
    this.#applyGpuHealth();
    this.#stores = opened.stores;
    this.#keyCounts = opened.keyCounts;
    const callDeps = this.#callDeps();
    this.#replays = new ReplayDesk({
      ...callDeps,
      random,
      stores: this.#stores,
      config: () => this.#config,
    });
    this.#inferenceDeps = {
      ...callDeps,
      registry: this.#registry,
      config: () => this.#config,
      draining: () => this.#draining,
      limiter: this.#keyCounts.limiter,
      calls: this.#calls,
      replays: this.#replays,
      shedder: () => this.#gpuHealth?.shedder ?? null,
      loopSheds: (requestClass) => this.#loopWatch.sheds(requestClass),
      overflow: () => this.#overflow.calls,
      catalogPending: () => this.#feed !== null && this.#feed.state === null,
    };
    this.#inference = new InferenceHandler(this.#inferenceDeps);
    this.#overflow = this.#makeOverflow(opened.signer);
    this.#documents = new DocumentRoutes({ ...this.#inferenceDeps, jobs: () => this.#openedJobs().service });
    this.#dispatcher = this.#makeDispatcher(this.#makeOwnRoutes(opened.metricsRegistry, opened.records));
    this.#edge = makeEdge(config, this.#dispatcher, options, this.#metrics);
    this.#collectMetrics();
  }

  #makeRegistry(share: Coordination["share"]): UpstreamRegistry {
    const { clock, random, log } = this.#options;
    return new UpstreamRegistry({
      clock,
      wheel: this.#wheel,
      random,
      log,
      client: this.#client,
      clientFor: (settings) => this.#clients.of(settings),
      metrics: this.#metrics,
      share,
      onStartWanted: () => this.#feed?.reportSoon(),
    });
  }

  #callDeps(): CallDeps {
    let callIds = 0;
    return {
      clock: this.#options.clock,
      wheel: this.#wheel,
      log: this.#options.log,
      audit: this.#audit,
      metrics: this.#metrics,
      tracer: this.#tracer,
      usage: this.#keyCounts.usage,
      budget: this.#budget,
      nextCallId: () => (callIds += 1),
      endpointHeader: () => this.#config.endpointHeader,
    };
  }

  /** What most parts have in common. */
  #shared() {
    const { clock, random, log } = this.#options;
    const ports = { clock, random, log, audit: this.#audit, registry: this.#registry };
    return { ...ports, config: () => this.#config, draining: () => this.#draining };
  }

  #makeOverflow(signer: () => Promise<Signer>): Overflow {
    const { clock } = this.#options;
    const feed = this.#feed;
    return new Overflow({
      ...this.#shared(),
      signer,
      client: this.#client,
      makeRegistry: () => this.#makeRegistry(null),
      link: this.#coordination.link,
      metrics: this.#metrics.overflow,
      usage: this.#keyCounts.usage,
      utilization: (gpu) => this.#gpuHealth?.utilization(gpu) ?? null,
      allowsExternal: (keyId) =>
        keyId === ANONYMOUS.id && this.#config.auth.mode === "none" ? true : this.#keys.allowsExternal(keyId),
      controlAway: () => feed !== null && feed.view(clock.mono()).state !== "following",
    });
  }

  #openJobs(): Promise<Jobs> {
    const records = new CallRecords(this.#audit);
    return Jobs.open({
      ...this.#shared(),
      link: this.#coordination.link,
      metrics: this.#metrics.jobs,
      batchMetrics: this.#metrics.batches,
      shedsJobs: (upstream) => this.#gpuHealth?.shedder.shedsJobs(upstream) === true,
      overflow: this.#overflow,
      keyById: (id) => this.#keys.byId(id) ?? (this.#config.auth.mode === "none" ? ANONYMOUS : undefined),
      catalogPending: this.#inferenceDeps.catalogPending,
      run: {
        ...this.#shared(),
        records,
        // Calls of jobs are handed back by their own way when the gateway stops, so it does not wait for them.
        inference: new InferenceHandler({ ...this.#inferenceDeps, audit: records, calls: new Bag() }),
        resultBytesMax: () => this.#config.jobs.resultBytesMax,
        limitsOf: (keyId) => this.#keys.byId(keyId)?.limits ?? ANONYMOUS.limits,
      },
    });
  }

  #openedJobs(): Jobs {
    if (this.#jobs === null) throw new YardmasterError("JOB_STORE_UNAVAILABLE", "the gateway is starting");
    return this.#jobs;
  }

  #makeOwnRoutes(metricsRegistry: Registry, { chain }: OpenedAudit): OwnRoutes {
    const { clock, version } = this.#options;
    const feed = this.#feed;
    return new OwnRoutes({
      ...this.#shared(),
      chain,
      metricsRegistry,
      coordination: () => coordinationHealth(this.#config.coordination, this.#coordination, clock),
      keyAdmin: () => this.#keptKeys.admin,
      usage: this.#keyCounts.reader,
      lastReload: () => this.#reload,
      jobs: () => this.#openedJobs().health(),
      overflow: () => this.#overflow.states(),
      feed: feed === null ? null : () => ({ view: feed.view(clock.mono()), warnings: this.#plan?.warnings ?? [] }),
      gpuHealth: () => this.#gpuHealth,
      startedAt: clock.wall(),
      version,
    });
  }

  #collectMetrics(): void {
    collectGatewayMetrics(this.#metrics.collected, {
      clock: this.#options.clock,
      audit: this.#audit,
      registry: this.#registry,
      draining: () => this.#draining,
      tracer: this.#tracer,
      budget: this.#budget,
      client: this.#client,
      stores: this.#stores,
      replays: this.#replays,
      clientConnections: () => this.#edge.connections,
      logLost: this.#options.logLost ?? (() => 0),
      coordination: this.#coordination,
      feed: this.#feed,
    });
    collectGpus(this.#metrics.gpus.collected, () => this.#gpuHealth?.state);
  }

  #makeDispatcher(own: OwnRoutes): Dispatcher {
    const jobs = new JobRoutes({
      ...this.#shared(),
      wheel: this.#wheel,
      budget: this.#budget,
      jobs: () => this.#openedJobs().service,
      durability: () => this.#jobs?.health().durability ?? null,
      reader: this.#submissions,
    });
    const batches = new BatchRoutes({ ...this.#shared(), jobs: () => this.#openedJobs() });
    return new Dispatcher({
      clock: this.#options.clock,
      keys: this.#keys,
      keysAway: () => this.#keptKeys.away,
      metrics: this.#metrics,
      config: () => this.#config,
      nextRequestId: requestIds(),
      handle: (context, expectsContinue) => {
        const { handler } = context.route;
        if (handler === "inference") this.#inference.handleModelRoute(context, expectsContinue);
        else if (handler === "upstream") this.#inference.handleUpstreamRoute(context, expectsContinue);
        else if (isOverflowHandler(handler)) this.#overflow.routes.handle(context, handler);
        else if (isJobHandler(handler)) jobs.handle(context, handler, expectsContinue);
        else if (isBatchHandler(handler)) batches.handle(context, handler, expectsContinue);
        else if (handler === "documentSubmit") this.#documents.submit(context, expectsContinue);
        else if (handler === "documentResult") this.#documents.result(context);
        else own.handle(context, handler);
      },
    });
  }

  /** HOST:PORT as bound. */
  get address(): string {
    return this.#address;
  }

  /** What the file says, and what the control planes say: swapped in whole. */
  #applyUpstreams(): void {
    const before = this.#plan;
    const plan = planUpstreams(this.#config.upstreams, this.#feed?.state ?? null, before);
    this.#plan = plan;
    this.#registry.apply(plan.upstreams);
    this.#gpuHealth?.refresh();
    for (const message of plan.warnings)
      if (before?.warnings.includes(message) !== true) this.#options.log.warn("feed.warning", { message });
  }

  #follow(): void {
    const shared = { clock: this.#options.clock, keys: this.#keys, metrics: this.#metrics };
    const parts = { registry: this.#registry, overflow: this.#overflow, dispatcher: this.#dispatcher };
    const user = feedUser({
      ...shared,
      ...parts,
      jobs: () => this.#jobs?.told() ?? null,
      onState: () => this.#applyUpstreams(),
      onReadings: (node, gpus, ageMs) => this.applyGpuReadings(node, gpus, ageMs),
    });
    this.#feed?.run(user);
  }

  /** Whether an engine is known to serve the model now, or requests wait for its start. */
  takes(model: string): boolean {
    const upstream = this.#registry.byModel(model);
    if (upstream === undefined) return false;
    return upstream.start.kind === "waits" || upstream.endpoints.some(({ health }) => health === "healthy");
  }

  /** All cards that the agent of a host read so many ms ago. */
  applyGpuReadings(host: string, readings: readonly GpuReport[], ageMs = 0): void {
    this.#gpuHealth?.applyReadings(host, readings, ageMs);
  }

  #applyGpuHealth(): void {
    const gpuHealth = this.#config.gpuHealth ?? (this.#feed === null ? null : PLACED_GPU_HEALTH);
    if (gpuHealth === null) {
      this.#gpuHealth?.stop();
      this.#gpuHealth = null;
    } else if (this.#gpuHealth === null) {
      const { clock, random, log } = this.#options;
      const ports = { clock, random, log, audit: this.#audit, client: this.#client, registry: this.#registry };
      this.#gpuHealth = new GpuHealth(gpuHealth, { ...ports, metrics: this.#metrics.gpus });
    } else this.#gpuHealth.apply(gpuHealth);
  }

  /** A new valid configuration: swapped in whole; who started under the old one ends under it. */
  applyConfig(config: GatewayConfig): void {
    this.#config = config;
    this.#keys.replace("config", config.auth.keys);
    this.#budget.setMax(config.maxBufferedBytes);
    this.#edge.setConnectionsMax(connectionsMaxOf(config));
    this.#applyUpstreams();
    this.#applyGpuHealth();
    this.#stores.apply(config.upstreams);
    void this.#overflow.apply();
    this.#reload = { ok: true, message: null };
    this.#metrics.configReloaded("applied");
    this.#options.log.info("config.applied", { upstreams: config.upstreams.length, keys: config.auth.keys.length });
  }

  /** A new configuration was invalid: the old one stays, and says so where the operator looks. */
  refuseConfig(message: string): void {
    this.#reload = { ok: false, message };
    this.#metrics.configReloaded("refused");
    this.#options.log.error("config.refused", { message });
  }

  /** Graceful stop. Resolves when all is written; aborting `hurry` ends what still runs at once. */
  async stop(hurry: AbortSignal): Promise<void> {
    const { clock, log } = this.#options;
    this.#draining = true;
    // A start that failed says so by itself: there was nothing to drain.
    const served = this.#address !== "";
    if (served) log.info("gateway.draining", { running: this.#calls.size, drain_s: this.#config.drainMs / 1000 });
    const handedBack = this.#jobs?.stop(hurry);
    this.#registry.drain();
    this.#edge.closeIdle();
    const until = clock.mono() + this.#config.drainMs;
    const never = new AbortController().signal;
    while (
      this.#calls.size + this.#inference.arriving + this.#documents.arriving > 0 &&
      clock.mono() < until &&
      !hurry.aborted
    )
      await clock.sleep(DRAIN_LOOK_MS, never);
    const cut = this.#calls.size;
    for (const call of [...this.#calls]) call.abortForDrain();
    this.#replays.abortForDrain();
    const closed = this.#edge.close();
    await Promise.race([closed, clock.sleep(LAST_BYTES_MS, never)]);
    this.#edge.destroyAll();
    await this.#feed?.close();
    await handedBack;
    this.#clients.stop();
    await this.#jobs?.close();
    await this.#overflow.close();
    await this.#submissions.close();
    this.#gpuHealth?.stop();
    this.#registry.dispose();
    this.#client.close();
    this.#processMetrics[Symbol.dispose]();
    this.#loopWatch[Symbol.dispose]();
    this.#keptKeys[Symbol.dispose]();
    await this.#replays.close();
    await Promise.all([this.#audit.close(), this.#tracer.close()]);
    await this.#keyCounts.close();
    this.#coordination.close();
    if (served) log.info("gateway.stopped", { cut });
  }
}
