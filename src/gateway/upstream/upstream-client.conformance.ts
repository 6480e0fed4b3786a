import assert from "node:assert/strict";
import type { LookupFunction } from "node:net";
import { after, test } from "node:test";
import { systemClock, type Clock } from "../../kernel/clock.ts";
import { TimerWheel } from "../../kernel/timer-wheel.ts";
import { MALFORMED_RESPONSES } from "../../testing/malformed-responses.ts";
import { RawServer, type RawCall } from "../../testing/raw-server.ts";
import { aPost, aRequest, aTarget, type ExchangeEnd, type ExchangeRecorder, type RecorderOptions, startExchange } from "../../testing/record-exchange.ts";
import { VirtualClock } from "../../testing/virtual-clock.ts";
import type { UpstreamClient } from "./port.ts";

export interface ClientTraits {
  readonly name: string;
  readonly make: (options: { clock: Clock; wheel: TimerWheel; lookup?: LookupFunction }) => UpstreamClient;
  /** Gives a chunked body with its framing when asked. */
  readonly passesChunks: boolean;
  /** Knows every shape of the corpus for what it is, and takes 100 and unequal details of heads as RFC 9112 does. */
  readonly strict: boolean;
}

const TEST_MS_MAX = 20_000;
const answer = (body: string): string => `HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;

export function runUpstreamConformance(traits: ClientTraits): void {
  const clients: UpstreamClient[] = [];
  after(() => clients.forEach((client) => client.close()));
  const makeClient = (clock: Clock = systemClock, lookup?: LookupFunction): UpstreamClient => {
    const client = traits.make({ clock, wheel: new TimerWheel(clock), ...(lookup === undefined ? {} : { lookup }) });
    clients.push(client);
    return client;
  };
  const it = (title: string, body: () => Promise<void>): void => void test(`${traits.name}: ${title}`, { timeout: TEST_MS_MAX }, body);
  const suite: Suite = { traits, makeClient, it };
  framingTests(suite);
  segmentationTests(suite);
  requestTests(suite);
  flowTests(suite);
  failureTests(suite);
  reuseTests(suite);
  smugglingTests(suite);
  abortTests(suite);
  addressTests(suite);
}

interface Suite {
  readonly traits: ClientTraits;
  readonly makeClient: (clock?: Clock, lookup?: LookupFunction) => UpstreamClient;
  readonly it: (title: string, body: () => Promise<void>) => void;
}

function endOf(recorder: ExchangeRecorder): Promise<ExchangeEnd> {
  return recorder.ended.then((end) => {
    assert.deepEqual(recorder.violations, []);
    return end;
  });
}

async function errorOf(recorder: ExchangeRecorder): Promise<{ kind: string; reused: boolean; message: string }> {
  const end = await endOf(recorder);
  assert.equal(end.kind, "error");
  return end.kind === "error" ? end.error : assert.fail();
}

async function bodyOf(recorder: ExchangeRecorder): Promise<string> {
  const end = await endOf(recorder);
  assert.equal(end.kind, "end", JSON.stringify(end));
  return recorder.payload.toString("latin1");
}

/** Waits for something another callback brings about; bounded by the test's own limit. */
async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise((resolve) => setImmediate(resolve));
}

function framingTests({ it, makeClient, traits }: Suite): void {
  const rows: { name: string; bytes: string; method?: string; close?: boolean; framing: string; payload: string; trailers?: string[] }[] = [
    { name: "a length", bytes: answer("hello"), framing: "length", payload: "hello" },
    { name: "a length of zero", bytes: answer(""), framing: "length", payload: "" },
    { name: "chunks", bytes: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n", framing: "chunked", payload: "hello world" },
    {
      name: "chunks and trailers",
      bytes: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 9\r\n\r\n",
      framing: "chunked",
      payload: "ok",
      trailers: ["X-Sum", "9"],
    },
    { name: "no chunk but the last", bytes: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", framing: "chunked", payload: "" },
    { name: "the end of the connection", bytes: "HTTP/1.1 200 OK\r\n\r\nall of it", close: true, framing: "close", payload: "all of it" },
    { name: "HTTP/1.0 and the end of the connection", bytes: "HTTP/1.0 200 OK\r\nServer: old\r\n\r\nall of it", close: true, framing: "close", payload: "all of it" },
    { name: "204", bytes: "HTTP/1.1 204 No Content\r\n\r\n", framing: "none", payload: "" },
    { name: "304", bytes: 'HTTP/1.1 304 Not Modified\r\nETag: "a"\r\n\r\n', framing: "none", payload: "" },
    { name: "HEAD", bytes: "HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n", method: "HEAD", framing: "none", payload: "" },
  ];
  for (const row of rows) {
    it(`a response framed by ${row.name} is read [10.X3]`, async () => {
      await using server = await RawServer.listen({ onCall: ({ socket }) => (row.close === true ? socket.end(row.bytes, "latin1") : socket.write(row.bytes, "latin1")) });
      const recorder = startExchange(makeClient(), aTarget(server.port), aRequest("/", { method: row.method ?? "GET" }));
      const end = await endOf(recorder);
      assert.deepEqual(end, { kind: "end", trailers: row.trailers ?? [] });
      assert.equal(recorder.payload.toString(), row.payload);
      assert.equal(recorder.head?.framing, row.framing);
      assert.equal(recorder.head?.contentLength, row.framing === "length" ? row.payload.length : undefined);
    });
  }

  it("header names keep their case, repeated headers and raw bytes stay as they are, and a content coding is not touched [10.X3]", async () => {
    const coded = "\x1f\x8b\x08\x00\xff\x00raw";
    const head = `HTTP/1.1 200 OK\r\nSet-Cookie: a=1\r\nset-cookie: b=2\r\nX-Name: caf\xe9\r\nContent-Encoding: gzip\r\nContent-Length: ${coded.length}\r\n\r\n`;
    await using server = await RawServer.listen({ onCall: ({ socket }) => socket.write(head + coded, "latin1") });
    const recorder = startExchange(makeClient(), aTarget(server.port), aRequest("/"));
    assert.equal(await bodyOf(recorder), coded);
    assert.deepEqual(recorder.head?.rawHeaders, ["Set-Cookie", "a=1", "set-cookie", "b=2", "X-Name", "caf\xe9", "Content-Encoding", "gzip", "Content-Length", String(coded.length)]);
  });

  it("informational answers come first, but 100 is not told [10.X3]", async () => {
    const interim = `${traits.strict ? "HTTP/1.1 100 Continue\r\n\r\n" : ""}HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n`;
    await using server = await RawServer.listen({ onCall: ({ socket }) => socket.write(interim + answer("ok")) });
    const recorder = startExchange(makeClient(), aTarget(server.port), aRequest("/"));
    assert.equal(await bodyOf(recorder), "ok");
    assert.deepEqual(recorder.informational, [{ status: 103, rawHeaders: ["Link", "</a>"] }, { status: 102, rawHeaders: [] }]);
  });
}

function segmentationTests({ it, makeClient, traits }: Suite): void {
  const bytes = "HTTP/1.1 200 OK\r\nX-A: b\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0C\r\n, big\r\nworld\r\n0\r\nX-Sum: 9\r\n\r\n";
  for (const chunks of traits.passesChunks ? [false, true] : [false]) {
    it(`a response cut at any byte ${chunks ? "with its framing " : ""}is the same response [10.X1]`, async () => {
      await using server = await RawServer.listen({
        onCall: ({ socket, path }) => {
          const cut = Number(path.slice(1));
          socket.write(bytes.slice(0, cut), () => setImmediate(() => socket.write(bytes.slice(cut))));
        },
      });
      const client = makeClient();
      for (let cut = 1; cut < bytes.length; cut += 1) {
        const recorder = startExchange(client, aTarget(server.port), aRequest(`/${cut}`), { chunks });
        assert.equal(await bodyOf(recorder), "hello, big\r\nworld", `cut at ${cut}`);
        assert.deepEqual(recorder.end, { kind: "end", trailers: ["X-Sum", "9"] });
        if (chunks) assert.equal(Buffer.concat(recorder.raw).toString(), "5\r\nhello\r\n0C\r\n, big\r\nworld\r\n");
      }
      assert.equal(server.connections, 1);
    });
  }

  it("a response that comes byte by byte is the same response [10.X1]", async () => {
    await using server = await RawServer.listen({
      onCall: ({ socket }) => {
        let at = 0;
        const next = (): void => void (at < bytes.length && socket.write(bytes[at++] as string, () => setImmediate(next)));
        next();
      },
    });
    const recorder = startExchange(makeClient(), aTarget(server.port), aRequest("/"));
    assert.equal(await bodyOf(recorder), "hello, big\r\nworld");
  });

  it("each chunk is told when it comes, not when more has come [10.X1]", async () => {
    const sockets: RawCall[] = [];
    await using server = await RawServer.listen({
      onCall: (call) => {
        sockets.push(call);
        call.socket.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n0\r\n");
      },
    });
    const recorder = startExchange(makeClient(), aTarget(server.port), aRequest("/"), { chunks: traits.passesChunks });
    for (let i = 1; i < 20; i += 1) {
      await until(() => recorder.payload.length === i);
      sockets[0]?.socket.write(`1\r\n${i % 10}\r\n`);
    }
    await until(() => recorder.payload.length === 20);
    sockets[0]?.socket.write("0\r\n\r\n");
    assert.equal(await bodyOf(recorder), "01234567890123456789");
  });
}

function requestTests({ it, makeClient }: Suite): void {
  it("method, path, headers and body arrive as they were given, with a Content-Length", async () => {
    await using server = await RawServer.listen({ onCall: ({ socket }) => socket.write(answer("ok")) });
    const client = makeClient();
    const bodies = [Buffer.from("{}"), Buffer.alloc(300_000, "body bytes "), Buffer.alloc(0)];
    for (const body of bodies) {
      const parts = [body.subarray(0, 1), body.subarray(1, 70_000), body.subarray(70_000)];
      const request = { ...aPost("/v1/x?a=%20b", parts), headers: ["Host", "engine:1", "X-Same", "1", "X-Same", "2", "X-Raw", "caf\xe9"] };
      assert.equal(await bodyOf(startExchange(client, aTarget(server.port), request)), "ok");
      const call = server.calls.at(-1);
      assert.ok(call !== undefined);
      assert.match(call.head, /^POST \/v1\/x\?a=%20b HTTP\/1\.1\r\n/);
      assert.match(call.head, /\r\nX-Same: 1\r\nX-Same: 2\r\nX-Raw: caf\xe9\r\n/);
      assert.equal(call.head.match(/host:/gi)?.length, 1);
      assert.deepEqual(call.head.match(/content-length: .*/gi)?.map((line) => line.toLowerCase()), [`content-length: ${body.length}`]);
      assert.ok(call.body.equals(body));
    }
    assert.equal(await bodyOf(startExchange(client, aTarget(server.port), aRequest("/get"))), "ok");
    assert.doesNotMatch(server.calls.at(-1)?.head ?? "", /content-length|transfer-encoding/i);
  });

  const refusals: { name: string; request: ReturnType<typeof aRequest> }[] = [
    { name: "a path with a line break", request: aRequest("/a\r\nX: y") },
    { name: "a path with a blank", request: aRequest("/a b") },
    { name: "a header value with a line break", request: aRequest("/", { headers: ["X-A", "b\r\nX-B: c"] }) },
    { name: "a header name with a colon", request: aRequest("/", { headers: ["X-A: b", "c"] }) },
    { name: "a length of the caller's own", request: aRequest("/", { headers: ["Content-Length", "0"] }) },
    { name: "a coding of the caller's own", request: aRequest("/", { headers: ["Transfer-Encoding", "chunked"] }) },
    { name: "a length that is not the body's", request: aRequest("/", { method: "POST", body: [Buffer.from("abc")], bodyBytes: 2 }) },
  ];
  for (const { name, request } of refusals) {
    it(`${name} is never sent`, async () => {
      await using server = await RawServer.listen({ onCall: ({ socket }) => socket.write(answer("ok")) });
      assert.equal((await errorOf(startExchange(makeClient(), aTarget(server.port), request))).kind, "connect");
      assert.equal(server.connections, 0);
    });
  }
}

function flowTests({ it, makeClient }: Suite): void {
  const block = Buffer.alloc(1_000_000, "0123456789abcdef-");
  for (const framing of ["length", "chunked"]) {
    const serve = ({ socket }: RawCall): void => {
      socket.write(framing === "length" ? `HTTP/1.1 200 OK\r\nContent-Length: ${block.length}\r\n\r\n` : "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
      if (framing === "length") socket.write(block);
      else for (let at = 0; at < block.length; at += 40_000) socket.write(Buffer.concat([Buffer.from("9c40\r\n"), block.subarray(at, at + 40_000), Buffer.from("\r\n")]));
      if (framing === "chunked") socket.write("0\r\n\r\n");
    };

    it(`pausing a body framed by ${framing} at every read loses and doubles nothing [10.X1]`, async () => {
      await using server = await RawServer.listen({ onCall: serve });
      const resume = (recorder: ExchangeRecorder): boolean => {
        setImmediate(() => recorder.exchange?.resume());
        return false;
      };
      const client = makeClient();
      const target = aTarget(server.port);
      const recorder = startExchange(client, target, aRequest("/"), { onHead: (one) => (one.exchange?.pause(), void resume(one)), onData: resume });
      await endOf(recorder);
      assert.ok(recorder.payload.equals(block));
      const again = startExchange(client, target, aRequest("/"));
      await endOf(again);
      assert.ok(again.payload.equals(block), "the connection reads on after a pause");
    });

    it(`a paused body framed by ${framing} makes the engine wait [10.X1]`, async () => {
      let written = 0;
      await using server = await RawServer.listen({
        onCall: ({ socket }) => {
          socket.write(`HTTP/1.1 200 OK\r\n${framing === "length" ? "Content-Length: 100000000000" : "Transfer-Encoding: chunked"}\r\n\r\n`);
          const piece = framing === "length" ? block : Buffer.concat([Buffer.from(`${block.length.toString(16)}\r\n`), block, Buffer.from("\r\n")]);
          const more = (): void => {
            written += 1;
            if (!socket.destroyed && written < 200) socket.write(piece, more);
          };
          more();
        },
      });
      let calls = 0;
      const recorder = startExchange(makeClient(), aTarget(server.port), aRequest("/"), { onData: () => ((calls += 1), false) });
      await until(() => calls === 1);
      // The kernel's buffers fill, then nothing moves: as many turns without progress as any progress would need.
      let before = -1;
      while (before !== written) {
        before = written;
        for (let turn = 0; turn < 2_000; turn += 1) await new Promise((resolve) => setImmediate(resolve));
      }
      assert.equal(calls, 1);
      assert.ok(written < 150, `${written} MB went out to a paused reader`);
      recorder.abort();
    });
  }

  it("resume() inside the callback that paused, and pauses before anything came, lose nothing", async () => {
    await using server = await RawServer.listen({ onCall: ({ socket }) => socket.write(answer("x".repeat(200_000))) });
    const options: RecorderOptions = {
      onHead: ({ exchange }) => (exchange?.pause(), exchange?.resume()),
      onData: ({ exchange }) => (exchange?.pause(), exchange?.resume(), true),
    };
    const client = makeClient();
    for (let round = 0; round < 3; round += 1) {
      const recorder = startExchange(client, aTarget(server.port), aRequest("/"), options);
      recorder.exchange?.pause();
      await new Promise((resolve) => setImmediate(resolve));
      assert.equal(recorder.head, undefined);
      recorder.exchange?.resume();
      assert.equal((await bodyOf(recorder)).length, 200_000);
    }
  });

  it("an end that came while paused is told after resume()", async () => {
    await using server = await RawServer.listen({ onCall: ({ socket, path }) => (path === "/close" ? socket.end("HTTP/1.1 200 OK\r\n\r\nabc") : socket.write(answer("abc"))) });
    const client = makeClient();
    for (const path of ["/length", "/close"]) {
      const recorder = startExchange(client, aTarget(server.port), aRequest(path), { onData: () => false });
      await until(() => recorder.payload.length === 3);
      for (let turn = 0; turn < 50; turn += 1) await new Promise((resolve) => setImmediate(resolve));
      assert.equal(recorder.end, undefined);
      recorder.exchange?.resume();
      assert.equal(await bodyOf(recorder), "abc");
    }
  });
}

function failureTests({ it, makeClient }: Suite): void {
  const rows: { name: string; bytes: string; how: "end" | "reset"; kind: string }[] = [
    { name: "closes before it answers", bytes: "", how: "end", kind: "reset" },
    { name: "resets before it answers", bytes: "", how: "reset", kind: "reset" },
    { name: "closes inside the head", bytes: "HTTP/1.1 200 OK\r\nContent", how: "end", kind: "truncated" },
    { name: "closes inside a body of known length", bytes: "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", how: "end", kind: "truncated" },
    { name: "closes inside a chunk", bytes: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\na\r\nabc", how: "end", kind: "truncated" },
    { name: "closes between chunks", bytes: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", how: "end", kind: "truncated" },
  ];
  for (const row of rows) {
    it(`an engine that ${row.name} gives "${row.kind}"`, async () => {
      await using server = await RawServer.listen({
        onCall: ({ socket }) => {
          if (row.how === "reset") socket.resetAndDestroy();
          else socket.end(row.bytes);
        },
      });
      const client = makeClient();
      const error = await errorOf(startExchange(client, aTarget(server.port), aRequest("/")));
      assert.deepEqual([error.kind, error.reused], [row.kind, false]);
      await until(() => client.counts().open === 0);
    });
  }

  it("a reset inside a body is told once, after what came before it", async () => {
    await using server = await RawServer.listen({
      onCall: ({ socket }) => socket.write("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", () => undefined),
    });
    const recorder = startExchange(makeClient(), aTarget(server.port), aRequest("/"), { onData: () => (server.calls[0]?.socket.resetAndDestroy(), true) });
    assert.equal((await errorOf(recorder)).kind, "truncated");
    assert.equal(recorder.payload.toString(), "abc");
  });

  it("an answer that comes before the whole body went out is the answer, and its connection is not used again", async () => {
    await using server = await RawServer.listen({
      beforeBody: true,
      onCall: ({ socket, path }) => {
        if (path === "/early") socket.pause(); // Takes no more of the body.
        socket.write(answer(path));
      },
    });
    const client = makeClient();
    const early = startExchange(client, aTarget(server.port), aPost("/early", Buffer.alloc(30_000_000, "x")));
    assert.equal(await bodyOf(early), "/early");
    assert.equal(await bodyOf(startExchange(client, aTarget(server.port), aRequest("/next"))), "/next");
    assert.deepEqual(server.calls.map((call) => call.connection), [0, 1]);
  });

  it("a closed client refuses, and says so outside exchange()", async () => {
    const client = makeClient();
    client.close();
    assert.equal((await errorOf(startExchange(client, aTarget(1), aRequest("/")))).kind, "connect");
  });
}

function reuseTests({ it, makeClient }: Suite): void {
  it("calls one after another share a connection, calls at once do not", async () => {
    await using server = await RawServer.listen({ onCall: ({ socket, path }) => socket.write(answer(path)) });
    const client = makeClient();
    for (let i = 0; i < 10; i += 1) assert.equal(await bodyOf(startExchange(client, aTarget(server.port), aRequest(`/${i}`))), `/${i}`);
    assert.equal(server.connections, 1);
    const many = Array.from({ length: 50 }, (_, i) => startExchange(client, aTarget(server.port), aRequest(`/${i}`)));
    assert.deepEqual(await Promise.all(many.map(bodyOf)), Array.from({ length: 50 }, (_, i) => `/${i}`));
    assert.equal(server.connections, 50);
    await until(() => client.counts().idle === 50);
    client.close();
    await until(() => client.counts().open === 0);
  });

  it("a call made inside onEnd may use the same connection", async () => {
    await using server = await RawServer.listen({ onCall: ({ socket, path }) => socket.write(answer(path)) });
    const client = makeClient();
    const second = new Promise<ExchangeRecorder>((resolve) => {
      startExchange(client, aTarget(server.port), aRequest("/one"), { onDone: () => resolve(startExchange(client, aTarget(server.port), aRequest("/two"))) });
    });
    assert.equal(await bodyOf(await second), "/two");
    assert.equal(server.connections, 1);
  });

  it("a request that asks for a fresh connection gets one", async () => {
    await using server = await RawServer.listen({ onCall: ({ socket, path }) => socket.write(answer(path)) });
    const client = makeClient();
    for (const path of ["/a", "/b", "/c"]) assert.equal(await bodyOf(startExchange(client, aTarget(server.port), aRequest(path, { freshConnection: true }))), path);
    assert.deepEqual(server.calls.map((call) => call.request), [0, 0, 0]);
  });

  for (const [name, head] of [["Connection: close", "HTTP/1.1 200 OK\r\nConnection: close\r\n"], ["HTTP/1.0", "HTTP/1.0 200 OK\r\n"], ["Keep-Alive: timeout=0", "HTTP/1.1 200 OK\r\nKeep-Alive: timeout=0\r\n"]] as const) {
    it(`after ${name} the connection is not used again`, async () => {
      await using server = await RawServer.listen({ onCall: ({ socket }) => socket.write(`${head}Content-Length: 2\r\n\r\nok`) });
      const client = makeClient();
      for (let i = 0; i < 3; i += 1) assert.equal(await bodyOf(startExchange(client, aTarget(server.port), aRequest("/"))), "ok");
      assert.equal(server.connections, 3);
    });
  }

  it("an engine that closes right after its answer, though it said nothing, fails no later call", async () => {
    await using server = await RawServer.listen({ onCall: ({ socket, path }) => socket.end(answer(path)) });
    const client = makeClient();
    for (let i = 0; i < 100; i += 1) assert.equal(await bodyOf(startExchange(client, aTarget(server.port), aRequest(`/${i}`))), `/${i}`);
  });

  it("an idle connection the engine has closed leaves the pool", async () => {
    await using server = await RawServer.listen({ onCall: ({ socket, path }) => socket.write(answer(path)) });
    const client = makeClient();
    await bodyOf(startExchange(client, aTarget(server.port), aRequest("/a")));
    server.calls[0]?.socket.end();
    await until(() => client.counts().open === 0);
    assert.equal(await bodyOf(startExchange(client, aTarget(server.port), aRequest("/b"))), "/b");
  });

  it("a used connection that breaks before it answers is told as reused, for the caller to try again", async () => {
    await using server = await RawServer.listen({
      onCall: ({ socket, path, request }) => (request === 0 ? socket.write(answer(path)) : socket.resetAndDestroy()),
    });
    const client = makeClient();
    await bodyOf(startExchange(client, aTarget(server.port), aRequest("/a")));
    const error = await errorOf(startExchange(client, aTarget(server.port), aRequest("/b")));
    assert.deepEqual([error.kind, error.reused], ["reset", true]);
    const again = await bodyOf(startExchange(client, aTarget(server.port), aRequest("/b", { freshConnection: true })));
    assert.equal(again, "/b");
  });

  it("closing an origin closes its idle connections and lets running exchanges end", async () => {
    await using server = await RawServer.listen({ onCall: ({ socket, path }) => path !== "/slow" && socket.write(answer(path)) });
    const client = makeClient();
    const target = aTarget(server.port);
    const slow = startExchange(client, target, aRequest("/slow"));
    await until(() => server.calls.length === 1);
    await bodyOf(startExchange(client, target, aRequest("/quick")));
    client.closeOrigin(target.origin);
    await until(() => client.counts().open === 1 && client.counts().idle === 0);
    server.calls[0]?.socket.write(answer("late"));
    assert.equal(await bodyOf(slow), "late");
    await until(() => client.counts().open === 0);
    assert.equal(await bodyOf(startExchange(client, target, aRequest("/new"))), "/new");
  });
}

function smugglingTests({ it, makeClient, traits }: Suite): void {
  const serve = (call: RawCall): void => {
    const shape = MALFORMED_RESPONSES[Number(/^\/bad\/(\d+)/.exec(call.path)?.[1] ?? -1)];
    if (shape === undefined) {
      call.socket.write(answer(`${call.path} on its own`));
      return;
    }
    call.socket.write(shape.bytes, "latin1");
    if (shape.verdict === "unfinished" || !traits.strict) call.socket.end();
  };

  it("every malformed answer is refused, and the next caller gets its own answer [80.G15 80.C36]", async () => {
    await using server = await RawServer.listen({ onCall: serve });
    const client = makeClient();
    const target = aTarget(server.port);
    for (const [index, shape] of MALFORMED_RESPONSES.entries()) {
      assert.equal(await bodyOf(startExchange(client, target, aRequest(`/before/${index}`))), `/before/${index} on its own`);
      const bad = startExchange(client, target, aRequest(`/bad/${index}`, { method: shape.method ?? "GET" }), { chunks: index % 2 === 0 });
      const end = await endOf(bad);
      const used = server.calls.at(-1)?.connection;
      if (traits.strict) {
        const expected = shape.verdict === "refused" ? "protocol" : shape.verdict === "unfinished" ? "truncated" : "end";
        assert.equal(end.kind === "error" ? end.error.kind : end.kind, expected, shape.name);
      }
      assert.equal(await bodyOf(startExchange(client, target, aRequest(`/after/${index}`))), `/after/${index} on its own`, shape.name);
      assert.notEqual(server.calls.at(-1)?.connection, used, `${shape.name}: its connection was used again`);
    }
  });

  it("malformed and clean answers side by side never cross [80.G15]", async () => {
    await using server = await RawServer.listen({ onCall: serve });
    const client = makeClient();
    const target = aTarget(server.port);
    const lane = async (lane: number): Promise<void> => {
      for (let round = 0; round < 30; round += 1) {
        const index = (lane * 31 + round * 7) % MALFORMED_RESPONSES.length;
        await endOf(startExchange(client, target, aRequest(`/bad/${index}`, { method: MALFORMED_RESPONSES[index]?.method ?? "GET" })));
        const path = `/clean/${lane}/${round}`;
        assert.equal(await bodyOf(startExchange(client, target, aRequest(path))), `${path} on its own`);
      }
    };
    await Promise.all(Array.from({ length: 10 }, (_, index) => lane(index)));
  });

  it("bytes on an idle connection end it: they are nobody's answer [80.G15 80.C36]", async () => {
    await using server = await RawServer.listen({ onCall: ({ socket, path }) => socket.write(answer(path)) });
    const client = makeClient();
    for (let round = 0; round < 5; round += 1) {
      assert.equal(await bodyOf(startExchange(client, aTarget(server.port), aRequest(`/${round}`))), `/${round}`);
      server.calls.at(-1)?.socket.write(answer("unasked"));
      await until(() => client.counts().open === 0);
    }
    assert.equal(server.connections, 5);
  });

  it("an answer sent ahead of the next request is not taken for its answer [80.G15]", async () => {
    await using server = await RawServer.listen({ onCall: ({ socket, path }) => socket.write(answer(path)) });
    const client = makeClient();
    const target = aTarget(server.port);
    for (let round = 0; round < 20; round += 1) {
      assert.equal(await bodyOf(startExchange(client, target, aRequest("/first"))), "/first");
      // Already with this machine's kernel when the next request is made, and not read yet.
      const { socket } = server.calls.at(-1) as RawCall;
      socket.write(answer("ahead"));
      assert.equal(await bodyOf(startExchange(client, target, aRequest(`/${round}`))), `/${round}`);
    }
  });
}

function abortTests({ it, makeClient }: Suite): void {
  it("after abort() nothing is told, at whatever stage, and the engine sees the connection end", async () => {
    const stages = ["at once", "connecting", "sent", "head", "data", "paused", "end"];
    let closed = 0;
    await using server = await RawServer.listen({
      onConnection: (socket) => void socket.on("close", () => (closed += 1)),
      onCall: ({ socket, path }) => path !== "/sent" && socket.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"),
    });
    const client = makeClient();
    for (const stage of stages) {
      const seen = server.calls.length;
      const recorder: ExchangeRecorder = startExchange(client, aTarget(server.port), aRequest(`/${stage.replace(" ", "")}`), {
        onHead: (one) => stage === "head" && one.abort(),
        onData: (one) => (stage === "data" ? (one.abort(), true) : stage !== "paused"),
      });
      if (stage === "connecting") await new Promise((resolve) => setImmediate(resolve));
      if (stage === "sent") await until(() => server.calls.length > seen);
      if (stage === "paused" || stage === "end") await until(() => recorder.payload.length === 3);
      recorder.abort();
      recorder.exchange?.abort();
      recorder.exchange?.pause();
      recorder.exchange?.resume();
      await until(() => client.counts().open === 0);
      assert.deepEqual(recorder.violations, [], stage);
      assert.equal(recorder.end, undefined);
    }
    await until(() => closed === server.connections);
  });

  it("aborts at any moment around head, first and last byte end no other exchange and never the process", async () => {
    await using server = await RawServer.listen({
      onCall: ({ socket, path }) => {
        if (path.startsWith("/none")) socket.write("HTTP/1.1 204 No Content\r\n\r\n");
        else if (path.startsWith("/broken")) socket.write("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", () => socket.resetAndDestroy());
        else if (path.startsWith("/chunks")) socket.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", () => socket.write("0\r\n\r\n"));
        else socket.write(answer(path));
      },
    });
    const client = makeClient();
    const target = aTarget(server.port);
    const lane = async (index: number): Promise<void> => {
      for (let round = 0; round < 80; round += 1) {
        const path = ["/none", "/broken", "/chunks", "/plain"][round % 4] as string;
        const victim = startExchange(client, target, aRequest(path, { method: round % 9 === 0 ? "HEAD" : "GET" }));
        for (let turn = 0; turn < (index * 3 + round) % 8; turn += 1) await new Promise((resolve) => setImmediate(resolve));
        if (victim.end === undefined) victim.abort();
        assert.equal(await bodyOf(startExchange(client, target, aRequest(`/own/${index}/${round}`))), `/own/${index}/${round}`);
        assert.deepEqual(victim.violations, []);
      }
    };
    await Promise.all(Array.from({ length: 6 }, (_, index) => lane(index)));
  });
}

function addressTests({ it, makeClient }: Suite): void {
  const resolvesTo = (list: readonly string[]): LookupFunction => (_, options, callback) => {
    const addresses = list.map((address) => ({ address, family: address.includes(":") ? 6 : 4 }));
    setImmediate(() => {
      if (options.all === true) callback(null, addresses);
      else callback(null, addresses[0]?.address ?? "", addresses[0]?.family);
    });
  };

  it("a refused connection names the address tried", async () => {
    const server = await RawServer.listen({ onCall: () => {} });
    const { port } = server;
    await server[Symbol.asyncDispose]();
    const client = makeClient();
    const error = await errorOf(startExchange(client, aTarget(port), aPost("/", Buffer.from("x"))));
    assert.deepEqual([error.kind, error.reused], ["connect", false]);
    assert.match(error.message, new RegExp(`127\\.0\\.0\\.1:${port}`));
    assert.match(error.message, /ECONNREFUSED/);
    assert.equal(client.counts().open, 0);
  });

  for (const [name, host, order] of [["IPv4", "127.0.0.1", ["::1", "127.0.0.1"]], ["IPv6", "::1", ["127.0.0.1", "::1"]]] as const) {
    it(`an engine that listens on ${name} only is found though the other address comes first`, async () => {
      await using server = await RawServer.listen({ host, onCall: ({ socket }) => socket.write(answer("found")) });
      const client = makeClient(systemClock, resolvesTo(order));
      const target = aTarget(server.port, { hostname: "localhost", origin: "http://localhost" });
      assert.equal(await bodyOf(startExchange(client, target, aRequest("/"))), "found");
    });
  }

  it("when no address answers, the message lists all that were tried", async () => {
    const server = await RawServer.listen({ onCall: () => {} });
    const { port } = server;
    await server[Symbol.asyncDispose]();
    const client = makeClient(systemClock, resolvesTo(["::1", "127.0.0.1", "127.0.0.2"]));
    const error = await errorOf(startExchange(client, aTarget(port, { hostname: "engine.test" }), aRequest("/")));
    assert.equal(error.kind, "connect");
    for (const address of [`[::1]:${port}`, `127.0.0.1:${port}`, `127.0.0.2:${port}`]) assert.ok(error.message.includes(address), error.message);
  });

  it("an unknown name is a failure to connect, and the name is asked again for each new connection", async () => {
    await using server = await RawServer.listen({ onCall: ({ socket }) => socket.end(answer("moved")) });
    let asked = 0;
    const lookup: LookupFunction = (hostname, options, callback) => {
      asked += 1;
      if (asked === 1) callback(Object.assign(new Error("unknown name"), { code: "ENOTFOUND" }), []);
      else resolvesTo(["127.0.0.1"])(hostname, options, callback);
    };
    const client = makeClient(systemClock, lookup);
    const target = aTarget(server.port, { hostname: "engine.test", origin: "http://engine.test" });
    const error = await errorOf(startExchange(client, target, aRequest("/")));
    assert.equal(error.kind, "connect");
    assert.match(error.message, /ENOTFOUND/);
    for (let i = 0; i < 2; i += 1) assert.equal(await bodyOf(startExchange(client, target, aRequest("/", { freshConnection: true }))), "moved");
    assert.equal(asked, 3);
  });

  it("the connect timeout covers everything up to a usable connection", async () => {
    const clock = new VirtualClock();
    const client = makeClient(clock);
    // Accepts, and never answers the TLS handshake.
    await using server = await RawServer.listen({ onCall: () => {} });
    const target = aTarget(server.port, { protocol: "https:", connectTimeoutMs: 3_000 });
    const recorder = startExchange(client, target, aRequest("/"));
    await until(() => server.connections === 1);
    await clock.advance(2_900);
    assert.equal(recorder.end, undefined);
    await clock.advance(200);
    const error = await errorOf(recorder);
    assert.equal(error.kind, "connect");
    assert.match(error.message, /3000 ms/);
    await until(() => client.counts().open === 0);
  });

  it("no limit but the connect timeout ends a silent exchange", async () => {
    const clock = new VirtualClock();
    const client = makeClient(clock);
    await using server = await RawServer.listen({ onCall: () => {} });
    const recorder = startExchange(client, aTarget(server.port), aRequest("/"));
    await until(() => server.calls.length === 1);
    await clock.advance(3_600_000);
    assert.equal(recorder.end, undefined);
    server.calls[0]?.socket.write(answer("late"));
    assert.equal(await bodyOf(recorder), "late");
  });
}
