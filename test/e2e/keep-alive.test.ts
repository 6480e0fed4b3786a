import assert from "node:assert/strict";
import { test } from "node:test";
import { RawServer, type RawCall } from "../../src/testing/raw-server.ts";
import { aChat, ask } from "./support/raw-answers.ts";
import { aChunk, aCompletion, aFinish, aToken, DONE, jsonAnswer, LAST_CHUNK, SSE_HEAD } from "./support/raw-engine.ts";
import { startTestGateway, type TestGateway } from "./support/test-gateway.ts";

// Engines that close connections which were said to live on. The engine's own account tells what reached it.

const STREAM = SSE_HEAD + aChunk(aToken("one") + aFinish() + DONE).toString() + LAST_CHUNK;

async function withEngine(
  client: string,
  onCall: (call: RawCall) => void,
  run: (gateway: TestGateway, engine: RawServer) => Promise<void>,
): Promise<void> {
  await using engine = await RawServer.listen({ onCall });
  const endpoints = [{ url: `http://127.0.0.1:${engine.port}` }];
  const gateway = await startTestGateway({
    file: { upstream_client: client },
    upstreams: [
      {
        id: "raw",
        engine: "vllm",
        health: "passive",
        models: ["m"],
        slots: 16,
        retry: { attempts: 2, budget_percent: 0 },
        endpoints,
      },
    ],
  });
  try {
    await run(gateway, engine);
  } finally {
    await gateway.stop();
  }
}

const turns = async (count: number): Promise<void> => {
  for (let turn = 0; turn < count; turn += 1) await new Promise((resolve) => setImmediate(resolve));
};

for (const client of ["net", "undici"]) {
  const ways: Readonly<Record<string, (call: RawCall) => void>> = {
    "closes each connection right behind its answer, though it said it would live on": ({ socket }) => {
      socket.write(jsonAnswer(aCompletion()));
      socket.end();
    },
    "closes each connection a moment after its answer": ({ socket }) => {
      socket.write(STREAM, () => setImmediate(() => setImmediate(() => socket.end())));
    },
    "closes each connection as the next request arrives": ({ socket, request }) => {
      if (request > 0) socket.destroy();
      else socket.write(jsonAnswer(aCompletion()));
    },
    "resets each connection as the next request arrives": ({ socket, request }) => {
      if (request > 0) socket.resetAndDestroy();
      else socket.write(STREAM);
    },
    "says that it closes each connection, and does so late": ({ socket }) => {
      socket.write(jsonAnswer(aCompletion()).replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n"), () =>
        setImmediate(() => socket.end()),
      );
    },
    "says how long a connection lives, and it is no time at all": ({ socket }) => {
      socket.write(jsonAnswer(aCompletion()).replace("\r\n\r\n", "\r\nKeep-Alive: timeout=0\r\n\r\n"), () =>
        socket.end(),
      );
    },
  };
  for (const [name, onCall] of Object.entries(ways)) {
    test(`no client notices an engine that ${name}, with ${client} [10.R4]`, { timeout: 240_000 }, async () => {
      await withEngine(client, onCall, async (gateway, engine) => {
        for (let round = 0; round < 60; round += 1) {
          const got = await ask(gateway, { body: aChat({ user: `u${round}` }) });
          assert.deepEqual([got.status, got.whole || got.framing === "length"], [200, true], got.text);
          await turns(round % 5);
        }
        const crowd = await Promise.all(
          Array.from({ length: 60 }, async (_, index) => {
            await turns(index % 7);
            return ask(gateway, { body: aChat({ user: `c${index}` }) });
          }),
        );
        assert.deepEqual(new Set(crowd.map((got) => got.status)), new Set([200]));
        // A request that was answered was never asked again.
        const answered = new Map<string, number>();
        for (const call of engine.calls) {
          if (name.includes("arrives") && call.request > 0) continue;
          const { user } = JSON.parse(call.body.toString()) as { user: string };
          answered.set(user, (answered.get(user) ?? 0) + 1);
        }
        assert.equal(answered.size, 120);
        assert.equal(Math.max(...answered.values()), 1);
      });
    });
  }

  test(`a break after the first byte of a reused connection's answer is not tried again on the same engine, with ${client} [10.R4]`, async () => {
    await withEngine(
      client,
      ({ socket, request }) => {
        if (request === 0) socket.write(STREAM);
        else socket.end(`${SSE_HEAD}${aChunk(aToken("one")).toString()}`);
      },
      async (gateway, engine) => {
        await ask(gateway, { body: aChat({ user: "a" }) });
        await turns(5);
        const got = await ask(gateway, { body: aChat({ user: "b" }) });
        assert.equal(got.whole, false);
        assert.equal(engine.calls.filter((call) => call.body.includes('"b"')).length, 1);
      },
    );
  });
}
