import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { TextTable } from "./text-table.ts";

test("a table gives the text of the bytes it is asked for, whatever it was asked before", () => {
  const table = new TextTable();
  fc.assert(
    fc.property(fc.array(fc.uint8Array({ maxLength: 70 }), { maxLength: 30 }), fc.nat(3), (texts, before) => {
      for (const text of [...texts, ...texts]) {
        const bytes = Buffer.concat([Buffer.alloc(before, 1), text, Buffer.from("behind")]);
        assert.equal(table.read(bytes, before, before + text.length), Buffer.from(text).toString("latin1"));
      }
    }),
  );
});

test("texts that share a place replace each other and stay themselves", () => {
  const table = new TextTable();
  const texts = Array.from({ length: 3_000 }, (_, i) => `value-${i}`);
  for (const text of [...texts, ...texts]) assert.equal(table.read(Buffer.from(text), 0, text.length), text);
});
