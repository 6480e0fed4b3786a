import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { compileGlobs } from "./glob.ts";

/** By trying every split: slow, and plainly right. */
function naive(pattern: string, name: string): boolean {
  if (pattern === "") return name === "";
  const rest = pattern.slice(1);
  if (pattern[0] === "*") return naive(rest, name) || (name !== "" && naive(pattern, name.slice(1)));
  return name !== "" && (pattern[0] === "?" || pattern[0] === name[0]) && naive(rest, name.slice(1));
}

const rows: readonly { readonly patterns: readonly string[]; readonly name: string; readonly expect: boolean }[] = [
  { patterns: ["qwen*"], name: "qwen3.8-35b", expect: true },
  { patterns: ["qwen*"], name: "Qwen3", expect: false },
  { patterns: ["qwen*"], name: "my-qwen", expect: false },
  { patterns: ["gpt-4o", "llama-?b"], name: "llama-8b", expect: true },
  { patterns: ["llama-?b"], name: "llama-70b", expect: false },
  { patterns: ["a.b"], name: "axb", expect: false },
  { patterns: ["[ab]"], name: "a", expect: false },
  { patterns: ["*"], name: "", expect: true },
  { patterns: [], name: "a", expect: false },
];
for (const row of rows) {
  test(`[${row.patterns.join(", ")}] ${row.expect ? "allows" : "does not allow"} "${row.name}"`, () =>
    assert.equal(compileGlobs(row.patterns)(row.name), row.expect));
}

test("globs agree with trying every split", () => {
  const pattern = fc.string({ unit: fc.constantFrom("a", "b", "*", "?"), maxLength: 7 });
  const name = fc.string({ unit: fc.constantFrom("a", "b", "c"), maxLength: 8 });
  fc.assert(
    fc.property(fc.array(pattern, { maxLength: 3 }), name, (patterns, text) =>
      assert.equal(
        compileGlobs(patterns)(text),
        patterns.some((one) => naive(one, text)),
      ),
    ),
  );
});

test("a pattern that makes a backtracking matcher run for ever is done in bounded steps", () => {
  assert.equal(compileGlobs([`${"*a".repeat(100)}*b`])("a".repeat(256)), false);
});
