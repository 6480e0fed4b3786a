import assert from "node:assert/strict";
import { test } from "node:test";
import { isAnotherMachine } from "./judge-newcomer.ts";

const rows: readonly [name: string, bootId: string, silentMs: number, heartbeatMs: number, expected: boolean][] = [
  ["one of another start, beside one that reports", "boot-2", 100, 2_000, true],
  ["the same, where the last report is a little late", "boot-2", 4_900, 2_000, true],
  ["a machine that was started anew, once the old connection is silent", "boot-2", 5_000, 2_000, false],
  ["the same in a large fleet, which reports seldom", "boot-2", 10_000, 60_000, false],
  ["a new connection of the same machine", "boot-1", 0, 2_000, false],
];
for (const [name, bootId, silentMs, heartbeatMs, expected] of rows)
  test(`who shows a connected node's credential: ${name} [40.N1 80.I4]`, () =>
    assert.equal(isAnotherMachine({ bootId: "boot-1", silentMs }, bootId, heartbeatMs), expected));
