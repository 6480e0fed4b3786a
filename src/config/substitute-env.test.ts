import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { parseDocument } from "yaml";
import { coreScalar, substituteEnv } from "./substitute-env.ts";
import type { Substitution } from "./substitute-env.ts";

const env = { A: "one", EMPTY: "", NESTED: "${A}" };
const text = (value: string, fromEnv: boolean, whole = false): Substitution => ({
  kind: "text",
  text: value,
  fromEnv,
  whole,
});

const rows: readonly { readonly name: string; readonly input: string; readonly expect: Substitution | "invalid" }[] = [
  { name: "a plain text stays", input: "a $b {c}", expect: text("a $b {c}", false) },
  { name: "a reference alone is told apart from one in a text", input: "${A}", expect: text("one", true, true) },
  { name: "references are filled in where they stand", input: "<${A}-${A}>", expect: text("<one-one>", true) },
  { name: "a doubled dollar sign is a plain one", input: "$${A} ${A}", expect: text("${A} one", true) },
  { name: "a value is not looked into again", input: "${NESTED}", expect: text("${A}", true, true) },
  {
    name: "a default stands in for an unset variable",
    input: "${B:-two words: yes}",
    expect: text("two words: yes", true, true),
  },
  { name: "a default stands in for an empty variable", input: "${EMPTY:-x}", expect: text("x", true, true) },
  { name: "an empty default is a default", input: "${B:-}", expect: text("", true, true) },
  { name: "an empty variable is empty", input: "a${EMPTY}b", expect: text("ab", true) },
  { name: "an unset variable is a mistake", input: "${B}", expect: "invalid" },
  { name: "what every object inherits is not set", input: "${toString}", expect: "invalid" },
  { name: "an open reference is a mistake", input: "${A", expect: "invalid" },
  { name: "other shell forms are mistakes", input: "${A-x}", expect: "invalid" },
  { name: "a reference inside a default is a mistake", input: "${B:-${A}}", expect: "invalid" },
];
for (const row of rows) {
  test(row.name, () => {
    const result = substituteEnv(row.input, env);
    assert.deepEqual(row.expect === "invalid" ? result.kind : result, row.expect);
  });
}

test("any value comes through as it is, and text without references does not change", () => {
  fc.assert(
    fc.property(
      fc.oneof(fc.string(), fc.string({ unit: fc.constantFrom("$", "{", "}", "A", ":", "-") })),
      fc.string().filter((plain) => !plain.includes("${")),
      (value, plain) => {
        assert.deepEqual(substituteEnv("${V}", { V: value }), text(value, true, true));
        assert.deepEqual(substituteEnv(plain, { V: value }), text(plain, false));
        const escaped = substituteEnv(
          value.replaceAll("${", () => "$${"),
          {},
        );
        if (!/\$\$\{/.test(value)) assert.deepEqual(escaped, text(value, false));
      },
    ),
  );
});

test("a text that can't stand alone in YAML is a text", () => {
  for (const value of ["-", "- a", "[", "{}", "*a", "#"]) assert.equal(coreScalar(value), value);
});

test("a reference alone gets the type that YAML 1.2 gives the same text", () => {
  for (const value of [
    "1",
    "-1",
    "+1",
    "1.5",
    ".5",
    "1.",
    "1e3",
    "0x1F",
    "0o17",
    "true",
    "True",
    "TRUE",
    "tRue",
    "yes",
    "null",
    "~",
    "",
    "a",
    "1_000",
    "0b1",
    ".",
  ]) {
    assert.deepEqual(coreScalar(value), parseDocument(`v: ${value}`, { version: "1.2" }).get("v") ?? null, value);
  }
});
