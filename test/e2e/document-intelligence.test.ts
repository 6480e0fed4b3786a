import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, beforeEach, test } from "node:test";
import { startFakeAnalyzer, type FakeAnalyzer } from "../../src/testing/analyzer/fake-analyzer.ts";
import { startFakeOcrEngine, type FakeOcrEngine } from "../../src/testing/analyzer/fake-ocr-engine.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { documentClient, submitDocument } from "./support/document-client.ts";
import { jobOf } from "./support/jobs.ts";
import { startTestGateway, type TestGateway } from "./support/test-gateway.ts";

// The service's own client against a real gateway before a container that speaks the protocol, and before an OCR engine.

let analyzer: FakeAnalyzer;
let ocr: FakeOcrEngine;
let gateway: TestGateway;

const OTHER_KEY = "CANARY-other-0123456789abcdef0123456789abcdef";
const upstreamOf = (url: string): Record<string, unknown> => ({
  id: "documents",
  kind: "azure-di",
  models: ["prebuilt-read", "prebuilt-layout"],
  slots: 2,
  timeouts: { linger_s: 0.2 },
  endpoints: [{ url }],
});

before(async () => {
  analyzer = await startFakeAnalyzer();
  ocr = await startFakeOcrEngine();
  gateway = await startTestGateway({
    upstreams: [
      upstreamOf(analyzer.url),
      { id: "scanner", kind: "azure-di", engine: "ocr", models: ["own-ocr"], slots: 2, endpoints: [{ url: ocr.url }] },
      {
        id: "far",
        kind: "azure-di",
        models: ["cloud-read"],
        slots: 2,
        external: true,
        endpoints: [{ url: analyzer.url }],
      },
    ],
    keys: [
      { id: "other", key: OTHER_KEY },
      { id: "layout-only", key: "CANARY-layout-0123456789abcdef", models: ["prebuilt-layout"] },
    ],
  });
});
after(async () => {
  await gateway.stop();
  await analyzer.close();
  await ocr.close();
});
beforeEach(() => {
  analyzer.clearScript();
  analyzer.script({ do: { retryAfterS: 0 } });
});

const aPdf = (): Buffer => Buffer.from(`%PDF-1.7 ${randomBytes(8).toString("hex")}`);
const sha256 = (bytes: Buffer): string => createHash("sha256").update(bytes).digest("hex");
const client = (family: "v4.0" | "v3.1" = "v4.0") => documentClient(gateway.url, { key: gateway.keys.client, family });
/** The last operation of the document, as the analyzer tells of it. */
const operationsOf = (bytes: Buffer) =>
  analyzer.ledger().operations.filter(({ bodySha256 }) => bodySha256 === sha256(bytes));
const idOf = (location: string): string => new URL(location).pathname.split("/").at(-1) ?? "";
const look = async (location: string, key: string = gateway.keys.client): Promise<Response> =>
  fetch(location, { headers: { "ocp-apim-subscription-key": key } });
const jobAt = (location: string) => jobOf(gateway, idOf(location));

for (const family of ["v4.0", "v3.1"] as const) {
  test(`the official client sends a document's bytes, polls this gateway alone, and reads the result: ${family} [20.F2]`, async () => {
    const bytes = aPdf();
    analyzer.script({ match: { holds: bytes.toString() }, do: { analyzeMs: 300 } });
    const submitted = await submitDocument(client(family), { bytes });
    assert.equal(submitted.status, "202");
    const location = new URL(submitted.location);
    assert.equal(location.origin, gateway.url);
    assert.equal(location.searchParams.get("api-version"), family === "v4.0" ? "2024-11-30" : "2023-07-31");
    assert.match(submitted.headers["retry-after"] ?? "", /^[1-9]/);
    const operation = await submitted.end();
    assert.equal(operation.status, "succeeded");
    assert.ok(operation.analyzeResult?.content.includes(sha256(bytes)));
    assert.equal(operation.analyzeResult?.apiVersion, location.searchParams.get("api-version"));
    const [entry, ...others] = operationsOf(bytes);
    assert.deepEqual([entry?.contentType, others.length], ["application/pdf", 0]);
    assert.ok(!JSON.stringify(entry?.headers).includes("CANARY"));
  });
}

test("base64Source and urlSource reach the container as they were sent, and the gateway fetches nothing [20.F2]", async () => {
  let fetched = 0;
  const place = createServer((_req, res) => {
    fetched += 1;
    res.end();
  });
  await new Promise<void>((resolve) => place.listen(0, "127.0.0.1", resolve));
  const urlSource = `http://127.0.0.1:${(place.address() as AddressInfo).port}/a.pdf`;
  for (const document of [{ base64Source: aPdf().toString("base64") }, { urlSource }]) {
    assert.equal((await (await submitDocument(client(), document)).end()).status, "succeeded");
    const [entry] = operationsOf(Buffer.from(JSON.stringify(document)));
    assert.match(entry?.contentType ?? "", /^application\/json/);
  }
  place.close();
  assert.equal(fetched, 0);
});

test("a document that can't be analysed is 200 and failed, with the container's words, and its job has failed [20.F2]", async () => {
  const bytes = aPdf();
  const error = { code: "InvalidContent", message: "The file is corrupted." };
  analyzer.script({ match: { holds: bytes.toString() }, do: { end: "failed", error } });
  const submitted = await submitDocument(client(), { bytes });
  await assert.rejects(submitted.end(), /InvalidContent/);
  const answer = await look(submitted.location);
  assert.equal(answer.status, 200);
  const operation = (await answer.json()) as { status: string; error: { code: string; message: string } };
  assert.deepEqual([operation.status, operation.error.code], ["failed", "InvalidContent"]);
  assert.equal((await jobAt(submitted.location)).state, "failed");
  assert.equal(operationsOf(bytes).length, 1);
});

test("a container's refusal of the document is a failed operation with its words [20.F2]", async () => {
  const submitted = await submitDocument(
    client(),
    { bytes: aPdf() },
    { model: "prebuilt-layout", query: { pages: "1" } },
  );
  assert.equal((await submitted.end()).status, "succeeded"); // What it knows it takes; its own query went along.
  assert.match(analyzer.ledger().operations.at(-1)?.query ?? "", /pages=1/);
  const bytes = aPdf();
  analyzer.script({ match: { holds: bytes.toString() }, do: { submitStatus: 400 } });
  await assert.rejects((await submitDocument(client(), { bytes })).end(), /InternalServerError/);
});

test("429 and 503 of a container, a lost document and a spoilt result are tried again inside the job, and the client sees the success [20.F2]", async () => {
  const faults = [
    { submitStatus: 429 },
    { submitStatus: 503 },
    { lostAfterLooks: 1, analyzeMs: 60_000 },
    { lookGarbage: "noResult" },
  ] as const;
  await Promise.all(
    faults.map(async (fault) => {
      const bytes = aPdf();
      analyzer.script({ match: { holds: bytes.toString(), times: 1 }, do: fault });
      const submitted = await submitDocument(client(), { bytes });
      const operation = await submitted.end();
      assert.equal(operation.status, "succeeded", JSON.stringify(fault));
      assert.ok(operation.analyzeResult?.content.includes(sha256(bytes)));
      assert.equal((await jobAt(submitted.location)).attempts, 2, JSON.stringify(fault));
    }),
  );
});

test("a container that never gives a result never makes a success: the operation fails after its attempts [20.F2]", async () => {
  const bytes = aPdf();
  analyzer.script({ match: { holds: bytes.toString() }, do: { lookGarbage: "noResult" } });
  const submitted = await submitDocument(client(), { bytes });
  await assert.rejects(submitted.end());
  const { state, attempts } = await jobAt(submitted.location);
  assert.deepEqual([state, attempts, operationsOf(bytes).length], ["failed", 3, 3]);
  const failure = (await (await look(submitted.location)).json()) as {
    status: string;
    error: { innererror: { code: string } };
  };
  assert.deepEqual([failure.status, failure.error.innererror.code], ["failed", "UPSTREAM_ERROR"]);
});

test("the container never works on more documents than its slots, and waiting ones are notStarted [20.F2]", async () => {
  analyzer.script({ do: { analyzeMs: 400 } });
  const submitted = await Promise.all(Array.from({ length: 6 }, () => submitDocument(client(), { bytes: aPdf() })));
  const states = await Promise.all(
    submitted.map(async ({ location }) => ((await (await look(location)).json()) as { status: string }).status),
  );
  assert.ok(states.includes("notStarted"), states.join());
  for (const { end } of submitted) assert.equal((await end()).status, "succeeded");
  assert.ok(analyzer.ledger().runningPeak <= 2);
});

test("DELETE calls an operation off: the container is told, and the operation is canceled [20.F2]", async () => {
  const bytes = aPdf();
  analyzer.script({ match: { holds: bytes.toString() }, do: { end: "never" } });
  const { location } = await submitDocument(client(), { bytes });
  await analyzer.until("a look", () => (operationsOf(bytes)[0]?.looks ?? 0) > 0);
  const removed = await fetch(location, {
    method: "DELETE",
    headers: { "ocp-apim-subscription-key": gateway.keys.client },
  });
  assert.equal(removed.status, 204);
  await analyzer.until("the operation to be dropped", () => operationsOf(bytes)[0]?.deleted === true);
  assert.deepEqual(((await (await look(location)).json()) as { status: string }).status, "canceled");
});

test("DELETE of an analysis that has ended forgets it: a later look is 404 in the service's words [20.F2]", async () => {
  const { location, end } = await submitDocument(client(), { bytes: aPdf() });
  await end();
  const headers = { "ocp-apim-subscription-key": gateway.keys.client };
  assert.equal((await fetch(location, { method: "DELETE", headers })).status, 204);
  for (const method of ["GET", "DELETE"]) {
    const gone = await fetch(location, { method, headers });
    const { error } = (await gone.json()) as { error: { code: string; innererror: { code: string } } };
    assert.deepEqual([gone.status, error.code, error.innererror.code], [404, "NotFound", "JOB_UNKNOWN"]);
  }
});

test("whatever verb or path below the service's addresses is not there is refused in its words [20.F2]", async () => {
  for (const [method, path, status, code] of [
    ["POST", "/documentintelligence/documentModels/prebuilt-read:analyzeBatch", 405, "MethodNotAllowed"],
    ["PATCH", "/documentintelligence/documentModels/prebuilt-read:analyze", 405, "MethodNotAllowed"],
    ["POST", "/documentintelligence/documentClassifiers/c:analyze", 404, "NotFound"],
    ["GET", "/documentintelligence/documentModels/prebuilt-read", 404, "NotFound"],
    ["DELETE", "/formrecognizer/documentModels/m/analyzeResults/x", 405, "MethodNotAllowed"],
    ["GET", "/formrecognizer/info", 404, "NotFound"],
  ] as const) {
    const refused = await fetch(`${gateway.url}${path}?api-version=2024-11-30`, { method, headers: gateway.auth });
    const { error } = (await refused.json()) as { error: { code: string; innererror?: { code: string } } };
    assert.deepEqual([refused.status, error.code], [status, code], `${method} ${path}`);
    assert.notEqual(error.innererror, undefined);
  }
});

test("the same key and document give the same operation, another document under it is refused [20.F2]", async () => {
  const bytes = aPdf();
  const headers = { "idempotency-key": randomBytes(8).toString("hex") };
  const many = await Promise.all(Array.from({ length: 8 }, () => submitDocument(client(), { bytes }, { headers })));
  assert.equal(new Set(many.map(({ location }) => location)).size, 1);
  assert.equal(many.filter((one) => one.headers["idempotent-replayed"] === "true").length, 7);
  await many[0]?.end();
  assert.equal(operationsOf(bytes).length, 1);
  const other = await submitDocument(client(), { bytes: aPdf() }, { headers });
  assert.deepEqual([other.status, other.ourCode], ["422", "IDEMPOTENCY_MISMATCH"]);
});

test("refusals have the service's envelope and our code inside [20.F2]", async () => {
  const bytes = aPdf();
  const refused = async (status: string, code: string, ...args: Parameters<typeof submitDocument>): Promise<void> => {
    const submitted = await submitDocument(...args);
    assert.deepEqual([submitted.status, submitted.ourCode], [status, code]);
    assert.notEqual(submitted.code, "");
  };
  const withKey = (key: string) => documentClient(gateway.url, { key });
  await refused("401", "UNAUTHORIZED", withKey("wrong"), { bytes });
  await refused("403", "FORBIDDEN", withKey(gateway.keys.metrics), { bytes });
  await refused("403", "MODEL_FORBIDDEN", withKey("CANARY-layout-0123456789abcdef"), { bytes });
  await refused("403", "EXTERNAL_UPSTREAM_FORBIDDEN", client(), { bytes }, { model: "cloud-read" });
  await refused("404", "MODEL_UNKNOWN", client(), { bytes }, { model: "prebuilt-unheard-of" });
  await refused("400", "BAD_REQUEST", client(), { bytes: Buffer.alloc(0) });
  await refused("400", "BAD_REQUEST", client(), { base64Source: "" });
  await refused("400", "CLASS_UNKNOWN", client(), { bytes }, { headers: { "x-yardmaster-class": "royal" } });
  await refused("400", "BAD_REQUEST", client(), { urlSource: "http://h/" }, { model: "own-ocr" });
  await refused("400", "BAD_REQUEST", client(), { bytes }, { model: "own-ocr", query: { pages: "1" } });
  const post = (path: string, headers: Record<string, string>): Promise<Response> =>
    fetch(gateway.url + path, { method: "POST", headers: { ...gateway.auth, ...headers }, body: bytes });
  const path = "/documentintelligence/documentModels/prebuilt-read:analyze";
  assert.equal((await post(`${path}?api-version=2024-11-30`, { "content-type": "video/mp4" })).status, 415);
  assert.equal((await post(path, { "content-type": "application/pdf" })).status, 400);
  assert.equal(
    (await post("/documentintelligence/documentModels/prebuilt-read:analyzeBatch?api-version=2024-11-30", {})).status,
    405,
  );
  assert.deepEqual(operationsOf(bytes), []);
  assert.deepEqual(ocr.calls, []);
});

test("an operation is its key's, its model's and its family's alone [20.F2]", async () => {
  const { location, end } = await submitDocument(client(), { bytes: aPdf() });
  await end();
  const statusOf = async (url: string, key?: string): Promise<number> => (await look(url, key)).status;
  assert.equal(await statusOf(location), 200);
  assert.equal(await statusOf(location, gateway.keys.operator), 200);
  assert.equal(await statusOf(location, OTHER_KEY), 404);
  assert.equal(await statusOf(location.replace("prebuilt-read", "prebuilt-layout")), 404);
  assert.equal(await statusOf(location.replace("documentintelligence", "formrecognizer")), 404);
  assert.equal(await statusOf(location.replace(idOf(location), "never-given")), 404);
  assert.equal(await statusOf(location, "wrong"), 401);
});

test("the service's key header is no key on other routes, and twice is refused [20.F2]", async () => {
  const { status } = await fetch(`${gateway.url}/v1/models`, {
    headers: { "ocp-apim-subscription-key": gateway.keys.client },
  });
  assert.equal(status, 401);
  const twice = await fetch(
    `${gateway.url}/documentintelligence/documentModels/a1/analyzeResults/x?api-version=2024-11-30`,
    {
      headers: [
        ["ocp-apim-subscription-key", gateway.keys.client],
        ["api-key", OTHER_KEY],
      ],
    },
  );
  assert.equal(twice.status, 400);
});

test("behind a proxy the Operation-Location is one that the client can reach [20.F2]", async () => {
  const headers = { "x-forwarded-proto": "https", "x-forwarded-host": "di.example.com" };
  const { location } = await submitDocument(client(), { bytes: aPdf() }, { headers });
  assert.equal(new URL(location).origin, "https://di.example.com");
});

test("a plain OCR engine does the work for the same client [20.F2]", async () => {
  ocr.answer({ body: { pages: [{ text: "Seite eins" }, { text: "Seite zwei" }] } });
  const document = Buffer.from("\x89PNG\r\n scan", "latin1");
  const submitted = await submitDocument(client(), { base64Source: document.toString("base64") }, { model: "own-ocr" });
  const { status, analyzeResult } = await submitted.end();
  assert.deepEqual(
    [status, analyzeResult?.content, analyzeResult?.pages.length],
    ["succeeded", "Seite eins\nSeite zwei", 2],
  );
  assert.deepEqual([ocr.calls.at(-1)?.contentType, ocr.calls.at(-1)?.sha256], ["image/png", sha256(document)]);
  ocr.answer({ status: 503, body: "" }, { body: { text: "later" } });
  const again = await submitDocument(client(), { bytes: aPdf() }, { model: "own-ocr" });
  assert.equal((await again.end()).analyzeResult?.content, "later");
});

test("an accepted document ends in one audit event with its upstream, a refused one in another [20.F2]", async () => {
  const { location, end } = await submitDocument(client(), { bytes: aPdf() });
  await end();
  await submitDocument(client(), { bytes: aPdf() }, { model: "prebuilt-unheard-of" });
  const records = await eventually(
    "both in the audit",
    async () => (await gateway.audit("?limit=1000")).records,
    (seen) => seen.some(({ errorCode }) => errorCode === "MODEL_UNKNOWN"),
  );
  const own = records.filter(({ requestId }) => requestId.includes(idOf(location)));
  assert.equal(own.length, 1);
  assert.deepEqual([own[0]?.upstream, own[0]?.outcome], ["documents", "ok"]);
});

test("a path that can't be read is refused in the service's own words", async () => {
  const answer = await fetch(
    `${gateway.url}/documentintelligence/documentModels/a%01b:analyze?api-version=2024-11-30`,
    { method: "POST" },
  );
  const { error } = (await answer.json()) as {
    readonly error: { readonly code: string; readonly innererror: { readonly code: string } };
  };
  assert.deepEqual([answer.status, error.code, error.innererror.code], [400, "InvalidRequest", "BAD_REQUEST"]);
});
