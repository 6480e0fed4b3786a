import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import { analyseThrough, READ_V3, READ_V4 } from "../../../testing/analyzer/analyse-through.ts";
import { startFakeOcrEngine, type OcrAnswer } from "../../../testing/analyzer/fake-ocr-engine.ts";

const upstream = { engine: "ocr", ocr_path: "/v1/read" };
const sha256 = (bytes: Buffer): string => createHash("sha256").update(bytes).digest("hex");

interface Operation {
  readonly status: string;
  readonly analyzeResult: { readonly apiVersion: string; readonly content: string; readonly stringIndexType: string };
}

test("a plain OCR engine gets the document's bytes, and its text comes back as the service's result [20.F2]", async () => {
  await using engine = await startFakeOcrEngine();
  const body = Buffer.from("%PDF-1.7 a scan");
  const told = await analyseThrough({ url: `${engine.url}/behind`, body, upstream, path: READ_V3 }).told;
  assert.ok(told.kind === "answer" && told.status === 200);
  const { status, analyzeResult } = JSON.parse(told.body) as Operation;
  assert.deepEqual([status, analyzeResult.content], ["succeeded", "Hello from the scanner"]);
  assert.deepEqual([analyzeResult.apiVersion, analyzeResult.stringIndexType], ["2023-07-31", "textElements"]);
  const [call] = engine.calls;
  assert.deepEqual([call?.path, call?.contentType, call?.sha256], ["/behind/v1/read", "application/pdf", sha256(body)]);
});

test("a base64 source reaches it as the bytes and with the content type that they are [20.F2]", async () => {
  await using engine = await startFakeOcrEngine();
  const document = Buffer.concat([Buffer.from("\x89PNG\r\n", "latin1"), Buffer.alloc(2_500_000, 9)]);
  const told = await analyseThrough({
    url: engine.url,
    contentType: "application/json",
    body: JSON.stringify({ base64Source: document.toString("base64") }),
    path: `${READ_V4}&stringIndexType=utf16CodeUnit`,
    upstream,
  }).told;
  assert.ok(told.kind === "answer");
  assert.equal((JSON.parse(told.body) as Operation).analyzeResult.stringIndexType, "utf16CodeUnit");
  assert.deepEqual([engine.calls[0]?.contentType, engine.calls[0]?.sha256], ["image/png", sha256(document)]);
});

test("a key of its own goes to it as a bearer", async () => {
  await using engine = await startFakeOcrEngine();
  const env = { OCR_KEY: "CANARY-ocr-key" };
  await analyseThrough({ url: engine.url, upstream: { ...upstream, key_env: "OCR_KEY" }, env }).told;
  assert.ok(engine.calls[0]?.headers.includes("Bearer CANARY-ocr-key"));
});

const answers: readonly (readonly [what: string, answer: OcrAnswer, told: string])[] = [
  ["its own refusal passes", { status: 422, body: { error: "blank page" } }, "422"],
  ["its 503 passes", { status: 503, body: "" }, "503"],
  ["a page of HTML is no text", { contentType: "text/html", body: "<p>" }, "protocol"],
  ["JSON without a text is no result", { body: { ok: true } }, "protocol"],
  ["half a JSON is no result", { contentType: "application/json", body: '{"text":"a' }, "protocol"],
  ["a broken connection is one", { reset: true }, "reset"],
  ["more text than there can be is none", { body: "x".repeat(5_000_000) }, "protocol"],
  ["an empty page is a result", { body: { text: "" } }, "200"],
];
for (const [what, answer, expected] of answers) {
  test(`${what}: ${expected} [20.F2]`, async () => {
    await using engine = await startFakeOcrEngine();
    engine.answer(answer);
    const analysis = analyseThrough({ url: engine.url, upstream });
    const told = await analysis.told;
    assert.equal(told.kind === "answer" ? String(told.status) : told.failure, expected);
    assert.equal(analysis.late(), 0);
  });
}

test("bad base64, and a document that is only named, reach no engine", async () => {
  await using engine = await startFakeOcrEngine();
  for (const source of [{ base64Source: "not base64!" }, { urlSource: `${engine.url}/secret` }]) {
    const body = JSON.stringify(source);
    const told = await analyseThrough({ url: engine.url, contentType: "application/json", body, upstream }).told;
    assert.equal(told.kind === "error" && told.failure, "protocol");
  }
  assert.deepEqual(engine.calls, []);
});
