import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { JsonTopScan, type ScannedObject } from "./json-scan.ts";
import { setMembers, spliceBody } from "./json-splice.ts";

const KEYS = ["model", "stream_options", "priority"];

function scan(chunks: readonly Buffer[]): ScannedObject {
  const scanner = new JsonTopScan(KEYS);
  for (const chunk of chunks) scanner.push(chunk);
  const result = scanner.end();
  assert.ok(result.kind === "object");
  return result;
}

function cutUp(bytes: Buffer, cuts: readonly number[]): Buffer[] {
  const places = [0, ...cuts.map((cut) => cut % (bytes.length + 1)).toSorted((a, b) => a - b), bytes.length];
  return places.slice(1).map((end, index) => bytes.subarray(places[index], end));
}

test("a value is replaced and a member put in, and every other byte stays", () => {
  const chunks = [Buffer.from('{ "mod'), Buffer.from('el" : "a" , "x":1.0}')];
  const scanned = scan(chunks);
  const spliced = spliceBody(
    chunks,
    setMembers(scanned, [
      { key: "priority", valueText: "-1" },
      { key: "model", valueText: '"b"' },
    ]),
  );
  assert.equal(Buffer.concat(spliced.chunks).toString(), '{"priority":-1, "model" : "b" , "x":1.0}');
  assert.equal(spliced.bytes, Buffer.concat(spliced.chunks).length);
});

test("a member put into an empty object has no comma behind it", () => {
  const chunks = [Buffer.from("{ }")];
  const set = (keys: string[]): string =>
    Buffer.concat(
      spliceBody(
        chunks,
        setMembers(
          scan(chunks),
          keys.map((key) => ({ key, valueText: "1" })),
        ),
      ).chunks,
    ).toString();
  assert.equal(set(["a"]), '{"a":1 }');
  assert.equal(set(["a", "b"]), '{"a":1,"b":1 }');
  assert.equal(set([]), "{ }");
});

test("without edits the chunks are the same objects", () => {
  const chunks = [Buffer.from("{"), Buffer.from("}")];
  const { chunks: out, bytes } = spliceBody(chunks, []);
  assert.ok(out[0] === chunks[0] && out[1] === chunks[1] && bytes === 2);
});

test("edits that overlap or lie outside the body are a fault of the caller", () => {
  const chunks = [Buffer.from("{}")];
  assert.throws(() => spliceBody(chunks, [{ start: 1, end: 3, text: "" }]));
  assert.throws(() => spliceBody(chunks, [{ start: 5, end: 5, text: "x" }]));
  assert.throws(() =>
    spliceBody(chunks, [
      { start: 0, end: 2, text: "" },
      { start: 1, end: 1, text: "" },
    ]),
  );
});

test("splicing equals cutting the joined text, for random chunks and edits", () => {
  const anyEdits = fc.array(fc.tuple(fc.nat(20), fc.nat(10), fc.string({ unit: "binary", maxLength: 5 })), {
    maxLength: 4,
  });
  fc.assert(
    fc.property(
      fc.uint8Array({ maxLength: 80 }),
      fc.array(fc.nat(), { maxLength: 6 }),
      anyEdits,
      (bytes, cuts, raw) => {
        const body = Buffer.from(bytes);
        let at = 0;
        const edits: { start: number; end: number; text: string }[] = [];
        for (const [gap, length, text] of raw) {
          const start = Math.min(body.length, at + gap);
          const end = Math.min(body.length, start + length);
          edits.push({ start, end, text });
          at = end;
        }
        const parts: Buffer[] = [];
        let from = 0;
        for (const { start, end, text } of edits) {
          parts.push(body.subarray(from, start), Buffer.from(text));
          from = end;
        }
        const expected = Buffer.concat([...parts, body.subarray(from)]);
        const spliced = spliceBody(cutUp(body, cuts), edits);
        assert.deepEqual(Buffer.concat(spliced.chunks), expected);
        assert.equal(spliced.bytes, expected.length);
      },
    ),
    { numRuns: 500 },
  );
});

test("an edited object reads back as the same object with the new values", () => {
  fc.assert(
    fc.property(
      fc.dictionary(fc.string(), fc.jsonValue()),
      fc.option(fc.jsonValue(), { nil: undefined }),
      fc.jsonValue(),
      fc.array(fc.nat()),
      (rest, model, next, cuts) => {
        const source: Record<string, unknown> = { ...rest, ...(model === undefined ? {} : { model }) };
        delete source["priority"];
        const chunks = cutUp(Buffer.from(JSON.stringify(source)), cuts);
        const scanned = scan(chunks);
        const edits = setMembers(scanned, [
          { key: "priority", valueText: "7" },
          { key: "model", valueText: JSON.stringify(next) },
        ]);
        const read = JSON.parse(Buffer.concat(spliceBody(chunks, edits).chunks).toString()) as Record<string, unknown>;
        const expected = JSON.parse(JSON.stringify({ ...source, priority: 7, model: next })) as Record<string, unknown>;
        assert.deepEqual(read, expected);
      },
    ),
    { numRuns: 300 },
  );
});
