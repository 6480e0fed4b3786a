import assert from "node:assert/strict";
import { test } from "node:test";
import { refusalOfOcrQuery } from "./plain-ocr-query.ts";

const V4 = { family: "documentintelligence", modelId: "prebuilt-read", apiVersion: "2024-11-30" } as const;

const table: readonly (readonly [query: string, refused: RegExp | undefined])[] = [
  ["?api-version=2024-11-30", undefined],
  ["?api-version=2024-11-30&locale=de&outputContentFormat=markdown&stringIndexType=utf16CodeUnit", undefined],
  ["?api-version=2024-11-30&pages=1-2", /`pages`/],
  ["?api-version=2024-11-30&features=barcodes", /`features`/],
  ["?api-version=2024-11-30&output=pdf", /`output`/],
  ["?api-version=2024-11-30&stringIndexType=bytes", /stringIndexType is one of/],
];
for (const [query, refused] of table) {
  test(`to a plain OCR engine ${query} is ${refused === undefined ? "met" : "refused with its reason"} [20.F2]`, () => {
    const why = refusalOfOcrQuery(V4, query);
    if (refused === undefined) assert.equal(why, undefined);
    else assert.match(why ?? "", refused);
  });
}

test("a version that could only be claimed is refused", () => {
  assert.match(refusalOfOcrQuery({ ...V4, apiVersion: "2031-01-01" }, "?api-version=2031-01-01") ?? "", /2024-11-30/);
});
