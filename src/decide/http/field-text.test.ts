import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { isAsciiFieldText, isFieldText } from "./field-text.ts";

const anyText = fc.string({ unit: "binary", maxLength: 40 });

test("what can be sent as a header's value is what the pattern of the field's grammar takes", () => {
  fc.assert(
    fc.property(anyText, (text) => {
      assert.equal(isFieldText(text), /^[\t\x20-\x7e\x80-\xff]*$/.test(text));
      assert.equal(isAsciiFieldText(text), /^[\t\x20-\x7e]*$/.test(text));
    }),
  );
});

test("each single character is judged as the pattern judges it", () => {
  for (let code = 0; code < 0x120; code++) {
    const text = `a${String.fromCharCode(code)}`;
    assert.equal(isFieldText(text), /^[\t\x20-\x7e\x80-\xff]*$/.test(text), String(code));
    assert.equal(isAsciiFieldText(text), /^[\t\x20-\x7e]*$/.test(text), String(code));
  }
});
