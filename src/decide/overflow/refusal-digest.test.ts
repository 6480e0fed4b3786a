import assert from "node:assert/strict";
import { test } from "node:test";
import type { MonoMs } from "../../kernel/clock.ts";
import { RefusalDigest } from "./refusal-digest.ts";

const at = (seconds: number): MonoMs => (seconds * 1_000) as MonoMs;

test("the first refusal of a kind is told at once, those of a minute after it as a number with the next [80.O3]", () => {
  const digest = new RefusalDigest();
  assert.equal(digest.note("a", at(0)), 0);
  assert.equal(digest.note("b", at(1)), 0);
  assert.equal(digest.note("a", at(2)), null);
  assert.equal(digest.note("a", at(59)), null);
  assert.equal(digest.note("a", at(60)), 2);
  assert.equal(digest.note("a", at(61)), null);
  assert.equal(digest.note("a", at(200)), 1);
});

test("kinds are bounded, and one that was forgotten is told again [80.I9]", () => {
  const digest = new RefusalDigest();
  for (let n = 0; n <= 1_000; n += 1) assert.equal(digest.note(`k${n}`, at(0)), 0);
  assert.equal(digest.note("k1000", at(1)), null);
  assert.equal(digest.note("k0", at(1)), 0);
});
