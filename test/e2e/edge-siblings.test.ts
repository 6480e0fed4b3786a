import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";
import { RawClient } from "../../src/testing/raw-client.ts";
import { RawServer, type RawCall } from "../../src/testing/raw-server.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { call } from "./support/calls.ts";
import { onlyUpstream, upstreamHealth } from "./support/health.ts";
import { aChat, requestBytes } from "./support/raw-answers.ts";
import { aChunk, aCompletion, aFinish, aToken, DONE, jsonAnswer, LAST_CHUNK, SSE_HEAD } from "./support/raw-engine.ts";
import { startTestGateway, type TestGateway } from "./support/test-gateway.ts";

// Requests that say they are the last of their connection, paths with a slash too many, and endpoints that are bad but may
// not be ejected.

let engine: RawServer;
let gateway: TestGateway;
let answer: (one: RawCall) => void;
let calls = 0;

before(async () => {
  engine = await RawServer.listen({
    onCall: (one) => {
      calls += 1;
      answer(one);
    },
  });
  const url = `http://127.0.0.1:${engine.port}`;
  gateway = await startTestGateway({
    upstreams: [
      {
        id: "u",
        engine: "vllm",
        health: "passive",
        models: ["m"],
        slots: 4,
        timeouts: { idle_s: 0.5 },
        endpoints: [{ url }],
      },
      { id: "form", kind: "http", health: "passive", slots: 4, endpoints: [{ url }] },
    ],
  });
});
beforeEach(() => {
  calls = 0;
  answer = ({ socket }) => void socket.write(jsonAnswer(aCompletion()));
});
after(async () => {
  await gateway.stop();
  await engine[Symbol.asyncDispose]();
});

const UPGRADE = ["Connection: Upgrade", "Upgrade: h2c"];
const chat = (headers: readonly string[] = []): Buffer =>
  requestBytes(gateway, { headers, body: aChat({ stream: false }) });

test("a request that asks for another protocol is answered and is the last of its connection, whatever comes behind it [80.D19 80.G14]", async () => {
  for (const first of [
    chat(UPGRADE),
    Buffer.from(`GET /healthz HTTP/1.1\r\nHost: x\r\n${UPGRADE.join("\r\n")}\r\n\r\n`),
  ]) {
    calls = 0;
    const upload = chat();
    using client = await RawClient.connect(gateway.port);
    await client.write(Buffer.concat([first, upload.subarray(0, 80)]));
    await client.readUntil((bytes) => bytes.includes("HTTP/1.1 200 OK"));
    await client.write(Buffer.concat([upload.subarray(80), chat()]));
    await client.readToEnd();
    assert.match(client.text, /connection: close/i);
    assert.equal(client.text.split("HTTP/1.1 ").length - 1, 1, "one answer");
    assert.equal(calls, first.includes("/healthz") ? 0 : 1, "and nothing of the rest reached the engine");
  }
});

test("a request that closes its connection gets its answer, whatever comes behind it [80.D18]", async () => {
  using client = await RawClient.connect(gateway.port);
  await client.write(Buffer.concat([chat(["Connection: close"]), chat()]));
  await client.readToEnd();
  assert.match(client.text, /^HTTP\/1\.1 200 OK/);
  assert.equal(client.text.split("HTTP/1.1 ").length - 1, 1);
  assert.equal(calls, 1);
});

test("a route with a slash behind it is that route: a stream without a finish is no clean end [10.X5b]", async () => {
  answer = ({ socket }) =>
    void socket.write(Buffer.concat([Buffer.from(SSE_HEAD), aChunk(aToken("cut")), Buffer.from(LAST_CHUNK)]));
  const cut = await call(gateway, { path: "/v1/chat/completions/", body: aChat({ stream: true }) });
  assert.equal(cut.whole, false);
  assert.match(cut.text, /"code":"UPSTREAM_ERROR"/);
});

test("a stream that has said all but its end is ended well when its engine falls silent [10.X5b]", async () => {
  answer = ({ socket }) =>
    void socket.write(Buffer.concat([Buffer.from(SSE_HEAD), aChunk(aToken("all") + aFinish() + DONE)]));
  const silent = await call(gateway, { body: aChat({ stream: true }) });
  assert.equal(silent.whole, true);
  assert.ok(silent.text.endsWith(DONE));
});

test("an error answer of a plain HTTP upstream is counted as the engine's failure, also when it can't be retried [10.R5]", async () => {
  answer = ({ socket }) => void socket.write(jsonAnswer({ busy: true }, "503 Service Unavailable"));
  for (let i = 0; i < 3; i += 1) assert.equal((await call(gateway, { path: "/upstreams/form/x" })).status, 503);
  const { id } = (await upstreamHealth(gateway, "form")).endpoints[0] ?? { id: "" };
  const series = `yardmaster_endpoint_failures_total{upstream="form",endpoint="${id}",kind="status"}`;
  assert.equal(await gateway.metric(series), 3);
  const { records } = await eventually(
    "the audit has them",
    () => gateway.audit("?upstream=form"),
    (page) => page.records.length === 3,
  );
  assert.ok(records.every(({ outcome }) => outcome === "engine_error"));
});

test("of endpoints that are bad and may not be ejected none takes a call while a good one has room [10.R1 10.R5]", async () => {
  const bad = await Promise.all(
    [1, 2].map(() =>
      RawServer.listen({
        onCall: ({ socket }) => void socket.write(jsonAnswer({ error: { message: "no" } }, "503 Service Unavailable")),
      }),
    ),
  );
  const urls = [...bad, engine].map(({ port }) => ({ url: `http://127.0.0.1:${port}`, slots: 4 }));
  const own = await startTestGateway({
    upstreams: [{ id: "u", engine: "vllm", health: "passive", models: ["m"], slots: 12, endpoints: urls }],
  });
  try {
    for (let i = 0; i < 60; i += 1) await call(own, { body: aChat({ stream: false }) });
    const states = (await onlyUpstream(own)).endpoints.map(({ breaker }) => breaker);
    assert.ok(states.filter((state) => state !== "closed").length >= 2, String(states));
    const before = calls;
    const statuses = await Promise.all(
      Array.from({ length: 2 }, async () => (await call(own, { body: aChat({ stream: false }) })).status),
    );
    assert.deepEqual([statuses, calls - before], [[200, 200], 2]);
  } finally {
    await own.stop();
    await Promise.all(bad.map((server) => server[Symbol.asyncDispose]()));
  }
});

test("an upstream that left the configuration is shown until its last stream has ended [10.R6]", async () => {
  answer = ({ socket }) => void socket.write(Buffer.concat([Buffer.from(SSE_HEAD), aChunk(aToken("long"))]));
  const upstreams = [
    {
      id: "gone",
      engine: "vllm",
      health: "passive",
      models: ["m"],
      slots: 4,
      endpoints: [{ url: `http://127.0.0.1:${engine.port}` }],
    },
  ];
  const own = await startTestGateway({ upstreams });
  try {
    using client = await RawClient.connect(own.port);
    await client.write(requestBytes(own, { body: aChat({ stream: true }) }));
    await client.readUntil("long");
    own.gateway.applyConfig(own.configOf({ upstreams: [] }));
    const shown = await upstreamHealth(own, "gone");
    assert.deepEqual([shown.in_use.interactive, shown.endpoints[0]?.draining], [1, true]);
    client.close();
    await eventually(
      "it is gone",
      () => own.health(),
      (page) => page.upstreams.length === 0,
    );
  } finally {
    await own.stop();
  }
});
