import { asEpoch, parseIsoTime } from "../kernel/clock.ts";
import { Secret } from "../kernel/secret.ts";
import { secretIn, type Env } from "./env.ts";
import type { ConfigFile, KeyFile, UpstreamFile } from "./config-schema.ts";
import type {
  AdmissionLimits,
  ApiKey,
  EndpointSettings,
  FeedSettings,
  GatewayConfig,
  BatchSettings,
  JobSettings,
  UpstreamSettings,
  UpstreamTimeouts,
} from "./gateway-config.ts";
import { isLoopback, parseListen } from "./listen-address.ts";
import { bareControlUrl, linkTlsFiles } from "./resolve-agent.ts";
import { MICROS } from "./money.ts";
import { resolveOverflow } from "./resolve-overflow.ts";
import { resolveGpuHealth } from "./resolve-gpu-health.ts";

export type {
  AdmissionLimits,
  ApiKey,
  AuthSettings,
  EndpointSettings,
  EngineName,
  GatewayConfig,
  KeyLimits,
  ListenAddress,
  RetrySettings,
  RoutingSettings,
  UpstreamKind,
  UpstreamSettings,
  UpstreamTimeouts,
} from "./gateway-config.ts";

export type { Env } from "./env.ts";

/** What the command line says over the file. */
export interface ConfigOverrides {
  readonly listen?: string | undefined;
  readonly dataDir?: string | undefined;
  /** Something serves requests where the file names no upstream. */
  readonly standIn?: boolean;
  /** False for a role that serves no upstreams: the file need not name any. */
  readonly gateway?: boolean;
  /** Over the file's `control.listen`. */
  readonly controlListen?: string | undefined;
}

const BATCH_PART = 3 / 4;
/** A file keeps more than a year; in Redis it is memory. */
const USAGE_KEEP_DAYS = { local: 400, redis: 62 } as const;

const seconds = (value: number): number => Math.round(value * 1000);

/** The file is taken to be checked: an address that can't be read throws. */
export function resolveConfig(file: ConfigFile, env: Env, overrides: ConfigOverrides = {}): GatewayConfig {
  const listen = parseListen(overrides.listen ?? file.listen);
  if (listen === undefined) throw new Error("listen: not HOST:PORT");
  return {
    listen,
    dataDir: overrides.dataDir ?? file.data_dir,
    coordination: file.coordination,
    redisUrl: secretOrNull(file.redis_url),
    coordinationTimeoutMs: file.coordination_timeout_ms,
    leaseTtlMs: seconds(file.lease_ttl_s),
    keyPrefix: file.key_prefix,
    databaseUrl: secretOrNull(file.database_url),
    auth: { mode: file.auth.mode, allowInsecure: file.auth.allow_insecure, keys: file.auth.keys.map(resolveKey) },
    maxBodyBytes: file.max_body_bytes,
    maxBufferedBytes: file.max_buffered_bytes,
    maxConnections: file.max_connections,
    drainMs: seconds(file.drain_s),
    endpointHeader: file.endpoint_header,
    clientServer: file.client_server,
    upstreamClient: file.upstream_client,
    http: {
      headersTimeoutMs: seconds(file.http.headers_timeout_s),
      bodyIdleMs: seconds(file.http.request_timeout_s),
      keepAliveMs: seconds(file.http.keep_alive_s),
    },
    cacheRedisUrl: secretOrNull(file.cache_redis_url),
    idempotency: {
      ttlMs: seconds(file.idempotency.ttl_h * 3_600),
      waitMs: seconds(file.idempotency.wait_s),
      bytesMax: file.idempotency.max_bytes,
      totalBytesMax: file.idempotency.total_max_bytes,
    },
    jobs: resolveJobs(file.jobs, env),
    batches: resolveBatches(file.batches),
    auditEventsMax: file.audit.max,
    usageKeepDays: file.usage.keep_days ?? USAGE_KEEP_DAYS[file.coordination],
    signingSecrets:
      file.signing_key_envs.length === 0 ? null : file.signing_key_envs.flatMap((name) => secretIn(env, name) ?? []),
    otel: file.otel === undefined ? null : { endpoint: file.otel.endpoint, serviceName: file.otel.service_name },
    metricsPublic: file.metrics.public ?? isLoopback(listen.host),
    feed: resolveFeed(file.gateway, env),
    gpuHealth: resolveGpuHealth(file.gpu_health),
    overflow: resolveOverflow(file.overflow, env),
    upstreams: file.upstreams.map((upstream) => resolveUpstream(upstream, env)),
  };
}

function resolveFeed(gateway: ConfigFile["gateway"], env: Env): FeedSettings | null {
  if (gateway?.control === undefined) return null;
  return {
    name: gateway.name ?? null,
    controls: [...new Set(gateway.control.map(bareControlUrl))],
    token: secretIn(env, gateway.token_env),
    tls: linkTlsFiles(gateway),
  };
}

const resolveJobs = (jobs: ConfigFile["jobs"], env: Env): JobSettings => ({
  claimMs: seconds(jobs.claim_ttl_s),
  attemptsMax: jobs.max_attempts,
  keepMs: seconds(jobs.ttl_h * 3_600),
  deadlineMs: seconds(jobs.deadline_s),
  fanoutMax: jobs.fanout_max,
  heldMax: jobs.max_held,
  jobsMax: jobs.max_jobs,
  bytesMax: jobs.max_bytes,
  bodyBytesMax: jobs.max_body_bytes,
  resultBytesMax: jobs.max_result_bytes,
  replicas: jobs.replicas,
  callbackAllow: jobs.callback_allow,
  callbackSecret: secretIn(env, jobs.callback_secret_env),
});

const resolveBatches = (batches: ConfigFile["batches"]): BatchSettings => ({
  fileBytesMax: batches.max_file_bytes,
  linesMax: batches.max_lines,
  bytesMax: batches.max_bytes,
  keyBytesMax: batches.max_key_bytes,
  filesMax: batches.max_files,
  openMax: batches.max_open,
  windowMsMax: seconds(batches.max_window_h * 3_600),
  keepMs: seconds(batches.ttl_h * 3_600),
});

const secretOrNull = (value: string | undefined): Secret | null =>
  value === undefined || value === "" ? null : new Secret(value);

const microsOrNull = (money: number | undefined): number | null =>
  money === undefined ? null : Math.round(money * MICROS);

const resolvePrice = (price: UpstreamFile["price"]): UpstreamSettings["price"] =>
  price === undefined
    ? null
    : {
        input: price.input_per_1m,
        output: price.output_per_1m,
        cached: price.cached_per_1m ?? price.input_per_1m,
        currency: price.currency,
      };

export function resolveKey(key: KeyFile): ApiKey {
  const [first = "interactive", ...others] = key.classes;
  return {
    id: key.id,
    hash: key.hash.slice("sha256:".length),
    role: key.role,
    classes: [first, ...others],
    models: key.models ?? null,
    weight: key.weight,
    limits: {
      requestsPerMinute: key.limits.requests_per_minute ?? null,
      tokensPerMinute: key.limits.tokens_per_minute ?? null,
      tokensPerDay: key.limits.tokens_per_day ?? null,
      inFlightMax: key.limits.max_in_flight ?? null,
      dayMicrosMax: microsOrNull(key.limits.cost_per_day),
      monthMicrosMax: microsOrNull(key.limits.cost_per_month),
    },
    allowExternal: key.allow_external,
    // The schema admits no other text; were one to come through, the key would be a dead one, not an eternal one.
    expiresAt: key.expires === undefined ? null : (parseIsoTime(key.expires) ?? asEpoch(0)),
  };
}

export function resolveUpstream(upstream: UpstreamFile, env: Env): UpstreamSettings {
  const limits = resolveLimits(upstream);
  const { model } = upstream;
  return {
    id: upstream.id,
    models: [...new Set(model === undefined ? upstream.models : [...upstream.models, model])],
    catalog:
      model === undefined
        ? null
        : {
            model,
            slots: upstream.slots ?? null,
            batchMax: upstream.batch_max ?? null,
            coldStartMs: seconds(upstream.cold_start_s),
            standing: null,
          },
    kind: upstream.kind,
    engine: resolveEngine(upstream),
    limits,
    timeouts: resolveTimeouts(upstream.timeouts),
    retry: { retriesMax: upstream.retry.attempts, budgetRatio: upstream.retry.budget_percent / 100 },
    routing: {
      policy: upstream.routing.policy,
      prefixAffinity: upstream.routing.prefix_affinity,
      sessionHeader: upstream.routing.session_header?.toLowerCase() ?? null,
      loadBound: upstream.routing.affinity_load_bound,
    },
    health: upstream.health,
    usage: upstream.usage,
    enginePriority: upstream.engine_priority,
    external: upstream.external,
    engineKey: secretIn(env, upstream.key_env),
    forwardHeaders: [...new Set(upstream.forward_headers.map((name) => name.toLowerCase()))],
    sseKeepaliveMs: upstream.sse_keepalive_s === undefined ? null : seconds(upstream.sse_keepalive_s),
    ocrPath: upstream.ocr_path,
    price: resolvePrice(upstream.price),
    cache:
      upstream.cache === undefined
        ? null
        : { ttlMs: seconds(upstream.cache.ttl_s), bytesMax: upstream.cache.max_bytes, shared: upstream.cache.shared },
    refusals: upstream.refusals.map(({ status, code }) => ({ status, code: code ?? null })),
    refusalTtlMs: seconds(upstream.negative_ttl_s),
    gpuIds: upstream.gpu_ids,
    endpoints: resolveEndpoints(upstream.endpoints, upstream.slots ?? 1),
  };
}

/** Where nothing else is said, an upstream of documents is a container that speaks the service's own API. */
function resolveEngine({ kind, engine }: UpstreamFile): UpstreamSettings["engine"] {
  if (kind === "comfyui") return "comfyui";
  return kind === "azure-di" && engine === "generic" ? "document-intelligence" : engine;
}

function resolveLimits(upstream: UpstreamFile): AdmissionLimits {
  const slots = upstream.slots ?? upstream.endpoints.reduce((sum, endpoint) => sum + (endpoint.slots ?? 1), 0);
  return {
    slots,
    batchMax: upstream.batch_max ?? usualBatchMax(slots),
    batchMinShare: upstream.batch_min_share,
    queueMax: upstream.queue.max,
    queueBytesMax: upstream.queue.max_bytes,
    queueTimeoutMs: {
      interactive: seconds(upstream.queue.timeout_s.interactive),
      system: seconds(upstream.queue.timeout_s.system),
      batch: seconds(upstream.queue.timeout_s.batch),
    },
  };
}

/** Of so many slots, those that class `batch` may hold where nothing else is said. */
export const usualBatchMax = (slots: number): number => Math.min(slots, Math.max(1, Math.floor(slots * BATCH_PART)));

function resolveTimeouts(timeouts: UpstreamFile["timeouts"]): UpstreamTimeouts {
  return {
    connectMs: seconds(timeouts.connect_s),
    firstByteMs: seconds(timeouts.first_byte_s),
    idleMs: seconds(timeouts.idle_s),
    totalMs: seconds(timeouts.total_s),
    writeStallMs: seconds(timeouts.write_stall_s),
    lingerMs: seconds(timeouts.linger_s),
    stallMs: seconds(timeouts.stall_s),
  };
}

const DEFAULT_PORT = { "http:": 80, "https:": 443 } as const;

export interface EndpointAddress {
  readonly url: string;
  readonly origin: string;
  readonly protocol: "http:" | "https:";
  readonly hostname: string;
  readonly port: number;
  readonly basePath: string;
}

/** Undefined unless it is an http or https URL. Two URLs that lead to the same place give the same address. */
export function parseEndpointUrl(text: string): EndpointAddress | undefined {
  const url = URL.parse(text);
  if (url === null || (url.protocol !== "http:" && url.protocol !== "https:")) return undefined;
  const port = url.port === "" ? DEFAULT_PORT[url.protocol] : Number(url.port);
  const origin = `${url.protocol}//${url.hostname}:${port}`;
  const basePath = url.pathname.replace(/\/+$/, "");
  return {
    url: `${origin}${basePath}`,
    origin,
    protocol: url.protocol,
    hostname: url.hostname.replace(/^\[|\]$/g, ""),
    port,
    basePath,
  };
}

function resolveEndpoints(endpoints: UpstreamFile["endpoints"], upstreamSlots: number): EndpointSettings[] {
  const taken = new Set<string>();
  return endpoints.map((endpoint) => {
    const address = parseEndpointUrl(endpoint.url);
    if (address === undefined) throw new Error("endpoints: not an http or https URL");
    const id = endpointId(address, taken);
    taken.add(id);
    return {
      id,
      ...address,
      slots: endpoint.slots ?? upstreamSlots,
      gpus: endpoint.gpus ?? [],
      engine: null,
      engineKey: null,
      replica: null,
      draining: false,
    };
  });
}

/** The name of an endpoint in an upstream that has those in `taken` already. */
export function endpointId(address: EndpointAddress, taken: ReadonlySet<string>): string {
  const hostAndPort = address.origin.slice(address.protocol.length + 2);
  return uniqueId([hostAndPort, `${hostAndPort}${address.basePath}`, address.url], taken);
}

/** The same list gives the same ids on every load, and a list without clashes gives plain host:port. */
function uniqueId(candidates: readonly string[], taken: ReadonlySet<string>): string {
  const free = candidates.find((candidate) => !taken.has(candidate));
  if (free !== undefined) return free;
  let count = 2;
  while (taken.has(`${candidates[0]}#${count}`)) count += 1;
  return `${candidates[0]}#${count}`;
}
