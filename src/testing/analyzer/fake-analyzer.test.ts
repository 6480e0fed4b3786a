import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import createClient, {
  getLongRunningPoller,
  isUnexpected,
  parseResultIdFromResponse,
  type AnalyzeOperationOutput,
} from "@azure-rest/ai-document-intelligence";
import { VirtualClock } from "../virtual-clock.ts";
import type { AnalyzerAction } from "./analyzer-script.ts";
import { startFakeAnalyzer, type FakeAnalyzer } from "./fake-analyzer.ts";

// The fake is driven by the service's own client first, so that what is tested against it is tested against the protocol.

const PDF = Buffer.from("%PDF-1.7 a document of the test");
const clientOf = (analyzer: FakeAnalyzer, key = "k") =>
  createClient(analyzer.url, { key }, { allowInsecureConnection: true, retryOptions: { maxRetries: 0 } });
const BY_NOW = { retryAfterS: 0 } as const;

async function analyse(analyzer: FakeAnalyzer, body: { readonly base64Source: string } | Buffer) {
  const path = clientOf(analyzer).path("/documentModels/{modelId}:analyze", "prebuilt-read");
  const initial = Buffer.isBuffer(body)
    ? await path.post({ contentType: "application/pdf", body })
    : await path.post({ contentType: "application/json", body });
  if (isUnexpected(initial)) throw new Error(initial.body.error.innererror?.code ?? initial.body.error.code);
  const response = await getLongRunningPoller(clientOf(analyzer), initial, { intervalInMs: 5 }).pollUntilDone();
  return { initial, operation: response.body as AnalyzeOperationOutput };
}

test("the official client submits a document's bytes, polls and reads the result", async () => {
  await using analyzer = await startFakeAnalyzer({ analyzeMs: 40 });
  analyzer.script({ do: BY_NOW });
  const { initial, operation } = await analyse(analyzer, PDF);
  assert.equal(initial.status, "202");
  assert.equal(operation.status, "succeeded");
  const sha256 = createHash("sha256").update(PDF).digest("hex");
  assert.ok(operation.analyzeResult?.content.includes(sha256));
  assert.equal(operation.analyzeResult?.apiVersion, "2024-11-30");
  const [entry] = analyzer.ledger().operations;
  assert.equal(entry?.id, parseResultIdFromResponse(initial));
  assert.deepEqual([entry?.contentType, entry?.bodySha256, entry?.delivered], ["application/pdf", sha256, true]);
  assert.ok((entry?.looks ?? 0) > 1);
});

test("both JSON sources are taken, and neither together nor nothing", async () => {
  await using analyzer = await startFakeAnalyzer();
  analyzer.script({ do: BY_NOW });
  assert.equal((await analyse(analyzer, { base64Source: PDF.toString("base64") })).operation.status, "succeeded");
  await assert.rejects(analyse(analyzer, { base64Source: "", urlSource: "http://h/" } as never), /InvalidArgument/);
  await assert.rejects(analyse(analyzer, {} as never), /InvalidArgument/);
  await assert.rejects(analyse(analyzer, Buffer.alloc(0)), /InvalidContentLength/);
});

test("a failed analysis is status 200 with its error, which the client raises", async () => {
  await using analyzer = await startFakeAnalyzer();
  analyzer.script({
    do: { ...BY_NOW, end: "failed", error: { code: "InvalidContent", message: "The file is corrupted." } },
  });
  await assert.rejects(analyse(analyzer, PDF), /InvalidContent/);
});

test("the older path family answers under its own versions, and only those", async () => {
  await using analyzer = await startFakeAnalyzer();
  const submit = (family: string, version: string): Promise<Response> =>
    fetch(`${analyzer.url}/${family}/documentModels/prebuilt-read:analyze?api-version=${version}`, {
      method: "POST",
      headers: { "content-type": "application/pdf" },
      body: PDF,
    });
  for (const [family, version, status] of [
    ["formrecognizer", "2023-07-31", 202],
    ["formrecognizer", "2022-08-31", 202],
    ["formrecognizer", "2024-11-30", 404],
    ["documentintelligence", "2023-07-31", 404],
  ] as const)
    assert.equal((await submit(family, version)).status, status, `${family} ${version}`);
  const location = (await submit("formrecognizer", "2023-07-31")).headers.get("operation-location") ?? "";
  const operation = (await (await fetch(location)).json()) as AnalyzeOperationOutput;
  assert.equal(operation.analyzeResult?.apiVersion, "2023-07-31");
  assert.equal((await fetch(location, { method: "DELETE" })).status, 405);
});

test("what is deleted, lost by a restart or past its retention is unknown", async () => {
  const clock = new VirtualClock();
  await using analyzer = await startFakeAnalyzer({ clock, retentionMs: 1_000, analyzeMs: 100 });
  const submit = async (): Promise<string> => {
    const initial = await clientOf(analyzer)
      .path("/documentModels/{modelId}:analyze", "prebuilt-read")
      .post({ contentType: "application/pdf", body: PDF });
    return initial.headers["operation-location"] ?? "";
  };
  const look = async (location: string): Promise<string> => {
    const answer = await fetch(location);
    const { status, error } = (await answer.json()) as { status?: string; error?: { innererror?: { code: string } } };
    return status ?? error?.innererror?.code ?? "";
  };
  const [deleted, lost, kept] = [await submit(), await submit(), await submit()];
  assert.deepEqual([analyzer.ledger().runningNow, analyzer.ledger().runningPeak], [3, 3]);
  assert.equal(await look(kept), "running");
  assert.equal((await fetch(deleted, { method: "DELETE" })).status, 204);
  assert.equal(await look(deleted), "OperationNotFound");
  await clock.advance(100);
  assert.equal(await look(kept), "succeeded");
  await clock.advance(1_000);
  assert.equal(await look(kept), "OperationNotFound");
  analyzer.restart();
  assert.equal(await look(lost), "OperationNotFound");
});

const faults: readonly (readonly [name: string, action: AnalyzerAction, seen: RegExp])[] = [
  ["429 with its text", { submitStatus: 429 }, /^429 retry-after=1 .*retry after 1 second/],
  ["a server error", { submitStatus: 503, retryAfterS: null }, /^503 retry-after=null .*InternalServerError/],
  ["a reset before the document is taken in", { submitReset: "before" }, /^broken 0$/],
  ["a reset after it", { submitReset: "after" }, /^broken 1$/],
  ["no Operation-Location", { location: "absent" }, /^202 location=null/],
  ["one on another host", { location: "elsewhere" }, /^202 location=http:\/\/elsewhere\.invalid/],
  ["garbage in place of a state", { lookGarbage: "halfJson" }, /look=200 \{"status":"succ$/],
  ["success without a result", { lookGarbage: "noResult" }, /look=200 (?!.*analyzeResult)/],
  ["a spoilt first look", { lookStatus: 503, spoiltLooks: 1 }, /look=503 .* look=200/],
  ["a reset look", { lookReset: true, spoiltLooks: 1 }, /look=broken look=200/],
  ["an operation lost after one look", { lostAfterLooks: 1 }, /look=200 .* look=404/],
  ["one that never ends", { end: "never" }, /look=200 \{"status":"running".* look=200 \{"status":"running"/],
  ["one that has not begun", { startMs: 60_000 }, /look=200 \{"status":"notStarted"/],
];
for (const [name, action, seen] of faults) {
  test(`on request it gives ${name}`, async () => {
    await using analyzer = await startFakeAnalyzer();
    analyzer.script({ match: { holds: "%PDF", times: 1 }, do: action });
    const submitted = await fetch(
      `${analyzer.url}/documentintelligence/documentModels/prebuilt-read:analyze?api-version=2024-11-30`,
      {
        method: "POST",
        headers: { "content-type": "application/pdf" },
        body: PDF,
      },
    ).catch(() => undefined);
    const parts: string[] = [];
    if (submitted === undefined) parts.push(`broken ${analyzer.ledger().operations.length}`);
    else if (submitted.status !== 202)
      parts.push(`${submitted.status} retry-after=${submitted.headers.get("retry-after")} ${await submitted.text()}`);
    else {
      const location = submitted.headers.get("operation-location");
      parts.push(`202 location=${location}`);
      const own = `${analyzer.url}${new URL(analyzer.ledger().operations[0]?.id ?? "", "http://x/documentintelligence/documentModels/prebuilt-read/analyzeResults/").pathname}?api-version=2024-11-30`;
      for (let look = 0; look < 2; look += 1) {
        const answer = await fetch(own).catch(() => undefined);
        parts.push(
          answer === undefined ? "look=broken" : `look=${answer.status} ${(await answer.text()).slice(0, 300)}`,
        );
      }
    }
    assert.match(parts.join(" "), seen);
  });
}

test("its account and its script are reached over HTTP", async () => {
  await using analyzer = await startFakeAnalyzer({ key: "right" });
  const script = JSON.stringify({ do: { submitStatus: 500 } });
  assert.equal((await fetch(`${analyzer.url}/fake/script`, { method: "POST", body: script })).status, 204);
  const submit = (key: string) =>
    clientOf(analyzer, key)
      .path("/documentModels/{modelId}:analyze", "prebuilt-read")
      .post({ contentType: "application/pdf", body: PDF });
  assert.equal((await submit("right")).status, "500");
  assert.equal((await submit("wrong")).status, "401");
  await fetch(`${analyzer.url}/fake/script`, { method: "DELETE" });
  assert.equal((await submit("right")).status, "202");
  const ledger = (await (await fetch(`${analyzer.url}/fake/ledger`)).json()) as ReturnType<FakeAnalyzer["ledger"]>;
  assert.deepEqual([ledger.submits, ledger.refused, ledger.operations.length], [2, 1, 1]);
});
