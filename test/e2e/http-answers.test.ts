import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { LEFTOVER, MALFORMED_RESPONSES } from "../../src/testing/malformed-responses.ts";
import { RawClient } from "../../src/testing/raw-client.ts";
import { RawServer, type RawCall } from "../../src/testing/raw-server.ts";
import { headerOf, headersOf, heard, parseAnswer, type HeardAnswer } from "./support/raw-answers.ts";
import { aCompletion, jsonAnswer } from "./support/raw-engine.ts";
import { startTestGateway, type TestGateway } from "./support/test-gateway.ts";

const SECRET_PLACE = "/srv/models/llama/weights.gguf";

/** What the engine does for a request, by the word in its body. */
const answers = new Map<string, (call: RawCall) => void>();
const connections = new Map<number, number>();
let engine: RawServer;
let gateway: TestGateway;
let quiet: TestGateway;
before(async () => {
  engine = await RawServer.listen({
    onCall: (call) => {
      connections.set(call.connection, (connections.get(call.connection) ?? 0) + 1);
      const { user = "", seed = 0 } = call.body.length === 0 ? {} : JSON.parse(call.body.toString());
      const answer = answers.get(user);
      if (answer === undefined) call.socket.write(jsonAnswer(aCompletion(`for ${String(seed)}`)));
      else answer(call);
    },
  });
  const upstreams = [
    {
      id: "u",
      models: ["m"],
      slots: 64,
      health: "passive",
      retry: { attempts: 0 },
      endpoints: [{ url: `http://127.0.0.1:${engine.port}` }],
    },
    {
      id: "raw",
      kind: "http",
      slots: 8,
      health: "passive",
      retry: { attempts: 0 },
      endpoints: [{ url: `http://127.0.0.1:${engine.port}` }],
    },
    {
      id: "down",
      models: ["down"],
      slots: 8,
      health: "passive",
      retry: { attempts: 0 },
      endpoints: [{ url: "http://127.0.0.1:9" }],
    },
  ];
  gateway = await startTestGateway({ upstreams });
  quiet = await startTestGateway({ upstreams, file: { endpoint_header: false } });
});
after(async () => {
  await gateway.stop();
  await quiet.stop();
  await engine[Symbol.asyncDispose]();
});

const chat = (more: Record<string, unknown>): string =>
  JSON.stringify({ model: "m", messages: [{ role: "user", content: "hi" }], ...more });

async function askJson(seed: number, more: Record<string, unknown> = {}): Promise<{ status: number; text: string }> {
  const answer = await fetch(`${gateway.url}/v1/chat/completions`, {
    method: "POST",
    headers: { ...gateway.auth, "content-type": "application/json" },
    body: chat({ seed, ...more }),
  });
  return { status: answer.status, text: await answer.text().catch(() => "(broken off)") };
}

async function ask(
  options: {
    method?: string;
    path?: string;
    version?: string;
    lines?: readonly string[];
    body?: string;
    to?: Pick<TestGateway, "port" | "auth">;
  } = {},
): Promise<HeardAnswer> {
  const {
    method = "POST",
    path = "/v1/chat/completions",
    version = "1.1",
    lines = [],
    body = chat({}),
    to = gateway,
  } = options;
  using client = await RawClient.connect(to.port);
  const head = [
    `${method} ${path} HTTP/${version}`,
    "Host: g",
    `Authorization: ${to.auth["authorization"]}`,
    ...(method === "GET" ? [] : ["Content-Type: application/json", `Content-Length: ${Buffer.byteLength(body)}`]),
    ...lines,
  ];
  if (!lines.some((line) => /^connection:/i.test(line))) head.push("Connection: close");
  await client.write(`${head.join("\r\n")}\r\n\r\n${method === "GET" ? "" : body}`);
  return await heard(client, method);
}

test("malformed answers between good ones on pooled connections: each bad one is a 502 or cut, every good one is its own, and no leftover reaches anyone [80.G15 80.C36]", async () => {
  let seed = 0;
  let pairs = 0;
  const good = async (): Promise<void> => {
    const mine = (seed += 1);
    const answer = await askJson(mine);
    assert.equal(answer.status, 200);
    assert.equal(JSON.parse(answer.text).choices[0].message.content, `for ${mine}`);
  };
  const shapes = MALFORMED_RESPONSES.filter((shape) => shape.method === undefined);
  for (const [at, shape] of shapes.entries()) {
    answers.set(`bad-${at}`, ({ socket }) => {
      socket.write(Buffer.from(shape.bytes, "latin1"));
      if (shape.verdict === "unfinished") socket.end();
    });
  }
  const one = async (at: number): Promise<void> => {
    const shape = shapes[at]!;
    const [bad] = await Promise.all([askJson(0, { user: `bad-${at}` }), good(), good()]);
    await good();
    pairs += 3;
    assert.ok(!bad.text.includes("leftover"), shape.name);
    if (shape.verdict === "refused")
      assert.ok(
        [502, 504].includes(bad.status) || bad.text === "(broken off)",
        `${shape.name}: ${bad.status} ${bad.text.slice(0, 200)}`,
      );
    if (bad.status === 502) assert.match(JSON.parse(bad.text).error.code, /^UPSTREAM_(?:PROTOCOL|ERROR)$/, shape.name);
  };
  for (let round = 0; round < 3; round++) {
    for (let at = 0; at < shapes.length; at += 4)
      await Promise.all(shapes.slice(at, at + 4).map((_, offset) => one(at + offset)));
  }
  assert.ok(pairs >= 800, String(pairs));
  assert.ok(Math.max(...connections.values()) > 3, "connections are pooled, else nothing is shown");
});

test("a flood of informational answers ends the call and takes no memory, and the next call is well [80.G15]", async () => {
  let sent = 0;
  answers.set("flood", ({ socket }) => {
    const flood = Buffer.from("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n".repeat(1_000));
    const more = (): void => {
      while (!socket.destroyed && sent < 20_000_000) {
        sent += flood.length;
        if (!socket.write(flood)) return void socket.once("drain", more);
      }
    };
    more();
  });
  assert.equal((await askJson(0, { user: "flood" })).status, 502);
  assert.ok(sent < 20_000_000, "the engine is cut long before it is through");
  assert.equal((await askJson(7)).status, 200);
});

test("bytes that an engine sends ahead of the next request are nobody's answer [80.G15]", async () => {
  answers.set("ahead", ({ socket }) => socket.write(jsonAnswer(aCompletion("mine")) + LEFTOVER));
  for (let round = 0; round < 50; round++) {
    assert.match((await askJson(0, { user: "ahead" })).text, /mine/);
    assert.match((await askJson(round)).text, new RegExp(`for ${round}"`));
  }
});

test("hop-by-hop headers and those that Connection names reach neither side, upgrades open no tunnel, and cookies and repeats of an http upstream stay [10.X2 80.D19 80.C33 10.X3]", async () => {
  answers.set("hop", ({ socket }) => {
    const body = JSON.stringify(aCompletion());
    socket.write(
      `HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: keep-alive, X-Inner\r\nKeep-Alive: timeout=5\r\nX-Inner: 1\r\nProxy-Authenticate: Basic\r\nUpgrade: h2c\r\nServer: llama.cpp\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nTrailer: X-T\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
    );
  });
  const lines = [
    "Connection: keep-alive, X-Internal, authorization, close",
    "X-Internal: 1",
    "TE: trailers",
    "Trailer: X-T",
    "Keep-Alive: timeout=1",
    "Proxy-Authorization: Basic YTpi",
    "Proxy-Connection: keep-alive",
    "Upgrade: h2c",
    "HTTP2-Settings: AAMAAABkAAQAAP__",
  ];
  for (const path of ["/v1/chat/completions", "/upstreams/raw/v1/chat/completions"]) {
    const answer = await ask({ path, lines, body: chat({ user: "hop" }) });
    assert.equal(answer.status, 200, answer.text);
    const { head } = engine.calls.at(-1)!;
    for (const name of [
      "x-internal",
      "te",
      "trailer",
      "keep-alive",
      "proxy-authorization",
      "proxy-connection",
      "upgrade",
      "authorization",
    ])
      assert.doesNotMatch(head, new RegExp(`^${name}:`, "im"), `${path} ${name}`);
    assert.equal(head.match(/^content-length:/gim)?.length, 1);
    assert.doesNotMatch(head, /^transfer-encoding:/im);
    for (const name of ["keep-alive", "x-inner", "proxy-authenticate", "upgrade", "server", "trailer"])
      assert.equal(headerOf(answer, name), undefined, `${path} ${name}`);
    assert.deepEqual(headersOf(answer, "set-cookie"), path.startsWith("/upstreams") ? ["a=1", "b=2"] : []);
  }
});

test("an upgrade is never granted, on any kind of route, and the connection serves the plain request [80.D19]", async () => {
  for (const [method, path] of [
    ["GET", "/v1/models"],
    ["GET", "/healthz"],
    ["POST", "/v1/chat/completions"],
    ["GET", "/upstreams/raw/x"],
  ] as const) {
    for (const protocol of ["h2c", "websocket"]) {
      const answer = await ask({
        method,
        path,
        lines: [
          "Connection: Upgrade, close",
          `Upgrade: ${protocol}`,
          "Sec-WebSocket-Version: 13",
          "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        ],
      });
      assert.deepEqual([answer.status, answer.informational], [200, []], `${path} ${protocol}`);
    }
  }
});

test("sixteen requests on one connection, and eight on each of eight, are each one whole request for a strict engine, also with answers given before a body was read [80.C33 10.X2]", async () => {
  const mixed = async (port: number, count: number): Promise<number> => {
    using client = await RawClient.connect(port);
    let good = 0;
    for (let at = 0; at < count; at++) {
      const body = chat({ seed: at });
      await client.write(
        `POST /v1/chat/completions HTTP/1.1\r\nHost: g\r\nAuthorization: ${gateway.auth["authorization"]}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
      );
      const bytes = await client.readUntil((received) => received.includes("\r\n\r\n") && parseAnswer(received).whole);
      const answer = parseAnswer(bytes);
      assert.equal(answer.status, 200);
      assert.match(answer.payload.toString(), new RegExp(`for ${at}"`));
      client.take();
      good += 1;
    }
    return good;
  };
  const before = engine.calls.length;
  assert.equal(await mixed(gateway.port, 16), 16);
  await Promise.all(Array.from({ length: 8 }, () => mixed(gateway.port, 8)));
  assert.equal(engine.calls.length, before + 16 + 64);
  // Refused before its body is read: the rest of that body is never taken for a request.
  const early = await ask({
    lines: ["Authorization: Bearer second"],
    body: `${"x".repeat(70_000)}\r\n\r\nGET /v1/models HTTP/1.1\r\n\r\n`,
  });
  assert.deepEqual([early.status, early.rest.length, early.ending !== "open"], [400, 0, true]);
  assert.equal(engine.calls.length, before + 16 + 64);
});

test("an answer with neither length nor chunks is ended by the connection for a client of HTTP/1.0, which gets no chunks [10.X3]", async () => {
  const answer = await ask({ version: "1.0" });
  assert.equal(headerOf(answer, "transfer-encoding"), undefined);
  assert.equal(answer.status, 200);
});

test("with `endpoint_header: false` no answer, good or bad, tells of the engine's software, address, files or stack [80.D20]", async () => {
  const boom = JSON.stringify({ error: { message: `boom`, type: "server_error", code: 500 } });
  answers.set("html", ({ socket }) =>
    socket.write(
      "HTTP/1.1 502 Bad Gateway\r\nServer: nginx/1.2\r\nX-Powered-By: Express\r\nVia: 1.1 inner.lan\r\nContent-Type: text/html\r\nContent-Length: 3\r\n\r\nbad",
    ),
  );
  answers.set("boom", ({ socket }) =>
    socket.write(
      `HTTP/1.1 500 Oops\r\nServer: uvicorn\r\nContent-Type: application/json\r\nContent-Length: ${boom.length}\r\n\r\n${boom}`,
    ),
  );
  answers.set("reset", ({ socket }) => socket.resetAndDestroy());
  answers.set("garbage", ({ socket }) => socket.end(`Traceback: ${SECRET_PLACE}\r\n\r\n`));
  const seen = [
    await ask({ to: quiet }),
    await ask({ to: quiet, body: chat({ model: "down" }) }),
    await ask({ to: quiet, method: "GET", path: "/upstreams/raw/x" }),
  ];
  for (const user of ["html", "boom", "reset", "garbage"]) seen.push(await ask({ to: quiet, body: chat({ user }) }));
  for (let round = 0; round < 4; round++) seen.push(await ask({ to: quiet, body: chat({ model: "down" }) }));
  for (const path of ["/v1/models", "/healthz", "/readyz", "/nothing", "/v1/models/absent", "/v1/../x"])
    seen.push(await ask({ to: quiet, method: "GET", path }));
  for (const answer of seen) {
    const all = `${answer.head}\n${answer.text}`;
    assert.doesNotMatch(all, /^(?:server|x-powered-by|via|x-yardmaster-endpoint):/im, all);
    assert.doesNotMatch(all, /127\.0\.0\.1|localhost|inner\.lan|:\d{4,5}\b|node:|\.ts\b|\bat \S+ \(|\/srv\//, all);
  }
});

test("a place that an http upstream names on its own origin is told as callers reach it, also in an error, and another origin passes [80.D20]", async () => {
  const at = `http://127.0.0.1:${engine.port}`;
  for (const [status, named, told] of [
    ["307 Temporary Redirect", `${at}/v1/x?y=1`, "/upstreams/raw/v1/x?y=1"],
    ["201 Created", "/v1/x", "/upstreams/raw/v1/x"],
    ["503 Busy", `//127.0.0.1:${engine.port}/v1/x`, "/upstreams/raw/v1/x"],
    ["302 Found", "https://files.example/v1/x", "https://files.example/v1/x"],
    ["302 Found", "x?page=2", "x?page=2"],
  ] as const) {
    answers.set("place", ({ socket }) =>
      socket.write(
        `HTTP/1.1 ${status}\r\nLocation: ${named}\r\nContent-Location: ${named}\r\nContent-Length: 0\r\n\r\n`,
      ),
    );
    const answer = await ask({ path: "/upstreams/raw/x", body: chat({ user: "place" }) });
    assert.equal(answer.status, Number(status.slice(0, 3)));
    assert.deepEqual([headerOf(answer, "location"), headerOf(answer, "content-location")], [told, told], named);
  }
});

test("HEAD on the gateway's own pages is answered as GET, without the body, whoever asks [80.D3]", async () => {
  for (const role of ["client", "operator", "metrics"] as const) {
    const to = { port: gateway.port, auth: { authorization: `Bearer ${gateway.keys[role]}` } };
    for (const path of ["/healthz", "/readyz", "/health", "/metrics", "/v1/models", "/v1/models/m", "/v1/models/no"]) {
      const got = await ask({ to, path, method: "GET" });
      const head = await ask({ to, path, method: "HEAD", body: "" });
      assert.deepEqual([head.status, head.text, head.rest.length], [got.status, "", 0], path);
      assert.equal(headerOf(head, "content-type"), headerOf(got, "content-type"), path);
      assert.ok(Number(headerOf(head, "content-length")) > 0, path);
    }
  }
});

test("own answers and errors carry no CORS header, are not sniffed, and what an engine says of origins is dropped [80.D35 80.C48]", async () => {
  answers.set("cors", ({ socket }) =>
    socket.write(
      jsonAnswer(aCompletion()).replace(
        "\r\n",
        "\r\nAccess-Control-Allow-Origin: *\r\nAccess-Control-Allow-Credentials: true\r\n",
      ),
    ),
  );
  const origin = ["Origin: https://evil.example"];
  const answersSeen = [await ask({ lines: origin, body: chat({ user: "cors" }) })];
  for (const path of ["/v1/models", "/healthz", "/readyz", "/metrics", "/nothing"])
    answersSeen.push(await ask({ method: "GET", path, lines: origin }));
  for (const answer of answersSeen) assert.doesNotMatch(answer.head, /^access-control-/im);
  for (const answer of answersSeen.slice(1, 5)) assert.equal(headerOf(answer, "x-content-type-options"), "nosniff");
  const preflight = await ask({
    method: "OPTIONS",
    lines: [...origin, "Access-Control-Request-Method: POST"],
    body: "",
  });
  assert.equal(preflight.status, 405);
  assert.doesNotMatch(preflight.head, /^access-control-/im);
});
