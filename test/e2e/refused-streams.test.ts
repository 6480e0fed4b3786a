import assert from "node:assert/strict";
import { after, afterEach, before, beforeEach, test } from "node:test";
import { RawServer } from "../../src/testing/raw-server.ts";
import { onlyUpstream } from "./support/health.ts";
import { aChat, ask, headerOf } from "./support/raw-answers.ts";
import { aChunk, aCompletion, anEvent, aToken, DONE, jsonAnswer, LAST_CHUNK, SSE_HEAD } from "./support/raw-engine.ts";
import { startTestGateway, type TestGateway } from "./support/test-gateway.ts";

// Engines that have sent the head of a stream before they look at the request tell its faults as an event.

const TOO_LONG = "This model's maximum context length is 10 tokens.";
const CLIENT_CALLS = 20;
let engines: readonly RawServer[] = [];
let gateway: TestGateway;
let events = "";

beforeEach(async () => {
  gateway = await startTestGateway({
    upstreams: [
      {
        id: "u",
        engine: "sglang",
        health: "passive",
        models: ["m"],
        slots: 8,
        retry: { attempts: 2, budget_percent: 100 },
        endpoints: engines.map(({ port }) => ({ url: `http://127.0.0.1:${port}` })),
      },
    ],
  });
});
afterEach(async () => await gateway.stop());
before(async () => {
  const listen = (): Promise<RawServer> =>
    RawServer.listen({
      onCall: ({ socket, body }) =>
        void socket.write(
          body.includes('"stream":true')
            ? SSE_HEAD + aChunk(events).toString() + LAST_CHUNK
            : jsonAnswer(aCompletion("well")),
        ),
    });
  engines = [await listen(), await listen()];
});
after(async () => {
  for (const engine of engines) await engine[Symbol.asyncDispose]();
});

const asked = (): number => engines.reduce((sum, { calls }) => sum + calls.length, 0);

async function assertUntouched(): Promise<void> {
  const { endpoints } = await onlyUpstream(gateway);
  assert.deepEqual(
    endpoints.map(({ breaker, ejected }) => [breaker, ejected]),
    endpoints.map(() => ["closed", false]),
  );
  const got = await ask(gateway, { body: aChat({ stream: false }) });
  assert.equal(got.status, 200);
}

const REFUSALS: readonly {
  readonly name: string;
  readonly path: string;
  readonly event: string;
  readonly status: number;
}[] = [
  {
    name: "a chat that is too long",
    path: "/v1/chat/completions",
    event: anEvent({ error: { message: TOO_LONG, type: "BadRequestError", param: null, code: 400 } }) + DONE,
    status: 400,
  },
  {
    name: "an adapter that is not loaded",
    path: "/v1/completions",
    event: anEvent({ object: "error", message: TOO_LONG, type: "NotFoundError", code: 404 }) + DONE,
    status: 404,
  },
  {
    name: "a message that is too long",
    path: "/v1/messages",
    event: `event: error\n${anEvent({ type: "error", error: { type: "invalid_request_error", message: TOO_LONG } })}`,
    status: 400,
  },
  {
    name: "a response that is refused",
    path: "/v1/responses",
    event: anEvent({ type: "response.failed", response: { error: { code: "invalid_prompt", message: TOO_LONG } } }),
    status: 400,
  },
];

for (const { name, path, event, status } of REFUSALS)
  test(`${name}, told by the first event, is answered with its status, asked of one endpoint alone, and takes none out of rotation [10.R4b 10.R4 10.R5]`, async () => {
    events = event;
    const before = asked();
    for (let i = 0; i < CLIENT_CALLS; i += 1) {
      const got = await ask(gateway, { path, body: aChat({ stream: true }) });
      assert.deepEqual([got.status, headerOf(got, "content-type")], [status, "application/json"]);
      assert.equal((JSON.parse(got.text) as { error: { message: string } }).error.message, TOO_LONG);
    }
    assert.equal(asked() - before, CLIENT_CALLS, "one try for each");
    const { records } = await gateway.audit("?limit=1");
    assert.equal(records[0]?.outcome, "engine_error");
    await assertUntouched();
  });

test("an error event inside an answer that blames the request passes as it is, fails the answer, and takes no endpoint out of rotation [10.X5b 10.R5]", async () => {
  events = aToken("a") + anEvent({ error: { message: TOO_LONG, code: 400 } }) + DONE;
  for (let i = 0; i < CLIENT_CALLS; i += 1)
    assert.equal((await ask(gateway, { body: aChat({ stream: true }) })).text, events);
  const { records } = await gateway.audit("?limit=1");
  assert.equal(records[0]?.outcome, "upstream_truncated");
  await assertUntouched();
});

test("an error event of the engine's own, inside answers, does take its endpoint out [10.X5b 10.R5]", async () => {
  events = aToken("a") + anEvent({ error: { message: "CUDA error", code: 500 } }) + DONE;
  for (let i = 0; i < CLIENT_CALLS; i += 1) await ask(gateway, { body: aChat({ stream: true }) });
  const { endpoints } = await onlyUpstream(gateway);
  assert.ok(endpoints.some(({ breaker }) => breaker === "open"));
});
