import assert from "node:assert/strict";
import { connect } from "node:net";
import { after, before, test } from "node:test";
import { RawClient } from "../../src/testing/raw-client.ts";
import { RawServer, type RawCall } from "../../src/testing/raw-server.ts";
import { aChat, ask, heard, requestBytes } from "./support/raw-answers.ts";
import { aChunk, aFinish, aToken, DONE, LAST_CHUNK, repeatedly, SSE_HEAD, writeAsTaken } from "./support/raw-engine.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { startTestGateway, type TestGateway } from "./support/test-gateway.ts";

// Clients that read slowly or not at all. What the engine could write is the engine's own account.

const MIB = 1024 * 1024;
const PIECE = aChunk(aToken("x".repeat(16_000)));
const CLIENTS = ["net", "undici"] as const;
const gateways = new Map<string, TestGateway>();
let engine: RawServer;
let answer: (call: RawCall) => void;

before(async () => {
  engine = await RawServer.listen({ onCall: (call) => answer(call) });
  for (const client of CLIENTS) {
    const endpoints = [{ url: `http://127.0.0.1:${engine.port}` }];
    const common = { engine: "vllm", health: "passive", endpoints };
    gateways.set(
      client,
      await startTestGateway({
        file: { upstream_client: client },
        upstreams: [
          { ...common, id: "patient", models: ["m"], slots: 80 },
          { ...common, id: "one", models: ["one"], slots: 1, timeouts: { write_stall_s: 0.4 } },
          { ...common, id: "form", kind: "http", slots: 4, timeouts: { write_stall_s: 0.4 } },
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

interface Flood {
  written: number;
  closed: boolean;
}

/** An engine that writes 50 MB as fast as it is taken. */
function floodEngine(): Flood {
  const flood: Flood = { written: 0, closed: false };
  answer = ({ socket }) => {
    socket.write(SSE_HEAD);
    socket.once("close", () => (flood.closed = true));
    writeAsTaken(
      socket,
      PIECE,
      3_200,
      (bytes) => (flood.written += bytes),
      () => socket.write(Buffer.concat([aChunk(aFinish() + DONE), Buffer.from(LAST_CHUNK)])),
    );
  };
  return flood;
}

/** Until the engine has not been able to write for many looks in a row. */
async function untilHeldBack(flood: Flood): Promise<void> {
  let seen = -1;
  let same = 0;
  await eventually(
    "the engine is held back",
    () => {
      same = flood.written === seen ? same + 1 : 0;
      seen = flood.written;
      return same;
    },
    (looks) => looks >= 25,
    20_000,
  );
}

/** What the operating system takes between a writer that never stops and a reader that never reads. */
async function kernelBytes(): Promise<number> {
  let written = 0;
  await using server = await RawServer.listen({
    onCall: ({ socket }) =>
      writeAsTaken(
        socket,
        PIECE,
        3_200,
        (bytes) => (written += bytes),
        () => {},
      ),
  });
  using client = await RawClient.connect(server.port, { paused: true });
  await client.write("GET / HTTP/1.1\r\n\r\n");
  const flood: Flood = { written: 0, closed: false };
  Object.defineProperty(flood, "written", { get: () => written });
  await untilHeldBack(flood);
  return written;
}

for (const client of CLIENTS) {
  test(
    `a client that reads nothing holds the engine back: at most 2 MiB wait in the gateway, and all arrives once it reads, with ${client} [10.X1 80.C25]`,
    { timeout: 240_000 },
    async () => {
      const kernel = await kernelBytes();
      const flood = floodEngine();
      const gateway = gatewayOf(client);
      using reader = await RawClient.connect(gateway.port, { paused: true, patienceMs: 40_000 });
      await reader.write(requestBytes(gateway));
      await untilHeldBack(flood);
      // Two pairs of sockets stand between the engine and the client.
      assert.ok(
        flood.written <= 2 * kernel + 2 * MIB,
        `${flood.written} bytes were taken, the system holds ${kernel} for each connection`,
      );
      assert.ok(flood.written < 50 * MIB);
      const got = await heard(reader);
      assert.ok(got.whole);
      assert.equal(got.payload.length, 3_200 * aToken("x".repeat(16_000)).length + (aFinish() + DONE).length);
    },
  );

  for (const [name, path, body] of [
    ["a stream", "/v1/chat/completions", aChat({ model: "one" })],
    ["a pass-through", "/upstreams/form/x", aChat()],
  ] as const) {
    test(
      `a client that never reads ${name} is cut after write_stall_s, its slot serves the next, and it is counted, with ${client} [80.G10 80.C25]`,
      { timeout: 240_000 },
      async () => {
        const flood = floodEngine();
        const gateway = gatewayOf(client);
        using reader = await RawClient.connect(gateway.port, { paused: true });
        await reader.write(requestBytes(gateway, { path, body }));
        await eventually(
          "the engine is rid of it",
          () => flood.closed,
          (closed) => closed,
        );
        answer = ({ socket }) =>
          void socket.write(SSE_HEAD + aChunk(aToken("next") + aFinish() + DONE).toString() + LAST_CHUNK);
        const next = await ask(gateway, { path, body });
        assert.ok(next.whole && next.text.includes("next"));
        assert.equal((await heard(reader)).whole, false);
        const { records } = await gateway.audit("?outcome=client_stalled&limit=1");
        assert.equal(records[0]?.outcome, "client_stalled");
        const id = name === "a stream" ? "one" : "form";
        assert.ok(((await gateway.metric(`yardmaster_client_stalls_total{upstream="${id}"}`)) ?? 0) >= 1);
      },
    );
  }
}

test(
  "a client that takes a few bytes now and then is cut like one that takes nothing, for the engine can't go on [80.G10]",
  { timeout: 240_000 },
  async () => {
    const flood = floodEngine();
    const gateway = gatewayOf("net");
    let taken = 0;
    const { promise: ended, resolve: end } = Promise.withResolvers<void>();
    // Sixteen bytes a read, and then a pause: the system's buffers stay full.
    const take = (bytes: number): boolean => {
      taken += bytes;
      return false;
    };
    const socket = connect({
      port: gateway.port,
      host: "127.0.0.1",
      onread: { buffer: Buffer.alloc(16), callback: take },
    });
    socket.on("error", () => {});
    socket.once("close", () => end());
    socket.write(requestBytes(gateway, { body: aChat({ model: "one" }) }));
    repeatedly(socket, 20, () => socket.resume());
    try {
      await eventually(
        "the engine is rid of it",
        () => flood.closed,
        (closed) => closed,
      );
      assert.ok(taken > 0 && taken < MIB);
      const next = floodEngine();
      using reader = await RawClient.connect(gateway.port);
      await reader.write(requestBytes(gateway, { body: aChat({ model: "one" }) }));
      await eventually(
        "the next has the slot",
        () => next.written,
        (bytes) => bytes > 0,
      );
    } finally {
      socket.destroy();
    }
    await ended;
  },
);

test(
  "forty clients that read nothing together cost a bounded memory each, and leave the others alone [80.G10 80.C25]",
  { timeout: 240_000 },
  async () => {
    const gateway = gatewayOf("net");
    floodEngine();
    const flood = answer;
    const before = process.memoryUsage();
    const readers = await Promise.all(
      Array.from({ length: 40 }, async () => {
        const reader = await RawClient.connect(gateway.port, { paused: true });
        await reader.write(requestBytes(gateway));
        return reader;
      }),
    );
    await eventually(
      "all are on the engine",
      () => gateway.health(),
      (health) => JSON.stringify(health).includes('"inFlight":40') || JSON.stringify(health).includes('"in_flight":40'),
    );
    answer = (call) =>
      call.body.includes("quick")
        ? void call.socket.write(SSE_HEAD + aChunk(aToken("quick") + aFinish() + DONE).toString() + LAST_CHUNK)
        : flood(call);
    for (let turn = 0; turn < 10; turn += 1) {
      const other = await ask(gateway, { body: aChat({ user: "quick" }) });
      assert.ok(other.whole);
    }
    const grown = process.memoryUsage().rss - before.rss;
    for (const reader of readers) reader.close();
    assert.ok(grown < 40 * 4 * MIB, `${Math.round(grown / MIB)} MiB for gateway, engine and clients together`);
  },
);
