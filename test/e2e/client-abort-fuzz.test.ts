import assert from "node:assert/strict";
import { test } from "node:test";
import { seededRandom } from "../../src/kernel/random.ts";
import { RawClient } from "../../src/testing/raw-client.ts";
import { RawServer, type RawCall } from "../../src/testing/raw-server.ts";
import { aChat, ask, heard, requestBytes, type AskOptions } from "./support/raw-answers.ts";
import {
  aChunk,
  aCompletion,
  aFinish,
  aToken,
  DONE,
  jsonAnswer,
  LAST_CHUNK,
  SSE_HEAD,
  writeInTurns,
} from "./support/raw-engine.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { startTestGateway, type TestGateway } from "./support/test-gateway.ts";

// Clients that leave at any moment of any kind of answer. An error that nobody listens to would end this process, and so this test.

const TOKENS = Array.from({ length: 8 }, (_, index) => aToken(`t${index}`));
const FAR = TOKENS.join("") + aFinish() + DONE;

const turns = async (count: number): Promise<void> => {
  for (let turn = 0; turn < count; turn += 1) await new Promise((resolve) => setImmediate(resolve));
};

/** What the engine does is in the path or the user. */
function engineAnswer({ socket, path, body, method }: RawCall): void {
  const kind = path.startsWith("/kind/") ? path.slice(6) : /"user":"(\w+)"/.exec(body.toString())?.[1];
  switch (kind) {
    case "204":
      return void socket.write("HTTP/1.1 204 No Content\r\n\r\n");
    case "304":
      return void socket.write("HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n");
    case "head":
      return void socket.write(`HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n${method === "HEAD" ? "" : "hello"}`);
    case "whole":
      return writeInTurns(socket, jsonAnswer(aCompletion("x".repeat(2_000))).match(/[\s\S]{1,300}/g) ?? []);
    case "large":
      return void socket.write(jsonAnswer(aCompletion("x".repeat(900_000))));
    case "error":
      return writeInTurns(socket, ["HTTP/1.1 500 No\r\nContent-Length: 100\r\n\r\n", "half of it"], () =>
        socket.resetAndDestroy(),
      );
    case "reset":
      return writeInTurns(socket, [SSE_HEAD, ...TOKENS.map((token) => aChunk(token))], () => socket.resetAndDestroy());
    case "silent":
      return void socket.write(SSE_HEAD);
    case "long":
      return void socket.write(
        Buffer.concat([
          Buffer.from(SSE_HEAD),
          ...Array.from({ length: 200 }, () => aChunk(aToken("y".repeat(16_000)))),
          aChunk(aFinish() + DONE),
          Buffer.from(LAST_CHUNK),
        ]),
      );
    default:
      return writeInTurns(socket, [
        SSE_HEAD,
        ...TOKENS.map((token) => aChunk(token)),
        aChunk(aFinish() + DONE),
        LAST_CHUNK,
      ]);
  }
}

const KINDS: readonly AskOptions[] = [
  ...["204", "304", "head", "silent"].map((kind) => ({
    method: "GET",
    path: `/upstreams/form/kind/${kind}`,
    body: null,
  })),
  { method: "HEAD", path: "/upstreams/form/kind/head", body: null },
  ...["whole", "large"].map((user) => ({ body: aChat({ user, stream: false }) })),
  ...["error", "reset", "silent", "long", "stream"].map((user) => ({ body: aChat({ user }) })),
  { version: "1.0", body: aChat({ user: "stream" }) },
];

async function leaveAtSomeMoment(gateway: TestGateway, options: AskOptions, random: () => number): Promise<void> {
  using client = await RawClient.connect(gateway.port);
  const bytes = requestBytes(gateway, options);
  const cut = random() < 0.2 ? Math.floor(random() * bytes.length) : bytes.length;
  await client.write(bytes.subarray(0, cut));
  if (random() < 0.3) client.pause();
  await turns(Math.floor(random() * 40));
  const how = random();
  if (how < 0.4) client.reset();
  else if (how < 0.7) client.close();
  else client.halfClose();
  await turns(2);
}

for (const upstreamClient of ["net", "undici"]) {
  test(
    `clients that leave at any moment of any kind of answer harm neither the process, nor other streams, nor the count of slots, with ${upstreamClient} [80.C22]`,
    { timeout: 240_000 },
    async () => {
      await using engine = await RawServer.listen({ onCall: engineAnswer });
      const endpoints = [{ url: `http://127.0.0.1:${engine.port}` }];
      const common = {
        health: "passive",
        slots: 64,
        timeouts: { first_byte_s: 1, idle_s: 1, write_stall_s: 1 },
        endpoints,
      };
      const gateway = await startTestGateway({
        file: { upstream_client: upstreamClient, max_connections: 2_000 },
        upstreams: [
          { ...common, id: "raw", engine: "vllm", models: ["m"] },
          { ...common, id: "calm", engine: "vllm", models: ["c"] },
          { ...common, id: "form", kind: "http" },
        ],
      });
      const seed = Number(process.env["SIM_SEED"] ?? 7);
      const random = seededRandom(seed);
      try {
        let left = upstreamClient === "net" ? 900 : 400;
        const worker = async (): Promise<void> => {
          while (left > 0) {
            left -= 1;
            await leaveAtSomeMoment(gateway, KINDS[Math.floor(random.next() * KINDS.length)] as AskOptions, () =>
              random.next(),
            );
          }
        };
        const calm = async (): Promise<void> => {
          while (left > 0) {
            const got = await ask(gateway, { body: aChat({ model: "c" }) });
            assert.deepEqual([got.status, got.text, got.whole], [200, FAR, true], `rerun with SIM_SEED=${seed}`);
          }
        };
        await Promise.all([...Array.from({ length: 12 }, worker), calm(), calm()]);
        const health = await eventually(
          "all slots are free",
          () => gateway.health(),
          (state) => !/"in_?[fF]light":[1-9]/.test(JSON.stringify(state)),
        );
        assert.match(JSON.stringify(health), /"in_?[fF]light":0/);
        using last = await RawClient.connect(gateway.port);
        await last.write(requestBytes(gateway, { body: aChat({ model: "c" }) }));
        assert.equal((await heard(last)).text, FAR);
      } finally {
        await gateway.stop();
      }
    },
  );
}
