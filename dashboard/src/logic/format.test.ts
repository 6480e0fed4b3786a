import assert from "node:assert/strict";
import { test } from "node:test";
import { readIso } from "./iso-time.ts";
import fc from "fast-check";
import {
  formatBytes,
  formatCelsius,
  formatCount,
  formatMib,
  formatMoney,
  formatMs,
  formatRate,
  formatSeconds,
  formatShare,
  formatTime,
  plural,
  secondsSince,
  UNKNOWN,
} from "./format.ts";

const rows: readonly (readonly [string, string, string])[] = [
  ["thousands are parted by thin spaces", formatCount(1_234_567), "1\u2009234\u2009567"],
  ["a few MiB stay MiB", formatMib(512), "512 MiB"],
  ["a card's memory is in GiB", formatMib(143_771), "140 GiB"],
  ["a node's memory is in TiB", formatMib(2_064_384), "2 TiB"],
  ["bytes of a small result", formatBytes(900), "900 B"],
  ["bytes of weights", formatBytes(31_000_000_000), "28.9 GiB"],
  ["a share", formatShare(0.876), "88\u2009%"],
  ["a temperature", formatCelsius(64.4), "64\u2009°C"],
  ["seconds", formatSeconds(40.9), "40 s"],
  ["a few minutes have their seconds", formatSeconds(125), "2 min 5 s"],
  ["hours have their minutes", formatSeconds(3_900), "1 h 5 min"],
  ["days have their hours", formatSeconds(90_000), "1 d 1 h"],
  ["weeks have no hours", formatSeconds(8 * 86_400 + 3_600), "8 d"],
  ["a short wait", formatMs(12.4), "12 ms"],
  ["no wait is no unknown", formatMs(0), "0 ms"],
  ["a wait of seconds", formatMs(1_240), "1.2 s"],
  ["a wait of minutes", formatMs(125_000), "2 min 5 s"],
  ["a rate", formatRate(12.44, "/s"), "12.4 /s"],
  ["cents of a small price", formatMoney(0.0042, "EUR"), "0.0042\u2009EUR"],
  ["a price", formatMoney(12.5, "EUR"), "12.50\u2009EUR"],
  ["one of them", plural(1, "node"), "1 node"],
  ["several of them", plural(3, "node"), "3 nodes"],
];
for (const [name, got, wanted] of rows) test(`${name}: ${wanted}`, () => assert.equal(got, wanted));

test("what nobody measured is a dash in every unit, and never 0", () => {
  for (const unknown of [null, undefined, Number.NaN])
    for (const format of [formatCount, formatMib, formatBytes, formatShare, formatCelsius, formatSeconds, formatMs])
      assert.equal(format(unknown), UNKNOWN);
  assert.equal(formatRate(null, "/s"), UNKNOWN);
  assert.equal(formatMoney(null, "EUR"), UNKNOWN);
  assert.equal(formatTime(null, 0, 0), UNKNOWN);
  assert.equal(formatTime("no time", 0, 0), UNKNOWN);
  assert.equal(secondsSince(null, 0), null);
});

test("a known figure is never written as unknown", () => {
  fc.assert(
    fc.property(fc.double({ min: 0, max: 1e15, noNaN: true }), (value) => {
      for (const format of [formatCount, formatMib, formatBytes, formatShare, formatSeconds, formatMs])
        assert.match(format(value), /^\d/);
    }),
  );
});

test("a time of today is its time of day, another one has its day, in the reader's zone", () => {
  const now = readIso("2026-03-02T03:12:00Z");
  assert.equal(formatTime("2026-03-02T03:10:09Z", now, 0), "03:10:09");
  assert.equal(formatTime("2026-03-01T23:10:09Z", now, 0), "03-01 23:10");
  assert.equal(formatTime("2026-03-01T23:10:09Z", now, -60), "00:10:09");
});

test("a clock behind the server's makes no negative age", () => {
  assert.equal(secondsSince("2026-03-02T03:12:05Z", readIso("2026-03-02T03:12:00Z")), 0);
});
