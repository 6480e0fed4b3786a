import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { idempotencyScope, parseIdempotencyKey } from "./idempotency-key.ts";

const rows: readonly { name: string; value: string | undefined; kind: string }[] = [
  { name: "no header", value: undefined, kind: "absent" },
  { name: "one character", value: "1", kind: "key" },
  { name: "a UUID", value: "5e2f5d7a-63f7-4d31-9f5b-6a1f3ee0b6a1", kind: "key" },
  { name: "255 characters", value: "k".repeat(255), kind: "key" },
  { name: "256 characters", value: "k".repeat(256), kind: "bad" },
  { name: "10 000 characters", value: "k".repeat(10_000), kind: "bad" },
  { name: "nothing", value: "", kind: "bad" },
  { name: "a blank inside", value: "a b", kind: "bad" },
  { name: "an end of line", value: "a\r\nx: y", kind: "bad" },
  { name: "an emoji", value: "a\u{1f600}", kind: "bad" },
];
for (const row of rows)
  test(`an idempotency key of ${row.name} is ${row.kind} [80.C27]`, () => {
    assert.equal(parseIdempotencyKey(row.value).kind, row.kind);
  });

test("no two callers, routes and keys share a scope [80.C27]", () => {
  const triple = fc.tuple(fc.string(), fc.string(), fc.string());
  fc.assert(
    fc.property(triple, triple, (a, b) => {
      const same = a.every((part, index) => part === b[index]);
      assert.equal(idempotencyScope(...a) === idempotencyScope(...b), same);
    }),
  );
  assert.notEqual(idempotencyScope("a", "1:b", "c"), idempotencyScope("a1:b", "", "c"));
});
