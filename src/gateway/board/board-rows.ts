import type { BoardUpstream } from "../../contract/feed-board.ts";
import type { MonoMs } from "../../kernel/clock.ts";
import type { HistogramSeries } from "../../metrics/series.ts";
import type { UpstreamMetrics } from "../metrics/gateway-metrics.ts";
import type { Upstream } from "../upstreams/upstream.ts";

/** Finer steps are noise to a reader, and a row that differs by them would be sent for nothing. */
const WAIT_STEP_MS = 100;
const WHY_CHARS_MAX = 1_000;

/** One upstream as the board shows it. Only plain counts are read. */
export function boardRow(
  upstream: Upstream,
  metrics: Pick<UpstreamMetrics, "classesInUse"> | undefined,
  hasOverflow: boolean,
  now: MonoMs,
): BoardUpstream {
  const { settings, oldestAskedAt, sharer } = upstream;
  const view = upstream.pool.view();
  const classes = metrics?.classesInUse() ?? [];
  const oldestWaitMs =
    oldestAskedAt === undefined ? null : Math.round(Math.max(0, now - oldestAskedAt) / WAIT_STEP_MS) * WAIT_STEP_MS;
  return {
    id: settings.id,
    models: settings.models.slice(0, 64),
    engine: settings.engine,
    catalogModel: settings.catalog?.model ?? null,
    slots: view.slots,
    batchMax: view.batchMax,
    inUse: view.inUse,
    lingering: view.lingering,
    waiting: view.waiting,
    oldestWaitMs,
    queue: summed(classes.map(({ queueSeconds }) => queueSeconds)),
    firstByte: summed(classes.map(({ firstByteSeconds }) => firstByteSeconds)),
    ended: summed(classes.map(({ durationSeconds }) => durationSeconds)).reduce((sum, each) => sum + each, 0),
    away: upstream.unavailable("", true)?.reason.slice(0, WHY_CHARS_MAX) ?? null,
    endpoints: {
      all: upstream.endpoints.length,
      well: upstream.endpoints.filter((endpoint) => endpoint.whyAway(now, "", false, true) === null).length,
    },
    sharing: sharer === null ? null : sharer.book.mode,
    hasOverflow,
  };
}

function summed(series: readonly HistogramSeries[]): number[] {
  const [first, ...others] = series;
  return first === undefined
    ? []
    : Array.from(first.counts, (value, at) => others.reduce((sum, { counts }) => sum + (counts[at] ?? 0), value));
}
