import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { rowTops, windowRows } from "./window-rows.ts";

const view = { scrollTop: 0, viewHeight: 100, spare: 0 };

test("an empty list draws nothing and takes no room", () => {
  assert.deepEqual(windowRows(rowTops([]), view), { first: 0, end: 0, before: 0, after: 0 });
});

test("a list of a million rows draws those that are seen, and the spare ones", () => {
  const tops = rowTops(Array.from({ length: 1_000_000 }, () => 20));
  const window = windowRows(tops, { scrollTop: 10_000_000, viewHeight: 100, spare: 4 });
  assert.deepEqual([window.first, window.end], [499_996, 500_010]);
});

test("every row that can be seen is drawn, and what is not drawn takes exactly its room", () => {
  fc.assert(
    fc.property(
      fc.array(fc.integer({ min: 1, max: 300 }), { maxLength: 200 }),
      fc.record({
        scrollTop: fc.integer({ min: -500, max: 60_000 }),
        viewHeight: fc.integer({ min: 1, max: 2_000 }),
        spare: fc.integer({ min: 0, max: 8 }),
      }),
      (heights, seen) => {
        const tops = rowTops(heights);
        const whole = tops.at(-1) ?? 0;
        const { first, end, before, after } = windowRows(tops, seen);
        const drawn = heights.slice(first, end).reduce((sum, height) => sum + height, 0);
        assert.equal(before + drawn + after, whole);
        const top = Math.min(Math.max(0, seen.scrollTop), Math.max(0, whole - seen.viewHeight));
        heights.forEach((height, index) => {
          const from = tops[index] ?? 0;
          if (from < top + seen.viewHeight && from + height > top)
            assert.ok(index >= first && index < end, `row ${index}`);
        });
      },
    ),
  );
});
