import assert from "node:assert/strict";
import { test } from "node:test";
import { valueAt } from "./json-pointer.ts";

test("a pointer names members and items, with both escapes, and nothing that is not in the document", () => {
  const document = { a: { "b/c": [10, { "~d": null }], "": 1 }, length: 2 };
  const rows: readonly (readonly [string, unknown])[] = [
    ["", document],
    ["/a/b~1c/0", 10],
    ["/a/b~1c/1/~0d", null],
    ["/a/", 1],
    ["/length", 2],
    ["/a/b~1c/length", undefined],
    ["/a/b~1c/01", undefined],
    ["/a/b~1c/-", undefined],
    ["/a/b~1c/2", undefined],
    ["/a/b", undefined],
    ["/toString", undefined],
    ["/a/__proto__", undefined],
    ["/length/0", undefined],
  ];
  for (const [pointer, expected] of rows) assert.deepEqual(valueAt(document, pointer), expected, pointer);
});
