import type { ByClass, UpstreamRow } from "../../contract/board.ts";
import type { BoardUpstream } from "../../contract/feed-board.ts";
import { addCells, percentilesOf } from "./percentiles.ts";

/** One gateway's word on an upstream, and what it counted in the last minute. */
export interface UpstreamTelling {
  readonly gateway: string;
  readonly row: BoardUpstream;
  readonly queue: { readonly cells: readonly number[]; readonly bounds: readonly number[] };
  readonly firstByte: { readonly cells: readonly number[]; readonly bounds: readonly number[] };
  readonly ended: { readonly count: number; readonly ms: number };
}

/** Under this a rate says more of chance than of load. */
const RATE_MS_MIN = 5_000;

/**
 * What all gateways together say. Requests add up. Slots do where each gateway has its own; where they share through a store each tells
 * the whole, and so the largest counts. Endpoints are the same engines seen from several places: the worst view counts.
 */
export function mergeUpstream(tellings: readonly [UpstreamTelling, ...UpstreamTelling[]]): UpstreamRow {
  const rows = tellings.map(({ row }) => row);
  const [first] = tellings;
  const isShared = rows.every(({ sharing }) => sharing !== null);
  const together = (of: (row: BoardUpstream) => number): number =>
    isShared ? Math.max(...rows.map(of)) : sum(rows.map(of));
  const waits = rows.flatMap(({ oldestWaitMs }) => oldestWaitMs ?? []);
  const rated = tellings.filter(({ ended }) => ended.ms >= RATE_MS_MIN);
  return {
    id: first.row.id,
    models: first.row.models,
    engine: first.row.engine,
    catalogModel: first.row.catalogModel,
    gateways: tellings.map(({ gateway }) => gateway).toSorted(),
    slots: together(({ slots }) => slots),
    batchMax: together(({ batchMax }) => batchMax),
    inUse: addClasses(rows.map(({ inUse }) => inUse)),
    lingering: sum(rows.map(({ lingering }) => lingering)),
    waiting: addClasses(rows.map(({ waiting }) => waiting)),
    oldestWaitMs: waits.length === 0 ? null : Math.max(...waits),
    queueMs: percentilesTogether(tellings.map(({ queue }) => queue)),
    firstByteMs: percentilesTogether(tellings.map(({ firstByte }) => firstByte)),
    perSecond: rated.length === 0 ? null : round(sum(rated.map(({ ended }) => (ended.count / ended.ms) * 1_000))),
    away: rows.some(({ away }) => away === null) ? null : first.row.away,
    endpoints: {
      all: Math.max(...rows.map(({ endpoints }) => endpoints.all)),
      well: Math.min(...rows.map(({ endpoints }) => endpoints.well)),
    },
    sharing: rows.find(({ sharing }) => sharing !== null && sharing !== "shared")?.sharing ?? first.row.sharing,
  };
}

/** Cells of gateways of different versions may not fit: then the first ones' bounds rule, and others are left out. */
function percentilesTogether(
  counts: readonly { readonly cells: readonly number[]; readonly bounds: readonly number[] }[],
): UpstreamRow["queueMs"] {
  const bounds = counts[0]?.bounds ?? [];
  const fitting = counts.filter((count) => count.bounds.length === bounds.length);
  return percentilesOf(addCells(fitting.map(({ cells }) => cells)), bounds);
}

const sum = (values: readonly number[]): number => values.reduce((all, one) => all + one, 0);
const round = (value: number): number => Math.round(value * 10) / 10;

const addClasses = (all: readonly ByClass[]): ByClass => ({
  interactive: sum(all.map(({ interactive }) => interactive)),
  system: sum(all.map(({ system }) => system)),
  batch: sum(all.map(({ batch }) => batch)),
});
