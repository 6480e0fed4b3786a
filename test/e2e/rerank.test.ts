import assert from "node:assert/strict";
import { gzipSync } from "node:zlib";
import { after, before, test } from "node:test";
import { RawServer, type RawCall } from "../../src/testing/raw-server.ts";
import { ask, headerOf } from "./support/raw-answers.ts";
import { jsonAnswer } from "./support/raw-engine.ts";
import { startTestGateway, type TestGateway } from "./support/test-gateway.ts";

let engine: RawServer;
let answer: (call: RawCall) => void;
let gateway: TestGateway;

before(async () => {
  engine = await RawServer.listen({ onCall: (call) => answer(call) });
  const common = { health: "passive", slots: 4, endpoints: [{ url: `http://127.0.0.1:${engine.port}` }] };
  gateway = await startTestGateway({
    upstreams: [
      { ...common, id: "tei", engine: "tei", models: ["bge"] },
      { ...common, id: "vllm", engine: "vllm", models: ["v"] },
    ],
  });
});
after(async () => {
  await gateway.stop();
  await engine[Symbol.asyncDispose]();
});

const REQUEST = {
  model: "bge",
  query: "Where is the depot?",
  documents: ["im Wald", { text: "at the 駅" }, "nowhere"],
  top_n: 2,
  return_documents: true,
  truncate: true,
};
const RANKED = [
  { index: 2, score: 0.1 },
  { index: 1, score: 0.9 },
  { index: 0, score: 0.4 },
];
const rerank = (body: unknown) =>
  ask(gateway, { path: "/v1/rerank", body: body as Record<string, unknown>, headers: ["Accept-Encoding: gzip"] });
const codeOf = (text: string): string => (JSON.parse(text) as { error: { code: string } }).error.code;

test("a rerank request in the usual form reaches a TEI engine in its own, and its answer comes back in the usual form", async () => {
  answer = ({ socket }) => void socket.write(jsonAnswer(RANKED));
  const got = await rerank(REQUEST);
  assert.equal(got.status, 200);
  const call = engine.calls.at(-1);
  assert.equal(call?.path, "/rerank");
  assert.deepEqual(JSON.parse(call?.body.toString() ?? ""), {
    query: REQUEST.query,
    texts: ["im Wald", "at the 駅", "nowhere"],
    truncate: true,
  });
  assert.match(call?.head ?? "", /accept-encoding: identity/i);
  const { id, ...rest } = JSON.parse(got.text) as { id: string };
  assert.equal(id, headerOf(got, "x-request-id"));
  assert.deepEqual(rest, {
    model: "bge",
    results: [
      { index: 1, relevance_score: 0.9, document: { text: "at the 駅" } },
      { index: 0, relevance_score: 0.4, document: { text: "im Wald" } },
    ],
  });
  assert.equal(headerOf(got, "content-length"), String(got.payload.length));
});

test("a rerank request that can't be translated is refused before it reaches an engine", async () => {
  const before = engine.calls.length;
  for (const body of [
    { model: "bge", documents: ["a"] },
    { model: "bge", query: "q" },
    { model: "bge", query: "q", documents: [1] },
    { ...REQUEST, top_n: 0 },
  ]) {
    const got = await rerank(body);
    assert.deepEqual([got.status, codeOf(got.text)], [400, "BAD_REQUEST"]);
  }
  const large = await rerank({ ...REQUEST, documents: ["x".repeat(9_000_000)] });
  assert.deepEqual([large.status, codeOf(large.text)], [413, "BODY_TOO_LARGE"]);
  assert.equal(engine.calls.length, before);
});

test("thousands of documents are ranked, though the answer is larger than what is held otherwise", async () => {
  const documents = Array.from({ length: 20_000 }, (_, index) => `d${index}`);
  const text = JSON.stringify(documents.map((_, index) => ({ index, score: index / 20_000 })));
  answer = ({ socket }) =>
    void socket.write(
      `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${text.length}\r\n\r\n${text}`,
    );
  assert.ok(text.length > 400_000);
  const got = await rerank({ model: "bge", query: "q", documents });
  const { results } = JSON.parse(got.text) as { results: { index: number }[] };
  assert.deepEqual([results.length, results[0]?.index], [20_000, 19_999]);
});

test("an answer that is no ranking is a clear error, and the engine's own errors keep their status", async () => {
  const zipped = gzipSync(JSON.stringify(RANKED));
  const wrong = [
    jsonAnswer({ results: [] }),
    jsonAnswer([{ index: 7, score: 1 }]),
    'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 5\r\n\r\n[{"in',
    Buffer.concat([
      Buffer.from(
        `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-encoding: gzip\r\ncontent-length: ${zipped.length}\r\n\r\n`,
      ),
      zipped,
    ]),
  ];
  for (const bytes of wrong) {
    answer = ({ socket }) => void socket.write(bytes);
    const got = await rerank(REQUEST);
    assert.deepEqual([got.status, codeOf(got.text)], [502, "UPSTREAM_PROTOCOL"]);
  }
  answer = ({ socket }) =>
    void socket.write(
      jsonAnswer(
        { error: "batch size 99 > maximum allowed batch size 32", error_type: "Validation" },
        "413 Payload Too Large",
      ),
    );
  const got = await rerank(REQUEST);
  assert.equal(got.status, 413);
  assert.match(got.text, /maximum allowed batch size/);
});

test("an engine that speaks the usual form gets the client's bytes", async () => {
  const said = { id: "r", results: [{ index: 0, relevance_score: 0.5 }] };
  answer = ({ socket }) => void socket.write(jsonAnswer(said));
  const body = JSON.stringify({ ...REQUEST, model: "v" }, null, 1);
  const got = await ask(gateway, { path: "/v1/rerank", body });
  assert.equal(engine.calls.at(-1)?.body.toString(), body);
  assert.deepEqual(JSON.parse(got.text), said);
});
