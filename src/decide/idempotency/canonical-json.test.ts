import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { canonicalJson } from "./canonical-json.ts";

const equal: readonly (readonly [string, string])[] = [
  ['{"a":1,"b":2}', '{ "b": 2,\n "a": 1 }'],
  ['"\\u0061\\/"', '"a/"'],
  ["[1.0,1e2,-0,0.50]", "[1,100,0,0.5]"],
  ['{"x":{"d":[],"c":{}}}', '{"x":{"c":{},"d":[]}}'],
  ["  true ", "true"],
];
for (const [a, b] of equal) {
  test(`${a} means the same as ${JSON.stringify(b)} [80.C27]`, () => {
    assert.notEqual(canonicalJson(a), undefined);
    assert.equal(canonicalJson(a), canonicalJson(b));
  });
}

const different: readonly (readonly [string, string])[] = [
  ["[1,2]", "[2,1]"],
  ['{"seed":9007199254740993}', '{"seed":9007199254740992}'],
  ['{"a":null}', "{}"],
  ['"1"', "1"],
  ['{"a":"\\ud800"}', '{"a":"\\ud801"}'],
];
for (const [a, b] of different)
  test(`${a} is not taken for ${b} [80.C27]`, () => assert.notEqual(canonicalJson(a), canonicalJson(b)));

const refused = [
  "",
  "{",
  '{"a":1,}',
  "[1 2]",
  "01",
  "+1",
  "NaN",
  "'a'",
  '"\t"',
  '{"a":1}x',
  '{"a":1,"a":2}',
  '{"a":1,"\\u0061":2}',
  "[".repeat(200) + "]".repeat(200),
];
for (const text of refused)
  test(`${JSON.stringify(text.slice(0, 40))} has no canonical form`, () =>
    assert.equal(canonicalJson(text), undefined));

// JSON.parse keeps -0, which means 0 everywhere else.
const parsed = (text: string): unknown => JSON.parse(text, (_name, value: unknown) => (value === 0 ? 0 : value));

test("any JSON reads back as what it was, and its canonical form is its own [80.C27]", () => {
  fc.assert(
    fc.property(fc.json({ maxDepth: 5 }), (text) => {
      const canonical = canonicalJson(text);
      assert.ok(canonical !== undefined);
      assert.deepEqual(parsed(canonical), parsed(text));
      assert.equal(canonicalJson(canonical), canonical);
    }),
    { numRuns: 2_000 },
  );
});

test("reads whatever JSON.parse reads, but for names that come twice, and nothing else", () => {
  fc.assert(
    fc.property(fc.string({ unit: fc.constantFrom(...'{}[]":,0123456789eE+-.tfn \\u\n') }), (text) => {
      let parses = true;
      try {
        JSON.parse(text);
      } catch {
        parses = false;
      }
      if (!parses) assert.equal(canonicalJson(text), undefined);
    }),
    { numRuns: 5_000 },
  );
});

test("a long text takes time in proportion to its length", () => {
  const long = JSON.stringify({ a: "x\\n".repeat(80_000), b: Array.from({ length: 20_000 }, (_, i) => i) });
  assert.equal(canonicalJson(long)?.length, long.length);
});
