import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { after, before, test } from "node:test";
import {
  brotliCompressSync,
  constants,
  createGzip,
  deflateRawSync,
  deflateSync,
  gzipSync,
  zstdCompressSync,
} from "node:zlib";
import { RawClient } from "../../src/testing/raw-client.ts";
import { RawServer, type RawCall } from "../../src/testing/raw-server.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { aChat, ask, headerOf, heard, requestBytes } from "./support/raw-answers.ts";
import {
  aChunk,
  aCompletion,
  aFinish,
  aToken,
  DONE,
  LAST_CHUNK,
  SSE_HEAD,
  writeAsTaken,
} from "./support/raw-engine.ts";
import { startTestGateway, type TestGateway } from "./support/test-gateway.ts";

// Engines, or proxies before them, that compress whatever was asked for: a client that did not offer the coding gets plain bytes.

const CLIENTS = ["net", "undici"] as const;
const gateways = new Map<string, TestGateway>();
let engine: RawServer;
let answer: (call: RawCall) => void;

before(async () => {
  engine = await RawServer.listen({ onCall: (call) => answer(call) });
  for (const client of CLIENTS) {
    const common = { health: "passive", slots: 8, retry: { attempts: 0 }, timeouts: { write_stall_s: 2 } };
    const endpoints = [{ url: `http://127.0.0.1:${engine.port}` }];
    gateways.set(
      client,
      await startTestGateway({
        file: { upstream_client: client },
        upstreams: [
          { ...common, id: "u", models: ["m"], endpoints },
          { ...common, id: "plain", kind: "http", endpoints },
        ],
      }),
    );
  }
});
after(async () => {
  for (const gateway of gateways.values()) await gateway.stop();
  await engine[Symbol.asyncDispose]();
});
const gatewayOf = (client: string): TestGateway => gateways.get(client) as TestGateway;

const head = (coding: string, more = "", status = "200 OK"): string =>
  `HTTP/1.1 ${status}\r\nContent-Type: application/json\r\nETag: "a"\r\nContent-Encoding: ${coding}\r\n${more}`;
const withLength = (coding: string, packed: Buffer, status?: string): Buffer =>
  Buffer.concat([Buffer.from(head(coding, `Content-Length: ${packed.length}\r\n\r\n`, status)), packed]);
const inChunks = (coding: string, packed: Buffer): Buffer =>
  Buffer.concat([
    Buffer.from(head(coding, "Transfer-Encoding: chunked\r\n\r\n")),
    ...Array.from(packed, (byte) => aChunk(Buffer.of(byte))),
    Buffer.from(LAST_CHUNK),
  ]);

for (const client of CLIENTS) {
  test(`a client gets plain bytes where it did not offer the engine's coding: answers, errors and passed-on paths, with ${client} [10.X3 10.X4]`, async () => {
    const gateway = gatewayOf(client);
    const text = JSON.stringify(aCompletion("gezipt 駅 ".repeat(50)));
    for (const [coding, packed] of [
      ["gzip", gzipSync(text)],
      ["x-gzip", gzipSync(text)],
      ["br", brotliCompressSync(text)],
      ["deflate", deflateSync(text)],
      ["deflate", deflateRawSync(text)],
      ["zstd", zstdCompressSync(text)],
    ] as const) {
      for (const path of ["/v1/chat/completions", "/upstreams/plain/x"]) {
        for (const bytes of [withLength(coding, packed), inChunks(coding, packed)]) {
          for (const headers of [[], ["Accept-Encoding: identity"], [`Accept-Encoding: ${coding};q=0, *;q=0`]]) {
            answer = ({ socket }) => void socket.write(bytes);
            const got = await ask(gateway, { path, body: aChat({ stream: false }), headers });
            assert.deepEqual([got.status, got.whole, got.text], [200, true, text], `${coding} ${path}`);
            for (const gone of ["content-encoding", "etag"]) assert.equal(headerOf(got, gone), undefined);
          }
        }
      }
    }
    const { records } = await gateway.audit("?limit=12");
    assert.ok(
      records.some(({ completionTokens }) => completionTokens === 2),
      "the usage is read",
    );
    const refusal = JSON.stringify({ error: { message: "no", type: "x", param: null, code: 400 } });
    answer = ({ socket }) => void socket.write(withLength("gzip", gzipSync(refusal), "400 Bad Request"));
    const got = await ask(gateway, { body: aChat({ stream: false }) });
    assert.deepEqual([got.status, got.text], [400, refusal]);
  });

  test(`a compressed stream is plain for its client event by event, its usage and its end are seen, and a break is an error event, with ${client} [10.X1 10.X5]`, async () => {
    const gateway = gatewayOf(client);
    let broken = false;
    let go = (): void => {};
    answer = ({ socket }) => {
      socket.write(SSE_HEAD.replace("\r\n\r\n", "\r\nContent-Encoding: gzip\r\n\r\n"));
      const packer = createGzip();
      packer.on("data", (bytes: Buffer) => void socket.write(aChunk(bytes)));
      packer.write(aToken("one"));
      packer.flush(constants.Z_SYNC_FLUSH);
      go = () => {
        if (broken) return void socket.end();
        packer.on("end", () => void socket.write(LAST_CHUNK));
        packer.end(aFinish() + DONE);
      };
    };
    for (broken of [false, true]) {
      using reader = await RawClient.connect(gateway.port);
      await reader.write(requestBytes(gateway, {}));
      await reader.readUntil((received) => received.includes(aToken("one")));
      go();
      const got = await heard(reader);
      assert.equal(got.whole, !broken);
      if (broken) assert.match(got.text, /^data: \{"id".*\n\ndata: \{"error":.*UPSTREAM_ERROR/);
      else assert.equal(got.text, aToken("one") + aFinish() + DONE);
      const { records } = await gateway.audit("?limit=1");
      assert.equal(records[0]?.outcome, broken ? "upstream_truncated" : "ok");
    }
  });

  test(`a body that is not in its coding, stops inside it or is empty is an error, and the next caller gets its own answer, with ${client} [80.A10]`, async () => {
    const gateway = gatewayOf(client);
    const packed = gzipSync(JSON.stringify(aCompletion()));
    for (const bytes of [
      withLength("gzip", Buffer.from('{"choices":[]}')),
      withLength("br", randomBytes(200).fill(0xff, 0, 4)),
      withLength("gzip", packed.subarray(0, 40)),
      withLength("gzip", Buffer.alloc(0)),
    ]) {
      answer = ({ socket }) => void socket.write(bytes);
      const got = await ask(gateway, { body: aChat({ stream: false }) });
      assert.deepEqual([got.status, got.whole], [502, true]);
      answer = ({ socket }) => void socket.write(withLength("gzip", packed));
      for (let i = 0; i < 3; i += 1)
        assert.equal((await ask(gateway, { body: aChat({ stream: false }) })).text, JSON.stringify(aCompletion()));
    }
  });

  test(`what a small body unpacks to waits for its reader, who is cut like any other that takes nothing, with ${client} [80.G10 80.I9]`, async () => {
    const gateway = gatewayOf(client);
    const bomb = gzipSync(Buffer.alloc(1024 * 1024));
    let written = 0;
    answer = ({ socket }) => {
      socket.write(head("gzip", "Transfer-Encoding: chunked\r\n\r\n"));
      writeAsTaken(
        socket,
        aChunk(bomb),
        20_000,
        (bytes) => (written += bytes),
        () => void socket.write(LAST_CHUNK),
      );
    };
    const before = process.memoryUsage().rss;
    using reader = await RawClient.connect(gateway.port, { paused: true });
    await reader.write(requestBytes(gateway, { path: "/upstreams/plain/x", body: aChat({ stream: false }) }));
    await eventually(
      "the cut",
      () => gateway.metric('yardmaster_client_stalls_total{upstream="plain"}'),
      (cuts) => cuts === 1,
    );
    assert.ok(written < 16 * 1024 * 1024, `the engine wrote ${written} bytes`);
    assert.ok(process.memoryUsage().rss - before < 128 * 1024 * 1024);
    const health = await gateway.health();
    assert.deepEqual(
      health.upstreams.map(({ in_use }) => in_use.interactive),
      [0, 0],
    );
  });
}
