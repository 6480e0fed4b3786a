import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { BOARD_SILENT_MS } from "../../../src/contract/board.ts";
import { judgeLink, reconnectMs } from "./link-state.ts";

const rows = [
  { name: "nothing has come yet", last: null, now: 5_000, open: true, kind: "connecting" },
  { name: "news of a second ago on an open link", last: 4_000, now: 5_000, open: true, kind: "live" },
  { name: "an open link that says nothing for too long", last: 0, now: BOARD_SILENT_MS + 1, open: true, kind: "lost" },
  { name: "a link that has just ended", last: 4_500, now: 5_000, open: false, kind: "live" },
  { name: "a link that ended two seconds ago", last: 3_000, now: 5_000, open: false, kind: "lost" },
] as const;
for (const { name, last, now, open, kind } of rows)
  test(`${name} is ${kind}`, () => assert.equal(judgeLink(last, now, open).kind, kind));

test("the age of a lost link is counted in whole seconds and never falls", () => {
  assert.deepEqual(judgeLink(1_000, 35_900, false), { kind: "lost", ageS: 34 });
});

test("tries come apart, within bounds, and not all at one moment", () => {
  fc.assert(
    fc.property(fc.nat(10_000), fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true }), (tries, chance) => {
      const ms = reconnectMs(tries, chance);
      assert.ok(ms >= 250 && ms <= 8_000);
    }),
  );
  assert.ok(reconnectMs(9, 0.9) - reconnectMs(9, 0.1) > 1_000);
});
