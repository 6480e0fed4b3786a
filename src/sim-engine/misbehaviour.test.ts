import assert from "node:assert/strict";
import { test } from "node:test";
import { brotliDecompressSync, gunzipSync, inflateSync } from "node:zlib";
import { systemClock } from "../kernel/clock.ts";
import { openCall, postText, rawCall, type RawAnswer } from "../testing/raw-call.ts";
import type { SimDialect, SimEngineOptions } from "./options.ts";
import type { SimAction } from "./script.ts";
import { startSimEngine, type LedgerView, type SimEngine } from "./sim-engine.ts";

const WAIT_MS = 8_000;

const start = (dialect: SimDialect = "vllm", over: Partial<SimEngineOptions> = {}): Promise<SimEngine> =>
  startSimEngine({
    models: ["tiny"],
    dialect,
    slots: 2,
    prefillTps: 0,
    decodeTps: 0,
    seed: 1,
    clock: systemClock,
    ...over,
  });

const body = (sim: object, stream: boolean): string =>
  JSON.stringify({ model: "tiny", messages: [{ role: "user", content: "hello" }], max_tokens: 4, stream, sim });
const streamed = (engine: SimEngine, sim: SimAction, until?: (received: Buffer) => boolean): Promise<RawAnswer> =>
  rawCall(engine.port, postText("/v1/chat/completions", body(sim, true), ["connection: close"]), until);
const whole = (engine: SimEngine, sim: SimAction, until?: (received: Buffer) => boolean): Promise<RawAnswer> =>
  rawCall(engine.port, postText("/v1/chat/completions", body(sim, false), ["connection: close"]), until);

async function until(engine: SimEngine, met: (ledger: LedgerView) => boolean): Promise<void> {
  assert.ok(await engine.waitFor(met, WAIT_MS), JSON.stringify({ ...engine.ledger(), entries: [] }));
}

const headOf = (answer: RawAnswer): string => answer.bytes.toString("latin1").split("\r\n\r\n")[0] ?? "";
const bodyOf = (answer: RawAnswer): Buffer => answer.bytes.subarray(answer.bytes.indexOf("\r\n\r\n") + 4);

/** Undoes chunked framing; throws where it is wrong. */
function dechunk(bytes: Buffer): { data: Buffer; trailer: string; chunks: number } {
  const parts: Buffer[] = [];
  for (let at = 0; ;) {
    const end = bytes.indexOf("\r\n", at);
    const size = bytes.subarray(at, end).toString("latin1");
    assert.match(size, /^[0-9a-f]+$/);
    const length = Number.parseInt(size, 16);
    if (length === 0)
      return { data: Buffer.concat(parts), trailer: bytes.subarray(end + 2).toString("latin1"), chunks: parts.length };
    parts.push(bytes.subarray(end + 2, end + 2 + length));
    at = end + 2 + length + 2;
  }
}

test("scripted statuses come with their body, headers and type, and count as failed", async () => {
  await using engine = await start();
  const answer = await whole(engine, {
    status: 429,
    body: { error: "slow down" },
    headers: { "retry-after": "7", "x-many": ["a", "b"] },
    contentType: "application/problem+json",
  });
  assert.match(headOf(answer), /^HTTP\/1\.1 429 /);
  for (const line of ["retry-after: 7", "x-many: a", "x-many: b", "content-type: application/problem+json"])
    assert.ok(headOf(answer).includes(line), line);
  assert.equal(bodyOf(answer).toString(), '{"error":"slow down"}');
  assert.equal(engine.ledger().failed, 1);
});

test("one byte a write, with the whole answer intact", async () => {
  await using engine = await start();
  const plain = dechunk(bodyOf(await streamed(engine, {})))
    .data.toString()
    .replace(/"id":"[^"]*"|"created":\d+/g, "");
  const slow = await streamed(engine, { chunkBytes: 1 });
  assert.equal(
    dechunk(bodyOf(slow))
      .data.toString()
      .replace(/"id":"[^"]*"|"created":\d+/g, ""),
    plain,
  );
  assert.ok(slow.reads > 20, String(slow.reads));
  assert.equal(engine.ledger().finished, 2);
});

test("line ends: CRLF, CR, and a CRLF cut in two", async () => {
  await using engine = await start();
  const crlf = dechunk(bodyOf(await streamed(engine, { lineEnding: "\r\n" }))).data.toString();
  assert.ok(crlf.endsWith("data: [DONE]\r\n\r\n") && !/[^\r]\n/.test(crlf));
  const cr = dechunk(bodyOf(await streamed(engine, { lineEnding: "\r" }))).data.toString();
  assert.ok(cr.endsWith("data: [DONE]\r\r") && !cr.includes("\n"));
  const split = await streamed(engine, { lineEnding: "\r\n", splitCrLf: true });
  assert.ok(split.bytes.includes("\r\r\n"), "a chunk ends inside a CRLF");
  assert.equal(
    dechunk(bodyOf(split))
      .data.toString()
      .replace(/"id":"[^"]*"|"created":\d+/g, ""),
    crlf.replace(/"id":"[^"]*"|"created":\d+/g, ""),
  );
});

test("a cut by FIN, by reset and by a regular end leaves what it says, and counts as failed", async () => {
  await using engine = await start();
  const fin = await streamed(engine, { cutAfterEvents: 2, cut: "fin" });
  assert.deepEqual([fin.end, fin.bytes.toString().split("data: ").length - 1], ["fin", 2]);
  assert.doesNotMatch(fin.bytes.toString(), /\r\n0\r\n\r\n$/);
  assert.equal((await streamed(engine, { cutAfterEvents: 2, cut: "rst" })).end, "reset");
  const early = await streamed(engine, { cutAfterEvents: 2, cut: "chunkedEnd" });
  assert.match(early.bytes.toString(), /\r\n0\r\n\r\n$/);
  assert.equal(early.bytes.includes("[DONE]"), false);
  assert.equal(bodyOf(await streamed(engine, { cutAfterBytes: 37, cut: "fin" })).length, 37);
  assert.equal(bodyOf(await whole(engine, { cutAfterBytes: 0, cut: "fin" })).length, 0);
  assert.deepEqual(
    [
      (await whole(engine, { cutBeforeHead: true })).bytes.length,
      (await whole(engine, { cutBeforeHead: true, cut: "rst" })).end,
    ],
    [0, "reset"],
  );
  await until(engine, (ledger) => ledger.failed === 7 && ledger.inSlotNow === 0 && ledger.concurrentNow === 0);
});

test("streams without their end marks", async () => {
  await using engine = await start();
  const text = async (sim: SimAction): Promise<string> => dechunk(bodyOf(await streamed(engine, sim))).data.toString();
  assert.doesNotMatch(await text({ noDone: true }), /DONE/);
  assert.doesNotMatch(await text({ noFinishReason: true }), /"finish_reason":"/);
  assert.equal(await text({ onlyDone: true }), "data: [DONE]\n\n");
  assert.equal(await text({ emptyStream: true }), "");
});

test("an error event can come first, later, and with [DONE] behind it", async () => {
  await using engine = await start();
  const first = dechunk(bodyOf(await streamed(engine, { errorEventFirst: true }))).data.toString();
  assert.match(first, /^data: \{"error": \{[^\n]*\n\n$/);
  const later = dechunk(bodyOf(await streamed(engine, { errorEventAfter: 2, thenDone: true }))).data.toString();
  assert.match(later, /^(data: \{"id[^\n]*\n\n){2}data: \{"error": [^\n]*\n\ndata: \[DONE\]\n\n$/);
  await until(engine, (ledger) => ledger.failed === 2 && ledger.inSlotNow === 0);
});

test("wrong framing is written as asked", async () => {
  await using engine = await start();
  const head = async (wrongFraming: NonNullable<SimAction["wrongFraming"]>): Promise<string> =>
    headOf(await whole(engine, { wrongFraming }));
  assert.match(await head("clAndTe"), /content-length: \d+\r\ntransfer-encoding: chunked/);
  assert.match(await head("twoCl"), /content-length: \d+\r\ncontent-length: \d+/);
  assert.match(await head("negativeCl"), /content-length: -5/);
  assert.match(await head("http10"), /^HTTP\/1\.0 200 /);
  assert.ok((await head("hugeHeader")).length > 300_000);
  assert.doesNotMatch(await head("noFraming"), /content-length|transfer-encoding/);
  assert.match(bodyOf(await whole(engine, { wrongFraming: "badChunk" })).toString(), /^zz\r\n/);
});

test("informational heads come before the real one", async () => {
  await using engine = await start();
  const flood = (await whole(engine, { flood1xx: 50, early103: true })).bytes.toString();
  assert.equal(flood.split("HTTP/1.1 102 Processing").length, 51);
  assert.match(flood, /HTTP\/1\.1 103 Early Hints\r\nlink: .*\r\n\r\nHTTP\/1\.1 200 OK/);
});

test("Expect: 100-continue is met, ignored, doubled or refused", async () => {
  await using engine = await start();
  const ask = (): Promise<RawAnswer> =>
    rawCall(
      engine.port,
      postText("/v1/chat/completions", body({}, false), ["expect: 100-continue", "connection: close"]),
    );
  const continues = async (): Promise<number> => (await ask()).bytes.toString().split("100 Continue").length - 1;
  assert.equal(await continues(), 1);
  for (const [expect100, count] of [
    ["ignore", 0],
    ["twice", 2],
  ] as const) {
    engine.script({ do: { expect100 } });
    assert.equal(await continues(), count);
  }
  engine.script({ do: { expect100: "refuse" } });
  assert.match(headOf(await ask()), /^HTTP\/1\.1 417 /);
});

test("bodies and streams come compressed, errors too", async () => {
  await using engine = await start();
  const plain = await whole(engine, { gzip: true });
  assert.match(headOf(plain), /content-encoding: gzip/);
  assert.ok(JSON.parse(gunzipSync(bodyOf(plain)).toString()).choices);
  assert.match(
    inflateSync(bodyOf(await whole(engine, { deflate: true, status: 500, body: { a: 1 } }))).toString(),
    /^\{"a":1\}$/,
  );
  const stream = dechunk(bodyOf(await streamed(engine, { br: true })));
  assert.match(brotliDecompressSync(stream.data).toString(), /data: \[DONE\]\n\n$/);
  assert.match(
    gunzipSync(dechunk(bodyOf(await streamed(engine, { gzip: true }))).data).toString(),
    /data: \[DONE\]\n\n$/,
  );
});

test("trailers are announced and sent", async () => {
  await using engine = await start();
  const answer = await streamed(engine, { trailers: { "x-checksum": "abc" } });
  assert.match(headOf(answer), /trailer: x-checksum/);
  assert.equal(dechunk(bodyOf(answer)).trailer, "x-checksum: abc\r\n\r\n");
});

test("cookies twice, and a connection header with a hop of its own", async () => {
  await using engine = await start();
  const head = headOf(await whole(engine, { setCookieTwice: true, connectionHeader: "x-hop, close" }));
  assert.equal(head.match(/set-cookie: /g)?.length, 2);
  assert.match(head, /connection: x-hop, close\r\nx-hop: 1/);
});

test("an engine that promised keep-alive may close all the same", async () => {
  await using engine = await start();
  const answer = await rawCall(
    engine.port,
    postText("/v1/chat/completions", body({ closeAfterResponse: true }, false)),
  );
  assert.equal(answer.end, "fin");
  assert.doesNotMatch(headOf(answer), /connection: close/i);
});

test("hanging after the head, without a head and after some tokens holds the slot until the client leaves", async () => {
  await using engine = await start("vllm", { slots: 3 });
  const sockets = [{ hangAfterHead: true }, { hangNoHead: true }, { hangAfterTokens: 2 }].map((sim) =>
    openCall(engine.port, postText("/v1/chat/completions", body(sim, true))),
  );
  await until(engine, (ledger) => ledger.inSlotNow === 3 && ledger.headSent === 2 && ledger.firstByte === 1);
  for (const socket of sockets) socket.destroy();
  await until(engine, (ledger) => ledger.aborted === 3 && ledger.inSlotNow === 0);
  assert.deepEqual(
    engine
      .ledger()
      .entries.map(({ tokens }) => tokens)
      .toSorted((a, b) => a - b),
    [0, 0, 2],
  );
});

test("an answer can stand still in the middle of its body", async () => {
  await using engine = await start();
  const half = (received: Buffer): boolean => received.length - received.indexOf("\r\n\r\n") - 4 >= 60;
  const answer = await whole(engine, { hangAfterBytes: 60 }, half);
  assert.deepEqual([answer.end, bodyOf(answer).length], ["open", 60]);
  await until(engine, (ledger) => ledger.aborted === 1 && ledger.inSlotNow === 0);
});

test("a hung engine is healthy, its figures stand still, and it goes on when the script is deleted", async () => {
  await using engine = await start();
  const call = streamed(engine, { hangWhileHealthy: true });
  await until(engine, (ledger) => ledger.inSlotNow === 1 && ledger.headSent === 1);
  const other = streamed(engine, {});
  await until(engine, (ledger) => ledger.queuedNow === 1);
  assert.equal((await fetch(`${engine.url}/health`)).status, 200);
  const metrics = async (): Promise<string> => (await fetch(`${engine.url}/metrics`)).text();
  assert.match(await metrics(), /^vllm:num_requests_running\{.*\} 1\.0$/m);
  assert.equal(await metrics(), await metrics());
  assert.equal(engine.ledger().firstByte, 0);
  await fetch(`${engine.url}/sim/script`, { method: "DELETE" });
  for (const answer of [await call, await other]) assert.match(answer.bytes.toString(), /\[DONE\]/);
});

test("a dead vLLM core: 503 health, 500 with its body, running streams end with the error event and [DONE]", async () => {
  await using engine = await start();
  const running = streamed(engine, { hangAfterTokens: 1 });
  await until(engine, (ledger) => ledger.firstByte === 1);
  engine.script({ do: { engineDead: true } });
  assert.match(
    (await running).bytes.toString(),
    /"error": \{"message": "EngineCore encountered an issue[^\n]*\n\n\r\n[0-9a-f]+\r\ndata: \[DONE\]\n\n\r\n0\r\n\r\n$/,
  );
  const next = await whole(engine, {});
  assert.match(headOf(next), /^HTTP\/1\.1 500 /);
  assert.equal(JSON.parse(bodyOf(next).toString()).error.type, "InternalServerError");
  assert.equal((await fetch(`${engine.url}/health`)).status, 503);
  engine.clearScript();
  assert.equal((await fetch(`${engine.url}/health`)).status, 200);
});

test("a vLLM on its way out refuses new work with its own 500 and stays healthy", async () => {
  await using engine = await start();
  engine.script({ do: { shuttingDown: true } });
  const answer = await whole(engine, {});
  assert.match(bodyOf(answer).toString(), /cannot schedule new futures after shutdown/);
  assert.equal((await fetch(`${engine.url}/health`)).status, 200);
});

test("a loading llama.cpp answers 503 on every page", async () => {
  await using engine = await start("llama.cpp");
  engine.script({ do: { loading: true } });
  for (const path of ["/health", "/v1/models"]) {
    const response = await fetch(`${engine.url}${path}`);
    assert.deepEqual(
      [response.status, ((await response.json()) as { error: { message: string } }).error.message],
      [503, "Loading model"],
    );
  }
});

test("health and metrics say what the script wants", async () => {
  await using engine = await start();
  engine.script({ do: { healthStatus: 500, healthDelayMs: 1, metricsBody: "not metrics\n" } });
  assert.equal((await fetch(`${engine.url}/health`)).status, 500);
  assert.equal(await (await fetch(`${engine.url}/metrics`)).text(), "not metrics\n");
});

test("garbage of every kind is sent whole", async () => {
  await using engine = await start();
  const marks = {
    binary: /^/,
    html200: /<h1>/,
    badSse: /data \{/,
    halfJson: /\[\{"ind$/,
    longLine: /^data: x{1000}/,
    nul: /./s,
    ansi: /\[31mred/,
  } as const;
  for (const [garbage, mark] of Object.entries(marks)) {
    const answer = await streamed(engine, { garbage: garbage as keyof typeof marks });
    assert.match(headOf(answer), /^HTTP\/1\.1 200 /);
    assert.match(bodyOf(answer).toString("latin1"), mark);
    assert.equal(bodyOf(answer).includes(0), garbage === "nul" || garbage === "binary");
  }
  assert.equal(engine.ledger().failed, 7);
});

test("any bytes can stand in for an answer", async () => {
  await using engine = await start();
  assert.equal((await whole(engine, { replyWith: "SSH-2.0-OpenSSH\r\n" })).bytes.toString(), "SSH-2.0-OpenSSH\r\n");
});

test("a big body comes at the reader's pace and whole", async () => {
  await using engine = await start();
  const size = 3_000_000;
  const answer = await whole(engine, { bigBodyBytes: size });
  assert.ok(JSON.parse(bodyOf(answer).toString()).choices[0].message.content.length >= size);
  const socket = openCall(engine.port, postText("/v1/chat/completions", body({ bigBodyBytes: 500_000_000 }, false)));
  socket.pause();
  await until(engine, (ledger) => ledger.firstByte === 2);
  // A reader that takes nothing stops the engine long before the end: one event turn later no more is handed over.
  await new Promise((resolve) => setImmediate(resolve));
  assert.ok((engine.ledger().entries[1]?.bytesOut ?? 0) < 100_000_000);
  socket.destroy();
  await until(engine, (ledger) => ledger.aborted === 1);
});

test("comments and pings come between the events", async () => {
  await using engine = await start();
  const text = dechunk(bodyOf(await streamed(engine, { comments: 2 }))).data.toString();
  assert.equal(text.match(/^: comment 0\n: comment 1\n\ndata:/gm)?.length, 6);
  const pinged = await streamed(
    engine,
    { hangAfterHead: true, pingEveryMs: 1 },
    (received) => received.toString().split("\r\n:\n\n").length > 3,
  );
  assert.equal(pinged.end, "open");
});

test("a script over HTTP applies to the nth request that fits, and a wrong one is refused", async () => {
  await using engine = await start();
  const post = (rules: unknown): Promise<Response> =>
    fetch(`${engine.url}/sim/script`, { method: "POST", body: JSON.stringify(rules) });
  assert.equal((await post({ rules: [{ match: { nth: 2 }, do: { status: 503 } }] })).status, 200);
  assert.deepEqual(
    [
      headOf(await whole(engine, {})).slice(9, 12),
      headOf(await whole(engine, {})).slice(9, 12),
      headOf(await whole(engine, {})).slice(9, 12),
    ],
    ["200", "503", "200"],
  );
  assert.equal((await post({ do: { stauts: 503 } })).status, 400);
  const misspelt = await rawCall(
    engine.port,
    postText("/v1/chat/completions", '{"model":"tiny","messages":[],"sim":{"stauts":1}}', ["connection: close"]),
  );
  assert.match(headOf(misspelt), /^HTTP\/1\.1 400 /);
});

test("bytes that are no HTTP get vLLM's plain 400", async () => {
  await using engine = await start();
  assert.match(
    (await rawCall(engine.port, "hello\r\n\r\n")).bytes.toString(),
    /^HTTP\/1\.1 400 [\s\S]*Invalid HTTP request received\.$/,
  );
});
