import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { readOcrAnswer, renderOperation, textLength, type StringIndexType } from "./plain-ocr.ts";

const TARGET = { family: "documentintelligence", modelId: "prebuilt-read", apiVersion: "2024-11-30" } as const;
const TIMES = { createdAt: "2026-01-01T00:00:00.000Z", updatedAt: "2026-01-01T00:00:02.000Z" };

const answers: readonly (readonly [contentType: string, body: string, texts: readonly string[], format: string])[] = [
  ["text/plain; charset=utf-8", "Hello", ["Hello"], "text"],
  ["text/markdown", "# Hi", ["# Hi"], "markdown"],
  ["application/json", '{"text":"a"}', ["a"], "text"],
  ["application/json", '{"markdown":"# a"}', ["# a"], "markdown"],
  ["application/json", '{"pages":[{"text":"a"},{"content":"b"}]}', ["a", "b"], "text"],
  ["application/json", '{"pages":[{"markdown":"a"},"b"]}', ["a", "b"], "markdown"],
  ["application/json", '[{"text":"a"}]', ["a"], "text"],
  ["application/json", '"a"', ["a"], "text"],
  ["application/vnd.ocr+json", '{"content":""}', [""], "text"],
  ["application/json", '{"pages":[]}', [], "text"],
];
for (const [contentType, body, texts, format] of answers) {
  test(`${contentType} ${body} is read as ${texts.length} pages of ${format} [20.F2]`, () => {
    const reading = readOcrAnswer(contentType, body);
    assert.ok(reading.kind === "pages");
    assert.deepEqual(
      reading.pages.map((page) => page.text),
      texts,
    );
    assert.equal(reading.format, format);
  });
}

for (const [contentType, body] of [
  ["text/html", "<p>"],
  ["application/json", "{"],
  ["application/json", "{}"],
  ["application/json", "null"],
  ["application/json", '{"text":7}'],
  ["application/json", '{"pages":[{"text":"a"},{}]}'],
  ["", "a"],
] as const)
  test(`${contentType || "no content type"} ${body} is no OCR answer, and never an empty result [20.F2]`, () =>
    assert.equal(readOcrAnswer(contentType, body).kind, "unreadable"));

function operationOf(
  body: string,
  stringIndexType: StringIndexType,
  target: Parameters<typeof renderOperation>[0] = TARGET,
) {
  const reading = readOcrAnswer("application/json", body);
  assert.ok(reading.kind === "pages");
  const lengths = reading.pages.map((page) => textLength(page.text, stringIndexType));
  return JSON.parse(renderOperation(target, reading, lengths, stringIndexType, TIMES)) as {
    status: string;
    createdDateTime: string;
    analyzeResult: {
      apiVersion: string;
      content: string;
      contentFormat?: string;
      pages: { spans: { offset: number; length: number }[] }[];
    };
  };
}

test("pages become one content, with spans that find them, and nothing that nobody measured [20.F2]", () => {
  const { status, createdDateTime, analyzeResult } = operationOf(
    '{"pages":[{"text":"one","width":8.5,"height":11,"unit":"inch"},{"text":"two","width":-1,"unit":"league"}]}',
    "textElements",
  );
  assert.deepEqual([status, createdDateTime], ["succeeded", TIMES.createdAt]);
  assert.deepEqual(analyzeResult.pages, [
    { pageNumber: 1, width: 8.5, height: 11, unit: "inch", spans: [{ offset: 0, length: 3 }] },
    { pageNumber: 2, spans: [{ offset: 4, length: 3 }] },
  ]);
  assert.equal(analyzeResult.content, "one\ntwo");
});

test("the version that was asked for is told, and the content's format only where v4.0 has it [20.F2]", () => {
  const older = { family: "formrecognizer", modelId: "m1", apiVersion: "2023-07-31" } as const;
  const v3 = operationOf('{"text":"a"}', "textElements", older).analyzeResult;
  assert.deepEqual([v3.apiVersion, v3.contentFormat], ["2023-07-31", undefined]);
  const v4 = operationOf('{"text":"a"}', "textElements").analyzeResult;
  assert.deepEqual([v4.apiVersion, v4.contentFormat], ["2024-11-30", "text"]);
});

const graphemes = new Intl.Segmenter("en", { granularity: "grapheme" });
const split: Readonly<Record<StringIndexType, (text: string) => readonly string[]>> = {
  textElements: (text) => [...graphemes.segment(text)].map(({ segment }) => segment),
  unicodeCodePoint: (text) => [...text],
  utf16CodeUnit: (text) => text.split(""),
};
for (const type of ["textElements", "unicodeCodePoint", "utf16CodeUnit"] as const) {
  test(`spans in ${type} find each page's text in the content [20.F2]`, () => {
    // Page texts that neither begin nor end with what could join across the break.
    const page = fc.string({ unit: "grapheme", maxLength: 40 }).map((text) => `a${text}b`);
    fc.assert(
      fc.property(fc.array(page, { minLength: 1, maxLength: 5 }), (texts) => {
        const { analyzeResult } = operationOf(JSON.stringify(texts), type);
        const units = split[type](analyzeResult.content);
        for (const [index, { spans }] of analyzeResult.pages.entries()) {
          const { offset, length } = spans[0] ?? { offset: 0, length: 0 };
          assert.equal(units.slice(offset, offset + length).join(""), texts[index]);
        }
      }),
      { numRuns: 500 },
    );
  });
}

test("text elements are counted as Unicode has them, joined or not", () => {
  const units = fc.constantFrom(
    "a",
    "\n",
    "\r",
    "e\u0301",
    "👩🏽‍🚀",
    "🇩🇪",
    "한",
    "ᄒ",
    "ำ",
    "क्ष",
    "\u200d",
    "ﾞ",
    "🙂",
    "1️⃣",
  );
  fc.assert(
    fc.property(
      fc.oneof(
        fc.array(units).map((parts) => parts.join("")),
        fc.string({ unit: "binary" }),
      ),
      (text) => {
        assert.equal(textLength(text, "textElements"), split.textElements(text).length);
      },
    ),
    { numRuns: 3_000 },
  );
});
