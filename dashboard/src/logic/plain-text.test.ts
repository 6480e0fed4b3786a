import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { plainLines, plainText } from "./plain-text.ts";

const rows: readonly (readonly [string, string, string])[] = [
  ["markup stays what it is", "<img src=x onerror=alert(1)>", "<img src=x onerror=alert(1)>"],
  ["a terminal's escape is seen", "\u001B[31mred", "⟨001B⟩[31mred"],
  ["a turn of direction is seen", "abc\u202Egpj.exe", "abc⟨202E⟩gpj.exe"],
  ["what has no width is seen", "a\u200Bb\uFEFF", "a⟨200B⟩b⟨FEFF⟩"],
  ["NUL is seen", "a\u0000b", "a⟨0000⟩b"],
];
for (const [name, text, wanted] of rows)
  test(`${name} in a text from outside`, () => assert.equal(plainText(text), wanted));

test("a name of 100 kB is cut, and says so [80.D36]", () => {
  const cut = plainText("x".repeat(100_000));
  assert.equal(cut.length, 301);
  assert.ok(cut.endsWith("…"));
});

test("the lines of a log stay lines, and nothing else that hides is left [80.D36]", () => {
  assert.equal(plainLines("a\r\nb\u001B]0;title\u0007", 100), "a\nb⟨001B⟩]0;title⟨0007⟩");
  fc.assert(
    fc.property(fc.string({ unit: "binary", maxLength: 200 }), (text) => {
      for (const char of plainLines(text, 1_000)) {
        const code = char.codePointAt(0) ?? 0;
        assert.ok(code >= 32 || char === "\n" || char === "\t", code.toString(16));
        assert.ok(code < 0x7f || code > 0x9f);
        assert.ok(code < 0x202a || code > 0x202e);
      }
    }),
  );
});
