import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { fitColumns, formatTable, widthOf } from "./table.ts";

const HEAD = ["MODEL", "STATE", "READY", "WHY"];
const WHY = "fits on no node: rack-1: needs 100.0 GiB on each of 1 card; 0 have that, the 1 freest have 40.0 GiB";
const ROWS = [["qwen3.8-35b", "waiting", "0", WHY]];

test("without a terminal a table is as wide as its cells [40.V1]", () => {
  const [, row = ""] = formatTable(HEAD, ROWS).split("\n");
  assert.ok(row.endsWith(WHY));
});

test("on a terminal the widest column is cut until a line fits, with a sign that something is missing; names stay whole [40.V1]", () => {
  for (const width of [60, 80, 120]) {
    const lines = formatTable(HEAD, ROWS, { width }).trimEnd().split("\n");
    for (const line of lines) assert.ok(widthOf(line) <= width, `${width}: ${line}`);
    assert.match(lines[1] ?? "", /^qwen3\.8-35b {2}waiting {2}0 +fits on .*…$/);
    assert.ok(widthOf(lines[1] ?? "") >= width - 1, "what room there is is used");
  }
  assert.equal(formatTable(HEAD, ROWS, { width: 300 }), formatTable(HEAD, ROWS));
});

test("letters that take two columns, and marks that take none, are counted as a terminal shows them [40.V1]", () => {
  assert.deepEqual(["ab", "日本", "e\u0301", "🚂"].map(widthOf), [2, 4, 1, 2]);
  const lines = formatTable(
    ["A", "B"],
    [
      ["日本語の理由", "x"],
      ["ab", "y"],
    ],
  ).split("\n");
  assert.deepEqual(lines.slice(1, 3), ["日本語の理由  x", "ab            y"]);
  const [, cut = ""] = formatTable(["A", "B"], [["m", "日本語の理由が長い"]], { width: 12 }).split("\n");
  assert.ok(widthOf(cut) <= 12 && cut.endsWith("…"), cut);
});

test("whatever a table holds, no line is wider than the terminal while each column can have its least, and nothing in a cell moves the cursor [40.V1 80.D36]", () => {
  const cell = fc.string({ maxLength: 40, unit: fc.constantFrom("a", "語", "\u001b", "\n", "\u0301", " ", "\u202e") });
  const table = fc.integer({ min: 1, max: 8 }).chain((columns) =>
    fc.tuple(
      fc.array(fc.string({ minLength: 1, maxLength: 12, unit: fc.constantFrom("A", "B") }), {
        minLength: columns,
        maxLength: columns,
      }),
      fc.array(fc.array(cell, { minLength: columns, maxLength: columns }), { maxLength: 6 }),
    ),
  );
  fc.assert(
    fc.property(table, fc.integer({ min: 60, max: 200 }), ([head, rows], width) => {
      const text = formatTable(head, rows, { width });
      const lines = text.slice(0, -1).split("\n");
      assert.equal(lines.length, rows.length + 1);
      for (const line of lines) {
        assert.ok(widthOf(line) <= width, JSON.stringify(line));
        for (const bad of ["\u001b", "\u202e"]) assert.ok(!line.includes(bad));
      }
    }),
  );
});

test("columns get what they need where there is room, and share what there is where there is none [40.V1]", () => {
  assert.deepEqual(fitColumns([4, 10, 10], 100), [4, 10, 10]);
  assert.deepEqual(fitColumns([4, 30, 30], 48), [4, 20, 20]);
  assert.deepEqual(fitColumns([4, 6, 100], 48), [4, 6, 34]);
  assert.deepEqual(fitColumns([100, 10], 40), [33, 5]);
});
