import assert from "node:assert/strict";
import { test } from "node:test";
import type { WeightsAnswer } from "../../../src/contract/control-api.ts";
import { unwantedOf } from "./weights.ts";

const weight = (change: Partial<WeightsAnswer>): WeightsAnswer => ({
  node: "a",
  name: "w",
  bytes: 1_024,
  kind: "whole",
  in_use: false,
  wanted_by: [],
  unwanted: true,
  ...change,
});

test("what would be removed is counted without what is wanted, and an unknown size makes the sum a least", () => {
  const kept = weight({ unwanted: false });
  assert.deepEqual(unwantedOf([kept]), { count: 0, words: "0 weights of 0 B on 0 nodes" });
  assert.equal(unwantedOf([kept, weight({}), weight({ node: "b" })]).words, "2 weights of 2 KiB on 2 nodes");
  assert.equal(unwantedOf([weight({}), weight({ bytes: null })]).words, "2 weights of at least 1 KiB on 1 node");
});
