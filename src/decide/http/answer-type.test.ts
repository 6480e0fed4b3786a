import assert from "node:assert/strict";
import { test } from "node:test";
import { isReadAsJson, mayAnswerWith, type AnswerKind } from "./answer-type.ts";

const rows: readonly (readonly [type: string, may: readonly AnswerKind[], read: readonly AnswerKind[]])[] = [
  ["application/json; charset=utf-8", ["json", "vectors", "any"], ["json", "vectors", "any"]],
  ["application/problem+json", ["json", "vectors", "any"], ["json", "vectors", "any"]],
  ["application/x-ndjson", ["json", "vectors", "any"], []],
  ["application/jsonl; charset=utf-8", ["json", "vectors", "any"], []],
  ["application/json-seq", ["json", "vectors", "any"], []],
  ["", ["json", "vectors", "any"], ["json", "vectors"]],
  ["application/octet-stream", ["vectors", "any"], []],
  ["text/plain", ["any"], []],
  ["audio/mpeg", ["any"], []],
];
const KINDS: readonly AnswerKind[] = ["json", "vectors", "any"];
for (const [type, may, read] of rows)
  test(`an answer labelled ${JSON.stringify(type)} fits the routes that answer so, and is read as what it is [80.A10]`, () => {
    assert.deepEqual(
      [KINDS.filter((kind) => mayAnswerWith(kind, type)), KINDS.filter((kind) => isReadAsJson(kind, type))],
      [may, read],
    );
  });
