import assert from "node:assert/strict";
import { test } from "node:test";
import { CONTENT_LENGTH, headerTraits, TRANSFER_ENCODING } from "./header-traits.ts";

test("what a name says does not depend on its case, nor on what was asked before", () => {
  const first = headerTraits("X-Yardmaster-Class");
  for (let i = 0; i < 2_000; i++) headerTraits(`x-made-up-${i}`);
  assert.deepEqual(headerTraits("X-Yardmaster-Class"), first);
  assert.deepEqual(headerTraits("x-YARDMASTER-class"), first);
  assert.equal(first.lower, "x-yardmaster-class");
  assert.ok(first.requestStays && first.responseStays && !first.engineTakes && first.once !== 0);
});

test("framing fields are told apart, and from all others", () => {
  assert.equal(headerTraits("Content-Length").once, CONTENT_LENGTH);
  assert.equal(headerTraits("TRANSFER-ENCODING").once, TRANSFER_ENCODING);
  assert.equal(headerTraits("content-lengths").once, 0);
});

test("a name is a token of ASCII: one that only lower case would make one is none", () => {
  for (const name of ["a b", "a:", "", "a\r\n", "\u212aeep-alive", "é"])
    assert.equal(headerTraits(name).isToken, false, name);
  assert.ok(headerTraits("X-a!#$%&'*+.^_`|~9").isToken);
});
