import assert from "node:assert/strict";
import { test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { RawClient } from "../../src/testing/raw-client.ts";
import { RawServer, type RawCall } from "../../src/testing/raw-server.ts";
import { call, errorCodeOf, startCall } from "./support/calls.ts";
import { aChat, requestBytes } from "./support/raw-answers.ts";
import { aChunk, aCompletion, aToken, jsonAnswer, SSE_HEAD } from "./support/raw-engine.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { startTestGateway, type TestGateway } from "./support/test-gateway.ts";

// The memory of request bodies: bounded over all requests, held only as long as it is needed, and given back.

const MIB = 1024 * 1024;
const BODY_BYTES = 2 * MIB;

setFlagsFromString("--expose-gc");
const gc = runInNewContext("gc") as () => void;

/** Bytes of buffers that something still holds. A collection gives buffers back beside the program, and the next one waits for it. */
function heldBytes(): number {
  gc();
  gc();
  return process.memoryUsage().arrayBuffers;
}

const buffered = async (gateway: TestGateway): Promise<number> =>
  (await gateway.metric("yardmaster_buffered_bytes")) ?? Number.NaN;

async function withRawEngine(
  file: Record<string, unknown>,
  upstream: Record<string, unknown>,
  run: (gateway: TestGateway, engine: RawServer, onCall: (answer: (call: RawCall) => void) => void) => Promise<void>,
): Promise<void> {
  let answer = (_call: RawCall): void => {};
  await using engine = await RawServer.listen({ beforeBody: true, onCall: (one) => answer(one) });
  const gateway = await startTestGateway({
    file,
    upstreams: [
      {
        id: "u",
        models: ["m"],
        engine: "vllm",
        health: "passive",
        slots: 1,
        batch_max: 1,
        endpoints: [{ url: `http://127.0.0.1:${engine.port}` }],
        ...upstream,
      },
    ],
  });
  try {
    await run(gateway, engine, (next) => (answer = next));
  } finally {
    await gateway.stop();
  }
}

const largeBody = (): Buffer => Buffer.from(JSON.stringify(aChat({ padding: "x".repeat(BODY_BYTES) })));

test(
  "forty large bodies behind a busy slot take no more memory than max_buffered_bytes, the others are refused with Retry-After, and waiting clients that leave give theirs back [80.I9 10.A4 80.C17]",
  { timeout: 240_000 },
  async () => {
    const budget = 20 * MIB;
    await withRawEngine(
      { max_buffered_bytes: budget, max_body_bytes: 4 * MIB },
      {},
      async (gateway, engine, onCall) => {
        onCall((one) => one.socket.write(`${SSE_HEAD}${aChunk(aToken("busy")).toString()}`));
        const holder = startCall(gateway, { body: aChat() });
        await holder.received("busy");
        const body = largeBody();
        const before = heldBytes();
        const calls = Array.from({ length: 40 }, () => startCall(gateway, { body }));
        await eventually(
          "the budget is used",
          () => buffered(gateway),
          (bytes) => bytes > budget - BODY_BYTES - 1_000 && bytes <= budget,
        );
        const waiting = await eventually(
          "what fits waits",
          () => gateway.metric('yardmaster_waiting{upstream="u",class="interactive"}'),
          (count) => count === Math.floor(budget / body.length),
        );
        // What is thrown away of refused bodies is memory until it is collected.
        await eventually("no more is held", heldBytes, (bytes) => bytes - before < budget + 4 * MIB);
        await eventually(
          "the others have their answer",
          () => calls.filter(({ status }) => status === 429).length,
          (count) => count === 40 - (waiting ?? 0),
        );
        for (const one of calls.filter(({ status }) => status === 429)) {
          const answer = await one.answer;
          assert.equal(errorCodeOf(answer.text), "QUEUE_FULL");
          assert.match(String(answer.headers["retry-after"]), /^[1-9]\d*$/);
        }
        for (const one of calls.filter(({ status }) => status === 0).slice(0, 5)) one.leave();
        await eventually(
          "the memory is back",
          () => buffered(gateway),
          (bytes) => bytes <= budget - 5 * BODY_BYTES,
        );
        await eventually("nothing holds it", heldBytes, (bytes) => bytes - before < budget - 5 * BODY_BYTES + 4 * MIB);
        for (const one of calls) one.leave();
        holder.leave();
        await eventually(
          "all is back",
          () => buffered(gateway),
          (bytes) => bytes === 0,
        );
        await eventually("nothing is held", heldBytes, (bytes) => bytes - before < 4 * MIB);
        onCall((one) => one.socket.write(jsonAnswer(aCompletion())));
        assert.equal((await call(gateway, { body: aChat({ stream: false }) })).status, 200);
        assert.ok(engine.calls.length <= 3);
      },
    );
  },
);

test(
  "a body is let go when its answer has begun: running streams hold none of it, in truth and in the figures [80.I9]",
  { timeout: 240_000 },
  async () => {
    await withRawEngine({}, { slots: 16 }, async (gateway, engine, onCall) => {
      const heads: RawCall[] = [];
      onCall((one) => void heads.push(one));
      const body = largeBody();
      const before = heldBytes();
      const calls = Array.from({ length: 10 }, () => startCall(gateway, { body }));
      await eventually(
        "all are on the engine",
        () => engine.calls.length,
        (count) => count === 10,
      );
      // Until the answer begins another try may need them.
      assert.ok((await buffered(gateway)) >= 10 * BODY_BYTES);
      assert.ok(heldBytes() - before > 9 * BODY_BYTES);
      for (const { socket } of heads) socket.write(`${SSE_HEAD}${aChunk(aToken("begun")).toString()}`);
      await Promise.all(calls.map((one) => one.received("begun")));
      assert.equal(await buffered(gateway), 0);
      const held = await eventually(
        "nothing holds the bodies",
        () => heldBytes() - before,
        (bytes) => bytes < 2 * BODY_BYTES,
      );
      assert.ok(held < 2 * BODY_BYTES);
      for (const one of calls) one.leave();
    });
  },
);

test(
  "a body that stops coming gives its memory back when its time is over, and one that is broken off gives it back at once [80.I9]",
  { timeout: 240_000 },
  async () => {
    await withRawEngine({ http: { request_timeout_s: 0.5 } }, {}, async (gateway) => {
      using stuck = await RawClient.connect(gateway.port);
      using torn = await RawClient.connect(gateway.port);
      const bytes = requestBytes(gateway, { body: largeBody() });
      await stuck.write(bytes.subarray(0, 2_000));
      await torn.write(bytes.subarray(0, 2_000));
      await eventually(
        "both are counted",
        () => buffered(gateway),
        (count) => count > 2 * BODY_BYTES,
      );
      torn.reset();
      await eventually(
        "one is back",
        () => buffered(gateway),
        (count) => count < 1.5 * BODY_BYTES,
      );
      await stuck.readUntil("408 ");
      await eventually(
        "both are back",
        () => buffered(gateway),
        (count) => count === 0,
      );
    });
  },
);
