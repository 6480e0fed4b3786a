import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { FLUSH_ROWS_MAX, UsageBook, type UsageFlush } from "./usage-book.ts";

const anyStep = fc.oneof(
  fc.record({
    kind: fc.constant("add" as const),
    day: fc.integer({ min: 1, max: 3 }),
    key: fc.constantFrom("a", "b", "c"),
    model: fc.constantFrom("", "m", "n o", "x"),
    amount: fc.integer({ min: 1, max: 50 }),
  }),
  fc.constant({ kind: "take" as const }),
  fc.constant({ kind: "told" as const }),
);

test("whatever is added is in one flush, flushes stay as they are until they are told, and rows stay bounded [60.K4]", () => {
  fc.assert(
    fc.property(fc.array(anyStep, { maxLength: 80 }), fc.integer({ min: 1, max: 6 }), (steps, rowsMax) => {
      const book = new UsageBook(rowsMax);
      const added = new Map<number, number>();
      const stored = new Map<number, number>();
      let out: { readonly flush: UsageFlush; readonly text: string } | null = null;
      let seq = 0;
      const tell = (): void => {
        for (const { day, counts } of out?.flush.rows ?? [])
          stored.set(day, (stored.get(day) ?? 0) + (counts["n"] ?? 0));
        out = null;
        book.told();
      };
      const take = (): void => {
        const flush = book.take();
        if (out !== null) {
          assert.equal(flush, out.flush);
          assert.equal(JSON.stringify(flush), out.text);
        } else if (flush !== null) {
          assert.equal(flush.seq, (seq += 1));
          assert.ok(flush.rows.length > 0 && flush.rows.length <= FLUSH_ROWS_MAX);
          out = { flush, text: JSON.stringify(flush) };
        }
      };
      for (const step of steps) {
        if (step.kind === "take") take();
        else if (step.kind === "told") tell();
        else {
          const sums = book.sumsOf(step.day, step.key, step.model);
          sums["n"] = (sums["n"] ?? 0) + step.amount;
          added.set(step.day, (added.get(step.day) ?? 0) + step.amount);
        }
        // One row of each day stands for what is not kept apart.
        assert.ok(book.waiting <= 2 * (rowsMax + 3));
      }
      for (let left = book.flushesLeft; left > 0; left -= 1) {
        take();
        tell();
      }
      assert.equal(book.waiting, 0);
      assert.deepEqual(Object.fromEntries(stored), Object.fromEntries(added));
    }),
  );
});

test("a large backlog is told in flushes of a bounded size, the oldest first", () => {
  const book = new UsageBook();
  for (let i = 0; i < 150; i += 1) book.sumsOf(1, `k${i}`, "m")["n"] = 1;
  assert.equal(book.flushesLeft, 3);
  const first = book.take();
  assert.deepEqual([first?.rows.length, first?.rows[0]?.keyId], [FLUSH_ROWS_MAX, "k0"]);
  assert.equal(book.waiting, 150);
});
