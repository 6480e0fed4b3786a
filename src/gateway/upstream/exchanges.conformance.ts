import assert from "node:assert/strict";
import { RawServer, type RawCall } from "../../testing/raw-server.ts";
import {
  aPost,
  aRequest,
  aTarget,
  type ExchangeRecorder,
  type RecorderOptions,
  startExchange,
} from "../../testing/record-exchange.ts";
import { answer, bodyOf, endOf, errorOf, type Suite, until } from "./suite.conformance.ts";

export function framingTests({ it, makeClient, traits }: Suite): void {
  const rows: {
    name: string;
    bytes: string;
    method?: string;
    close?: boolean;
    framing: string;
    payload: string;
    trailers?: string[];
  }[] = [
    { name: "a length", bytes: answer("hello"), framing: "length", payload: "hello" },
    { name: "a length of zero", bytes: answer(""), framing: "length", payload: "" },
    {
      name: "chunks",
      bytes: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n",
      framing: "chunked",
      payload: "hello world",
    },
    {
      name: "chunks and trailers",
      bytes: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 9\r\n\r\n",
      framing: "chunked",
      payload: "ok",
      trailers: ["X-Sum", "9"],
    },
    {
      name: "no chunk but the last",
      bytes: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
      framing: "chunked",
      payload: "",
    },
    {
      name: "the end of the connection",
      bytes: "HTTP/1.1 200 OK\r\n\r\nall of it",
      close: true,
      framing: "close",
      payload: "all of it",
    },
    {
      name: "HTTP/1.0 and the end of the connection",
      bytes: "HTTP/1.0 200 OK\r\nServer: old\r\n\r\nall of it",
      close: true,
      framing: "close",
      payload: "all of it",
    },
    { name: "204", bytes: "HTTP/1.1 204 No Content\r\n\r\n", framing: "none", payload: "" },
    { name: "304", bytes: 'HTTP/1.1 304 Not Modified\r\nETag: "a"\r\n\r\n', framing: "none", payload: "" },
    {
      name: "HEAD",
      bytes: "HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n",
      method: "HEAD",
      framing: "none",
      payload: "",
    },
  ];
  for (const row of rows) {
    it(`a response framed by ${row.name} is read [10.X3]`, async () => {
      await using server = await RawServer.listen({
        onCall: ({ socket }) =>
          row.close === true ? socket.end(row.bytes, "latin1") : socket.write(row.bytes, "latin1"),
      });
      const recorder = startExchange(
        makeClient(),
        aTarget(server.port),
        aRequest("/", { method: row.method ?? "GET" }),
      );
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
    assert.deepEqual(recorder.head?.rawHeaders, [
      "Set-Cookie",
      "a=1",
      "set-cookie",
      "b=2",
      "X-Name",
      "caf\xe9",
      "Content-Encoding",
      "gzip",
      "Content-Length",
      String(coded.length),
    ]);
  });

  it("informational answers come first, but 100 is not told [10.X3]", async () => {
    const interim = `${traits.strict ? "HTTP/1.1 100 Continue\r\n\r\n" : ""}HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n`;
    await using server = await RawServer.listen({ onCall: ({ socket }) => socket.write(interim + answer("ok")) });
    const recorder = startExchange(makeClient(), aTarget(server.port), aRequest("/"));
    assert.equal(await bodyOf(recorder), "ok");
    assert.deepEqual(recorder.informational, [
      { status: 103, rawHeaders: ["Link", "</a>"] },
      { status: 102, rawHeaders: [] },
    ]);
  });
}

export function segmentationTests({ it, makeClient, traits }: Suite): void {
  const bytes =
    "HTTP/1.1 200 OK\r\nX-A: b\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0C\r\n, big\r\nworld\r\n0\r\nX-Sum: 9\r\n\r\n";
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
        const next = (): void =>
          void (at < bytes.length && socket.write(bytes[at++] as string, () => setImmediate(next)));
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

export function requestTests({ it, makeClient }: Suite): void {
  it("method, path, headers and body arrive as they were given, with a Content-Length", async () => {
    await using server = await RawServer.listen({ onCall: ({ socket }) => socket.write(answer("ok")) });
    const client = makeClient();
    const bodies = [Buffer.from("{}"), Buffer.alloc(300_000, "body bytes "), Buffer.alloc(0)];
    for (const body of bodies) {
      const parts = [body.subarray(0, 1), body.subarray(1, 70_000), body.subarray(70_000)];
      const request = {
        ...aPost("/v1/x?a=%20b", parts),
        headers: ["Host", "engine:1", "X-Same", "1", "X-Same", "2", "X-Raw", "caf\xe9"],
      };
      assert.equal(await bodyOf(startExchange(client, aTarget(server.port), request)), "ok");
      const call = server.calls.at(-1);
      assert.ok(call !== undefined);
      assert.match(call.head, /^POST \/v1\/x\?a=%20b HTTP\/1\.1\r\n/);
      assert.match(call.head, /\r\nX-Same: 1\r\nX-Same: 2\r\nX-Raw: caf\xe9\r\n/);
      assert.equal(call.head.match(/host:/gi)?.length, 1);
      assert.deepEqual(
        call.head.match(/content-length: .*/gi)?.map((line) => line.toLowerCase()),
        [`content-length: ${body.length}`],
      );
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
    {
      name: "a length that is not the body's",
      request: aRequest("/", { method: "POST", body: [Buffer.from("abc")], bodyBytes: 2 }),
    },
  ];
  for (const { name, request } of refusals) {
    it(`${name} is never sent`, async () => {
      await using server = await RawServer.listen({ onCall: ({ socket }) => socket.write(answer("ok")) });
      assert.equal((await errorOf(startExchange(makeClient(), aTarget(server.port), request))).kind, "connect");
      assert.equal(server.connections, 0);
    });
  }
}

export function flowTests({ it, makeClient }: Suite): void {
  const block = Buffer.alloc(1_000_000, "0123456789abcdef-");
  for (const framing of ["length", "chunked"]) {
    const serve = ({ socket }: RawCall): void => {
      socket.write(
        framing === "length"
          ? `HTTP/1.1 200 OK\r\nContent-Length: ${block.length}\r\n\r\n`
          : "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
      );
      if (framing === "length") socket.write(block);
      else
        for (let at = 0; at < block.length; at += 40_000)
          socket.write(Buffer.concat([Buffer.from("9c40\r\n"), block.subarray(at, at + 40_000), Buffer.from("\r\n")]));
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
      const recorder = startExchange(client, target, aRequest("/"), {
        onHead: (one) => (one.exchange?.pause(), void resume(one)),
        onData: resume,
      });
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
          socket.write(
            `HTTP/1.1 200 OK\r\n${framing === "length" ? "Content-Length: 100000000000" : "Transfer-Encoding: chunked"}\r\n\r\n`,
          );
          const piece =
            framing === "length"
              ? block
              : Buffer.concat([Buffer.from(`${block.length.toString(16)}\r\n`), block, Buffer.from("\r\n")]);
          const more = (): void => {
            written += 1;
            if (!socket.destroyed && written < 200) socket.write(piece, more);
          };
          more();
        },
      });
      let calls = 0;
      const recorder = startExchange(makeClient(), aTarget(server.port), aRequest("/"), {
        onData: () => ((calls += 1), false),
      });
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
}

export function pauseTests({ it, makeClient }: Suite): void {
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
    await using server = await RawServer.listen({
      onCall: ({ socket, path }) =>
        path === "/close" ? socket.end("HTTP/1.1 200 OK\r\n\r\nabc") : socket.write(answer("abc")),
    });
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
