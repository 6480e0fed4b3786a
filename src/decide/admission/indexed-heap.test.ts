import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { type HeapEntry, IndexedHeap } from "./indexed-heap.ts";

interface Entry extends HeapEntry {
  key: number;
  readonly order: number;
}
const before = (a: Entry, b: Entry): boolean => a.key < b.key || (a.key === b.key && a.order < b.order);

test("a heap gives the same first entry as sorting, after any pushes, removals and changes", () => {
  const step = fc.record({
    what: fc.constantFrom("push", "push", "remove", "update"),
    key: fc.nat(20),
    pick: fc.nat(1_000),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 120 }), (steps) => {
      const heap = new IndexedHeap<Entry>(before);
      let entries: Entry[] = [];
      steps.forEach(({ what, key, pick }, order) => {
        const picked = entries[pick % Math.max(1, entries.length)];
        if (what === "push") {
          const entry = { at: -1, key, order };
          heap.push(entry);
          entries.push(entry);
        } else if (picked !== undefined && what === "remove") {
          heap.remove(picked);
          assert.equal(picked.at, -1);
          entries = entries.filter((entry) => entry !== picked);
        } else if (picked !== undefined) {
          picked.key = key;
          heap.update(picked);
        }
        assert.equal(heap.size, entries.length);
        assert.equal(heap.top, entries.toSorted((a, b) => (before(a, b) ? -1 : 1))[0]);
        for (const entry of entries) assert.equal(heap.items[entry.at], entry);
      });
    }),
    { numRuns: 200 },
  );
});

test("an entry that is not in the heap can't be removed from it", () => {
  const heap = new IndexedHeap<Entry>(before);
  heap.push({ at: -1, key: 1, order: 0 });
  assert.throws(() => heap.remove({ at: 0, key: 1, order: 1 }));
});
