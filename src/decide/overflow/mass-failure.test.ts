import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { massFailure, type SeenEndpoint } from "./mass-failure.ts";

const hosts = (good: number, bad: number): SeenEndpoint[] => [
  ...Array.from({ length: good }, (_, index) => ({ host: `good${index}`, good: true })),
  ...Array.from({ length: bad }, (_, index) => ({ host: `bad${index}`, good: false })),
];

const rows: readonly [name: string, seen: readonly SeenEndpoint[], stops: boolean][] = [
  ["nothing is looked at", [], false],
  ["the one card there is is away: that is the base case", hosts(0, 1), false],
  ["all three of a small house are away", hosts(0, 3), false],
  ["all four are away", hosts(0, 4), true],
  ["two of four", hosts(2, 2), false],
  ["three of four", hosts(1, 3), true],
  ["54 of 100", hosts(46, 54), false],
  ["55 of 100", hosts(45, 55), true],
  [
    "a host with one good engine among bad ones is good",
    [...hosts(1, 2), { host: "bad0", good: true }, { host: "x", good: true }],
    false,
  ],
];
for (const [name, seen, stops] of rows)
  test(`the brake of overflow: ${name} [80.A14 50.V3]`, () => assert.equal(massFailure(seen) !== null, stops));

test("neither the order nor how many engines a host has makes a difference [80.A14]", () => {
  const seen = fc.array(fc.record({ host: fc.constantFrom("a", "b", "c", "d", "e", "f"), good: fc.boolean() }));
  fc.assert(
    fc.property(seen, (each) => {
      assert.equal(massFailure(each), massFailure(each.toReversed()));
      assert.equal(massFailure(each), massFailure([...each, ...each]));
    }),
  );
});
