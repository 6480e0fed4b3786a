import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { ChangeLog } from "./change-log.ts";
import { RowTable } from "./row-table.ts";

const making = {
  keyOf: ([key]: readonly [string, unknown]) => key,
  source: () => [],
  make: ([, value]: readonly [string, unknown]) => value,
};

test("laying every change over an empty table gives the rows that there are, in any history", () => {
  const state = fc.dictionary(fc.string({ maxLength: 3 }), fc.jsonValue());
  fc.assert(
    fc.property(fc.array(state, { maxLength: 8 }), (states) => {
      const table = new RowTable<unknown>();
      const laid = new Map<string, string>();
      for (const rows of states) {
        const change = table.replace(Object.entries(rows), making);
        for (const [key, text] of change.set) laid.set(key, text);
        for (const key of change.gone) laid.delete(key);
        const wanted = new Map(Object.entries(rows).map(([key, value]) => [key, JSON.stringify(value)]));
        assert.deepEqual(laid, wanted);
        assert.deepEqual(table.texts, wanted);
        assert.deepEqual(table.replace(Object.entries(rows), making), { set: [], gone: [] });
      }
    }),
  );
});

test("a row of the same source is not made again", () => {
  const table = new RowTable<number>();
  const source = {};
  let made = 0;
  const look = (of: object): number => {
    table.replace([0], { keyOf: () => "k", source: () => [of], make: () => (made += 1) });
    return made;
  };
  assert.deepEqual([look(source), look(source), look({})], [1, 1, 2]);
});

test("what was missed is given in order and whole, or not at all", () => {
  const log = new ChangeLog();
  assert.deepEqual(log.since(0), []);
  for (let at = 0; at < 300; at += 1) log.add((version) => `v${version}`);
  assert.deepEqual(
    log.since(297)?.map(({ text }) => text),
    ["v298", "v299", "v300"],
  );
  assert.deepEqual(log.since(300), []);
  assert.equal(log.since(301), null, "a version that never was");
  assert.equal(log.since(10), null, "older than what is kept");
  assert.ok((log.since(200)?.length ?? 0) === 100);
});

test("the memory of changes is bounded by their size too", () => {
  const log = new ChangeLog();
  const large = "x".repeat(5 * 1024 * 1024);
  for (let at = 0; at < 10; at += 1) log.add(() => large);
  assert.equal(log.since(9)?.length, 1);
  assert.equal(log.since(5), null);
});
