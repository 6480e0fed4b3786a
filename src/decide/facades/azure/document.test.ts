import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { contentTypeOf, decodeBase64, readDocument } from "./document.ts";

const read = (contentType: string | undefined, body: string) => readDocument(contentType, [Buffer.from(body)]);
const JSON_TYPE = "application/json; charset=utf-8";

const taken: readonly (readonly [contentType: string, body: string, kind: string])[] = [
  ["application/pdf", "%PDF", "bytes"],
  ["Image/PNG", "x", "bytes"],
  ["application/octet-stream", "x", "bytes"],
  ["text/html; charset=utf-8", "<p>", "bytes"],
  ["application/vnd.openxmlformats-officedocument.wordprocessingml.document", "PK", "bytes"],
  [JSON_TYPE, '{"base64Source":"JVBERg=="}', "base64"],
  [JSON_TYPE, '{"urlSource":"http://h/a.pdf"}', "url"],
  [JSON_TYPE, '{"urlSource":null,"base64Source":"JVBERg=="}', "base64"],
];
for (const [contentType, body, kind] of taken)
  test(`${contentType} with ${body} is a document: ${kind} [20.F2]`, () =>
    assert.equal(read(contentType, body).kind, kind));

const refused: readonly (readonly [contentType: string | undefined, body: string, inner: string])[] = [
  ["application/pdf", "", "InvalidContentLength"],
  [undefined, "x", "UnsupportedMediaType"],
  ["video/mp4", "x", "UnsupportedMediaType"],
  ["multipart/form-data; boundary=x", "x", "UnsupportedMediaType"],
  [JSON_TYPE, "{}", "InvalidArgument"],
  [JSON_TYPE, "[]", "InvalidArgument"],
  [JSON_TYPE, "{", "InvalidArgument"],
  [JSON_TYPE, '{"urlSource":"http://h","base64Source":"eA=="}', "InvalidArgument"],
  [JSON_TYPE, '{"urlSource":7}', "InvalidArgument"],
  [JSON_TYPE, '{"base64Source":""}', "InvalidArgument"],
  [JSON_TYPE, '{"base64Source":{"a":1}}', "InvalidArgument"],
];
for (const [contentType, body, inner] of refused) {
  test(`${contentType ?? "no content type"} with ${body || "nothing"} is refused as ${inner} [20.F2]`, () => {
    const reading = read(contentType, body);
    assert.ok(reading.kind === "bad" && reading.inner === inner);
    assert.equal(reading.status, inner === "UnsupportedMediaType" ? 415 : 400);
  });
}

function decode(json: Buffer, cuts: readonly number[]): Buffer | undefined {
  const ends = [...cuts.map((cut) => cut % json.length).toSorted((a, b) => a - b), json.length];
  const chunks = ends.map((end, index) => json.subarray(ends[index - 1] ?? 0, end));
  const reading = readDocument("application/json", chunks);
  if (reading.kind !== "base64") return undefined;
  const parts: Buffer[] = [];
  const steps = decodeBase64(chunks, reading);
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step.value ? Buffer.concat(parts) : undefined;
    parts.push(step.value);
  }
}

test("a base64 source decodes to its bytes, however it is cut, escaped and padded [20.F2]", () => {
  fc.assert(
    fc.property(
      fc.uint8Array({ minLength: 1, maxLength: 200 }),
      fc.array(fc.nat(), { maxLength: 5 }),
      fc.boolean(),
      fc.boolean(),
      (bytes, cuts, escapes, padded) => {
        const base64 = Buffer.from(bytes).toString("base64");
        const text = padded ? base64 : base64.replaceAll("=", "");
        const json = JSON.stringify({ other: [1], base64Source: text });
        const decoded = decode(Buffer.from(escapes ? json.replaceAll("/", "\\/") : json), cuts);
        assert.deepEqual(decoded, Buffer.from(bytes));
      },
    ),
    { numRuns: 1_000 },
  );
});

test("a large base64 source comes in steps of about a megabyte", () => {
  const bytes = Buffer.alloc(5_000_000, 7);
  const body = Buffer.from(JSON.stringify({ base64Source: bytes.toString("base64") }));
  const reading = readDocument("application/json", [body]);
  assert.ok(reading.kind === "base64");
  const parts = [...decodeBase64([body], reading)];
  assert.ok(parts.length > 5 && parts.every((part) => part.length <= 1_048_576));
  assert.deepEqual(Buffer.concat(parts), bytes);
});

for (const text of ["a", "ab=c", "ab==cd==", "a b=", "ab-_", "====", "abcde"]) {
  test(`${JSON.stringify(text)} is no base64`, () => {
    assert.equal(decode(Buffer.from(JSON.stringify({ base64Source: text })), []), undefined);
  });
}

test("a document's first bytes tell its kind", () => {
  assert.deepEqual(
    ["%PDF-1.7", "\x89PNG\r\n\x1a\n", "\xff\xd8\xff\xe0", "II*\0", "MM\0*", "BM6", "plain"].map((text) =>
      contentTypeOf(Buffer.from(text, "latin1")),
    ),
    ["application/pdf", "image/png", "image/jpeg", "image/tiff", "image/tiff", "image/bmp", "application/octet-stream"],
  );
});
