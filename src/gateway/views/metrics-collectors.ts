import type { Clock } from "../../kernel/clock.ts";
import type { AuditSink } from "../audit/audit-sink.ts";
import type { BufferBudget } from "../buffer-budget.ts";
import type { FeedClient } from "../feed/feed-client.ts";
import type { Coordination } from "../open-coordination.ts";
import { perClass, type CollectedFamilies } from "../metrics/gateway-metrics.ts";
import type { ReplayDesk } from "../replay/replay-desk.ts";
import type { ReplyStores } from "../replay/reply-stores.ts";
import type { Tracer } from "../../trace/tracer.ts";
import type { UpstreamClient } from "../upstream/port.ts";
import { ENDPOINT_STATES, type Endpoint } from "../upstreams/endpoint.ts";
import type { UpstreamRegistry } from "../upstreams/upstream-registry.ts";

export interface CollectorSources {
  readonly clock: Clock;
  readonly registry: UpstreamRegistry;
  readonly audit: AuditSink;
  readonly tracer: Tracer;
  readonly budget: BufferBudget;
  readonly client: UpstreamClient;
  readonly clientConnections: () => number;
  readonly stores: ReplyStores;
  readonly replays: ReplayDesk;
  readonly draining: () => boolean;
  readonly logLost: () => number;
  readonly coordination: Coordination;
  /** Null where no control plane is followed. */
  readonly feed: FeedClient | null;
}

/** Fills at each scrape what the state already holds, so that no copy of it can drift. */
export function collectGatewayMetrics(families: CollectedFamilies, sources: CollectorSources): void {
  collectUpstreams(families, sources);
  collectReplies(families, sources.stores);
  families.replyWaiting.collectWith((set) => set([], sources.replays.waiting));
  collectSharing(families, sources);
  collectFeed(families, sources);
  families.bufferedBytes.collectWith((set) => set([], sources.budget.usedBytes));
  families.connections.collectWith((set) => {
    const { open, idle } = sources.client.counts();
    set(["client"], sources.clientConnections());
    set(["engine"], open);
    set(["engine_idle"], idle);
  });
  families.auditRecorded.collectWith((set) => set([], sources.audit.stats().recorded));
  families.auditDropped.collectWith((set) => set([], sources.audit.stats().dropped));
  families.auditPending.collectWith((set) => set([], sources.audit.stats().pending));
  families.traceDropped.collectWith((set) => set([], sources.tracer.stats()?.dropped));
  families.traceExported.collectWith((set) => set([], sources.tracer.stats()?.exported));
  families.logLost.collectWith((set) => set([], sources.logLost()));
  // Absent under `coordination: local`: there is nothing that could be away.
  families.coordinationUp.collectWith((set) => {
    const { link } = sources.coordination;
    set([], link === null ? undefined : link.state === "closed" ? 1 : 0);
  });
  families.gatewaysSeen.collectWith((set) => set([], sources.coordination.watch?.gateways));
  families.draining.collectWith((set) => set([], sources.draining() ? 1 : 0));
}

function collectReplies(families: CollectedFamilies, stores: ReplyStores): void {
  const each = (
    set: (values: readonly string[], value: number | undefined) => void,
    of: "entries" | "bytes" | "evicted",
  ) => {
    const sums = new Map<string, number>();
    for (const [purpose, store] of stores.open()) {
      const value = store.stats()[of];
      if (value !== null) sums.set(purpose, (sums.get(purpose) ?? 0) + value);
    }
    for (const [purpose, sum] of sums) set([purpose], sum);
  };
  families.replies.collectWith((set) => each(set, "entries"));
  families.replyBytes.collectWith((set) => each(set, "bytes"));
  families.repliesEvicted.collectWith((set) => each(set, "evicted"));
}

function collectSharing(families: CollectedFamilies, { registry }: CollectorSources): void {
  families.slotsElsewhere.collectWith((set) =>
    registry.shown().forEach(({ settings, sharer }) => set([settings.id], sharer?.book.others ?? undefined)),
  );
  families.failedOpen.collectWith((set) =>
    registry.shown().forEach(({ settings, sharer }) => {
      if (sharer !== null) set([settings.id], sharer.book.mode === "open" ? 1 : 0);
    }),
  );
}

function collectFeed(families: CollectedFamilies, { feed, clock }: CollectorSources): void {
  if (feed === null) return;
  families.feedConnected.collectWith((set) => {
    for (const { url, standing } of feed.view(clock.mono()).links) set([url], standing === "away" ? 0 : 1);
  });
  families.feedEpoch.collectWith((set) => set([], feed.state?.mark.epoch));
  families.feedVersion.collectWith((set) => set([], feed.state?.mark.version));
  families.feedAge.collectWith((set) => {
    const { ageMs } = feed.view(clock.mono());
    set([], ageMs === null ? undefined : ageMs / 1000);
  });
}

function collectUpstreams(families: CollectedFamilies, { registry, clock }: CollectorSources): void {
  families.slots.collectWith((set) =>
    registry.shown().forEach((upstream) => set([upstream.settings.id], upstream.pool.view().slots)),
  );
  families.batchMax.collectWith((set) =>
    registry.shown().forEach((upstream) => set([upstream.settings.id], upstream.pool.view().batchMax)),
  );
  families.inFlight.collectWith((set) =>
    registry.shown().forEach((upstream) => perClass(set, upstream.settings.id, upstream.pool.view().inUse)),
  );
  families.waiting.collectWith((set) =>
    registry.shown().forEach((upstream) => perClass(set, upstream.settings.id, upstream.pool.view().waiting)),
  );
  families.lingering.collectWith((set) =>
    registry.shown().forEach((upstream) => set([upstream.settings.id], upstream.pool.view().lingering)),
  );
  families.waitingBytes.collectWith((set) =>
    registry.shown().forEach((upstream) => set([upstream.settings.id], upstream.pool.view().waitingBytes)),
  );
  families.endpointInFlight.collectWith((set) =>
    eachEndpoint(registry, (upstream, endpoint) => set([upstream, endpoint.id], endpoint.inFlight)),
  );
  families.endpointState.collectWith((set) => {
    const now = clock.mono();
    eachEndpoint(registry, (upstream, endpoint) => {
      const current = endpoint.stateName(now);
      for (const state of ENDPOINT_STATES) set([upstream, endpoint.id, state], state === current ? 1 : 0);
    });
  });
  families.engineRunning.collectWith((set) =>
    eachEndpoint(registry, (upstream, endpoint) => set([upstream, endpoint.id], endpoint.report?.load.running)),
  );
  families.engineWaiting.collectWith((set) =>
    eachEndpoint(registry, (upstream, endpoint) => set([upstream, endpoint.id], endpoint.report?.load.waiting)),
  );
  families.engineKvCache.collectWith((set) =>
    eachEndpoint(registry, (upstream, endpoint) => set([upstream, endpoint.id], endpoint.report?.load.kvUse)),
  );
  families.engineMemory.collectWith((set) =>
    eachEndpoint(registry, (upstream, endpoint) => set([upstream, endpoint.id], endpoint.memoryUse)),
  );
}

function eachEndpoint(registry: UpstreamRegistry, visit: (upstream: string, endpoint: Endpoint) => void): void {
  for (const upstream of registry.shown())
    for (const endpoint of [...upstream.endpoints, ...upstream.leaving]) visit(upstream.settings.id, endpoint);
}
