import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { after, before, test } from "node:test";
import fc from "fast-check";
import { RawClient } from "../../src/testing/raw-client.ts";
import { RawServer, type RawCall } from "../../src/testing/raw-server.ts";
import { aChat, ask, headerOf, heard, requestBytes } from "./support/raw-answers.ts";
import { aChunk, aFinish, anEvent, aToken, DONE, LAST_CHUNK, SSE_HEAD, writeInTurns } from "./support/raw-engine.ts";
import { startTestGateway, type TestGateway } from "./support/test-gateway.ts";

// Streams through the whole gateway, compared byte by byte with what the engine wrote.

const CLIENTS = ["net", "undici"] as const;
const gateways = new Map<string, TestGateway>();
let engine: RawServer;
let answer: (call: RawCall) => void;

before(async () => {
  engine = await RawServer.listen({ onCall: (call) => answer(call) });
  for (const client of CLIENTS) {
    const upstream = {
      id: "raw",
      engine: "vllm",
      health: "passive",
      models: ["m"],
      slots: 64,
      endpoints: [{ url: `http://127.0.0.1:${engine.port}` }],
    };
    gateways.set(client, await startTestGateway({ file: { upstream_client: client }, upstreams: [upstream] }));
  }
});
after(async () => {
  for (const gateway of gateways.values()) await gateway.stop();
  await engine[Symbol.asyncDispose]();
});
const gatewayOf = (client: string): TestGateway => gateways.get(client) as TestGateway;

const USAGE = anEvent({ choices: [], usage: { prompt_tokens: 7, completion_tokens: 5, total_tokens: 12 } });
/** Text in several scripts, tool arguments that are cut inside an escape, and members that are null, absent or unknown. */
const STREAM = [
  anEvent({ choices: [{ index: 0, delta: { role: "assistant", content: "" }, finish_reason: null, logprobs: null }] }),
  ": a comment of the engine\n\n",
  aToken("読み🙂"),
  'event: note\nid: 7\nretry: 5\ndata: {"choices":[{"index":0,\ndata: "delta":{"content":"two lines"}}]}\n\n\n\n',
  'data:{"choices":[{"index":1,"delta":{"tool_calls":[{"id":"","function":{"name":null,"arguments":"{\\"a\\":\\"\\\\u00"}}]}}],"x_unknown":[1]}\n\n',
  anEvent({
    choices: [
      { index: 0, delta: { content: null, reasoning_content: "hm", refusal: null } },
      { index: 1, delta: {} },
    ],
  }),
  aFinish(),
  USAGE,
  DONE,
].join("");

function withLineEnds(text: string, kind: "LF" | "CRLF" | "CR" | "mixed"): Buffer {
  const ends = { LF: ["\n"], CRLF: ["\r\n"], CR: ["\r"], mixed: ["\r\n", "\n", "\r"] }[kind];
  let turn = 0;
  return Buffer.from(text.replaceAll("\n", () => ends[turn++ % ends.length] as string));
}

/** The same payload as an engine may frame it, cut into pieces to be written one by one. */
function framed(
  payload: Buffer,
  framing: "chunked" | "length" | "close",
  cuts: readonly number[],
  chunkSizes: readonly number[] = [payload.length],
): Buffer[] {
  const head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n";
  let bytes: Buffer;
  if (framing === "chunked") {
    const chunks: Buffer[] = [];
    for (let at = 0, turn = 0; at < payload.length; turn += 1) {
      const size = Math.max(1, chunkSizes[turn % chunkSizes.length] ?? 1);
      chunks.push(aChunk(payload.subarray(at, at + size)));
      at += size;
    }
    bytes = Buffer.concat([
      Buffer.from(`${head}Transfer-Encoding: chunked\r\n\r\n`),
      ...chunks,
      Buffer.from(LAST_CHUNK),
    ]);
  } else if (framing === "length")
    bytes = Buffer.concat([Buffer.from(`${head}Content-Length: ${payload.length}\r\n\r\n`), payload]);
  else bytes = Buffer.concat([Buffer.from(`${head}Connection: close\r\n\r\n`), payload]);
  const points = [0, ...cuts.map((cut) => cut % bytes.length).toSorted((a, b) => a - b), bytes.length];
  return points
    .slice(1)
    .map((point, index) => bytes.subarray(points[index], point))
    .filter((piece) => piece.length > 0);
}

for (const client of CLIENTS) {
  for (const framing of ["chunked", "length", "close"] as const) {
    test(
      `a ${framing} stream reaches the client byte for byte with ${client}, whatever its line ends and wherever it is cut, and its usage is read [10.X1 10.X4]`,
      { timeout: 240_000 },
      async () => {
        const gateway = gatewayOf(client);
        await fc.assert(
          fc.asyncProperty(
            fc.constantFrom("LF", "CRLF", "CR", "mixed"),
            fc.array(fc.nat(5_000), { maxLength: 40 }),
            fc.array(fc.integer({ min: 1, max: 400 }), { minLength: 1, maxLength: 4 }),
            fc.constantFrom("1.1", "1.0"),
            async (ends, cuts, chunkSizes, version) => {
              const payload = withLineEnds(STREAM, ends);
              answer = ({ socket }) =>
                writeInTurns(
                  socket,
                  framed(payload, framing, cuts, chunkSizes),
                  () => framing === "close" && socket.end(),
                );
              const got = await ask(gateway, { version });
              assert.equal(got.status, 200);
              assert.deepEqual(got.payload, payload);
              assert.equal(got.ending, "closed");
              assert.equal(got.framing, version === "1.1" ? "chunked" : "close");
              assert.equal(got.whole, version === "1.1");
            },
          ),
          { numRuns: 25, endOnFailure: true },
        );
        const { records: events } = await gateway.audit("?limit=25");
        assert.ok(events.length >= 25);
        for (const event of events)
          assert.deepEqual([event.outcome, event.promptTokens, event.completionTokens], ["ok", 7, 5]);
      },
    );
  }

  test(
    `a stream that comes byte by byte, a chunk for each, stays whole with ${client} [10.X1]`,
    { timeout: 240_000 },
    async () => {
      for (const ends of ["LF", "CRLF", "CR"] as const) {
        const payload = withLineEnds(STREAM, ends);
        answer = ({ socket }) =>
          writeInTurns(socket, [
            SSE_HEAD,
            ...Array.from(payload, (byte) => aChunk([byte] as unknown as Uint8Array)),
            LAST_CHUNK,
          ]);
        const got = await ask(gatewayOf(client));
        assert.deepEqual(got.payload, payload);
        assert.ok(got.whole);
      }
      const { records: events } = await gatewayOf(client).audit("?limit=3");
      assert.deepEqual(
        events.map((event) => [event.outcome, event.completionTokens]),
        Array.from({ length: 3 }, () => ["ok", 5]),
      );
    },
  );

  test(
    `one event of 200 KB passes whole, however it is cut, with ${client} [10.X1]`,
    { timeout: 240_000 },
    async () => {
      const payload = Buffer.from([aToken("読み🙂".repeat(15_000)), aFinish(), DONE].join(""));
      for (const size of [1_000_000, 60_001, 4_099, 1_021]) {
        answer = ({ socket }) =>
          writeInTurns(
            socket,
            framed(
              payload,
              "chunked",
              Array.from({ length: 50 }, (_, index) => index * 4_093),
              [size],
            ),
          );
        const got = await ask(gatewayOf(client));
        assert.ok(got.payload.equals(payload) && got.whole);
      }
    },
  );

  test(`an event goes on when it comes, and nothing waits for the one behind it, with ${client} [10.X1]`, async () => {
    const events = [
      aToken("one"),
      withLineEnds(aToken("two"), "CRLF").toString(),
      withLineEnds(aToken("three"), "CR").toString(),
      aToken("four"),
      aFinish(),
      DONE,
    ];
    let step = (): void => {};
    answer = ({ socket }) => {
      socket.write(SSE_HEAD);
      let sent = 0;
      step = () => {
        socket.write(sent < events.length ? aChunk(events[sent] as string) : LAST_CHUNK);
        sent += 1;
      };
      step();
    };
    const gateway = gatewayOf(client);
    using reader = await RawClient.connect(gateway.port);
    await reader.write(requestBytes(gateway));
    for (const event of events) {
      await reader.readUntil(
        (received) => received.includes(event.slice(6, 40).trimEnd()) && received.includes(event.slice(-30)),
      );
      // The engine writes the next event only now, so this one cannot have waited for it.
      step();
    }
    assert.equal((await heard(reader)).text, events.join(""));
  });

  test(`what is no JSON goes on as it comes, and an answer of it without a byte is none, with ${client} [10.X1 10.R4b]`, async () => {
    const gateway = gatewayOf(client);
    const kinds = [
      ["/v1/audio/speech", "audio/mpeg", false],
      ["/v1/audio/speech", "audio/pcm", true],
      ["/v1/audio/transcriptions", "text/plain; charset=utf-8", false],
      ["/v1/embeddings", "application/octet-stream", false],
      ["/v1/generate", "application/x-ndjson", false],
    ] as const;
    for (const [path, type, untilClosed] of kinds) {
      let pieces: readonly string[] = [];
      let step = (): void => {};
      answer = ({ socket }) => {
        const head = `HTTP/1.1 200 OK\r\nContent-Type: ${type}\r\n`;
        socket.write(`${head}${untilClosed ? "Connection: close" : "Transfer-Encoding: chunked"}\r\n\r\n`);
        let sent = 0;
        step = () => {
          const piece = pieces[sent++];
          if (piece !== undefined) socket.write(untilClosed ? piece : aChunk(piece));
          else if (untilClosed) socket.end();
          else socket.write(LAST_CHUNK);
        };
        step();
      };
      pieces = ['{"piece":"one"}\n', '{"piece":"two"}\n', '{"piece":"three"}\n'];
      const body = { model: "m", input: "x" };
      using reader = await RawClient.connect(gateway.port);
      await reader.write(requestBytes(gateway, { path, body }));
      for (const piece of pieces) {
        await reader.readUntil((received) => received.includes(piece));
        step(); // The engine writes the next piece only now.
      }
      const got = await heard(reader);
      assert.deepEqual([got.status, got.text, got.whole], [200, pieces.join(""), true], type);
      pieces = [];
      assert.equal((await ask(gateway, { path, body })).status, 502, type);
    }
  });

  test(`an event stream is marked so that nothing before the gateway holds it back, with ${client} [10.X1]`, async () => {
    answer = ({ socket }) => writeInTurns(socket, framed(Buffer.from(STREAM), "chunked", []));
    const got = await ask(gatewayOf(client), { headers: ["Accept-Encoding: gzip"] });
    assert.equal(headerOf(got, "x-accel-buffering"), "no");
    assert.equal(headerOf(got, "cache-control"), "no-cache");
    assert.equal(headerOf(got, "content-encoding"), undefined);
    answer = ({ socket }) =>
      socket.end(
        `HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nX-Accel-Buffering: yes\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n${STREAM}`,
      );
    const own = await ask(gatewayOf(client));
    assert.equal(headerOf(own, "x-accel-buffering"), "yes");
    assert.equal(headerOf(own, "cache-control"), "no-store");
  });
}

/** A token of about 16 KiB that differs from all others. */
const bigToken = (of: number, index: number): Buffer =>
  Buffer.from(aToken(`${of}:${index}:${String.fromCharCode(97 + ((of * 7 + index) % 26)).repeat(16_300)}`));

for (const client of CLIENTS) {
  test(
    `twenty large streams at once, half of them read slowly, each arrive byte for byte with ${client} [10.X1]`,
    { timeout: 240_000 },
    async () => {
      const tokens = client === "net" ? 310 : 60;
      answer = ({ socket, body }) => {
        const of = Number((JSON.parse(body.toString()) as { user: string }).user);
        socket.write(SSE_HEAD);
        const next = (index: number): void => {
          for (let at = index; at < tokens; at += 1) {
            if (socket.destroyed) return;
            if (!socket.write(aChunk(bigToken(of, at)))) {
              socket.once("drain", () => next(at + 1));
              return;
            }
          }
          socket.write(Buffer.concat([aChunk(aFinish() + DONE), Buffer.from(LAST_CHUNK)]));
        };
        next(0);
      };
      const gateway = gatewayOf(client);
      const readOne = async (of: number): Promise<void> => {
        using reader = await RawClient.connect(gateway.port, { patienceMs: 100_000 });
        await reader.write(requestBytes(gateway, { body: aChat({ user: String(of) }) }));
        const whole = heard(reader);
        // A slow one stops in the middle again and again, for a few turns of the event loop each time.
        for (let stop = 0; of % 2 === 0 && reader.ending === "open"; stop += 1) {
          reader.pause();
          for (let turn = 0; turn < 20; turn += 1) await new Promise((resolve) => setImmediate(resolve));
          reader.resume();
          const seen = reader.bytesRead;
          for (let turn = 0; turn < 1_000 && reader.bytesRead < seen + 65_536 && reader.ending === "open"; turn += 1)
            await new Promise((resolve) => setImmediate(resolve));
        }
        const got = await whole;
        const wanted = createHash("sha256");
        for (let index = 0; index < tokens; index += 1) wanted.update(bigToken(of, index));
        wanted.update(aFinish() + DONE);
        assert.ok(got.whole);
        assert.equal(createHash("sha256").update(got.payload).digest("hex"), wanted.digest("hex"));
      };
      await Promise.all(Array.from({ length: 20 }, (_, of) => readOne(of)));
    },
  );
}

test("a large answer that is no stream passes byte for byte with its length, and without one in chunks [10.X1]", async () => {
  const body = Buffer.from(
    JSON.stringify({
      data: Array.from({ length: 80_000 }, (_, index) => index / 7),
      usage: { prompt_tokens: 9, completion_tokens: 0, total_tokens: 9 },
    }),
  );
  assert.ok(body.length > 1_000_000);
  for (const client of CLIENTS) {
    for (const framing of ["length", "chunked", "close"] as const) {
      answer = ({ socket }) => {
        const head = `HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n`;
        if (framing === "length")
          socket.write(Buffer.concat([Buffer.from(`${head}Content-Length: ${body.length}\r\n\r\n`), body]));
        else if (framing === "chunked")
          socket.write(
            Buffer.concat([
              Buffer.from(`${head}Transfer-Encoding: chunked\r\n\r\n`),
              aChunk(body),
              Buffer.from(LAST_CHUNK),
            ]),
          );
        else socket.end(Buffer.concat([Buffer.from(`${head}\r\n`), body]));
      };
      const got = await ask(gatewayOf(client), { path: "/v1/embeddings", body: { model: "m", input: "x" } });
      assert.ok(got.payload.equals(body), framing);
      assert.ok(got.whole);
      assert.equal(headerOf(got, "content-length"), framing === "length" ? String(body.length) : undefined);
      const { records: events } = await gatewayOf(client).audit("?limit=1");
      assert.deepEqual([events[0]?.outcome, events[0]?.promptTokens], ["ok", 9]);
    }
  }
});
