import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import fc from "fast-check";
import { splitEvents } from "../../src/testing/sse-streams.ts";
import { RawServer, type RawCall } from "../../src/testing/raw-server.ts";
import type { SimAction } from "../../src/sim-engine/script.ts";
import type { SimEngine } from "../../src/sim-engine/sim-engine.ts";
import { anEngine } from "./support/an-engine.ts";
import { aChat, ask, type HeardAnswer } from "./support/raw-answers.ts";
import { aChunk, aCompletion, aFinish, aToken, DONE, jsonAnswer, LAST_CHUNK, SSE_HEAD } from "./support/raw-engine.ts";
import { startTestGateway, type TestGateway } from "./support/test-gateway.ts";

// Engines that speak nonsense: the call has a clear end, the next caller its own answer, and nothing hostile reaches a log.

const CLIENTS = ["net", "undici"] as const;
const gateways = new Map<string, TestGateway>();
let engine: RawServer;
let sim: SimEngine;
let answer: (call: RawCall) => void;

const GARBAGE: readonly { readonly action: SimAction; readonly stream: boolean }[] = [
  ...(["binary", "html200", "halfJson", "longLine", "badSse", "nul", "ansi"] as const).map((garbage) => ({ garbage })),
  ...(["clAndTe", "twoCl", "negativeCl", "badChunk", "hugeHeader"] as const).map((wrongFraming) => ({ wrongFraming })),
  { flood1xx: 50 },
].flatMap((action) => [true, false].map((stream) => ({ action, stream })));

before(async () => {
  engine = await RawServer.listen({ onCall: (call) => answer(call) });
  sim = await anEngine({ models: GARBAGE.map((_, index) => `s${index}`), slots: 16 });
  for (const client of CLIENTS) {
    const common = {
      engine: "vllm",
      health: "passive",
      slots: 8,
      retry: { attempts: 0 },
    };
    gateways.set(
      client,
      await startTestGateway({
        file: { upstream_client: client },
        upstreams: [
          { ...common, id: "raw", models: ["m"], endpoints: [{ url: `http://127.0.0.1:${engine.port}` }] },
          // One for each, so that a breaker that opens hides nothing. Some garbage never ends by itself.
          ...GARBAGE.map((_, index) => ({
            ...common,
            timeouts: { first_byte_s: 3, idle_s: 3 },
            id: `sim-${index}`,
            models: [`s${index}`],
            endpoints: [{ url: sim.url }],
          })),
        ],
      }),
    );
  }
});
after(async () => {
  for (const gateway of gateways.values()) await gateway.stop();
  await engine[Symbol.asyncDispose]();
  await sim.close();
});
const gatewayOf = (client: string): TestGateway => gateways.get(client) as TestGateway;

const well = (call: RawCall): void =>
  void call.socket.write(jsonAnswer(aCompletion(`for ${(JSON.parse(call.body.toString()) as { user: string }).user}`)));

/** An error status in JSON, an error event or a broken transfer: never a whole answer that looks well. */
function assertNoSuccess(got: HeardAnswer, name: string): void {
  if (got.status >= 400) {
    assert.ok("error" in (JSON.parse(got.text) as object), name);
    return;
  }
  const { events } = splitEvents(got.payload);
  const told = events.some(({ name: event, data }) => event === "error" || data.includes('"error"'));
  assert.ok(told || !got.whole, `${name}: ${got.text.slice(0, 200)}`);
}

for (const client of CLIENTS) {
  test(
    `garbage of every kind is an error for its own call and for no other, with ${client} [80.A10]`,
    { timeout: 240_000 },
    async () => {
      const gateway = gatewayOf(client);
      for (const [index, { action, stream }] of GARBAGE.entries()) {
        sim.clearScript();
        sim.script({ match: { times: 1 }, do: action });
        const body = { ...aChat({ stream, max_tokens: 2 }), model: `s${index}` };
        const got = await ask(gateway, { body });
        // NUL inside an answer's text is the model's word as much as any: it passes as it is.
        if (!(action.garbage === "nul" && got.status === 200)) assertNoSuccess(got, JSON.stringify([action, stream]));
        assert.equal(sim.ledger().entries.at(-1)?.model, `s${index}`);
        const next = await ask(gateway, { body });
        assert.deepEqual([next.status, next.whole], [200, true], JSON.stringify([action, stream]));
      }
    },
  );

  test(
    `what is no answer of its route is an error whatever its label, and what is one passes, with ${client} [80.A10 10.X5b]`,
    { timeout: 240_000 },
    async () => {
      const labelled = (label: string, text: string, status = "200 OK"): string =>
        `HTTP/1.1 ${status}\r\n${label === "" ? "" : `${label}\r\n`}Content-Length: ${text.length}\r\n\r\n${text}`;
      const page = "<!doctype html><p>It works</p>";
      const wrong = [
        labelled("", page),
        labelled("Content-Type: text/plain", "all well"),
        labelled("Content-Type: application/octet-stream", "\u0000\u0001\u0002"),
        labelled("Content-Type: application/json", page),
        labelled("Content-Type: text/html", page),
        labelled("Location: http://10.0.0.9/login", "", "302 Found"),
        labelled("Location: /v1/chat/completions/", "moved", "307 Temporary Redirect"),
      ];
      const paths = ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/rerank"];
      for (const path of paths) {
        for (const bytes of wrong) {
          for (const stream of [true, false]) {
            answer = ({ socket }) => void socket.write(bytes);
            // A gateway of its own for each path would be slow: the breaker is closed again by good answers in between.
            const got = await ask(gatewayOf(client), { path, body: aChat({ stream }) });
            assert.deepEqual([got.status, /UPSTREAM_PROTOCOL/.test(got.text)], [502, true], `${path} ${bytes}`);
            assert.ok(!/10\.0\.0\.9|It works|all well/.test(got.head + got.text));
            answer = well;
            for (let i = 0; i < 3; i += 1)
              assert.equal((await ask(gatewayOf(client), { body: aChat({ stream: false, user: "me" }) })).status, 200);
          }
        }
      }
      for (const [path, bytes] of [
        ["/v1/chat/completions", labelled("", JSON.stringify(aCompletion()))],
        ["/v1/embeddings", labelled("Content-Type: application/octet-stream", "\u0000\u0001")],
        ["/v1/audio/transcriptions", labelled("Content-Type: text/plain; charset=utf-8", "all well")],
        ["/v1/audio/speech", labelled("Content-Type: audio/mpeg", "\u0000\u0001")],
      ] as const) {
        answer = ({ socket }) => void socket.write(bytes);
        const got = await ask(gatewayOf(client), { path, body: aChat({ stream: false }) });
        assert.deepEqual([got.status, bytes.endsWith(got.text)], [200, true], path);
      }
    },
  );

  test(
    `an event of ten megabytes is cut with an error event in a framing that can be read, whatever the chunks, with ${client} [80.A10]`,
    { timeout: 240_000 },
    async () => {
      const gateway = gatewayOf(client);
      const filler = "x".repeat(65_536);
      for (const chunkBytes of [65_536, 10_000_000, 200_000]) {
        for (const first of ["", aToken("one")]) {
          let written = 0;
          answer = ({ socket }) => {
            socket.write(SSE_HEAD + (first === "" ? "" : aChunk(first).toString()));
            const text = `data: {"x":"${filler.repeat(150)}"}\n\n`;
            for (let at = 0; at < text.length && !socket.destroyed; at += chunkBytes)
              socket.write(aChunk(text.slice(at, at + chunkBytes)));
            written = text.length;
            socket.write(LAST_CHUNK);
          };
          const got = await ask(gateway);
          assert.ok(written > 0);
          if (first === "") assert.equal(got.status, 502);
          else {
            assert.equal(got.whole, false);
            assert.ok(got.payload.length < 2 * 1024 * 1024, `${got.payload.length} bytes went on`);
            const { events } = splitEvents(got.payload);
            assert.match(events.at(-1)?.data ?? "", /UPSTREAM_ERROR/);
          }
        }
      }
    },
  );

  test(
    `random bytes, whole or cut, in a head, a chunk or an event, never hang a call, mix up answers or end the process, with ${client} [80.A10]`,
    { timeout: 240_000 },
    async () => {
      const gateway = await startTestGateway({
        file: { upstream_client: client },
        upstreams: [
          {
            id: "raw",
            engine: "vllm",
            health: "passive",
            models: ["m", "w"],
            slots: 8,
            timeouts: { first_byte_s: 0.3, idle_s: 0.3 },
            retry: { attempts: 0 },
            endpoints: [{ url: `http://127.0.0.1:${engine.port}` }],
          },
          {
            id: "tame",
            engine: "vllm",
            health: "passive",
            models: ["t"],
            slots: 8,
            endpoints: [{ url: `http://127.0.0.1:${engine.port}` }],
          },
        ],
      });
      const piece = fc.oneof(
        fc.constantFrom(
          "HTTP/1.1 200 OK\r\n",
          "HTTP/1.1 500 No\r\n",
          "Content-Type: text/event-stream\r\n",
          "Content-Type: application/json\r\n",
          "Content-Length: 5\r\n",
          "Transfer-Encoding: chunked\r\n",
          "\r\n",
          "hello",
          "5\r\nhello\r\n",
          "0\r\n\r\n",
          aChunk(aToken("a")).toString(),
          aChunk(aFinish()).toString(),
          aChunk(DONE).toString(),
          "data: ",
          "\u001b[2J\u0000",
          "event: error\n",
          '{"error":',
          "X-A: b\r\n",
          "ffffff\r\n",
        ),
        fc.uint8Array({ minLength: 1, maxLength: 40 }).map((bytes) => Buffer.from(bytes).toString("latin1")),
      );
      let script = Buffer.alloc(0);
      answer = (call) => {
        if (call.body.includes('"model":"t"')) well(call);
        else call.socket.end(script);
      };
      let number = 0;
      try {
        await fc.assert(
          fc.asyncProperty(
            fc.boolean(),
            fc.array(piece, { maxLength: 12 }),
            fc.boolean(),
            async (plausible, pieces, stream) => {
              script = Buffer.from((plausible ? SSE_HEAD : "") + pieces.join(""), "latin1");
              number += 1;
              const user = `u${number}`;
              const [, tame] = await Promise.all([
                ask(gateway, { body: aChat({ stream }) }).catch((error: Error) =>
                  assert.match(error.message, /no head in: $|no chunk size/),
                ),
                ask(gateway, { body: { ...aChat({ stream: false, user }), model: "t" } }),
              ]);
              assert.equal(tame.status, 200);
              assert.ok(tame.text.includes(`for ${user}"`));
            },
          ),
          { numRuns: 150, endOnFailure: true },
        );
      } finally {
        await gateway.stop();
      }
    },
  );

  test(`what an engine or a client says never splits a log line or moves a terminal's cursor, with ${client} [80.A10 80.D16]`, async () => {
    const gateway = gatewayOf(client);
    const nasty = "\u001b]0;owned\u0007\u001b[2J\r\nlevel=error op=forged\u2028";
    const before = gateway.logLines.length;
    answer = ({ socket }) =>
      void socket.write(
        SSE_HEAD + aChunk(`data: ${JSON.stringify({ error: { message: nasty } })}\n\n`).toString() + LAST_CHUNK,
      );
    await ask(gateway);
    answer = ({ socket }) =>
      void socket.write(
        SSE_HEAD +
          aChunk(aToken("one") + `event: error\ndata: ${nasty.replaceAll(/[\r\n]/g, "")}\n\n`).toString() +
          LAST_CHUNK,
      );
    await ask(gateway);
    await ask(gateway, { body: { ...aChat(), model: nasty } });
    await ask(gateway, { headers: ["X-Request-Id: \u00e9\u00ff"] }).catch(() => {});
    for (const line of gateway.logLines.slice(before)) {
      assert.doesNotThrow(() => JSON.parse(line) as unknown, line);
      assert.doesNotMatch(line, /[\p{Cc}\u2028\u2029]/u);
    }
    const refused = await ask(gateway, { body: { ...aChat(), model: nasty } });
    assert.doesNotMatch(refused.text, /\p{Cc}/u);
    assert.doesNotMatch(refused.head, /owned/);
  });
}
