import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { parseRetryAfter, renderRetryAfter } from "./retry-after.ts";

const NOW = 784_111_777_000; // Sun, 06 Nov 1994 08:49:37 GMT

test("seconds and dates of all three forms are read", () => {
  assert.equal(parseRetryAfter(" 120 ", NOW), 120_000);
  assert.equal(parseRetryAfter("0", NOW), 0);
  assert.equal(parseRetryAfter("Sun, 06 Nov 1994 08:49:47 GMT", NOW), 10_000);
  assert.equal(parseRetryAfter("Sunday, 06-Nov-94 08:49:47 GMT", NOW), 10_000);
  assert.equal(parseRetryAfter("Sun Nov  6 08:49:47 1994", NOW), 10_000);
  assert.equal(parseRetryAfter("Sun, 06 Nov 1994 08:49:27 GMT", NOW), 0);
});

test("what is neither seconds nor a date is unknown", () => {
  for (const value of ["", "-1", "1.5", "soon", "1e3", "Sun, 06 Foo 1994 08:49:47 GMT", "Sun, 40 Nov 1994 08:49:47 GMT", "Sun, 06 Nov 1994 25:49:47 GMT", "99999999999"]) {
    assert.equal(parseRetryAfter(value, NOW), undefined, value);
  }
});

test("seconds are rounded up and never 0", () => {
  assert.deepEqual([0, 1, 999, 1_000, 1_001, -5].map(renderRetryAfter), ["1", "1", "1", "1", "2", "1"]);
});

test("any date reads back as the moment it names", () => {
  fc.assert(
    fc.property(fc.integer({ min: 0, max: 4_102_444_799 }), (seconds) => {
      const at = seconds * 1_000;
      const now = Math.max(0, at - 86_400_000);
      assert.equal(parseRetryAfter(new Date(at).toUTCString(), now), at - now);
    }),
  );
});
