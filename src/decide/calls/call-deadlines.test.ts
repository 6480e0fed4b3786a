import assert from "node:assert/strict";
import { test } from "node:test";
import { asMono } from "../../kernel/clock.ts";
import { nextCallDeadline, type CallDeadline, type CallTimes } from "./call-deadlines.ts";

const aView = (view: Partial<CallTimes> = {}): CallTimes => ({
  startedAt: asMono(1_000),
  firstEventAt: undefined,
  lastProgressAt: undefined,
  atWorkAt: undefined,
  blockedAt: undefined,
  deadline: undefined,
  ...view,
});

const LIMITS = { totalMs: 100_000, firstByteMs: 10_000, idleMs: 5_000, writeStallMs: 3_000 };

const rows: { name: string; view: Partial<CallTimes>; expect: { at: number; limit: CallDeadline["limit"] } }[] = [
  {
    name: "before the first event the first-byte limit counts from the first try",
    view: {},
    expect: { at: 11_000, limit: "firstByte" },
  },
  {
    name: "an engine that says that it is at work moves the first-byte limit on, and not the total one",
    view: { atWorkAt: asMono(7_000) },
    expect: { at: 17_000, limit: "firstByte" },
  },
  {
    name: "no word of an engine moves the total limit",
    view: { atWorkAt: asMono(100_000) },
    expect: { at: 101_000, limit: "total" },
  },
  {
    name: "the client's own deadline comes first when it is earlier",
    view: { deadline: asMono(2_000) },
    expect: { at: 2_000, limit: "deadline" },
  },
  {
    name: "after the first event the gap between events counts [80.A9]",
    view: { firstEventAt: asMono(4_000), lastProgressAt: asMono(6_000) },
    expect: { at: 11_000, limit: "idle" },
  },
  {
    name: "an engine that we hold back for a slow client is not silent by its own fault",
    view: { firstEventAt: asMono(4_000), lastProgressAt: asMono(6_000), blockedAt: asMono(9_500) },
    expect: { at: 12_500, limit: "clientStalled" },
  },
  {
    name: "the total limit holds however lively the stream is",
    view: { firstEventAt: asMono(4_000), lastProgressAt: asMono(99_000) },
    expect: { at: 101_000, limit: "total" },
  },
];
for (const row of rows) test(row.name, () => assert.deepEqual(nextCallDeadline(aView(row.view), LIMITS), row.expect));
