import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { splitEvents } from "../../src/testing/sse-streams.ts";
import { RawServer, type RawCall } from "../../src/testing/raw-server.ts";
import { aChat, ask, heard, requestBytes, type HeardAnswer } from "./support/raw-answers.ts";
import { RawClient } from "../../src/testing/raw-client.ts";
import {
  aChunk,
  aFinish,
  anEvent,
  aToken,
  DONE,
  LAST_CHUNK,
  repeatedly,
  soon,
  SSE_HEAD,
  writeInTurns,
} from "./support/raw-engine.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { startTestGateway, type TestGateway } from "./support/test-gateway.ts";

// An engine that breaks off, falls silent or reports an error after its first event: what the client is told, what is counted,
// and whether the slot is there again.

const CLIENTS = ["net", "undici"] as const;
const gateways = new Map<string, TestGateway>();
let engine: RawServer;
let second: RawServer;
let answer: (call: RawCall) => void;
let secondCalls = 0;

before(async () => {
  engine = await RawServer.listen({ onCall: (call) => answer(call) });
  second = await RawServer.listen({
    onCall: ({ socket }) => {
      secondCalls += 1;
      socket.write(SSE_HEAD + aChunk(aToken("other") + aFinish() + DONE).toString() + LAST_CHUNK);
    },
  });
  for (const client of CLIENTS) {
    const common = { engine: "vllm", health: "passive", slots: 1 };
    const endpoints = [{ url: `http://127.0.0.1:${engine.port}` }];
    gateways.set(
      client,
      await startTestGateway({
        file: { upstream_client: client },
        upstreams: [
          { ...common, id: "raw", models: ["m"], endpoints },
          {
            ...common,
            id: "quick",
            models: ["q"],
            timeouts: { first_byte_s: 0.3, idle_s: 0.4, total_s: 60 },
            endpoints,
          },
          {
            ...common,
            id: "short",
            models: ["t"],
            timeouts: { first_byte_s: 30, idle_s: 30, total_s: 0.5 },
            endpoints,
          },
          { id: "pass", kind: "http", health: "passive", slots: 1, timeouts: { idle_s: 0.4 }, endpoints },
          {
            ...common,
            id: "two",
            models: ["two"],
            slots: 2,
            routing: { policy: "round_robin" },
            endpoints: [...endpoints, { url: `http://127.0.0.1:${second.port}` }],
          },
        ],
      }),
    );
  }
});
after(async () => {
  for (const gateway of gateways.values()) await gateway.stop();
  await engine[Symbol.asyncDispose]();
  await second[Symbol.asyncDispose]();
});
const gatewayOf = (client: string): TestGateway => gateways.get(client) as TestGateway;

type Format = "openai" | "anthropic" | "responses";

interface Spoken {
  readonly path: string;
  readonly body: Readonly<Record<string, unknown>>;
  readonly events: readonly string[];
}

const named = (name: string, body: unknown): string => `event: ${name}\ndata: ${JSON.stringify(body)}\n\n`;
const FORMATS: Readonly<Record<Format, Spoken>> = {
  openai: { path: "/v1/chat/completions", body: aChat(), events: [aToken("one"), aToken("two")] },
  anthropic: {
    path: "/v1/messages",
    body: aChat({ max_tokens: 5 }),
    events: [
      named("message_start", { type: "message_start", message: { usage: { input_tokens: 3 } } }),
      named("content_block_delta", {
        type: "content_block_delta",
        index: 0,
        delta: { type: "text_delta", text: "two" },
      }),
    ],
  },
  responses: {
    path: "/v1/responses",
    body: { model: "m", stream: true, input: "hi" },
    events: [
      named("response.created", { type: "response.created", sequence_number: 0 }),
      named("response.output_text.delta", { type: "response.output_text.delta", delta: "two", sequence_number: 1 }),
    ],
  },
};

/** The answer holds what the engine sent of whole events, then one error event, and its framing never ends. */
function assertBroken(got: HeardAnswer, format: Format, whole: readonly string[], code: string): void {
  assert.equal(got.status, 200);
  assert.equal(got.whole, false, "the transfer must not look complete");
  assert.ok(got.text.startsWith(whole.join("")));
  assert.ok(!got.text.includes("[DONE]"));
  const { events, atBoundary } = splitEvents(got.payload);
  const last = events.at(-1);
  assert.ok(atBoundary && last !== undefined);
  assert.equal(last.name, format === "openai" ? "" : "error");
  const body = JSON.parse(last.data) as {
    type?: string;
    code?: string;
    message?: string;
    sequence_number?: number;
    error?: { code: string; message: string; type: string };
  };
  if (format === "responses") {
    assert.deepEqual([body.type, body.code, typeof body.message], ["error", code, "string"]);
    if (whole.length === 2) assert.equal(body.sequence_number, 2);
  } else {
    assert.equal(body.error?.code, code);
    assert.equal(body.type, format === "anthropic" ? "error" : undefined);
  }
}

const lastAudit = async (gateway: TestGateway): Promise<{ outcome: string; errorCode: string | null }> => {
  const { records } = await gateway.audit("?limit=1");
  const { outcome, errorCode } = records[0] as { outcome: string; errorCode: string | null };
  return { outcome, errorCode };
};

/** Where in the answer the engine stops, and what of it is whole by then. */
function breakPoints(events: readonly string[]): { name: string; bytes: string; events: number }[] {
  const [first = "", other = ""] = events;
  const head = SSE_HEAD + aChunk(first).toString();
  const next = aChunk(other).toString();
  return [
    { name: "between two events", bytes: head + next, events: 2 },
    { name: "inside an event that is a chunk", bytes: head + next.slice(0, Math.floor(next.length / 2)), events: 1 },
    { name: "inside an event, between two chunks", bytes: head + aChunk(other.slice(0, 20)).toString(), events: 1 },
    { name: "inside a size line", bytes: head + next.slice(0, 1), events: 1 },
    { name: "behind a size line", bytes: head + next.slice(0, next.indexOf("\n") + 1), events: 1 },
    { name: "between the CR and LF of a size line", bytes: head + next.slice(0, next.indexOf("\n")), events: 1 },
    { name: "before the CR LF behind a chunk", bytes: head + next.slice(0, -2), events: 2 },
    { name: "between the CR and LF behind a chunk", bytes: head + next.slice(0, -1), events: 2 },
    { name: "in the last line end of an event", bytes: head + aChunk(other.slice(0, -1)).toString(), events: 1 },
    { name: "inside a chunk of a megabyte", bytes: `${head}100000\r\n${other}${"x".repeat(70_000)}`, events: 2 },
    { name: "inside the last chunk", bytes: `${head}${next}0\r`, events: 2 },
    { name: "inside the trailers", bytes: `${head}${next}0\r\nX-A: b\r\n`, events: 2 },
  ];
}

for (const client of CLIENTS) {
  for (const format of Object.keys(FORMATS) as Format[]) {
    test(
      `an engine that breaks off anywhere in a stream of ${format} leaves an error event in that format and a broken transfer with ${client} [10.X5 80.C21]`,
      { timeout: 240_000 },
      async () => {
        const gateway = gatewayOf(client);
        const { path, body, events } = FORMATS[format];
        for (const point of breakPoints(events)) {
          for (const how of ["fin", "rst"] as const) {
            answer = ({ socket }) => {
              socket.write(point.bytes, "latin1", () =>
                setImmediate(() => (how === "fin" ? socket.end() : soon(() => socket.resetAndDestroy()))),
              );
            };
            const got = await ask(gateway, { path, body });
            assertBroken(got, format, events.slice(0, point.events), "UPSTREAM_ERROR");
            assert.equal(got.ending, "closed", point.name);
          }
        }
        await eventually(
          "the audit",
          () => lastAudit(gateway),
          ({ outcome }) => outcome === "upstream_truncated",
        );
      },
    );
  }

  test(`a stream that ends in order without a finish is a break too, in every framing, with ${client} [10.X5 10.X5b]`, async () => {
    const gateway = gatewayOf(client);
    const text = aToken("one") + aToken("two");
    const head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n";
    const answers = [
      SSE_HEAD + aChunk(text).toString() + LAST_CHUNK,
      `${head}Content-Length: ${text.length}\r\n\r\n${text}`,
      `${head}Content-Length: ${text.length + 50}\r\n\r\n${text}`,
      `${head}Connection: close\r\n\r\n${text}`,
    ];
    for (const bytes of answers) {
      answer = ({ socket }) => void socket.end(bytes);
      assertBroken(await ask(gateway), "openai", [text], "UPSTREAM_ERROR");
      assert.deepEqual(await lastAudit(gateway), { outcome: "upstream_truncated", errorCode: "UPSTREAM_ERROR" });
    }
  });

  test(`a stream that passes without being looked into tells of its break too, and what is no stream is only cut, with ${client} [10.X5]`, async () => {
    const gateway = gatewayOf(client);
    const path = "/upstreams/pass/progress";
    const text = 'event: step\ndata: {"at":1}\n\nevent: step\ndata: {"at"';
    const half = `${(text.length + 9).toString(16)}\r\n${text}`;
    for (const sent of [aChunk(text).toString(), half]) {
      for (const how of ["end", "reset", "silence"] as const) {
        answer = ({ socket }) =>
          writeInTurns(socket, [SSE_HEAD, sent], () => {
            if (how === "end") soon(() => socket.end());
            else if (how === "reset") soon(() => socket.resetAndDestroy());
          });
        const code = how === "silence" ? "UPSTREAM_TIMEOUT" : "UPSTREAM_ERROR";
        assertBroken(await ask(gateway, { path }), "openai", [text], code);
      }
    }
    for (const head of [
      "Content-Type: text/event-stream\r\nContent-Length: 900",
      "Content-Type: video/mp4\r\nContent-Length: 900",
    ]) {
      answer = ({ socket }) =>
        writeInTurns(socket, [`HTTP/1.1 200 OK\r\n${head}\r\n\r\n${text}`], () => soon(() => socket.resetAndDestroy()));
      const cut = await ask(gateway, { path });
      assert.deepEqual([cut.whole, cut.text], [false, text], head);
    }
  });

  test(`a client of HTTP/1.0 sees a break as an error event and a reset, for the end of the connection would look whole, with ${client} [10.X5]`, async () => {
    answer = ({ socket }) => writeInTurns(socket, [SSE_HEAD, aChunk(aToken("one"))], () => soon(() => socket.end()));
    const got = await ask(gatewayOf(client), { version: "1.0" });
    assert.equal(got.ending, "reset");
    assert.match(got.text, /UPSTREAM_ERROR/);
  });

  test(`after the first event there is no other try, though another endpoint is free, with ${client} [10.X5 80.C21]`, async () => {
    const gateway = gatewayOf(client);
    answer = ({ socket }) => writeInTurns(socket, [SSE_HEAD, aChunk(aToken("one"))], () => socket.end());
    secondCalls = 0;
    const got = await Promise.all([
      ask(gateway, { body: aChat({ model: "two" }) }),
      ask(gateway, { body: aChat({ model: "two" }) }),
    ]);
    assert.equal(secondCalls, 1);
    const broken = got.find((one) => !one.whole);
    assert.ok(broken !== undefined && got.some((one) => one.whole && one.text.includes("other")));
    assertBroken(broken, "openai", [aToken("one")], "UPSTREAM_ERROR");
  });

  test(`an error event of the engine's goes on as it is, also with [DONE] behind it, and counts as the engine's failure, with ${client} [10.X5b]`, async () => {
    const gateway = gatewayOf(client);
    const error = anEvent({
      error: { message: "EngineCore encountered an issue.", type: "InternalServerError", code: 500 },
    });
    for (const tail of [
      error,
      error + DONE,
      `event: error\ndata: {"message":"x"}\n\n`,
      aFinish("error") + DONE,
      aFinish("abort") + DONE,
    ]) {
      const text = aToken("one") + tail;
      answer = ({ socket }) => void socket.write(SSE_HEAD + aChunk(text).toString() + LAST_CHUNK);
      const got = await ask(gateway);
      assert.equal(got.text.startsWith(text), true);
      assert.equal((await lastAudit(gateway)).outcome, "upstream_truncated", tail);
      if (tail.includes('error"') || tail.includes("DONE")) assert.equal(got.text, text);
    }
    // An error that comes with a break is passed on once, and the break stays visible.
    answer = ({ socket }) => void socket.end(SSE_HEAD + aChunk(aToken("one") + error).toString());
    const cut = await ask(gateway);
    assert.equal(cut.text, aToken("one") + error);
    assert.equal(cut.whole, false);
  });

  for (const format of Object.keys(FORMATS) as Format[]) {
    test(
      `an engine that falls silent, drips or only comments after its first event is cut with an error event of ${format} and its slot is free, with ${client} [10.X5 80.A9]`,
      { timeout: 240_000 },
      async () => {
        const gateway = gatewayOf(client);
        const { path, body, events } = FORMATS[format];
        const [first = "", other = ""] = events;
        const drip = (socket: RawCall["socket"], bytes: () => string): void =>
          repeatedly(socket, 20, () => socket.write(aChunk(bytes())));
        const silences: ((socket: RawCall["socket"]) => void)[] = [
          () => {},
          (socket) => drip(socket, () => ": ping\n\n"),
          (socket) => {
            let at = 0;
            drip(socket, () => other[at++] ?? "x");
          },
        ];
        for (const silence of silences) {
          let closed: Promise<void> | undefined;
          answer = ({ socket }) => {
            closed = new Promise((resolve) => socket.once("close", () => resolve()));
            socket.write(SSE_HEAD + aChunk(first).toString(), () => silence(socket));
          };
          const got = await ask(gateway, { path, body: { ...body, model: "q" } });
          assertBroken(got, format, events.slice(0, 1), "UPSTREAM_TIMEOUT");
          await closed;
          answer = ({ socket }) =>
            void socket.write(SSE_HEAD + aChunk(aToken("next") + aFinish() + DONE).toString() + LAST_CHUNK);
          const next = await ask(gateway, { body: aChat({ model: "q" }) });
          assert.ok(
            next.whole && Number(/x-yardmaster-queue-ms: (\d+)/i.exec(next.head)?.[1]) < 300,
            "the slot is free",
          );
        }
      },
    );
  }

  test(`a stream that never ends is cut by the total time with an error event, with ${client} [10.X5]`, async () => {
    answer = ({ socket }) => {
      socket.write(SSE_HEAD);
      repeatedly(socket, 10, () => socket.write(aChunk(aToken("more"))));
    };
    const got = await ask(gatewayOf(client), { body: aChat({ model: "t" }) });
    assertBroken(got, "openai", [aToken("more")], "UPSTREAM_TIMEOUT");
  });

  test(`an engine that sends a head or half of one and nothing else is a 504 in time, with ${client} [80.A9]`, async () => {
    for (const bytes of [
      "",
      "HTTP/1.1 200 OK\r\nContent-",
      SSE_HEAD,
      `${SSE_HEAD}ff\r\ndata: {`,
      "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n",
    ]) {
      answer = ({ socket }) => void socket.write(bytes);
      const got = await ask(gatewayOf(client), { body: aChat({ model: "q" }) });
      assert.equal(got.status, 504);
      assert.equal((JSON.parse(got.text) as { error: { code: string } }).error.code, "UPSTREAM_TIMEOUT");
    }
  });

  test(`a large answer that is no stream and breaks off is never whole, with ${client} [10.X5]`, async () => {
    const part = `{"data":"${"x".repeat(400_000)}`;
    const heads = ["Transfer-Encoding: chunked\r\n\r\n80000\r\n", "Content-Length: 500000\r\n\r\n", "\r\n"];
    for (const head of heads) {
      answer = ({ socket }) => void socket.end(`HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n${head}${part}`);
      const got = await ask(gatewayOf(client), { path: "/v1/embeddings", body: { model: "m", input: "x" } });
      assert.equal(got.whole, false);
      assert.equal(got.ending === "reset" || got.framing !== "close", true);
      assert.equal((await lastAudit(gatewayOf(client))).outcome, "upstream_truncated");
    }
  });
}

test("a client that asked for its connection to live on sees the broken answer end with the connection [10.X5]", async () => {
  const gateway = gatewayOf("net");
  answer = ({ socket }) => writeInTurns(socket, [SSE_HEAD, aChunk(aToken("one"))], () => socket.end());
  using client = await RawClient.connect(gateway.port);
  await client.write(
    Buffer.concat([requestBytes(gateway, { headers: ["Connection: keep-alive"] }), requestBytes(gateway)]),
  );
  const got = await heard(client);
  assert.equal(got.whole, false);
  assert.equal(got.text.split("UPSTREAM_ERROR").length, 2);
});
