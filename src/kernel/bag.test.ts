import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { Bag } from "./bag.ts";

test("a bag holds what a set would hold, whatever comes and goes", () => {
  fc.assert(
    fc.property(fc.array(fc.tuple(fc.boolean(), fc.nat(12))), (steps) => {
      const bag = new Bag<number>();
      const set = new Set<number>();
      for (const [adds, item] of steps) {
        if (adds && !set.has(item)) {
          bag.add(item);
          set.add(item);
        } else assert.equal(bag.delete(item), set.delete(item));
        assert.deepEqual([bag.size, bag.has(item)], [set.size, set.has(item)]);
      }
      assert.deepEqual([...bag].toSorted(), [...set].toSorted());
    }),
  );
});
