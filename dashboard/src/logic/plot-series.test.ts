import assert from "node:assert/strict";
import { test } from "node:test";
import { PLOT_SPAN_MS, type UpstreamRow } from "../../../src/contract/board.ts";
import { SMALL, SyntheticBoard } from "../../../src/testing/board/synthetic-board.ts";
import { plotColumns, PlotSeries } from "./plot-series.ts";

const row = (change: Partial<UpstreamRow> = {}): UpstreamRow => {
  const [first] = Object.values(new SyntheticBoard(SMALL).snapshot.tables.upstreams);
  assert.ok(first !== undefined);
  return { ...first, inUse: { interactive: 3, system: 1, batch: 2 }, slots: 8, batchMax: 6, ...change };
};

test("classes are stacked from batch up, with batch_max and the slots beside them", () => {
  const series = new PlotSeries();
  series.takeRow(5_000, row());
  assert.deepEqual(plotColumns(series.points), [[5], [2], [3], [6], [6], [8]]);
});

test("what the server remembers goes before what was seen here, and nothing is there twice", () => {
  const series = new PlotSeries();
  series.takeRow(3_000, row());
  const all = (...values: number[]): Record<"interactive" | "system" | "batch", number[]> => ({
    interactive: values,
    system: values,
    batch: values,
  });
  series.takePlot({
    upstream: "u",
    at: [1_000, 2_000, 3_000],
    inUse: all(1, 1, 1),
    waiting: all(0, 0, 0),
    slots: [8, 8, 8],
    batchMax: [6, 6, 6],
  });
  series.takeRow(3_000, row());
  assert.deepEqual(
    series.points.map(({ at }) => at),
    [1_000, 2_000, 3_000],
  );
});

test("a time in which nobody looked is a gap and not a line", () => {
  const series = new PlotSeries();
  series.takeRow(0, row());
  series.takeRow(60_000, row());
  const [times, batch] = plotColumns(series.points);
  assert.deepEqual(batch, [2, null, 2]);
  assert.equal(times.length, 3);
});

test("15 minutes are kept and no more", () => {
  const series = new PlotSeries();
  for (let at = 0; at <= 2 * PLOT_SPAN_MS; at += 1_000) series.takeRow(at, row());
  assert.equal(series.points.length, PLOT_SPAN_MS / 1_000 + 1);
  assert.equal(series.points[0]?.at, PLOT_SPAN_MS);
});
