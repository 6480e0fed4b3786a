import type { RequestOutcome } from "../../contract/audit-event.ts";
import { METRICS, type MetricDefinition } from "../../contract/metric-names.ts";
import { REQUEST_CLASSES, type RequestClass } from "../../contract/request-class.ts";
import type { ErrorCode } from "../../kernel/errors.ts";
import type { CounterFamily, GaugeFamily, HistogramFamily, Registry } from "./registry.ts";
import type { CounterSeries, HistogramSeries } from "./series.ts";

/** What a request of one class on one upstream counts on its way. Kept for the upstream's life; no lookup by label. */
export interface ClassMetrics {
  readonly requestDuration: HistogramSeries;
  readonly queue: HistogramSeries;
  readonly firstByte: HistogramSeries;
  readonly tokenGap: HistogramSeries;
  /** Counts one ended request. `route` is the route's pattern. */
  ended(route: string, outcome: RequestOutcome): void;
}

export interface UpstreamMetrics {
  /** null: the request ended before its class was known. */
  forClass(requestClass: RequestClass | null): ClassMetrics;
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
  readonly uptime: GaugeFamily;
  readonly draining: GaugeFamily;
}

export interface GatewayMetrics {
  /** null: the request ended before its upstream was known. The same object for the same id, until it is forgotten. */
  forUpstream(id: string | null): UpstreamMetrics;
  /** The upstream left the configuration: its series go. */
  forgetUpstream(id: string): void;
  readonly bytesIn: CounterSeries;
  readonly bytesOut: CounterSeries;
  authFailed(why: "missing" | "unknown" | "expired" | "forbidden" | "rate_limited"): void;
  configReloaded(result: "applied" | "refused"): void;
  readonly collected: CollectedFamilies;
}

type Counters = Record<
  | "requests" | "refusals" | "retries" | "retryBudgetExhausted" | "endpointFailures" | "breakerTransitions" | "tokens"
  | "usageUnknown" | "clientAborts" | "clientStalls" | "streamErrors" | "emptyAnswers",
  CounterFamily
>;
type Histograms = Record<"requestDuration" | "queue" | "firstByte" | "tokenGap", HistogramFamily>;

const counter = (registry: Registry, { name, help, labels }: MetricDefinition): CounterFamily => registry.counter(name, help, labels);
const gauge = (registry: Registry, { name, help, labels }: MetricDefinition): GaugeFamily => registry.gauge(name, help, labels);
const histogram = (registry: Registry, { name, help, labels, buckets }: MetricDefinition): HistogramFamily =>
  registry.histogram(name, help, labels, buckets ?? []);

function makeClassMetrics(counters: Counters, histograms: Histograms, upstream: string, className: string): ClassMetrics {
  const byRoute = new Map<string, Map<RequestOutcome, CounterSeries>>();
  return {
    requestDuration: histograms.requestDuration.labels(upstream, className),
    queue: histograms.queue.labels(upstream, className),
    firstByte: histograms.firstByte.labels(upstream, className),
    tokenGap: histograms.tokenGap.labels(upstream, className),
    ended(route, outcome) {
      let byOutcome = byRoute.get(route);
      if (byOutcome === undefined) byRoute.set(route, (byOutcome = new Map()));
      let series = byOutcome.get(outcome);
      if (series === undefined) byOutcome.set(outcome, (series = counters.requests.labels(route, upstream, className, outcome)));
      series.inc();
    },
  };
}

/** Requests that ended before an upstream or class was known have no durations of either: they are counted, not measured. */
function makeUnroutedMetrics(counters: Counters, histograms: Histograms, upstream: string): ClassMetrics {
  const unmeasured = histograms.queue.detached();
  const ended = (route: string, outcome: RequestOutcome): void => counters.requests.labels(route, upstream, "", outcome).inc();
  return { requestDuration: unmeasured, queue: unmeasured, firstByte: unmeasured, tokenGap: unmeasured, ended };
}

function makeUpstreamMetrics(counters: Counters, histograms: Histograms, upstream: string): UpstreamMetrics {
  const classes = new Map<RequestClass | null, ClassMetrics>();
  return {
    forClass(requestClass) {
      let made = classes.get(requestClass);
      if (made === undefined) {
        made = requestClass === null || upstream === ""
          ? makeUnroutedMetrics(counters, histograms, upstream)
          : makeClassMetrics(counters, histograms, upstream, requestClass);
        classes.set(requestClass, made);
      }
      return made;
    },
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
    uptime: gauge(registry, METRICS.uptime),
    draining: gauge(registry, METRICS.draining),
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
    },
    histograms: {
      requestDuration: histogram(registry, METRICS.requestDuration),
      queue: histogram(registry, METRICS.queue),
      firstByte: histogram(registry, METRICS.firstByte),
      tokenGap: histogram(registry, METRICS.tokenGap),
    },
  };
}

/** Registers every metric of the contract's table and hands out what the gateway counts with. */
export function createGatewayMetrics(registry: Registry, version: string): GatewayMetrics {
  const { counters, histograms } = registerCounted(registry);
  const collected = registerCollected(registry);
  const bytes = counter(registry, METRICS.bytes);
  const authFailures = counter(registry, METRICS.authFailures);
  const reloads = counter(registry, METRICS.configReloads);
  const reloadSuccess = gauge(registry, METRICS.configReloadSuccess).labels();
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
    forgetUpstream(id) {
      upstreams.delete(id);
      registry.forget("upstream", id);
    },
    bytesIn: bytes.labels("in"),
    bytesOut: bytes.labels("out"),
    authFailed: (why) => authFailures.labels(why).inc(),
    configReloaded(result) {
      reloads.labels(result).inc();
      reloadSuccess.set(result === "applied" ? 1 : 0);
    },
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
