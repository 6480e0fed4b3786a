import assert from "node:assert/strict";
import { test } from "node:test";
import { bodyFingerprint } from "./body-fingerprint.ts";

const of = (text: string, about: readonly string[] = ["POST", "/v1/x"], isJson = true): string =>
  bodyFingerprint(about, [Buffer.from(text)], isJson);

test("the same JSON in another spelling has the same fingerprint, other content another one", () => {
  assert.equal(of('{"a":1,"b":[true,"x"]}'), of('{ "b" : [ true , "\\u0078" ], "a" : 1.0 }'));
  assert.notEqual(of('{"a":1}'), of('{"a":2}'));
  assert.notEqual(of('{"a":1}'), of('{"a":1}', ["POST", "/v1/y"]));
  assert.notEqual(of("ab", ["c", "d"], false), of("ab", ["cd", ""], false));
});

test("how the bytes came in pieces does not count", () => {
  const whole = Buffer.from('{"model":"m","n":1}');
  const pieces = [whole.subarray(0, 3), whole.subarray(3, 4), whole.subarray(4)];
  assert.equal(bodyFingerprint(["p"], pieces, true), bodyFingerprint(["p"], [whole], true));
});

test("what is no JSON, or is too large to be read, is compared byte by byte", () => {
  assert.notEqual(of("a b", undefined, false), of("a  b", undefined, false));
  const large = (blank: string): string => `{"a":${blank}"${"x".repeat(300_000)}"}`;
  assert.notEqual(of(large("")), of(large(" ")));
  assert.notEqual(of('{"a":1}'), of('{"a":1}', undefined, false));
});
