import assert from "node:assert/strict";
import { brotliCompressSync, deflateSync, gzipSync, zstdCompressSync } from "node:zlib";
import { after, before, test } from "node:test";
import { RawClient } from "../../src/testing/raw-client.ts";
import { RawServer, type RawCall } from "../../src/testing/raw-server.ts";
import { aChat, ask, headerOf, headersOf, heard, parseAnswer, requestBytes } from "./support/raw-answers.ts";
import {
  aChunk,
  aCompletion,
  aFinish,
  aToken,
  DONE,
  jsonAnswer,
  LAST_CHUNK,
  SSE_HEAD,
  writeInTurns,
} from "./support/raw-engine.ts";
import { startTestGateway, type TestGateway } from "./support/test-gateway.ts";

const CLIENTS = ["net", "undici"] as const;
const gateways = new Map<string, TestGateway>();
let engine: RawServer;
let answer: (call: RawCall) => void;

before(async () => {
  engine = await RawServer.listen({ onCall: (call) => answer(call) });
  for (const client of CLIENTS) {
    const common = { health: "passive", slots: 32, endpoints: [{ url: `http://127.0.0.1:${engine.port}/base` }] };
    gateways.set(
      client,
      await startTestGateway({
        file: { upstream_client: client },
        env: { ENGINE_KEY: "CANARY-engine-key" },
        upstreams: [
          { ...common, id: "raw", engine: "vllm", models: ["m"], key_env: "ENGINE_KEY", forward_headers: ["x-wanted"] },
          { ...common, id: "form", kind: "http", timeouts: { first_byte_s: 0.5 } },
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
const lastCall = (): RawCall => engine.calls.at(-1) as RawCall;
const sentHeaders = (call: RawCall): Map<string, string[]> => {
  const all = new Map<string, string[]>();
  for (const line of call.head.trimEnd().split("\r\n").slice(1)) {
    const colon = line.indexOf(":");
    const name = line.slice(0, colon).toLowerCase();
    all.set(name, [...(all.get(name) ?? []), line.slice(colon + 1).trim()]);
  }
  return all;
};
const whole = (body: Buffer | string, more: string, status = "200 OK", type = "application/json"): Buffer =>
  Buffer.concat([
    Buffer.from(
      `HTTP/1.1 ${status}\r\nContent-Type: ${type}\r\n${more}Content-Length: ${Buffer.byteLength(body)}\r\n\r\n`,
    ),
    Buffer.from(body as string),
  ]);

for (const client of CLIENTS) {
  test(`an engine sees only what it has a use for, one length, our Via, its own key, and never the client's, with ${client} [10.X2 80.D19 80.C33]`, async () => {
    answer = ({ socket }) => void socket.write(jsonAnswer(aCompletion()));
    const gateway = gatewayOf(client);
    const headers = [
      "Connection: keep-alive, X-Internal, authorization, x-wanted",
      "X-Internal: 1",
      "X-Wanted: named by Connection, so not for the engine",
      "Keep-Alive: timeout=5",
      "TE: trailers",
      "Upgrade: h2c",
      "HTTP2-Settings: AAMAAABkAAQAAP__",
      "Proxy-Authorization: Basic Q0FOQVJZ",
      "Proxy-Connection: keep-alive",
      "Cookie: session=CANARY",
      "X-Api-Key-Not: 1",
      "Forwarded: for=1.2.3.4",
      "X-Forwarded-For: 1.2.3.4",
      "X-Real-IP: 1.2.3.4",
      "Via: 1.1 before",
      "X-Yardmaster-Internal: 1",
      "Traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    ];
    for (const path of ["/v1/chat/completions", "/upstreams/form/v1/x?y=1"]) {
      using reader = await RawClient.connect(gateway.port);
      await reader.write(requestBytes(gateway, { path, headers, body: aChat({ stream: false }) }));
      await reader.readUntil((bytes) => bytes.includes("\r\n\r\n") && parseAnswer(bytes).whole);
      const answered = parseAnswer(reader.received);
      assert.equal(answered.status, 200);
      const sent = sentHeaders(lastCall());
      for (const name of [
        "x-internal",
        "keep-alive",
        "te",
        "upgrade",
        "http2-settings",
        "proxy-authorization",
        "proxy-connection",
        "cookie",
        "forwarded",
        "x-real-ip",
        "x-yardmaster-internal",
        "transfer-encoding",
        "expect",
      ]) {
        if (name === "http2-settings" && path.startsWith("/upstreams")) continue;
        assert.equal(sent.get(name), undefined, `${name} on ${path}`);
      }
      assert.deepEqual(sent.get("host"), [`127.0.0.1:${engine.port}`]);
      assert.equal(sent.get("content-length")?.length, 1);
      assert.equal(sent.get("via")?.join(", "), "1.1 before, 1.1 yardmaster");
      assert.equal(sent.get("x-request-id")?.length, 1);
      const forEngine = path === "/v1/chat/completions";
      assert.deepEqual(sent.get("authorization"), forEngine ? ["Bearer CANARY-engine-key"] : undefined);
      assert.deepEqual(sent.get("x-forwarded-for"), forEngine ? undefined : ["127.0.0.1"]);
      assert.ok(!lastCall().head.includes(gateway.keys.client));
      assert.equal(lastCall().path, `/base${forEngine ? path : "/v1/x?y=1"}`);
      // The connection was neither upgraded nor closed: the next request on it is served.
      await reader.write(requestBytes(gateway, { path, body: aChat({ stream: false }) }));
      assert.ok((await heard(reader)).rest.includes("HTTP/1.1 200 OK"));
    }
  });

  test(`a websocket request opens no tunnel, with ${client} [80.D19]`, async () => {
    answer = ({ socket }) =>
      void socket.write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
    for (const path of ["/v1/chat/completions", "/upstreams/form/ws"]) {
      using reader = await RawClient.connect(gatewayOf(client).port);
      await reader.write(
        requestBytes(gatewayOf(client), {
          path,
          headers: ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: x", "Sec-WebSocket-Version: 13"],
        }),
      );
      await reader.readUntil((bytes) => bytes.includes("\r\n\r\n") && parseAnswer(bytes).whole);
      const got = parseAnswer(reader.received);
      assert.deepEqual([got.status, got.informational.length], [502, 0]);
      assert.equal(sentHeaders(lastCall()).get("upgrade"), undefined);
    }
  });

  test(`an answer does not tell what is behind the gateway, and its repeated headers stay apart, with ${client} [10.X2 80.D20]`, async () => {
    const gateway = gatewayOf(client);
    const more =
      "Server: uvicorn\r\nX-Powered-By: Express\r\nVia: 1.1 inner\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\nProxy-Authenticate: Basic\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nLocation: http://10.0.0.7/\r\nX-Own: 1\r\nX-Own: 2\r\nTrailer: X-T\r\n";
    for (const [path, status] of [
      ["/v1/chat/completions", 200],
      ["/upstreams/form/x", 200],
      ["/v1/chat/completions", 400],
    ] as const) {
      answer = ({ socket }) =>
        void socket.write(
          whole(JSON.stringify(status === 200 ? aCompletion() : { error: { message: "no" } }), more, `${status} X`),
        );
      const got = await ask(gateway, { path, body: aChat({ stream: false }) });
      assert.equal(got.status, status);
      for (const name of ["server", "x-powered-by", "via", "x-hop", "keep-alive", "proxy-authenticate", "trailer"])
        assert.equal(headerOf(got, name), undefined, name);
      assert.deepEqual(headersOf(got, "x-own"), ["1", "2"]);
      const http = path.startsWith("/upstreams");
      assert.deepEqual(headersOf(got, "set-cookie"), http ? ["a=1", "b=2"] : []);
      assert.ok(!got.head.includes("10.0.0.7") || http);
      assert.ok(!got.head.includes("127.0.0.1"));
    }
  });

  test(`an engine that is gone, or speaks nonsense, is told of without its address, with ${client} [80.D20]`, async () => {
    const gone = await RawServer.listen({ onCall: () => {} });
    const { port } = gone;
    await gone[Symbol.asyncDispose]();
    const gateway = await startTestGateway({
      file: { upstream_client: client },
      upstreams: [
        {
          id: "gone",
          engine: "vllm",
          models: ["g"],
          slots: 1,
          health: "passive",
          endpoints: [{ url: `http://127.0.0.1:${port}` }],
        },
      ],
    });
    try {
      const got = await ask(gateway, { body: aChat({ model: "g" }) });
      assert.equal(got.status, 502);
      assert.ok(
        !`${got.head}${got.text}`.includes("127.0.0.1") && !`${got.head}${got.text}`.includes(String(port)),
        got.text,
      );
    } finally {
      await gateway.stop();
    }
    for (const bytes of [
      "\u0000\u0001garbage\r\n\r\n",
      "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
      "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    ]) {
      answer = ({ socket }) => void socket.write(bytes, "latin1");
      const got = await ask(gatewayOf(client));
      assert.equal(got.status, 502);
      assert.ok(!got.text.includes("127.0.0.1") && !/\.ts:|node:|\/work|at /.test(got.text), got.text);
    }
  });

  test(`a compressed answer passes as it is: body, error and stream, with ${client} [10.X3]`, async () => {
    const gateway = gatewayOf(client);
    const text = JSON.stringify(aCompletion("gezipt 駅 ".repeat(100)));
    for (const [encoding, packed] of [
      ["gzip", gzipSync(text)],
      ["br", brotliCompressSync(text)],
      ["deflate", deflateSync(text)],
      ["zstd", zstdCompressSync(text)],
    ] as const) {
      for (const status of ["200 OK", "400 Bad Request"]) {
        answer = ({ socket }) => void socket.write(whole(packed, `Content-Encoding: ${encoding}\r\n`, status));
        const got = await ask(gateway, { body: aChat({ stream: false }), headers: [`Accept-Encoding: ${encoding}`] });
        assert.equal(headerOf(got, "content-encoding"), encoding);
        assert.ok(got.whole && got.payload.equals(packed), `${encoding} ${status}`);
        assert.deepEqual(sentHeaders(lastCall()).get("accept-encoding"), [encoding]);
      }
    }
    const stream = gzipSync(aToken("one") + aFinish() + DONE);
    answer = ({ socket }) =>
      writeInTurns(socket, [
        SSE_HEAD.replace("\r\n\r\n", "\r\nContent-Encoding: gzip\r\n\r\n"),
        aChunk(stream.subarray(0, 20)),
        aChunk(stream.subarray(20)),
        LAST_CHUNK,
      ]);
    const got = await ask(gateway, { headers: ["Accept-Encoding: gzip"] });
    assert.ok(got.whole && got.payload.equals(stream));
    assert.equal(headerOf(got, "content-encoding"), "gzip");
    // A client that offers nothing, or whose answer is read on its way, has the engine asked for plain bytes.
    assert.deepEqual(sentHeaders(lastCall()).get("accept-encoding"), ["identity"]);
    answer = ({ socket }) => void socket.write(jsonAnswer(aCompletion()));
    await ask(gateway, { body: aChat({ stream: false }) });
    assert.deepEqual(sentHeaders(lastCall()).get("accept-encoding"), ["identity"]);
  });

  test(`HEAD, 204 and 304 have no body and leave the connection in order, with ${client} [10.X3]`, async () => {
    const gateway = gatewayOf(client);
    answer = ({ socket, method, path }) => {
      if (method === "HEAD")
        socket.write('HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\nETag: "a"\r\n\r\n');
      else if (path.endsWith("/204")) socket.write("HTTP/1.1 204 No Content\r\nX-A: 1\r\n\r\n");
      else if (path.endsWith("/304")) socket.write('HTTP/1.1 304 Not Modified\r\nETag: "a"\r\n\r\n');
      else socket.write("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nplain");
    };
    using reader = await RawClient.connect(gateway.port);
    for (const [method, path, status] of [
      ["HEAD", "/upstreams/form/a", 200],
      ["GET", "/upstreams/form/204", 204],
      ["GET", "/upstreams/form/304", 304],
      ["GET", "/upstreams/form/a", 200],
    ] as const) {
      await reader.write(requestBytes(gateway, { method, path, body: null, headers: ["Connection: keep-alive"] }));
      await reader.readUntil((bytes) => bytes.includes("\r\n\r\n") && parseAnswer(bytes, method).whole);
      const got = parseAnswer(reader.take(), method);
      assert.deepEqual([got.status, got.rest.length], [status, 0]);
      if (method === "HEAD")
        assert.deepEqual(
          [headerOf(got, "content-length"), headerOf(got, "etag"), headerOf(got, "transfer-encoding")],
          ["5", '"a"', undefined],
        );
      if (status === 204)
        assert.deepEqual(
          [headerOf(got, "x-a"), headerOf(got, "content-length"), headerOf(got, "transfer-encoding")],
          ["1", undefined, undefined],
        );
      if (status === 304) assert.equal(headerOf(got, "etag"), '"a"');
      if (method === "GET" && status === 200) assert.equal(got.payload.toString(), "plain");
    }
  });

  test(`1xx answers go to clients that know them, without what must stay here, and 100 is our own, with ${client} [10.X3 10.X2]`, async () => {
    const gateway = gatewayOf(client);
    const hints =
      "HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\nServer: uvicorn\r\nConnection: X-Hop\r\nX-Hop: 1\r\nSet-Cookie: a=1\r\n\r\n";
    answer = ({ socket }) => writeInTurns(socket, ["HTTP/1.1 102 Processing\r\n\r\n", hints, wellBytes]);
    const wellBytes = SSE_HEAD + aChunk(aToken("one") + aFinish() + DONE).toString() + LAST_CHUNK;
    const got = await ask(gateway);
    assert.ok(got.whole);
    assert.deepEqual(
      got.informational.map((head) => head.slice(9, 12)),
      ["102", "103"],
    );
    assert.match(got.informational[1] ?? "", /^Link: <\/style.css>/im);
    assert.doesNotMatch(got.informational[1] ?? "", /server|x-hop|cookie/i);
    const old = await ask(gateway, { version: "1.0" });
    assert.deepEqual(old.informational, []);
    assert.match(old.text, /DONE/);
  });

  test(`Expect: 100-continue is met before the body is sent, and refused before it is sent, with ${client} [10.X3]`, async () => {
    const gateway = gatewayOf(client);
    answer = ({ socket }) => void socket.write(jsonAnswer(aCompletion()));
    const bytes = requestBytes(gateway, { body: aChat({ stream: false }), headers: ["Expect: 100-continue"] });
    const headEnd = bytes.indexOf("\r\n\r\n") + 4;
    using reader = await RawClient.connect(gateway.port);
    await reader.write(bytes.subarray(0, headEnd));
    await reader.readUntil("HTTP/1.1 100 Continue\r\n\r\n");
    await reader.write(bytes.subarray(headEnd));
    const got = await heard(reader);
    assert.deepEqual([got.status, got.informational.length], [200, 1]);
    assert.equal(sentHeaders(lastCall()).get("expect"), undefined);

    const before = engine.calls.length;
    for (const [head, status] of [
      [bytes.toString("latin1", 0, headEnd).replace(gateway.keys.client, "CANARY-wrong"), 401],
      [bytes.toString("latin1", 0, headEnd).replace(/Content-Length: \d+/, "Content-Length: 99999999999"), 413],
      [bytes.toString("latin1", 0, headEnd).replace("100-continue", "200-maybe"), 417],
    ] as const) {
      using refused = await RawClient.connect(gateway.port);
      await refused.write(head);
      await refused.readUntil((received) => received.includes("\r\n\r\n") && parseAnswer(received).whole);
      const said = parseAnswer(refused.received);
      assert.deepEqual([said.status, said.informational.length], [status, 0]);
    }
    assert.equal(engine.calls.length, before);
  });

  test(`a client of HTTP/1.0 gets no chunks, and its connection ends with the answer, with ${client} [10.X3 10.X2]`, async () => {
    const gateway = gatewayOf(client);
    const text = aToken("one") + aFinish() + DONE;
    for (const headers of [[], ["Connection: keep-alive"]]) {
      answer = ({ socket }) => void socket.write(SSE_HEAD + aChunk(text).toString() + LAST_CHUNK);
      const got = await ask(gateway, { version: "1.0", headers });
      assert.deepEqual([got.status, got.framing, got.text, got.ending], [200, "close", text, "closed"]);
      assert.equal(headerOf(got, "transfer-encoding"), undefined);
      assert.match(sentHeaders(lastCall()).get("via")?.[0] ?? "", /^1\.0 /);
    }
  });

  test(`trailers go on where they may, and their absence harms nobody, with ${client} [10.X3 10.X2]`, async () => {
    const gateway = gatewayOf(client);
    const text = aToken("one") + aFinish() + DONE;
    answer = ({ socket }) =>
      void socket.write(
        `${SSE_HEAD}${aChunk(text).toString()}0\r\nX-Checksum: ok\r\n${client === "net" ? "Content-Length: 5\r\n" : ""}Authorization: CANARY\r\nX-Yardmaster-Upstream: forged\r\n\r\n`,
      );
    const got = await ask(gateway);
    assert.ok(got.whole && got.text === text);
    assert.match(got.trailers, /^X-Checksum: ok\r\n\r\n$/);
    const old = await ask(gateway, { version: "1.0" });
    assert.equal(old.text, text);
  });

  test(`an engine of HTTP/1.0 or without a length is read to its end and not asked twice on one connection, with ${client} [10.X2]`, async () => {
    const gateway = gatewayOf(client);
    const json = JSON.stringify(aCompletion());
    for (const head of [
      `HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n`,
      `HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n`,
    ]) {
      const before = engine.connections;
      for (let turn = 0; turn < 3; turn += 1) {
        answer = ({ socket }) => void socket.end(head + json);
        const got = await ask(gateway, { body: aChat({ stream: false }) });
        assert.deepEqual([got.status, got.text], [200, json]);
      }
      assert.ok(engine.connections >= before + 2);
    }
  });

  test(`error pages of every kind become errors that clients can read, with the status and the engine's words, with ${client} [80.A10]`, async () => {
    const gateway = gatewayOf(client);
    const pages: readonly (readonly [string, string, string])[] = [
      ["502 Bad Gateway", "text/html", "<html><h1>502 nginx</h1></html>"],
      ["500 Internal Server Error", "text/plain", ""],
      ["503 Service Unavailable", "text/plain", "try later"],
      ["400 Bad Request", "application/json", '["wrong"]'],
      ["500 Internal Server Error", "application/json", '{"detail":"boom"}'],
      ["422 Unprocessable Entity", "application/json", '{"detail":[{"loc":["body"],"msg":"field required"}]}'],
      ["404 Not Found", "text/plain", "\u001b[2Jgone\u0007"],
    ];
    for (const stream of [true, false]) {
      for (const [status, type, text] of pages) {
        answer = ({ socket }) => void socket.write(whole(text, "", status, type));
        const got = await ask(gateway, { body: aChat({ stream }) });
        assert.equal(got.status, Number(status.slice(0, 3)));
        const { error } = JSON.parse(got.text) as {
          error: { message: string; type: string; request_id: string; upstream_body?: string };
        };
        assert.ok(error.message.length > 0 && error.type.length > 0);
        assert.equal(error.request_id, headerOf(got, "x-request-id"));
        assert.doesNotMatch(got.text, /\p{Cc}/u);
        if (text !== "" && !text.includes("\u001b"))
          assert.ok(
            got.text.includes(JSON.stringify(text).slice(1, -1).slice(0, 10)) ||
              got.text.includes(JSON.stringify(text.slice(0, 8)).slice(1, -1)),
          );
      }
      answer = ({ socket }) =>
        void socket.write(whole("<!doctype html><title>login</title>", "", "200 OK", "text/html"));
      const page = await ask(gateway, { body: aChat({ stream }) });
      assert.deepEqual(
        [page.status, (JSON.parse(page.text) as { error: { code: string } }).error.code],
        [502, "UPSTREAM_PROTOCOL"],
      );
    }
  });

  test(`an engine's error of any shape is one in Anthropic's on its routes, with ${client} [80.A10]`, async () => {
    const gateway = gatewayOf(client);
    const own = '{"type":"error","error":{"type":"not_found_error","message":"gone"}}';
    const openai = '{"error":{"message":"gone","type":"NotFoundError","param":"model","code":404}}';
    for (const path of ["/v1/messages", "/v1/messages/count_tokens"]) {
      for (const [status, type, text, expected] of [
        ["502 Bad Gateway", "text/html", "<h1>502 nginx</h1>", ["api_error", "the engine answered 502"]],
        ["500 Oops", "text/plain", "", ["api_error", "the engine answered 500 without a body"]],
        ["404 Not Found", "application/json", openai, ["not_found_error", "gone"]],
        ["404 Not Found", "application/json", own, ["not_found_error", "gone"]],
      ] as const) {
        answer = ({ socket }) => void socket.write(whole(text, "", status, type));
        const got = await ask(gateway, { path, body: aChat({ stream: path.endsWith("messages") }) });
        assert.deepEqual(
          [got.status, headerOf(got, "content-type")],
          [Number(status.slice(0, 3)), "application/json"],
          got.text,
        );
        if (text === own) assert.equal(got.text, own);
        const said = JSON.parse(got.text) as { type: string; error: { type: string; message: string } };
        assert.deepEqual([said.type, said.error.type, said.error.message], ["error", ...expected]);
      }
    }
  });

  test(`a pass-through whose engine sends a head and nothing more is a 504, with ${client} [10.X3]`, async () => {
    for (const head of [
      "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
      "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
    ]) {
      answer = ({ socket }) => void socket.write(head);
      const got = await ask(gatewayOf(client), { path: "/upstreams/form/x" });
      assert.equal(got.status, 504);
    }
  });
}

test("eight requests after another and eight pipelined ones keep their answers apart on one connection [10.X2]", async () => {
  const gateway = gatewayOf("net");
  answer = ({ socket, body }) => {
    const { user } = JSON.parse(body.toString()) as { user: string };
    socket.write(jsonAnswer(aCompletion(`for ${user}`)));
  };
  using reader = await RawClient.connect(gateway.port);
  const one = (user: number): Buffer =>
    requestBytes(gateway, { body: aChat({ stream: false, user: String(user) }), headers: ["Connection: keep-alive"] });
  for (let user = 0; user < 8; user += 1) {
    await reader.write(one(user));
    await reader.readUntil((bytes) => bytes.includes("\r\n\r\n") && parseAnswer(bytes).whole);
    assert.match(parseAnswer(reader.take()).payload.toString(), new RegExp(`for ${user}"`));
  }
  await reader.write(Buffer.concat(Array.from({ length: 8 }, (_, user) => one(100 + user))));
  await reader.readUntil((bytes) => bytes.includes("for 107"));
  let rest = reader.received;
  for (let user = 100; user < 108; user += 1) {
    const got = parseAnswer(rest);
    assert.match(got.payload.toString(), new RegExp(`for ${user}"`));
    rest = got.rest;
  }
});
