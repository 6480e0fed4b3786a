import type { MonoMs } from "../../kernel/clock.ts";
import type { FeedView } from "../feed/feed-client.ts";
import type { Endpoint } from "../upstreams/endpoint.ts";
import type { Upstream } from "../upstreams/upstream.ts";

/** The verbose state for `GET /health`, computed when asked. What nobody measured is null. */
export function upstreamHealth(upstream: Upstream, now: MonoMs): Record<string, unknown> {
  const view = upstream.pool.view();
  const { settings } = upstream;
  const away = upstream.unavailable("", true);
  return {
    id: settings.id,
    kind: settings.kind,
    engine: settings.engine,
    models: settings.models,
    catalog: catalogHealth(upstream),
    available: away === null,
    reason: away?.reason ?? null,
    slots: view.slots,
    batch_max: view.batchMax,
    in_use: view.inUse,
    lingering: view.lingering,
    sharing: sharingHealth(upstream, now),
    queue: {
      waiting: view.waiting,
      waiting_bytes: view.waitingBytes,
      max: settings.limits.queueMax,
      drain_per_s: view.drainPerSecond,
    },
    endpoints: [...upstream.endpoints, ...upstream.leaving].map((endpoint) => endpointHealth(endpoint, now)),
    choice: upstream.explain(""),
    affinity: affinityHealth(upstream),
  };
}

/** Null where nothing is kept together. */
function affinityHealth({ settings: { routing }, affinity }: Upstream): Record<string, unknown> | null {
  if (!routing.prefixAffinity && routing.sessionHeader === null) return null;
  return {
    prefix: routing.prefixAffinity,
    session_header: routing.sessionHeader,
    load_bound: routing.loadBound,
    known: affinity.entries,
  };
}

/** Null for an upstream of the file alone. */
function catalogHealth({ settings, start }: Upstream): Record<string, unknown> | null {
  const { catalog } = settings;
  if (catalog === null) return null;
  const { model, standing } = catalog;
  return {
    model,
    settled: standing?.settled ?? null,
    why: standing?.why ?? null,
    waits_for_start: start.kind === "waits",
  };
}

/** Null where no control plane is followed. */
export function feedHealth(view: FeedView | null, warnings: readonly string[]): Record<string, unknown> | null {
  if (view === null) return null;
  const { state, mark, ageMs, links } = view;
  return {
    state,
    cluster: mark?.clusterId ?? null,
    epoch: mark?.epoch ?? null,
    holder: mark?.holder ?? null,
    version: mark?.version ?? null,
    age_ms: ageMs === null ? null : Math.round(ageMs),
    links: links.map(({ url, standing, why }) => ({ url, standing, why })),
    warnings,
  };
}

/** Null under `coordination: local`. */
function sharingHealth({ sharer, settings }: Upstream, now: MonoMs): Record<string, unknown> | null {
  if (sharer === null) return null;
  const { book } = sharer;
  return {
    state: book.mode === "open" ? "failed_open" : book.mode,
    reason: book.reason === "" ? null : book.reason,
    held: book.held,
    elsewhere: book.others,
    own_limit: book.limit(settings.limits, now),
    settling: book.isSettling(now),
    unreleased: book.unreleased,
    lost: book.lostLeases,
  };
}

function endpointHealth(endpoint: Endpoint, now: MonoMs): Record<string, unknown> {
  const { report } = endpoint;
  const load = report?.load;
  return {
    id: endpoint.id,
    public_id: endpoint.publicId,
    url: endpoint.url,
    replica: endpoint.replica?.id ?? null,
    node: endpoint.replica?.node ?? null,
    slots: endpoint.slots,
    in_flight: endpoint.running.size + endpoint.booked,
    lingering: endpoint.lingers.length,
    external: endpoint.notOurs,
    draining: endpoint.draining,
    guard: endpoint.guard,
    health: endpoint.health,
    health_reason: endpoint.healthReason === "" ? null : endpoint.healthReason,
    breaker: endpoint.breaker.state(now),
    breaker_reason: endpoint.breaker.reason() ?? null,
    ejected: endpoint.ejected,
    stalled: endpoint.stalled,
    stalled_for_ms: endpoint.stalledSince === undefined ? null : Math.round(now - endpoint.stalledSince),
    models: endpoint.models === null ? null : [...endpoint.models],
    gpus: endpoint.gpus,
    last_asked_ms_ago: endpoint.lastAskedAt === undefined ? null : Math.round(now - endpoint.lastAskedAt),
    reported: {
      running: load?.running ?? null,
      waiting: load?.waiting ?? null,
      kv_cache_use: load?.kvUse ?? null,
      memory_use: endpoint.memoryUse ?? null,
      age_ms: report === null ? null : Math.round(now - report.at),
      missing: endpoint.noLoadSignal,
    },
  };
}
