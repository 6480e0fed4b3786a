import assert from "node:assert/strict";
import type { LookupFunction } from "node:net";
import { systemClock } from "../../kernel/clock.ts";
import { RawServer } from "../../testing/raw-server.ts";
import { aPost, aRequest, aTarget, type ExchangeRecorder, startExchange } from "../../testing/record-exchange.ts";
import { VirtualClock } from "../../testing/virtual-clock.ts";
import { answer, bodyOf, errorOf, type Suite, until } from "./suite.conformance.ts";

export function failureTests({ it, makeClient }: Suite): void {
  const rows: { name: string; bytes: string; how: "end" | "reset"; kind: string }[] = [
    { name: "closes before it answers", bytes: "", how: "end", kind: "reset" },
    { name: "resets before it answers", bytes: "", how: "reset", kind: "reset" },
    { name: "closes inside the head", bytes: "HTTP/1.1 200 OK\r\nContent", how: "end", kind: "truncated" },
    {
      name: "closes inside a body of known length",
      bytes: "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
      how: "end",
      kind: "truncated",
    },
    {
      name: "closes inside a chunk",
      bytes: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\na\r\nabc",
      how: "end",
      kind: "truncated",
    },
    {
      name: "closes between chunks",
      bytes: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
      how: "end",
      kind: "truncated",
    },
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

  for (const [framing, header] of [
    ["of known length", "Content-Length: 10\r\n"],
    ["that only its close ends", ""],
    ["whose end is its close, as it says", "Connection: close\r\n"],
  ])
    it(`a reset inside a body ${framing} is told once, after what came before it`, async () => {
      await using server = await RawServer.listen({
        onCall: ({ socket }) => socket.write(`HTTP/1.1 200 OK\r\n${header}\r\nabc`, () => undefined),
      });
      const recorder = startExchange(makeClient(), aTarget(server.port), aRequest("/"), {
        onData: () => (server.calls[0]?.socket.resetAndDestroy(), true),
      });
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
    assert.deepEqual(
      server.calls.map((call) => call.connection),
      [0, 1],
    );
  });

  it("an engine that refuses a body half-way and closes is heard, not only its closing", async () => {
    await using server = await RawServer.listen({
      beforeBody: true,
      onCall: ({ socket }) =>
        socket.end("HTTP/1.1 413 Content Too Large\r\nConnection: close\r\nContent-Length: 5\r\n\r\nlarge", () =>
          socket.destroy(),
        ),
    });
    const recorder = startExchange(makeClient(), aTarget(server.port), aPost("/", Buffer.alloc(30_000_000, "x")));
    assert.equal(await bodyOf(recorder), "large");
    assert.equal(recorder.head?.status, 413);
  });

  it("a closed client refuses, and says so outside exchange()", async () => {
    const client = makeClient();
    client.close();
    assert.equal((await errorOf(startExchange(client, aTarget(1), aRequest("/")))).kind, "connect");
  });
}

export function reuseTests({ it, makeClient }: Suite): void {
  it("calls one after another share a connection, calls at once do not", async () => {
    await using server = await RawServer.listen({ onCall: ({ socket, path }) => socket.write(answer(path)) });
    const client = makeClient();
    for (let i = 0; i < 10; i += 1)
      assert.equal(await bodyOf(startExchange(client, aTarget(server.port), aRequest(`/${i}`))), `/${i}`);
    assert.equal(server.connections, 1);
    const many = Array.from({ length: 50 }, (_, i) => startExchange(client, aTarget(server.port), aRequest(`/${i}`)));
    assert.deepEqual(
      await Promise.all(many.map(bodyOf)),
      Array.from({ length: 50 }, (_, i) => `/${i}`),
    );
    assert.equal(server.connections, 50);
    await until(() => client.counts().idle === 50);
    client.close();
    await until(() => client.counts().open === 0);
  });

  it("a call made inside onEnd may use the same connection", async () => {
    await using server = await RawServer.listen({ onCall: ({ socket, path }) => socket.write(answer(path)) });
    const client = makeClient();
    const second = new Promise<ExchangeRecorder>((resolve) => {
      startExchange(client, aTarget(server.port), aRequest("/one"), {
        onDone: () => resolve(startExchange(client, aTarget(server.port), aRequest("/two"))),
      });
    });
    assert.equal(await bodyOf(await second), "/two");
    assert.equal(server.connections, 1);
  });

  it("a request that asks for a fresh connection gets one", async () => {
    await using server = await RawServer.listen({ onCall: ({ socket, path }) => socket.write(answer(path)) });
    const client = makeClient();
    for (const path of ["/a", "/b", "/c"])
      assert.equal(
        await bodyOf(startExchange(client, aTarget(server.port), aRequest(path, { freshConnection: true }))),
        path,
      );
    assert.deepEqual(
      server.calls.map((call) => call.request),
      [0, 0, 0],
    );
  });

  for (const [name, head] of [
    ["Connection: close", "HTTP/1.1 200 OK\r\nConnection: close\r\n"],
    ["HTTP/1.0", "HTTP/1.0 200 OK\r\n"],
    ["Keep-Alive: timeout=0", "HTTP/1.1 200 OK\r\nKeep-Alive: timeout=0\r\n"],
  ] as const) {
    it(`after ${name} the connection is not used again`, async () => {
      await using server = await RawServer.listen({
        onCall: ({ socket }) => socket.write(`${head}Content-Length: 2\r\n\r\nok`),
      });
      const client = makeClient();
      for (let i = 0; i < 3; i += 1)
        assert.equal(await bodyOf(startExchange(client, aTarget(server.port), aRequest("/"))), "ok");
      assert.equal(server.connections, 3);
    });
  }
}

export function staleTests({ it, makeClient }: Suite): void {
  it("an engine that closes right after its answer, though it said nothing, fails no later call", async () => {
    await using server = await RawServer.listen({ onCall: ({ socket, path }) => socket.end(answer(path)) });
    const client = makeClient();
    for (let i = 0; i < 100; i += 1)
      assert.equal(await bodyOf(startExchange(client, aTarget(server.port), aRequest(`/${i}`))), `/${i}`);
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
    await using server = await RawServer.listen({
      onCall: ({ socket, path }) => path !== "/slow" && socket.write(answer(path)),
    });
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

const resolvesTo =
  (list: readonly string[]): LookupFunction =>
  (_, options, callback) => {
    const addresses = list.map((address) => ({ address, family: address.includes(":") ? 6 : 4 }));
    setImmediate(() => {
      if (options.all === true) callback(null, addresses);
      else callback(null, addresses[0]?.address ?? "", addresses[0]?.family);
    });
  };

export function addressTests({ it, makeClient }: Suite): void {
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

  for (const [name, host, order] of [
    ["IPv4", "127.0.0.1", ["::1", "127.0.0.1"]],
    ["IPv6", "::1", ["127.0.0.1", "::1"]],
  ] as const) {
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
    for (const address of [`[::1]:${port}`, `127.0.0.1:${port}`, `127.0.0.2:${port}`])
      assert.ok(error.message.includes(address), error.message);
  });

  it("what the gateway lacks itself is told from what the engine does not do [10.R5]", async () => {
    const failsWith =
      (code: string): LookupFunction =>
      (_hostname, _options, callback) =>
        void setImmediate(() => callback(Object.assign(new Error(code), { code }), []));
    for (const [code, ours] of [
      ["EMFILE", true],
      ["ENFILE", true],
      ["ENOTFOUND", false],
      ["ECONNREFUSED", false],
    ] as const) {
      const client = makeClient(systemClock, failsWith(code));
      const error = await errorOf(startExchange(client, aTarget(1, { hostname: "engine.test" }), aRequest("/")));
      assert.deepEqual([error.kind, error.ours], ["connect", ours], code);
    }
    const unsent = await errorOf(startExchange(makeClient(), aTarget(1), aRequest("no path")));
    assert.deepEqual([unsent.kind, unsent.ours], ["connect", true]);
  });

  it("aborts while several addresses are tried are quiet", async () => {
    await using server = await RawServer.listen({ onCall: ({ socket }) => socket.write(answer("late")) });
    const client = makeClient(systemClock, resolvesTo(["::1", "127.0.0.2", "127.0.0.1"]));
    for (let turns = 0; turns < 12; turns += 1) {
      const recorder = startExchange(
        client,
        aTarget(server.port, { hostname: "engine.test" }),
        aPost("/", Buffer.from("x")),
      );
      for (let turn = 0; turn < turns; turn += 1) await new Promise((resolve) => setImmediate(resolve));
      if (recorder.end === undefined) recorder.abort();
      await until(() => client.counts().open === client.counts().idle);
      assert.deepEqual(recorder.violations, []);
    }
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
    for (let i = 0; i < 2; i += 1)
      assert.equal(await bodyOf(startExchange(client, target, aRequest("/", { freshConnection: true }))), "moved");
    assert.equal(asked, 3);
  });
}

export function timeoutTests({ it, makeClient }: Suite): void {
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
