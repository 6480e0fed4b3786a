import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { SimEngine } from "../../src/sim-engine/sim-engine.ts";
import { RawClient } from "../../src/testing/raw-client.ts";
import { anEngine } from "./support/an-engine.ts";
import { headerOf, heard, parseAnswer, type HeardAnswer } from "./support/raw-answers.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { startTestGateway, type TestGateway } from "./support/test-gateway.ts";

const CAP = 1024 * 1024;

let engine: SimEngine;
let gateway: TestGateway;
before(async () => {
  engine = await anEngine({ slots: 8, contextTokens: 10_000_000 });
  gateway = await startTestGateway({
    file: { max_body_bytes: CAP, max_buffered_bytes: 16 * CAP },
    upstreams: [{ id: "u", engine: "vllm", models: ["m"], slots: 8, endpoints: [{ url: engine.url }] }],
  });
});
after(async () => {
  await gateway.stop();
  await engine.close();
});

const chat = (more = ""): string => `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"hi"}]${more}}`;
const auth = (): string => `Host: g\r\nAuthorization: ${gateway.auth["authorization"]}\r\n`;
const head = (more: string, path = "/v1/chat/completions"): string =>
  `POST ${path} HTTP/1.1\r\n${auth()}Content-Type: application/json\r\n${more}\r\n`;
const withLength = (body: string | Buffer, more = ""): Buffer =>
  Buffer.concat([
    Buffer.from(head(`${more}Content-Length: ${Buffer.byteLength(body)}\r\n`), "latin1"),
    Buffer.from(body as string),
  ]);
const codeOf = (answer: { payload: Buffer }): string => JSON.parse(answer.payload.toString()).error.code;

async function send(bytes: string | Buffer): Promise<HeardAnswer> {
  using client = await RawClient.connect(gateway.port);
  await client.write(bytes);
  return await heard(client);
}
const get = (target: string, more = ""): Promise<HeardAnswer> =>
  send(`GET ${target} HTTP/1.1\r\n${auth()}Connection: close\r\n${more}\r\n`);

/** A chat of exactly this many bytes. */
const chatOf = (bytes: number): string => {
  const empty = chat(',"pad":""');
  return chat(`,"pad":"${"x".repeat(bytes - empty.length)}"`);
};

// --- Pipelining ---

test("two good requests in one piece are answered in order, the second one after the first [80.D18]", async () => {
  const before = engine.ledger().opened;
  using client = await RawClient.connect(gateway.port);
  await client.write(
    Buffer.concat([
      withLength(chat(), "X-Request-Id: one\r\n"),
      withLength(chat(), "X-Request-Id: two\r\nConnection: close\r\n"),
    ]),
  );
  const first = parseAnswer(await client.readToEnd());
  const second = parseAnswer(first.rest);
  assert.deepEqual(
    [headerOf(first, "x-request-id"), headerOf(second, "x-request-id"), second.rest.length],
    ["one", "two", 0],
  );
  assert.equal(engine.ledger().opened, before + 2);
});

const REFUSED: readonly (readonly [string, () => string | Buffer])[] = [
  ["without a key", () => "GET /v1/models HTTP/1.1\r\nHost: g\r\n\r\n"],
  ["with a wrong key", () => "GET /v1/models HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer no\r\n\r\n"],
  [
    "with a body and no key",
    () => `POST /v1/chat/completions HTTP/1.1\r\nHost: g\r\nContent-Length: ${chat().length}\r\n\r\n${chat()}`,
  ],
  ["to no route", () => `GET /nothing HTTP/1.1\r\n${auth()}\r\n`],
  ["with another method", () => `PUT /v1/models HTTP/1.1\r\n${auth()}Content-Length: 2\r\n\r\nxx`],
  ["with a bad path", () => `GET /v1/../admin HTTP/1.1\r\n${auth()}\r\n`],
  ["for no model", () => withLength('{"model":"absent"}')],
  ["with an empty body", () => head("Content-Length: 0\r\n")],
  ["with a broken body", () => withLength("{")],
  ["with a role that may not", () => `GET /admin/keys HTTP/1.1\r\n${auth()}\r\n`],
  ["with a body above the limit", () => withLength("x".repeat(CAP + 1))],
];
for (const [name, first] of REFUSED) {
  test(`a request behind one ${name} is never executed, and the connection ends [80.D18 80.C36]`, async () => {
    const before = engine.ledger().opened;
    const answer = await send(Buffer.concat([Buffer.from(first() as string, "latin1"), withLength(chat())]));
    assert.ok(answer.status >= 400 && answer.status < 500, String(answer.status));
    assert.equal(answer.rest.length, 0);
    assert.equal((await get("/healthz")).status, 200);
    assert.equal(engine.ledger().opened, before);
  });
}

for (const server of ["net", "http"]) {
  test(`what is refused before it is a request has an id too, the client's own where it was read, with ${server} [80.D17 80.D18]`, async () => {
    const own = await startTestGateway({ file: { client_server: server }, upstreams: [] });
    try {
      for (const [bytes, status, id] of [
        [`GET /v1/models?${"q".repeat(9_000)} HTTP/1.1\r\nHost: g\r\nX-Request-Id: mine\r\n\r\n`, 414, "mine"],
        ["GET /v1/../x HTTP/1.1\r\nHost: g\r\nX-Request-Id: mine\r\n\r\n", 400, "mine"],
        ["GET /v1/models HTTP/1.1\r\nHost: g\r\nHost: h\r\nX-Request-Id: mine\r\n\r\n", 400, null],
        ["POST /v1/models HTTP/1.1\r\nHost: g\r\nExpect: wonders\r\nContent-Length: 1\r\n\r\n", 417, null],
        ["CONNECT g:1 HTTP/1.1\r\nHost: g\r\n\r\n", 405, null],
        ["what is this\r\n\r\n", 400, null],
        [`GET /healthz HTTP/1.1\r\nHost: g\r\nX: ${"x".repeat(20_000)}\r\n\r\n`, 431, null],
      ] as const) {
        using client = await RawClient.connect(own.port);
        await client.write(bytes);
        const answer = await heard(client);
        const { error: told } = JSON.parse(answer.payload.toString()) as { error: { request_id: string } };
        assert.deepEqual(
          [answer.status, headerOf(answer, "x-request-id")],
          [status, told.request_id],
          bytes.slice(0, 30),
        );
        if (id === null) assert.match(told.request_id, /^req-/);
        else assert.equal(told.request_id, id);
      }
    } finally {
      await own.stop();
    }
  });
}

// --- Heads ---

test("a hundred headers pass, one more is 431; 16 KiB of them and one byte more is 431; a target of 8 KiB is 414: refused, never cut [80.D17]", async () => {
  const filler = (count: number): string => Array.from({ length: count }, (_, at) => `X-F${at}: 1\r\n`).join("");
  // Host, Authorization and Connection are three of them.
  assert.equal((await get("/v1/models", filler(97))).status, 200);
  const many = await get("/v1/models", filler(98));
  assert.deepEqual([many.status, codeOf(many)], [431, "HEADERS_TOO_LARGE"]);
  assert.equal((await get("/v1/models", filler(2_500))).status, 431);
  assert.equal((await get("/v1/models", `X-Big: ${"a".repeat(15 * 1024)}\r\n`)).status, 200);
  const big = await get("/v1/models", `X-Big: ${"a".repeat(16 * 1024 + 1)}\r\n`);
  assert.deepEqual([big.status, codeOf(big)], [431, "HEADERS_TOO_LARGE"]);
  assert.equal((await get(`/v1/models?${"q".repeat(8191 - "/v1/models?".length)}`)).status, 200);
  const long = await get(`/v1/models?${"q".repeat(8192 - "/v1/models?".length)}`);
  assert.deepEqual([long.status, codeOf(long)], [414, "URI_TOO_LONG"]);
});

test("a Host that is more than a host and port, an absolute target and every trick with the path is 400, and reaches neither the admin routes nor an engine [80.D6]", async () => {
  const before = engine.ledger().opened;
  const asAdmin = (target: string, host = "g"): Promise<HeardAnswer> =>
    send(
      `GET ${target} HTTP/1.1\r\nHost: ${host}\r\nAuthorization: Bearer ${gateway.keys.admin}\r\nConnection: close\r\n\r\n`,
    );
  assert.equal((await asAdmin("/admin/keys")).status, 200);
  for (const host of ["a/admin?x", "a#b", "user@a", "a b", "", "a:b", "[::1", "a,b", "a\\b"])
    assert.equal((await asAdmin("/v1/models", host)).status, 400, `host ${host}`);
  for (const target of [
    "http://g/admin/keys",
    "//admin/keys",
    "/v1//models",
    "/v1/../admin/keys",
    "/v1/./models",
    "/v1/%2e%2e/admin/keys",
    "/v1/%2E%2e%2fadmin/keys",
    "/v1/..%2fadmin%2fkeys",
    "/v1/..;/admin/keys",
    "/v1/models;x=1",
    "/v1\\..\\admin\\keys",
    "/v1/%5c..%5cadmin",
    "/admin%00/keys",
    "/admin/keys%0d%0aX: y",
    "/admin/keys%",
    "/admin/keys%zz",
    "/v1/%c0%ae%c0%ae/admin",
    "/admin/keys#x",
    "*",
    "admin/keys",
    "/admin%2fkeys",
  ]) {
    const answer = await asAdmin(target);
    assert.equal(answer.status, 400, target);
    assert.ok(!answer.text.includes("fingerprint"), target);
  }
  // One spelling for permission and dispatch: an encoded letter is the letter, for the client's key too.
  assert.equal((await asAdmin("/%61dmin/keys")).status, 200);
  assert.equal((await get("/%61dmin/keys")).status, 403);
  assert.equal(engine.ledger().opened, before);
});

test("CR, LF, NUL and bytes beyond ASCII in a header are refused, and in names of a body they split no log line and no header [80.D16]", async () => {
  for (const value of ["a\rb", "a\0b", "a\x80b", "a\xffb", "\xe9", "a\x7fb", "a\x1bb"])
    assert.equal((await get("/v1/models", `X-A: ${value}\r\n`)).status, 400, JSON.stringify(value));
  for (const name of ["a\\r\\nX-Evil: 1", "a\\n2026-01-01 ERROR forged", "\\u001b[31m", "\\u2028", "\\u0000"]) {
    const answer = await send(withLength(`{"model":"${name}"}`, "Connection: close\r\n"));
    assert.equal(answer.status, 404);
    assert.equal(headerOf(answer, "x-evil"), undefined);
  }
  const id = await get("/v1/models", "X-Request-Id: a<script>b\r\n");
  assert.notEqual(headerOf(id, "x-request-id"), "a<script>b");
  for (const line of gateway.logLines) assert.doesNotThrow(() => JSON.parse(line), line);
  assert.ok(!gateway.logLines.some((line) => line.startsWith("2026-01-01 ERROR")));
});

// --- Bodies ---

const chunkedOf = (body: string, chunk = 64 * 1024): string => {
  const parts: string[] = [];
  for (let at = 0; at < body.length; at += chunk) {
    const part = body.slice(at, at + chunk);
    parts.push(`${part.length.toString(16)}\r\n${part}\r\n`);
  }
  return `${parts.join("")}0\r\n\r\n`;
};

test("a body at the limit passes unchanged, with a length and chunked; one byte more is a JSON 413 that names the limit and is read by the client [80.G13]", async () => {
  const before = engine.ledger().entries.length;
  assert.equal((await send(withLength(chatOf(CAP), "Connection: close\r\n"))).status, 200);
  assert.equal(
    (await send(head("Connection: close\r\nTransfer-Encoding: chunked\r\n") + chunkedOf(chatOf(CAP)))).status,
    200,
  );
  assert.deepEqual(
    engine
      .ledger()
      .entries.slice(before)
      .map((entry) => entry.bodyBytes),
    [CAP, CAP],
  );
  for (const bytes of [
    withLength(chatOf(CAP + 1)),
    Buffer.from(head("Transfer-Encoding: chunked\r\n") + chunkedOf(chatOf(CAP + 1))),
  ]) {
    const answer = await send(bytes);
    assert.deepEqual(
      [answer.status, codeOf(answer), headerOf(answer, "content-type")],
      [413, "BODY_TOO_LARGE", "application/json"],
    );
    assert.match(answer.text, new RegExp(String(CAP)));
  }
  assert.equal(engine.ledger().entries.length, before + 2);
});

for (const framing of ["Content-Length: 9000000\r\n", "Transfer-Encoding: chunked\r\n"]) {
  test(`a client that sends far more than the limit piece by piece, and reads only then, gets the 413 (${framing.slice(0, 14)}), and the memory for bodies stays flat [80.G13]`, async () => {
    using client = await RawClient.connect(gateway.port, { paused: true });
    await client.write(head(framing));
    const piece = Buffer.alloc(1_000_000, "x");
    const framed = Buffer.concat([Buffer.from(`${piece.length.toString(16)}\r\n`), piece, Buffer.from("\r\n")]);
    for (let sent = 0; sent < 9; sent++) {
      await client.write(framing.startsWith("Content") ? piece : framed);
      assert.ok((await gateway.metric("yardmaster_buffered_bytes"))! <= 2 * CAP);
    }
    if (!framing.startsWith("Content")) await client.write("0\r\n\r\n");
    const answer = await heard(client);
    assert.deepEqual([answer.status, codeOf(answer), answer.ending], [413, "BODY_TOO_LARGE", "closed"]);
    await eventually(
      "no body held",
      () => gateway.metric("yardmaster_buffered_bytes"),
      (bytes) => bytes === 0,
    );
  });
}

test("a body above the limit that was only announced is refused before it is asked for [80.G13]", async () => {
  const answer = await send(head(`Expect: 100-continue\r\nContent-Length: ${CAP + 1}\r\n`));
  assert.deepEqual([answer.status, answer.informational.length], [413, 0]);
});

const HOSTILE: readonly (readonly [string, string | Buffer, number])[] = [
  ["empty", "", 400],
  ["blank", "  \n", 400],
  ["null", "null", 400],
  ["a list", "[]", 400],
  ["a text", '"x"', 400],
  ["a number", "123", 400],
  ["true", "true", 400],
  ["cut off", '{"model":"m"', 400],
  ["two values", '{"model":"m"}{}', 400],
  ["a model that is an object", '{"model":{"a":1}}', 400],
  ["a model that is null", '{"model":null}', 400],
  ["no model", '{"messages":[]}', 400],
  ["100,000 lists deep", `{"model":"m","a":${"[".repeat(100_000)}${"]".repeat(100_000)}}`, 400],
  ["100,000 objects deep", `${'{"a":'.repeat(100_000)}1${"}".repeat(100_000)}`, 400],
  ["unclosed lists", "[".repeat(500_000), 400],
  ["not UTF-8", Buffer.from([0x7b, 0x22, 0xff, 0xfe, 0x22, 0x3a, 0x31, 0x7d]), 400],
  ["a comment", '{"model":"m"/*x*/}', 400],
  ["NaN", '{"model":"m","a":NaN}', 400],
  ["NUL bytes", "\0\0\0\0", 400],
];
test("a body that is no JSON object with a model is a 400 in OpenAI's shape, at once, and costs no slot, queue place or engine call [80.G13 80.D37 80.D10]", async () => {
  const before = engine.ledger().opened;
  for (const [name, body, status] of HOSTILE) {
    const answer = await send(withLength(body, "Connection: close\r\n"));
    assert.equal(answer.status, status, name);
    const { error } = JSON.parse(answer.text);
    assert.deepEqual(
      [typeof error.message, typeof error.code, error.type],
      ["string", "string", "invalid_request_error"],
      name,
    );
  }
  assert.equal(engine.ledger().opened, before);
  for (const family of ["in_flight", "waiting"])
    assert.equal(await gateway.metric(`yardmaster_${family}{upstream="u",class="interactive"}`), 0, family);
});

test("a million keys, lone surrogates, __proto__ and odd values of stream go to the engine as they are, for it to judge [80.G13 80.D10]", async () => {
  const many = Array.from({ length: 80_000 }, (_, at) => `"k${at}":${at % 10}`).join(",");
  for (const more of [
    `,${many}`,
    ',"a":"\\ud800"',
    ',"__proto__":{"stream":true}',
    ',"constructor":{"prototype":{"x":1}}',
    ',"stream":"false"',
    ',"stream":1',
    ',"n":1e400',
  ]) {
    const body = chat(more);
    const answer = await send(withLength(body, "Connection: close\r\n"));
    assert.ok(
      answer.status === 200 || answer.status === 400 || answer.status === 422,
      `${more.slice(0, 40)}: ${answer.status}`,
    );
    assert.equal(engine.ledger().entries.at(-1)!.bodyBytes, body.length, more.slice(0, 40));
  }
  assert.equal(({} as Record<string, unknown>)["stream"], undefined);
});

test("probes are answered while hostile bodies come, for none of them holds up the event loop [80.G13]", async () => {
  const nasty = withLength(
    `{"model":"absent","a":${"[".repeat(60)}${'"\\u0061",'.repeat(100_000)}1${"]".repeat(60)}}`,
    "Connection: close\r\n",
  );
  let running = true;
  let probes = 0;
  const probing = (async () => {
    while (running) {
      assert.equal((await fetch(`${gateway.url}/healthz`)).status, 200);
      probes += 1;
    }
  })();
  const answers = await Promise.all(Array.from({ length: 16 }, () => send(nasty)));
  running = false;
  await probing;
  assert.ok(answers.every((answer) => answer.status === 404));
  assert.ok(probes > 1);
});
