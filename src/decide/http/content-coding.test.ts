import assert from "node:assert/strict";
import { test } from "node:test";
import { codingToUndo, type ContentCoding } from "./content-coding.ts";

const rows: readonly (readonly [said: string, accept: string | undefined, undo: ContentCoding | undefined])[] = [
  ["gzip", undefined, "gzip"],
  [" GZIP ", "identity", "gzip"],
  ["x-gzip", "br", "gzip"],
  ["x-gzip", "gzip", undefined],
  ["br", "gzip, br;q=0.5", undefined],
  ["br", "gzip, br;q=0", "br"],
  ["zstd", "gzip, *", undefined],
  ["zstd", "*, zstd;q=0.000", "zstd"],
  ["deflate", "*;q=0", "deflate"],
  ["identity", undefined, undefined],
  ["compress", undefined, undefined],
  ["gzip, br", undefined, undefined],
];
for (const [said, accept, undo] of rows)
  test(`of ${JSON.stringify(said)} for a client that takes ${JSON.stringify(accept)} ${undo ?? "nothing"} is undone [10.X3]`, () =>
    assert.equal(codingToUndo(said, accept), undo));
