import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { UsageGroup, UsageRowView, UsageSums } from "../../contract/usage-view.ts";
import { mergeUsage } from "./merge-usage.ts";
import { UsageTotals } from "./sum-usage.ts";
import type { UsageRow } from "./usage-book.ts";

const sums = (change: Partial<UsageSums> = {}): UsageSums => ({ ...mergeUsage([], null, 1).total, ...change });
const viewOf = (
  rows: readonly UsageRow[],
  group: readonly UsageGroup[],
): { rows: UsageRowView[]; total: UsageSums } => {
  const totals = new UsageTotals(group);
  for (const row of rows) assert.ok(totals.add(row));
  return { rows: totals.page(null, 1_000).rows, total: totals.total };
};

const anyRow = fc.record({
  day: fc.integer({ min: 20_000, max: 20_002 }),
  keyId: fc.constantFrom("a", "b"),
  model: fc.constantFrom("", "m", "n"),
  counts: fc.dictionary(
    fc.constantFrom("out:ok", "out:refused", "replays", "cost:EUR", "slotMicros"),
    fc.nat(1_000).map((n) => n * 1_000),
  ),
});

test("what two places have counted is merged to what one place with all of it would say, page by page [60.K4]", () => {
  fc.assert(
    fc.property(
      fc.array(anyRow),
      fc.array(anyRow),
      fc.constantFrom<UsageGroup[]>(["day"], ["key"], ["key", "model"], ["day", "key", "model"]),
      (here, there, group) => {
        const all = viewOf([...here, ...there], group);
        const views = [viewOf(here, group), viewOf(there, group)];
        const whole = mergeUsage(views, null, 1_000);
        assert.deepEqual({ rows: whole.rows, total: whole.total }, all);
        const rows: UsageRowView[] = [];
        let more: ReturnType<typeof mergeUsage>["more"] = null;
        do {
          const page: ReturnType<typeof mergeUsage> = mergeUsage(views, more, 2);
          rows.push(...page.rows);
          more = page.more;
        } while (more !== null);
        assert.deepEqual(rows, all.rows);
      },
    ),
  );
});

for (const [name, a, b, sum] of [
  ["neither has told", null, null, null],
  ["one has told", null, 5, 5],
  ["one has told and the other used nothing", 5, 0, 5],
  ["one has not told and the other used nothing", null, 0, null],
] as const)
  test(`tokens of which ${name} are ${sum ?? "unknown"} [60.K4]`, () => {
    const views = [a, b].map((tokens) => ({ rows: [], total: sums({ prompt_tokens: tokens }) }));
    assert.equal(mergeUsage(views, null, 10).total.prompt_tokens, sum);
  });

test("sums of money do not drift [60.K4]", () => {
  const views = Array.from({ length: 10 }, () => ({
    rows: [],
    total: sums({ cost: { EUR: 0.1 }, gpu_seconds: 0.001 }),
  }));
  const { total } = mergeUsage(views, null, 10);
  assert.deepEqual([total.cost["EUR"], total.gpu_seconds], [1, 0.01]);
});
