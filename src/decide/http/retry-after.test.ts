import assert from "node:assert/strict";
import { test } from "node:test";
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
  for (const value of [
    "",
    "-1",
    "1.5",
    "soon",
    "1e3",
    "Sun, 06 Foo 1994 08:49:47 GMT",
    "Sun, 40 Nov 1994 08:49:47 GMT",
    "Sun, 06 Nov 1994 25:49:47 GMT",
    "99999999999",
  ]) {
    assert.equal(parseRetryAfter(value, NOW), undefined, value);
  }
});

test("seconds are rounded up and never 0", () => {
  assert.deepEqual([0, 1, 999, 1_000, 1_001, -5].map(renderRetryAfter), ["1", "1", "1", "1", "2", "1"]);
});

test("dates around leap days and ends of years read as the moments they name", () => {
  const rows: readonly [string, number][] = [
    ["Thu, 01 Jan 1970 00:00:00 GMT", 0],
    ["Tue, 29 Feb 2000 23:59:59 GMT", 951_868_799_000],
    ["Wed, 01 Mar 2000 00:00:00 GMT", 951_868_800_000],
    ["Fri, 31 Dec 2027 23:59:59 GMT", 1_830_297_599_000],
    ["Tue, 29 Feb 2028 12:00:00 GMT", 1_835_438_400_000],
    ["Thu, 31 Dec 2099 23:59:59 GMT", 4_102_444_799_000],
  ];
  for (const [date, at] of rows) {
    const now = Math.max(0, at - 5_000);
    assert.equal(parseRetryAfter(date, now), at - now, date);
  }
});
