import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { parseContentLength } from "./content-length.ts";

test("a length is digits and nothing else", () => {
  for (const value of [
    "",
    " 5",
    "5 ",
    "+5",
    "-5",
    "0x5",
    "5, 5",
    "5.0",
    "1e3",
    "\u0665",
    "9007199254740992",
    "1".repeat(17),
  ])
    assert.equal(parseContentLength(value), -1, value);
  assert.equal(parseContentLength("9007199254740991"), Number.MAX_SAFE_INTEGER);
  assert.equal(parseContentLength("0000000000000005"), 5);
});

test("each length that can be told exactly is read as it is", () => {
  fc.assert(fc.property(fc.maxSafeNat(), (bytes) => assert.equal(parseContentLength(String(bytes)), bytes)));
});
