import assert from "node:assert/strict";
import { createServer, type AddressInfo } from "node:net";
import { test } from "node:test";
import { createServer as createTlsServer, type Server as TlsServer } from "node:tls";
import fc from "fast-check";
import { systemClock, type Clock } from "../../kernel/clock.ts";
import { TimerWheel } from "../../kernel/timer-wheel.ts";
import { MALFORMED_RESPONSES } from "../../testing/malformed-responses.ts";
import { RawServer } from "../../testing/raw-server.ts";
import { aPost, aRequest, aTarget, type ExchangeRecorder, startExchange } from "../../testing/record-exchange.ts";
import { aSelfSignedCertificate } from "../../testing/self-signed-certificate.ts";
import { VirtualClock } from "../../testing/virtual-clock.ts";
import { NetUpstreamClient } from "./net-client.ts";
import { runUpstreamConformance } from "./upstream-client.conformance.ts";

runUpstreamConformance({
  name: "own client",
  make: (options) => new NetUpstreamClient(options),
  passesChunks: true,
  strict: true,
});

const limit = { timeout: 20_000 };
const makeClient = (clock: Clock = systemClock, wheel = new TimerWheel(clock)): NetUpstreamClient =>
  new NetUpstreamClient({ clock, wheel });
const answer = (body: string, more = ""): string =>
  `HTTP/1.1 200 OK\r\n${more}Content-Length: ${body.length}\r\n\r\n${body}`;

async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise((resolve) => setImmediate(resolve));
}

async function bodyOf(recorder: ExchangeRecorder): Promise<string> {
  const end = await recorder.ended;
  assert.deepEqual(recorder.violations, []);
  assert.equal(end.kind, "end", JSON.stringify(end));
  return recorder.payload.toString("latin1");
}

for (const [name, header, idleMs] of [
  ["without a word of the engine", "", 4_000],
  ["when the engine keeps them longer", "Keep-Alive: timeout=75\r\n", 4_000],
  ["earlier when the engine closes earlier", "Keep-Alive: max=9, timeout=2\r\n", 1_000],
] as const) {
  test(`idle connections close after ${idleMs} ms ${name}, and then no timer is left`, limit, async () => {
    const clock = new VirtualClock();
    const wheel = new TimerWheel(clock);
    await using server = await RawServer.listen({ onCall: ({ socket }) => socket.write(answer("ok", header)) });
    const client = makeClient(clock, wheel);
    for (let i = 0; i < 2; i += 1) await bodyOf(startExchange(client, aTarget(server.port), aRequest("/")));
    assert.equal(server.connections, 1);
    await clock.advance(idleMs - 100);
    assert.deepEqual(client.counts(), { open: 1, idle: 1 });
    await clock.advance(200);
    assert.deepEqual(client.counts(), { open: 0, idle: 0 });
    assert.equal(wheel.size, 0);
  });
}

test("the connection freed last is used first, so that those not needed grow old", limit, async () => {
  const clock = new VirtualClock();
  await using server = await RawServer.listen({
    onCall: ({ socket, connection }) => socket.write(answer(String(connection))),
  });
  const client = makeClient(clock);
  const call = (): Promise<string> => bodyOf(startExchange(client, aTarget(server.port), aRequest("/")));
  await Promise.all([call(), call(), call()]);
  const last = await call();
  for (let second = 0; second < 5; second += 1) {
    await clock.advance(1_000);
    assert.equal(await call(), last);
  }
  assert.deepEqual(client.counts(), { open: 1, idle: 1 });
});

test("a connection whose time is over is not used, even before the timer says so", limit, async () => {
  let now = 0;
  const late: Clock = {
    ...systemClock,
    mono: () => now as ReturnType<Clock["mono"]>,
    after: () => ({ cancel: () => {} }),
  };
  await using server = await RawServer.listen({
    onCall: ({ socket, connection }) => socket.write(answer(String(connection))),
  });
  const client = makeClient(late);
  assert.equal(await bodyOf(startExchange(client, aTarget(server.port), aRequest("/"))), "0");
  now = 4_500;
  assert.equal(await bodyOf(startExchange(client, aTarget(server.port), aRequest("/"))), "1");
  client.close();
});

test(
  "what was passed on can be completed when the engine breaks off, and by the caller at any time",
  limit,
  async () => {
    await using server = await RawServer.listen({
      onCall: ({ socket, path }) =>
        socket.write(
          "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n8\r\ndefg",
          () => path === "/break" && socket.end(),
        ),
    });
    const client = makeClient();
    const broken = startExchange(client, aTarget(server.port), aRequest("/break"), { chunks: true });
    const end = await broken.ended;
    assert.deepEqual(
      [end.kind, end.kind === "error" ? [end.error.kind, end.error.completeFraming.toString()] : []],
      ["error", ["truncated", "\n\n\n\n\r\n"]],
    );
    const running = startExchange(client, aTarget(server.port), aRequest("/run"), { chunks: true });
    await until(() => running.payload.length === 7);
    assert.equal(running.exchange?.completeFraming().toString(), "\n\n\n\n\r\n");
    running.abort();
    assert.equal(running.exchange?.completeFraming().length, 0);
  },
);

test(
  "an engine that sends anything at all, cut anywhere, gets an end or an error once it closes, and the next caller its own answer [80.A10 80.G15]",
  { timeout: 240_000 },
  async () => {
    let script: readonly Buffer[] = [];
    await using server = await RawServer.listen({
      onCall: ({ socket, path }) => {
        if (path !== "/wild") {
          socket.write(answer(path));
          return;
        }
        const next = (at: number): void => {
          if (at < script.length) socket.write(script[at] as Buffer, () => setImmediate(() => next(at + 1)));
          else socket.end();
        };
        next(0);
      },
    });
    const client = makeClient();
    const piece = fc.oneof(
      fc.constantFrom(
        "HTTP/1.1 200 OK\r\n",
        "Content-Length: 5\r\n",
        "Transfer-Encoding: chunked\r\n",
        "\r\n",
        "hello",
        "5\r\nhello\r\n",
        "0\r\n\r\n",
        "HTTP/1.1 103 Hi\r\n\r\n",
        "X-A: b\r\n",
        "\n",
        "ffffffff\r\n",
      ),
      fc.uint8Array({ minLength: 1, maxLength: 30 }).map((bytes) => Buffer.from(bytes).toString("latin1")),
    );
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.array(piece, { minLength: 1, maxLength: 5 }), { maxLength: 6 }),
        fc.boolean(),
        async (pieces, chunks) => {
          script = pieces.map((list) => Buffer.from(list.join(""), "latin1"));
          const wild = startExchange(client, aTarget(server.port), aRequest("/wild"), { chunks });
          await wild.ended;
          assert.deepEqual(wild.violations, []);
          assert.equal(await bodyOf(startExchange(client, aTarget(server.port), aRequest("/tame"))), "/tame");
        },
      ),
      { numRuns: 150 },
    );
  },
);

test(
  "a refused answer destroys its connection at once, whatever else the engine still sends [80.C36]",
  limit,
  async () => {
    for (const shape of MALFORMED_RESPONSES) {
      if (shape.verdict === "unfinished") continue;
      let closed = false;
      await using server = await RawServer.listen({
        onConnection: (socket) => void socket.on("close", () => (closed = true)),
        onCall: ({ socket }) => socket.write(shape.bytes, "latin1"),
      });
      const client = makeClient();
      await startExchange(client, aTarget(server.port), aRequest("/", { method: shape.method ?? "GET" })).ended;
      assert.deepEqual(client.counts(), { open: 0, idle: 0 }, shape.name);
      await until(() => closed);
    }
  },
);

test("a connection that closes on arrival is a reset before the answer, for a body of any size", limit, async () => {
  const server = createServer((socket) => socket.resetAndDestroy());
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const client = makeClient();
  for (const size of [1, 100_000, 5_000_000]) {
    const end = await startExchange(
      client,
      aTarget((server.address() as AddressInfo).port),
      aPost("/", Buffer.alloc(size)),
    ).ended;
    assert.ok(end.kind === "error" && ["reset", "connect"].includes(end.error.kind));
  }
  assert.equal(client.counts().open, 0);
  server.close();
});

async function tlsServer(name: string): Promise<{ server: TlsServer; port: number; cert: string }> {
  const { key, cert } = aSelfSignedCertificate(name);
  const body = Buffer.alloc(2_000_000, "encrypted;");
  const server = createTlsServer({ key, cert }, (socket) => {
    socket.on("error", () => {});
    socket.on("data", () => {
      socket.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
      for (let at = 0; at < body.length; at += 25_000)
        socket.write(Buffer.concat([Buffer.from("61a8\r\n"), body.subarray(at, at + 25_000), Buffer.from("\r\n")]));
      socket.write("0\r\n\r\n");
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { server, port: (server.address() as AddressInfo).port, cert };
}

test("over TLS streams pass whole, paused or not, and the connection is used again", limit, async () => {
  const { server, port, cert } = await tlsServer("localhost");
  const client = new NetUpstreamClient({ clock: systemClock, wheel: new TimerWheel(systemClock), ca: cert });
  const target = aTarget(port, { protocol: "https:", hostname: "localhost", origin: `https://localhost:${port}` });
  const pauseAt = (recorder: ExchangeRecorder): void => {
    recorder.exchange?.pause();
    setImmediate(() => recorder.exchange?.resume());
  };
  for (const options of [
    {},
    { onData: (one: ExchangeRecorder) => (pauseAt(one), false) },
    { chunks: true },
    { chunks: true, onChunks: pauseAt },
  ]) {
    const body = await bodyOf(startExchange(client, target, aRequest("/"), options));
    assert.ok(body === "encrypted;".repeat(200_000));
  }
  assert.equal(client.counts().open, 1);
  client.close();
  server.close();
});

test(
  "a write that a socket has not finished keeps its bytes, and one that was taken leaves them to the next [10.X1]",
  limit,
  async () => {
    const { server, port, cert } = await tlsServer("localhost");
    await using plain = await RawServer.listen({ onCall: ({ socket }) => socket.write(answer("ok")) });
    const client = new NetUpstreamClient({ clock: systemClock, wheel: new TimerWheel(systemClock), ca: cert });
    const post = aPost("/", Buffer.alloc(5_000));
    const lands = (): number => client.sendBuffer.join("", [], 0).byteOffset;
    await bodyOf(startExchange(client, aTarget(plain.port), post));
    assert.equal(lands(), 0);
    // An encrypted write never ends in the call that begins it.
    const secure = aTarget(port, { protocol: "https:", hostname: "localhost", origin: `https://localhost:${port}` });
    await bodyOf(startExchange(client, secure, post));
    assert.ok(lands() > 5_000);
    client.close();
    server.close();
  },
);

test(
  "bodies of any size that go out at once arrive byte for byte, also on connections that are used again [10.X1]",
  limit,
  async () => {
    await using server = await RawServer.listen({ onCall: ({ socket }) => socket.write(answer("ok")) });
    const client = makeClient(new VirtualClock()); // However long a wave takes, no connection grows old.
    const sizes = [1, 100, 4_095, 8_192, 15_000, 16_384, 16_385, 40_000];
    const bodies = Array.from({ length: 64 }, (_, at) => Buffer.alloc(sizes[at % sizes.length] as number, `${at};`));
    for (let wave = 0; wave < 3; wave += 1)
      await Promise.all(
        bodies.map((body, at) =>
          bodyOf(startExchange(client, aTarget(server.port), aPost(`/${at}`, [body.subarray(0, 7), body.subarray(7)]))),
        ),
      );
    assert.equal(server.connections, bodies.length);
    assert.equal(server.calls.length, 3 * bodies.length);
    for (const { path, body } of server.calls) assert.ok(body.equals(bodies[Number(path.slice(1))] as Buffer), path);
    client.close();
  },
);

test("a certificate that is not trusted, or for another name, is a failure to connect", limit, async () => {
  const { server, port, cert } = await tlsServer("other.test");
  for (const ca of [undefined, cert]) {
    const client = new NetUpstreamClient({
      clock: systemClock,
      wheel: new TimerWheel(systemClock),
      ...(ca === undefined ? {} : { ca }),
    });
    const end = await startExchange(client, aTarget(port, { protocol: "https:", hostname: "localhost" }), aRequest("/"))
      .ended;
    assert.ok(end.kind === "error" && end.error.kind === "connect");
    assert.match(end.error.message, /SELF_SIGNED|ALTNAME/);
    assert.equal(client.counts().open, 0);
  }
  server.close();
});
