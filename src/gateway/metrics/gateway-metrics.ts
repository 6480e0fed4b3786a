import type { RequestOutcome } from "../../contract/audit-event.ts";
import type { MetricDefinition } from "../../contract/metric-definition.ts";
import { METRICS } from "../../contract/metric-names.ts";
import { REQUEST_CLASSES, type RequestClass } from "../../contract/request-class.ts";
import type { AffinityOutcome } from "../../decide/routing/prefer-warm.ts";
import type { FeedRefusal } from "../../decide/feed/take-feed.ts";
import type { NotKept } from "../../decide/replay/keep-answer.ts";
import type { ErrorCode } from "../../kernel/errors.ts";
import { createGpuMetrics, type GpuMetrics } from "./gpu-metrics.ts";
import { createOverflowMetrics, type OverflowMetrics } from "../overflow/overflow-metrics.ts";
import { createKeyMetrics, type KeyMetrics } from "./key-metrics.ts";
import { createBatchMetrics, type BatchMetrics } from "./batch-metrics.ts";
import { createJobMetrics, type JobMetrics } from "./job-metrics.ts";
import type { CounterFamily, GaugeFamily, HistogramFamily, Registry } from "../../metrics/registry.ts";
import type { CounterSeries, HistogramSeries } from "../../metrics/series.ts";

/** What a request of one class on one upstream counts on its way. Kept for the upstream's life; no lookup by label. */
export interface ClassMetrics {
  readonly durationSeconds: HistogramSeries;
  readonly queueSeconds: HistogramSeries;
  readonly firstByteSeconds: HistogramSeries;
  readonly tokenGapSeconds: HistogramSeries;
  /** Counts one ended request. `route` is the route's pattern. */
  ended(route: string, outcome: RequestOutcome): void;
}

export interface UpstreamMetrics {
  readonly class: Readonly<Record<RequestClass, ClassMetrics>>;
  /** Those of classes in use; looking at them makes none. */
  classesInUse(): readonly ClassMetrics[];
  /** Counts one request that ended before its class was known. */
  endedUnclassed(route: string, outcome: RequestOutcome): void;
  refused(code: ErrorCode): void;
  retried(why: string): void;
  readonly retryBudgetExhausted: CounterSeries;
  endpointFailed(endpoint: string, kind: string): void;
  breakerMoved(endpoint: string, to: "closed" | "open" | "half_open"): void;
  readonly promptTokens: CounterSeries;
  readonly completionTokens: CounterSeries;
  readonly cachedTokens: CounterSeries;
  readonly usageUnknown: CounterSeries;
  readonly abortedQueued: CounterSeries;
  readonly abortedBeforeFirstByte: CounterSeries;
  readonly abortedStreaming: CounterSeries;
  readonly clientStalls: CounterSeries;
  readonly streamErrors: CounterSeries;
  readonly emptyAnswers: CounterSeries;
  affinity(outcome: AffinityOutcome): void;
  cached(result: "hit" | "waited" | "miss" | "bypass" | "refused" | "unavailable"): void;
}

/** Gauges and totals that somebody else counts: register a collector with `collectWith`, it runs at each scrape. */
export interface CollectedFamilies {
  readonly inFlight: GaugeFamily;
  readonly lingering: GaugeFamily;
  readonly waiting: GaugeFamily;
  readonly waitingBytes: GaugeFamily;
  readonly slots: GaugeFamily;
  readonly batchMax: GaugeFamily;
  readonly endpointState: GaugeFamily;
  readonly endpointInFlight: GaugeFamily;
  readonly engineRunning: GaugeFamily;
  readonly engineWaiting: GaugeFamily;
  readonly engineKvCache: GaugeFamily;
  readonly engineMemory: GaugeFamily;
  readonly bufferedBytes: GaugeFamily;
  readonly connections: GaugeFamily;
  readonly eventLoopDelay: GaugeFamily;
  readonly processRss: GaugeFamily;
  readonly processHeap: GaugeFamily;
  readonly processCpu: CounterFamily;
  readonly auditRecorded: CounterFamily;
  readonly auditDropped: CounterFamily;
  readonly auditPending: GaugeFamily;
  readonly traceDropped: CounterFamily;
  readonly traceExported: CounterFamily;
  readonly logLost: CounterFamily;
  readonly replyWaiting: GaugeFamily;
  readonly replies: GaugeFamily;
  readonly replyBytes: GaugeFamily;
  readonly repliesEvicted: CounterFamily;
  readonly uptime: GaugeFamily;
  readonly draining: GaugeFamily;
  readonly coordinationUp: GaugeFamily;
  readonly gatewaysSeen: GaugeFamily;
  readonly slotsElsewhere: GaugeFamily;
  readonly failedOpen: GaugeFamily;
  readonly feedConnected: GaugeFamily;
  readonly feedEpoch: GaugeFamily;
  readonly feedVersion: GaugeFamily;
  readonly feedAge: GaugeFamily;
}

export interface GatewayMetrics {
  /** null: the request ended before its upstream was known. The same object for the same id, until it is forgotten. */
  forUpstream(id: string | null): UpstreamMetrics;
  /** Looks without making any series; undefined: nothing was counted yet. */
  knownUpstream(id: string): UpstreamMetrics | undefined;
  /** The upstream left the configuration: its series go. */
  forgetUpstream(id: string): void;
  readonly bytesIn: CounterSeries;
  readonly bytesOut: CounterSeries;
  authFailed(why: "missing" | "unknown" | "expired" | "forbidden" | "rate_limited"): void;
  readonly clientsTurnedAway: CounterSeries;
  configReloaded(result: "applied" | "refused"): void;
  /** One step of coordination has ended. */
  coordinationStep(script: string, outcome: string): void;
  idempotency(result: "first" | "replayed" | "waited" | "in_progress" | "mismatch" | "unprotected"): void;
  replyNotKept(purpose: "idempotency" | "cache", why: NotKept): void;
  leasesLost(upstream: string, leases: number): void;
  storeEmptied(): void;
  feedRefused(why: FeedRefusal): void;
  readonly jobs: JobMetrics;
  readonly batches: BatchMetrics;
  readonly overflow: OverflowMetrics;
  readonly gpus: GpuMetrics;
  readonly keys: KeyMetrics;
  readonly collected: CollectedFamilies;
}

type Counters = Record<
  | "requests"
  | "refusals"
  | "retries"
  | "retryBudgetExhausted"
  | "endpointFailures"
  | "breakerTransitions"
  | "tokens"
  | "usageUnknown"
  | "clientAborts"
  | "clientStalls"
  | "streamErrors"
  | "emptyAnswers"
  | "cacheRequests"
  | "affinityChoices",
  CounterFamily
>;
type Histograms = Record<"requestDuration" | "queue" | "firstByte" | "tokenGap", HistogramFamily>;

const counter = (registry: Registry, { name, help, labels }: MetricDefinition): CounterFamily =>
  registry.counter(name, help, labels);
const gauge = (registry: Registry, { name, help, labels }: MetricDefinition): GaugeFamily =>
  registry.gauge(name, help, labels);
const histogram = (registry: Registry, { name, help, labels, buckets }: MetricDefinition): HistogramFamily =>
  registry.histogram(name, help, labels, buckets ?? []);

function makeClassMetrics(
  counters: Counters,
  histograms: Histograms,
  upstream: string,
  requestClass: RequestClass,
): ClassMetrics {
  return {
    durationSeconds: histograms.requestDuration.labels(upstream, requestClass),
    queueSeconds: histograms.queue.labels(upstream, requestClass),
    firstByteSeconds: histograms.firstByte.labels(upstream, requestClass),
    tokenGapSeconds: histograms.tokenGap.labels(upstream, requestClass),
    ended: countEnds(counters.requests, upstream, requestClass),
  };
}

/** Finds the series by two short look-ups instead of building a label text for each request. */
function countEnds(
  requests: CounterFamily,
  upstream: string,
  className: string,
): (route: string, outcome: RequestOutcome) => void {
  const byRoute = new Map<string, Map<RequestOutcome, CounterSeries>>();
  return (route, outcome) => {
    let byOutcome = byRoute.get(route);
    if (byOutcome === undefined) byRoute.set(route, (byOutcome = new Map()));
    let series = byOutcome.get(outcome);
    if (series === undefined) byOutcome.set(outcome, (series = requests.labels(route, upstream, className, outcome)));
    series.inc();
  };
}

/** A class's series appear on the page with its first request: an upstream with one class in use shows one. */
function lazyClasses(
  make: (requestClass: RequestClass) => ClassMetrics,
): Pick<UpstreamMetrics, "class" | "classesInUse"> {
  const made: Partial<Record<RequestClass, ClassMetrics>> = {};
  const lazy = {
    get interactive() {
      return (made.interactive ??= make("interactive"));
    },
    get system() {
      return (made.system ??= make("system"));
    },
    get batch() {
      return (made.batch ??= make("batch"));
    },
  };
  return { class: lazy, classesInUse: () => Object.values(made) };
}

function makeUpstreamMetrics(counters: Counters, histograms: Histograms, upstream: string): UpstreamMetrics {
  return {
    ...lazyClasses((requestClass) => makeClassMetrics(counters, histograms, upstream, requestClass)),
    endedUnclassed: countEnds(counters.requests, upstream, ""),
    refused: (code) => counters.refusals.labels(upstream, code).inc(),
    retried: (why) => counters.retries.labels(upstream, why).inc(),
    retryBudgetExhausted: counters.retryBudgetExhausted.labels(upstream),
    endpointFailed: (endpoint, kind) => counters.endpointFailures.labels(upstream, endpoint, kind).inc(),
    breakerMoved: (endpoint, to) => counters.breakerTransitions.labels(upstream, endpoint, to).inc(),
    promptTokens: counters.tokens.labels(upstream, "prompt"),
    completionTokens: counters.tokens.labels(upstream, "completion"),
    cachedTokens: counters.tokens.labels(upstream, "cached"),
    usageUnknown: counters.usageUnknown.labels(upstream),
    abortedQueued: counters.clientAborts.labels(upstream, "queued"),
    abortedBeforeFirstByte: counters.clientAborts.labels(upstream, "before_first_byte"),
    abortedStreaming: counters.clientAborts.labels(upstream, "streaming"),
    clientStalls: counters.clientStalls.labels(upstream),
    streamErrors: counters.streamErrors.labels(upstream),
    emptyAnswers: counters.emptyAnswers.labels(upstream),
    affinity: (outcome) => counters.affinityChoices.labels(upstream, outcome).inc(),
    cached: (result) => counters.cacheRequests.labels(upstream, result).inc(),
  };
}

function registerCollected(registry: Registry): CollectedFamilies {
  return {
    inFlight: gauge(registry, METRICS.inFlight),
    lingering: gauge(registry, METRICS.lingering),
    waiting: gauge(registry, METRICS.waiting),
    waitingBytes: gauge(registry, METRICS.waitingBytes),
    slots: gauge(registry, METRICS.slots),
    batchMax: gauge(registry, METRICS.batchMax),
    endpointState: gauge(registry, METRICS.endpointState),
    endpointInFlight: gauge(registry, METRICS.endpointInFlight),
    engineRunning: gauge(registry, METRICS.engineRunning),
    engineWaiting: gauge(registry, METRICS.engineWaiting),
    engineKvCache: gauge(registry, METRICS.engineKvCache),
    engineMemory: gauge(registry, METRICS.engineMemory),
    bufferedBytes: gauge(registry, METRICS.bufferedBytes),
    connections: gauge(registry, METRICS.connections),
    eventLoopDelay: gauge(registry, METRICS.eventLoopDelay),
    processRss: gauge(registry, METRICS.processRss),
    processHeap: gauge(registry, METRICS.processHeap),
    processCpu: counter(registry, METRICS.processCpu),
    auditRecorded: counter(registry, METRICS.auditRecorded),
    auditDropped: counter(registry, METRICS.auditDropped),
    auditPending: gauge(registry, METRICS.auditPending),
    traceDropped: counter(registry, METRICS.traceDropped),
    traceExported: counter(registry, METRICS.traceExported),
    logLost: counter(registry, METRICS.logLost),
    replyWaiting: gauge(registry, METRICS.replyWaiting),
    replies: gauge(registry, METRICS.replies),
    replyBytes: gauge(registry, METRICS.replyBytes),
    repliesEvicted: counter(registry, METRICS.repliesEvicted),
    uptime: gauge(registry, METRICS.uptime),
    draining: gauge(registry, METRICS.draining),
    coordinationUp: gauge(registry, METRICS.coordinationUp),
    gatewaysSeen: gauge(registry, METRICS.gatewaysSeen),
    slotsElsewhere: gauge(registry, METRICS.slotsElsewhere),
    failedOpen: gauge(registry, METRICS.failedOpen),
    feedConnected: gauge(registry, METRICS.feedConnected),
    feedEpoch: gauge(registry, METRICS.feedEpoch),
    feedVersion: gauge(registry, METRICS.feedVersion),
    feedAge: gauge(registry, METRICS.feedAge),
  };
}

function registerCounted(registry: Registry): { counters: Counters; histograms: Histograms } {
  return {
    counters: {
      requests: counter(registry, METRICS.requests),
      refusals: counter(registry, METRICS.refusals),
      retries: counter(registry, METRICS.retries),
      retryBudgetExhausted: counter(registry, METRICS.retryBudgetExhausted),
      endpointFailures: counter(registry, METRICS.endpointFailures),
      breakerTransitions: counter(registry, METRICS.breakerTransitions),
      tokens: counter(registry, METRICS.tokens),
      usageUnknown: counter(registry, METRICS.usageUnknown),
      clientAborts: counter(registry, METRICS.clientAborts),
      clientStalls: counter(registry, METRICS.clientStalls),
      streamErrors: counter(registry, METRICS.streamErrors),
      emptyAnswers: counter(registry, METRICS.emptyAnswers),
      cacheRequests: counter(registry, METRICS.cacheRequests),
      affinityChoices: counter(registry, METRICS.affinityChoices),
    },
    histograms: {
      requestDuration: histogram(registry, METRICS.requestDuration),
      queue: histogram(registry, METRICS.queue),
      firstByte: histogram(registry, METRICS.firstByte),
      tokenGap: histogram(registry, METRICS.tokenGap),
    },
  };
}

const FEED_REFUSALS: Readonly<Record<FeedRefusal, string>> = {
  oldEpoch: "old_epoch",
  otherHolder: "other_holder",
  otherCluster: "other_cluster",
};

/** Registers every metric of the contract's table and hands out what the gateway counts with. */
export function createGatewayMetrics(registry: Registry, version: string): GatewayMetrics {
  const { counters, histograms } = registerCounted(registry);
  const collected = registerCollected(registry);
  const bytes = counter(registry, METRICS.bytes);
  const authFailures = counter(registry, METRICS.authFailures);
  const idempotency = counter(registry, METRICS.idempotency);
  const notKept = counter(registry, METRICS.repliesNotKept);
  const reloads = counter(registry, METRICS.configReloads);
  const reloadSuccess = gauge(registry, METRICS.configReloadSuccess).labels();
  const steps = counter(registry, METRICS.coordinationSteps);
  const lost = counter(registry, METRICS.leasesLost);
  const emptied = counter(registry, METRICS.storeEmptied).labels();
  const feedRefused = counter(registry, METRICS.feedRefused);
  const collapsed = counter(registry, METRICS.seriesCollapsed);
  const collectErrors = counter(registry, METRICS.collectErrors);
  gauge(registry, METRICS.buildInfo).labels(version).set(1);
  reloadSuccess.set(1);
  registry.hooks = {
    onCollapsed: (metric) => collapsed.labels(metric).inc(),
    onCollectError: (metric) => collectErrors.labels(metric).inc(),
  };
  const upstreams = new Map<string, UpstreamMetrics>();
  return {
    forUpstream(id) {
      const label = id ?? "";
      let made = upstreams.get(label);
      if (made === undefined) upstreams.set(label, (made = makeUpstreamMetrics(counters, histograms, label)));
      return made;
    },
    knownUpstream: (id) => upstreams.get(id),
    forgetUpstream(id) {
      upstreams.delete(id);
      registry.forget("upstream", id);
    },
    bytesIn: bytes.labels("in"),
    bytesOut: bytes.labels("out"),
    authFailed: (why) => authFailures.labels(why).inc(),
    leasesLost: (upstream, leases) => lost.labels(upstream).inc(leases),
    storeEmptied: () => emptied.inc(),
    clientsTurnedAway: counter(registry, METRICS.clientsTurnedAway).labels(),
    feedRefused: (why) => feedRefused.labels(FEED_REFUSALS[why]).inc(),
    coordinationStep: (script, outcome) => steps.labels(script, outcome).inc(),
    configReloaded(result) {
      reloads.labels(result).inc();
      reloadSuccess.set(result === "applied" ? 1 : 0);
    },
    idempotency: (result) => idempotency.labels(result).inc(),
    replyNotKept: (purpose, why) => notKept.labels(purpose, why).inc(),
    jobs: createJobMetrics(registry),
    batches: createBatchMetrics(registry),
    overflow: createOverflowMetrics(registry),
    gpus: createGpuMetrics(registry),
    keys: createKeyMetrics(registry),
    collected,
  };
}

/** Emits one value per class; for gauges with the labels upstream and class. */
export function perClass(
  set: (values: readonly string[], value: number | undefined) => void,
  upstream: string,
  counts: Readonly<Record<RequestClass, number>>,
): void {
  for (const requestClass of REQUEST_CLASSES) set([upstream, requestClass], counts[requestClass]);
}
