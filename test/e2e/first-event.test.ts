import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { splitEvents } from "../../src/testing/sse-streams.ts";
import { RawClient } from "../../src/testing/raw-client.ts";
import { RawServer, type RawCall } from "../../src/testing/raw-server.ts";
import { aChat, ask, headerOf, heard, requestBytes } from "./support/raw-answers.ts";
import {
  aChunk,
  aCompletion,
  aFinish,
  anEvent,
  aToken,
  DONE,
  jsonAnswer,
  LAST_CHUNK,
  soon,
  SSE_HEAD,
  writeInTurns,
} from "./support/raw-engine.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { startTestGateway, type TestGateway } from "./support/test-gateway.ts";

// What happens before the first event has gone to the client: other tries, and signs of life.

const CLIENTS = ["net", "undici"] as const;
const gateways = new Map<string, TestGateway>();
let bad: RawServer;
let good: RawServer;
let answer: (call: RawCall) => void;
const WELL = aToken("from the other") + aFinish() + DONE;
const wellBytes = SSE_HEAD + aChunk(WELL).toString() + LAST_CHUNK;

const ERROR_EVENT = anEvent({
  error: {
    message: "EngineCore encountered an issue. See stack trace (above) for the root cause.",
    type: "InternalServerError",
    param: null,
    code: 500,
  },
});
const sse = (text: string): string => SSE_HEAD + (text === "" ? "" : aChunk(text).toString()) + LAST_CHUNK;

interface Failing {
  readonly name: string;
  readonly bytes: string;
  /** Null: the connection stays open behind the bytes. */
  readonly end: "fin" | "rst" | null;
  /** Told when there is nowhere else to go; null: the engine's own answer. */
  readonly alone: string | null;
}

const FAILING: readonly Failing[] = [
  { name: "a connection closed at once", bytes: "", end: "fin", alone: "UPSTREAM_ERROR" },
  { name: "a connection reset at once", bytes: "", end: "rst", alone: "UPSTREAM_ERROR" },
  { name: "half a head", bytes: "HTTP/1.1 200 OK\r\nContent-Ty", end: "fin", alone: "UPSTREAM_ERROR" },
  { name: "a head and no body", bytes: SSE_HEAD, end: "fin", alone: "UPSTREAM_ERROR" },
  { name: "a head and a reset", bytes: SSE_HEAD, end: "rst", alone: "UPSTREAM_ERROR" },
  { name: "a stream without a byte", bytes: sse(""), end: null, alone: "UPSTREAM_PROTOCOL" },
  {
    name: "a stream of length 0",
    bytes: "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 0\r\n\r\n",
    end: null,
    alone: "UPSTREAM_PROTOCOL",
  },
  {
    name: "a stream that closes without a byte",
    bytes: "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n",
    end: "fin",
    alone: "UPSTREAM_PROTOCOL",
  },
  {
    name: "half an event, then a break",
    bytes: SSE_HEAD + aChunk('data: {"choi').toString(),
    end: "fin",
    alone: "UPSTREAM_ERROR",
  },
  { name: "half an event, then a regular end", bytes: sse('data: {"choi'), end: null, alone: "UPSTREAM_ERROR" },
  { name: "nothing but [DONE]", bytes: sse(DONE), end: null, alone: "UPSTREAM_PROTOCOL" },
  {
    name: "nothing but [DONE], without a blank",
    bytes: sse("data:[DONE]\r\n\r\n"),
    end: null,
    alone: "UPSTREAM_PROTOCOL",
  },
  { name: "an error as its first event", bytes: sse(ERROR_EVENT), end: null, alone: "UPSTREAM_ERROR" },
  {
    name: "an error as its first event and [DONE]",
    bytes: sse(ERROR_EVENT + DONE),
    end: null,
    alone: "UPSTREAM_ERROR",
  },
  {
    name: "an error by its event name",
    bytes: sse('event:error\r\ndata:{"message":"no"}\r\n\r\n'),
    end: null,
    alone: "UPSTREAM_ERROR",
  },
  { name: "503", bytes: jsonAnswer({ error: { message: "busy" } }, "503 Service Unavailable"), end: null, alone: null },
  {
    name: "502 with a page",
    bytes: "HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>",
    end: null,
    alone: null,
  },
  { name: "504", bytes: jsonAnswer({ error: { message: "late" } }, "504 Gateway Timeout"), end: null, alone: null },
  { name: "429", bytes: jsonAnswer({ error: { message: "busy" } }, "429 Too Many Requests"), end: null, alone: null },
  {
    name: "500 of a dead engine",
    bytes: jsonAnswer(
      {
        error: {
          message: "EngineCore encountered an issue. See stack trace (above) for the root cause.",
          type: "InternalServerError",
          param: null,
          code: 500,
        },
      },
      "500 Internal Server Error",
    ),
    end: null,
    alone: null,
  },
];

before(async () => {
  bad = await RawServer.listen({ onCall: (call) => answer(call) });
  good = await RawServer.listen({ onCall: ({ socket }) => void socket.write(wellBytes) });
  const refusing = await RawServer.listen({ onCall: () => {} });
  const closedPort = refusing.port;
  await refusing[Symbol.asyncDispose]();
  for (const client of CLIENTS) {
    const common = { engine: "vllm", health: "passive", slots: 8, retry: { attempts: 2, budget_percent: 100 } };
    const first = { url: `http://127.0.0.1:${bad.port}` };
    gateways.set(
      client,
      await startTestGateway({
        file: { upstream_client: client },
        upstreams: [
          { ...common, id: "alone", models: ["alone"], endpoints: [first] },
          {
            ...common,
            id: "kept",
            models: ["kept"],
            sse_keepalive_s: 0.1,
            timeouts: { first_byte_s: 1 },
            endpoints: [first],
          },
          { ...common, id: "one", models: ["one"], slots: 1, sse_keepalive_s: 0.1, endpoints: [first] },
          // One of each for every failure: earlier ones would have taken the endpoint out of rotation.
          ...FAILING.flatMap((_, index) => [
            {
              ...common,
              id: `two-${index}`,
              models: [`two-${index}`],
              routing: { policy: "round_robin" },
              endpoints: [first, { url: `http://127.0.0.1:${good.port}` }],
            },
            { ...common, id: `alone-${index}`, models: [`alone-${index}`], endpoints: [first] },
          ]),
          {
            ...common,
            id: "down",
            models: ["down"],
            endpoints: [{ url: `http://127.0.0.1:${closedPort}` }, { url: `http://127.0.0.1:${good.port}` }],
          },
        ],
      }),
    );
  }
});
after(async () => {
  for (const gateway of gateways.values()) await gateway.stop();
  await bad[Symbol.asyncDispose]();
  await good[Symbol.asyncDispose]();
});
const gatewayOf = (client: string): TestGateway => gateways.get(client) as TestGateway;
const codeOf = (text: string): string => (JSON.parse(text) as { error: { code: string } }).error.code;

function failWith({ bytes, end }: Failing): void {
  answer = ({ socket }) => {
    if (bytes === "" && end === "rst") return void socket.resetAndDestroy();
    socket.write(
      bytes,
      "latin1",
      () => end !== null && setImmediate(() => (end === "fin" ? socket.end() : soon(() => socket.resetAndDestroy()))),
    );
  };
}

for (const client of CLIENTS) {
  test(
    `whatever goes wrong before the first event is tried on another endpoint, and the client sees one regular stream, with ${client} [10.R4b 10.R4]`,
    { timeout: 240_000 },
    async () => {
      const gateway = gatewayOf(client);
      for (const [index, failing] of FAILING.entries()) {
        failWith(failing);
        const before = bad.calls.length;
        for (let turn = 0; turn < 3 && bad.calls.length === before; turn += 1) {
          const got = await ask(gateway, { body: aChat({ model: `two-${index}` }) });
          assert.equal(got.status, 200, failing.name);
          assert.equal(got.text, WELL, failing.name);
          assert.ok(got.whole);
        }
        assert.ok(bad.calls.length > before, "the failing endpoint was asked");
      }
    },
  );

  test(
    `where there is no other endpoint the client gets one clear error with a status, never a stream, with ${client} [10.R4b]`,
    { timeout: 240_000 },
    async () => {
      for (const [index, failing] of FAILING.entries()) {
        failWith(failing);
        const got = await ask(gatewayOf(client), { body: aChat({ model: `alone-${index}` }) });
        assert.equal(headerOf(got, "content-type"), "application/json", failing.name);
        assert.ok(got.status >= 400 && got.whole, failing.name);
        if (failing.alone === null) assert.equal(got.status, Number(failing.bytes.slice(9, 12)));
        else assert.deepEqual([got.status, codeOf(got.text)], [502, failing.alone], failing.name);
      }
    },
  );

  test(`an endpoint that refuses connections costs no client its answer, with ${client} [10.R4]`, async () => {
    for (let turn = 0; turn < 4; turn += 1)
      assert.equal((await ask(gatewayOf(client), { body: aChat({ model: "down" }) })).text, WELL);
  });

  test(`a legal answer without text passes as it is and is counted as empty, with ${client} [10.X5b]`, async () => {
    const gateway = gatewayOf(client);
    const before = (await gateway.metric('yardmaster_empty_answers_total{upstream="alone"}')) ?? 0;
    const text =
      anEvent({ choices: [{ index: 0, delta: { role: "assistant", content: "" }, finish_reason: null }] }) +
      aFinish() +
      DONE;
    answer = ({ socket }) => void socket.write(sse(text));
    const got = await ask(gateway, { body: aChat({ model: "alone" }) });
    assert.equal(got.text, text);
    assert.ok(got.whole);
    assert.equal(await gateway.metric('yardmaster_empty_answers_total{upstream="alone"}'), before + 1);
  });

  test(`with sse_keepalive_s a waiting stream gets comments between events only, and then the engine's bytes, with ${client} [10.X1]`, async () => {
    let go = (): void => {};
    answer = ({ socket }) => {
      socket.write(`${SSE_HEAD}5\r\ndata:`);
      // Half an event has come when the comments are due: they stand before it, never inside.
      go = () =>
        writeInTurns(socket, ["\r\n", aChunk(` ${aToken("late").slice(6)}`), aChunk(aFinish() + DONE), LAST_CHUNK]);
    };
    const gateway = gatewayOf(client);
    using reader = await RawClient.connect(gateway.port);
    await reader.write(requestBytes(gateway, { body: aChat({ model: "one" }) }));
    await reader.readUntil((received) => received.toString("latin1").split(": keep-alive\n\n").length >= 3);
    go();
    const got = await heard(reader);
    assert.ok(got.whole);
    assert.match(got.head, /x-accel-buffering: no/i);
    assert.equal(got.text.replace(/^(: keep-alive\n\n)+/, ""), aToken("late") + aFinish() + DONE);
  });

  test(
    `comments begin in the queue, and after them every failure is an event in the stream, with ${client} [10.X5]`,
    { timeout: 240_000 },
    async () => {
      const gateway = gatewayOf(client);
      let first: RawCall["socket"] | undefined;
      answer = ({ socket }) => (first = socket);
      using holder = await RawClient.connect(gateway.port);
      await holder.write(requestBytes(gateway, { body: aChat({ model: "one", stream: false }) }));
      await eventually(
        "the slot is taken",
        () => first,
        (socket) => socket !== undefined,
      );
      using waiting = await RawClient.connect(gateway.port);
      await waiting.write(requestBytes(gateway, { body: aChat({ model: "one" }) }));
      await waiting.readUntil(": keep-alive\n\n");
      answer = ({ socket }) =>
        void socket.write(jsonAnswer({ error: { message: "no such thing" } }, "400 Bad Request"));
      first?.write(jsonAnswer(aCompletion()));
      const got = await heard(waiting);
      assert.equal(got.status, 200);
      assert.equal(got.whole, false);
      const { events } = splitEvents(got.payload);
      assert.equal(events.length, 1);
      assert.equal(codeOf(events[0]?.data ?? ""), "UPSTREAM_ERROR");

      // The engine may go wrong in other ways too: silence, a whole answer, an encoded one, one that is too large to be held.
      const zipped =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nzip";
      const large = `HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500002\r\n\r\n"${"x".repeat(500_000)}"`;
      for (const [bytes, code] of [
        ["", "UPSTREAM_TIMEOUT"],
        [jsonAnswer(aCompletion()), "UPSTREAM_PROTOCOL"],
        [zipped, "UPSTREAM_PROTOCOL"],
        [large, "UPSTREAM_PROTOCOL"],
        [sse(ERROR_EVENT), "UPSTREAM_ERROR"],
      ] as const) {
        let release = (): void => {};
        answer = ({ socket }) => (release = () => void socket.write(bytes));
        using reader = await RawClient.connect(gateway.port);
        await reader.write(requestBytes(gateway, { body: aChat({ model: "kept" }) }));
        await reader.readUntil(": keep-alive\n\n");
        release();
        const broken = await heard(reader);
        assert.equal(broken.whole, false);
        const last = splitEvents(broken.payload).events;
        assert.deepEqual(
          last.map(({ data }) => codeOf(data)),
          [code],
        );
      }
    },
  );
}
