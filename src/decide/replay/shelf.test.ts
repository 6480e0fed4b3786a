import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { asMono } from "../../kernel/clock.ts";
import { Shelf } from "./shelf.ts";

test("sizes never exceed the bound, nothing outlives its time, and the least recently used leaves first [80.I9]", () => {
  const step = fc.record({
    act: fc.constantFrom("put", "put", "get", "delete", "resize"),
    key: fc.constantFrom("a", "b", "c", "d", "e"),
    bytes: fc.integer({ min: 1, max: 60 }),
    passMs: fc.nat(40),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 100 }), (steps) => {
      const shelf = new Shelf<number>(100);
      let max = 100;
      let now = asMono(0);
      let order: { key: string; value: number; bytes: number; until: number }[] = [];
      const drop = (key: string): void => void (order = order.filter((item) => item.key !== key));
      const makeRoom = (bytes: number): void => {
        while (order.reduce((sum, item) => sum + item.bytes, bytes) > max && order.length > 0) order.shift();
      };
      steps.forEach(({ act, key, bytes, passMs }, value) => {
        now = asMono(now + passMs);
        const held = order.find((item) => item.key === key);
        if (act === "put") {
          drop(key);
          assert.equal(shelf.put(key, value, bytes, now, 100), bytes <= max);
          if (bytes <= max) {
            while (order[0] !== undefined && now >= order[0].until) order.shift();
            makeRoom(bytes);
            order.push({ key, value, bytes, until: now + 100 });
          }
        } else if (act === "get") {
          const live = held !== undefined && now < held.until;
          assert.equal(shelf.get(key, now)?.value, live ? held.value : undefined);
          drop(key);
          if (live) order.push(held);
        } else if (act === "delete") {
          shelf.delete(key);
          drop(key);
        } else {
          max = 40 + bytes;
          shelf.setBytesMax(max);
          makeRoom(0);
        }
        assert.equal(
          shelf.bytes,
          order.reduce((sum, item) => sum + item.bytes, 0),
        );
        assert.ok(shelf.bytes <= max);
        assert.equal(shelf.entries, order.length);
      });
    }),
    { numRuns: 1_000 },
  );
});
