import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { parseDay, usageView, USAGE_GROUPS, type UsageGroup, type UsageRowView } from "../../contract/usage-view.ts";
import { parseUsageQuery, renderCursor } from "./parse-usage-query.ts";
import { UsageTotals, type UsagePlace } from "./sum-usage.ts";
import type { UsageRow } from "./usage-book.ts";

const DAY = parseDay("2026-01-31") ?? 0;
const NOW = DAY * 86_400_000 + 1_000;
const aRow = (change: Partial<UsageRow> = {}): UsageRow => ({
  day: DAY,
  keyId: "k",
  model: "m",
  counts: {},
  ...change,
});

function sumsOf(counts: Record<string, number>): UsageRowView | undefined {
  const totals = new UsageTotals(USAGE_GROUPS);
  totals.add(aRow({ counts }));
  return totals.page(null, 1).rows[0];
}

test("sums are shown in the units of the reader, and tokens that nobody told are null [60.K4]", () => {
  const shown = sumsOf({
    "out:ok": 3,
    "out:client_aborted": 1,
    replays: 2,
    cacheHits: 1,
    ran: 4,
    told: 3,
    promptTold: 3,
    completionTold: 3,
    prompt: 300,
    completion: 30,
    slotMicros: 1_234_567,
    "cost:EUR": 1_500_000,
  });
  assert.deepEqual(shown, {
    day: "2026-01-31",
    key: "k",
    model: "m",
    requests: 7,
    outcomes: { ok: 3, client_aborted: 1 },
    replays: 2,
    cache_hits: 1,
    prompt_tokens: 300,
    completion_tokens: 30,
    cached_tokens: null,
    tokens_unknown: 1,
    gpu_seconds: 1.235,
    cost: { EUR: 1.5 },
  });
  const refused = sumsOf({ "out:refused": 5 });
  assert.deepEqual([refused?.prompt_tokens, refused?.tokens_unknown], [0, 0]);
  const unknown = sumsOf({ "out:ok": 1, ran: 1 });
  assert.deepEqual([unknown?.prompt_tokens, unknown?.completion_tokens, unknown?.tokens_unknown], [null, null, 1]);
});

const anyRow = fc.record({
  day: fc.integer({ min: DAY, max: DAY + 2 }),
  keyId: fc.constantFrom("a", "b", "c"),
  model: fc.constantFrom("", "m", "n"),
  counts: fc.record({ "out:ok": fc.nat(9), prompt: fc.nat(9), "cost:USD": fc.nat(9) }),
});

test("however rows are parted and paged, they come once, in order, and add up to the total [60.K4]", () => {
  fc.assert(
    fc.property(
      fc.array(anyRow, { maxLength: 60 }),
      fc.subarray([...USAGE_GROUPS]),
      fc.integer({ min: 1, max: 5 }),
      (rows, group, limit) => {
        const totals = new UsageTotals(group);
        for (const row of rows) assert.ok(totals.add(row));
        const seen: UsageRowView[] = [];
        let after: UsagePlace | null = null;
        do {
          const page = totals.page(after, limit);
          assert.ok(page.rows.length <= limit);
          seen.push(...page.rows);
          after = page.more;
          const asked = new URLSearchParams(after === null ? {} : { cursor: renderCursor(after) });
          const parsed = parseUsageQuery(asked, NOW);
          assert.deepEqual(parsed.kind === "ok" ? parsed.query.after : parsed, after);
        } while (after !== null);
        const names = seen.map(({ day, key, model }) => [day, key, model].join(" "));
        assert.equal(new Set(names).size, names.length);
        const sum = (of: (row: UsageRow) => number): number => rows.reduce((all, row) => all + of(row), 0);
        const shown = (of: (row: UsageRowView) => number): number => seen.reduce((all, row) => all + of(row), 0);
        assert.equal(
          shown((row) => row.requests),
          sum(({ counts }) => counts["out:ok"] ?? 0),
        );
        assert.equal(
          totals.total.requests,
          sum(({ counts }) => counts["out:ok"] ?? 0),
        );
        assert.equal(
          Math.round(shown(({ cost }) => cost["USD"] ?? 0) * 1e6),
          sum(({ counts }) => counts["cost:USD"] ?? 0),
        );
        const view = {
          from: "",
          to: "",
          group: group as UsageGroup[],
          rows: seen,
          total: totals.total,
          next_cursor: null,
        };
        assert.ok(usageView.safeParse({ ...view, unwritten: 0 }).success);
      },
    ),
  );
});

const queries: { readonly query: string; readonly why: RegExp }[] = [
  { query: "key=x", why: /unknown parameter/ },
  { query: "from=2026-02-30", why: /from must be/ },
  { query: "to=yesterday", why: /to must be/ },
  { query: "from=2026-02-01&to=2026-01-01", why: /later/ },
  { query: "from=2024-01-01", why: /span 400 days/ },
  { query: "group=owner", why: /group must be/ },
  { query: "group=day,day", why: /group must be/ },
  { query: "format=xml", why: /format/ },
  { query: "limit=0", why: /limit/ },
  { query: "limit=1e3", why: /limit/ },
  { query: "limit=10001", why: /limit/ },
  { query: "cursor=zzz", why: /cursor/ },
  { query: "model=", why: /1 to/ },
  { query: "model=a&model=b", why: /twice/ },
];
for (const { query, why } of queries)
  test(`a question for usage is refused: ${query}`, () => {
    const parsed = parseUsageQuery(new URLSearchParams(query), NOW);
    assert.match(parsed.kind === "bad" ? parsed.why : "", why);
  });

test("without parameters usage is that of the last 31 days, by day, key and model", () => {
  const parsed = parseUsageQuery(new URLSearchParams(), NOW);
  assert.ok(parsed.kind === "ok");
  const { fromDay, toDay, group, keyId, model, after } = parsed.query;
  assert.deepEqual([toDay, toDay - fromDay, group, keyId, model, after], [DAY, 30, USAGE_GROUPS, null, null, null]);
});
