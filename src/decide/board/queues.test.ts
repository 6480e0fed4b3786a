import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { UpstreamRow } from "../../contract/board.ts";
import type { BoardUpstream } from "../../contract/feed-board.ts";
import { asMono } from "../../kernel/clock.ts";
import { mergeUpstream, type UpstreamTelling } from "./merge-upstream.ts";
import { addCells, percentilesOf } from "./percentiles.ts";
import { PlotRing } from "./plot-ring.ts";
import { WindowedCounts } from "./windowed-counts.ts";

const row = (over: Partial<BoardUpstream> = {}): BoardUpstream => ({
  id: "u",
  models: ["m"],
  engine: "vllm",
  catalogModel: null,
  slots: 4,
  batchMax: 2,
  inUse: { interactive: 1, system: 0, batch: 1 },
  lingering: 0,
  waiting: { interactive: 2, system: 0, batch: 0 },
  oldestWaitMs: 300,
  queue: [],
  firstByte: [],
  ended: 0,
  away: null,
  endpoints: { all: 2, well: 2 },
  sharing: null,
  hasOverflow: false,
  ...over,
});
const NO_COUNTS = { cells: [], bounds: [] };
const told = (gateway: string, over: Partial<BoardUpstream> = {}): UpstreamTelling => ({
  gateway,
  row: row(over),
  queue: NO_COUNTS,
  firstByte: NO_COUNTS,
  ended: { count: 0, ms: 0 },
});

test("gateways with slots of their own add up; those that share tell the same slots, and their requests add up", () => {
  const own = mergeUpstream([told("b"), told("a")]);
  assert.deepEqual([own.slots, own.batchMax, own.inUse.interactive, own.waiting.interactive], [8, 4, 2, 4]);
  assert.deepEqual(own.gateways, ["a", "b"]);
  const shared = mergeUpstream([told("b", { sharing: "shared" }), told("a", { sharing: "shared" })]);
  assert.deepEqual([shared.slots, shared.batchMax, shared.inUse.interactive], [4, 2, 2]);
  assert.equal(mergeUpstream([told("a", { sharing: "shared" }), told("b", { sharing: "open" })]).sharing, "open");
});

test("the longest wait and the worst view of the engines count; it is away only where every gateway says so", () => {
  const one = mergeUpstream([
    told("a", { oldestWaitMs: 100, endpoints: { all: 2, well: 1 } }),
    told("b", { away: "gone" }),
  ]);
  assert.deepEqual([one.oldestWaitMs, one.endpoints.well, one.away], [300, 1, null]);
  assert.equal(mergeUpstream([told("a", { away: "gone" }), told("b", { away: "gone" })]).away, "gone");
  const none = mergeUpstream([told("a", { oldestWaitMs: null })]);
  assert.deepEqual([none.oldestWaitMs, none.queueMs.p50, none.perSecond], [null, null, null], "unknown, not 0");
});

test("percentiles lie in the bucket that their rank is in, and nothing measured is nothing known [80.C16]", () => {
  assert.deepEqual(percentilesOf([0, 0, 0], [0.1, 1]), { p50: null, p95: null, count: 0 });
  assert.deepEqual(percentilesOf([10, 0, 0], [0.1, 1]), { p50: 50, p95: 95, count: 10 });
  assert.equal(percentilesOf([0, 0, 4], [0.1, 1]).p95, 1_000, "above all bounds only the last is known");
  fc.assert(
    fc.property(fc.array(fc.nat(50), { minLength: 4, maxLength: 4 }), (cells) => {
      const { p50, p95, count } = percentilesOf(cells, [0.1, 1, 10]);
      if (count === 0) return;
      assert.ok(p50 !== null && p95 !== null && p50 <= p95 && p95 <= 10_000 && p50 >= 0);
    }),
  );
  assert.deepEqual(addCells([[1, 2], [3], []]), [4, 2]);
});

test("what was counted in the last minute is told, however seldom somebody looked", () => {
  const counts = new WindowedCounts([100], asMono(0));
  const at = (ms: number): number => counts.over(asMono(ms)).cells[0] ?? -1;
  assert.equal(at(0), 0, "what was before the first look is not of this minute");
  for (let second = 1; second <= 120; second += 1) counts.note([100 + second], asMono(second * 1_000));
  assert.ok(at(120_000) >= 60 && at(120_000) <= 66, String(at(120_000)));
  assert.ok(counts.isLively(asMono(120_000)) && !counts.isLively(asMono(200_000)));
  assert.equal(at(200_000), 0, "a minute without one");
});

const shown = (over: Partial<UpstreamRow> = {}): UpstreamRow => ({ ...mergeUpstream([told("a")]), ...over });

test("a plot has a point for each look and none where nobody looked", () => {
  const ring = new PlotRing();
  for (const at of [1_000, 2_000, 3_000, 10_000]) ring.note([shown({ slots: at === 10_000 ? 9 : 4 })], at);
  const plot = ring.plot("u");
  assert.deepEqual(plot.at, [1_000, 2_000, 3_000, 10_000]);
  assert.deepEqual(plot.slots, [4, 4, 4, 9]);
  assert.deepEqual(plot.inUse.batch, [1, 1, 1, 1]);
  assert.deepEqual(ring.plot("none").at, []);
  assert.equal(ring.waitingAt("u", 2_500), 2);
  assert.equal(ring.waitingAt("u", 500), null, "nobody knows");
  assert.equal(ring.waitingAt("none", 2_500), null);
});

test("a quarter of an hour is kept, whatever comes", () => {
  const ring = new PlotRing();
  for (let second = 0; second < 3_000; second += 1) ring.note([shown({ slots: second })], second * 1_000);
  const { at, slots } = ring.plot("u");
  assert.ok(at.length <= 900 && (at[0] ?? 0) >= (2_999 - 900) * 1_000);
  assert.equal(slots.at(-1), 2_999);
  assert.equal(slots[0], (at[0] ?? 0) / 1_000);
});
