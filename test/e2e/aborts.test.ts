import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { systemClock } from "../../src/kernel/clock.ts";
import { seededRandom } from "../../src/kernel/random.ts";
import type { SimEngine } from "../../src/sim-engine/sim-engine.ts";
import { RawClient } from "../../src/testing/raw-client.ts";
import { RawServer, type RawCall } from "../../src/testing/raw-server.ts";
import { parsePrometheus } from "../../src/testing/exposition-parser.ts";
import { anEngine } from "./support/an-engine.ts";
import { aTask, call, startCall } from "./support/calls.ts";
import { aChat, requestBytes } from "./support/raw-answers.ts";
import { aChunk, aCompletion, aToken, jsonAnswer, SSE_HEAD, writeAsTaken } from "./support/raw-engine.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { crowdingOf } from "./support/run-queue.ts";
import { startTestGateway, type TestGateway } from "./support/test-gateway.ts";

// Clients that leave while their call is on an engine, at every stage; and engines that keep them waiting too long.

/** Times the numbers of the many: 1 shows it in seconds, 5 and more is for a soak. */
const TIMES = Number(process.env["YARDMASTER_SOAK"] ?? 1);

const upstreamTo = (url: string, more: Record<string, unknown> = {}): Record<string, unknown> => ({
  id: "u",
  models: ["m"],
  engine: "vllm",
  slots: 2,
  batch_max: 2,
  endpoints: [{ url }],
  ...more,
});
const inFlight = (gateway: TestGateway) => (): Promise<number | undefined> =>
  gateway.metric('yardmaster_in_flight{upstream="u",class="interactive"}');

async function withRawEngine(
  slots: number,
  run: (gateway: TestGateway, engine: RawServer, onCall: (answer: (call: RawCall) => void) => void) => Promise<void>,
): Promise<void> {
  let answer = (_call: RawCall): void => {};
  await using engine = await RawServer.listen({ onCall: (one) => answer(one) });
  const gateway = await startTestGateway({
    upstreams: [upstreamTo(`http://127.0.0.1:${engine.port}`, { slots, health: "passive" })],
  });
  try {
    await run(gateway, engine, (next) => (answer = next));
  } finally {
    await gateway.stop();
  }
}

/** Resolves with the time at which the engine saw its connection end. */
const closeOf = (one: RawCall): Promise<number> =>
  new Promise((resolve) => one.socket.once("close", () => resolve(systemClock.mono())));

for (const [what, bytes, reads] of [
  ["small events that come slowly", 20, true],
  ["events of 64 KiB that nobody reads any more", 65_536, false],
] as const) {
  for (const how of ["close", "reset"] as const) {
    test(`a client that leaves (${how}) amid ${what} ends the engine's work within a second, and is audited as gone [10.A5 80.G6 80.C22]`, async () => {
      await withRawEngine(2, async (gateway, _engine, onCall) => {
        const torn = Promise.withResolvers<number>();
        let written = 0;
        onCall((one) => {
          void closeOf(one).then(torn.resolve);
          one.socket.write(SSE_HEAD);
          writeAsTaken(
            one.socket,
            aChunk(aToken("x".repeat(bytes))),
            reads ? 3 : 1_000,
            (count) => (written += count),
            () => {},
          );
        });
        using client = await RawClient.connect(gateway.port);
        await client.write(requestBytes(gateway));
        await client.readUntil((received) => received.length > 2 * bytes && received.includes("data: "));
        if (!reads) {
          client.pause();
          // Every buffer on the way is full when the engine's bytes stop moving.
          let seen = -1;
          await eventually(
            "the buffers are full",
            async () => {
              await systemClock.sleep(50, new AbortController().signal);
              const moved = written - seen;
              seen = written;
              return moved;
            },
            (moved) => moved === 0,
          );
        }
        assert.equal(await inFlight(gateway)(), 1);
        const crowding = crowdingOf(process.pid);
        const leftAt = systemClock.mono();
        if (how === "close") client.close();
        else client.reset();
        assert.ok((await torn.promise) - leftAt < 1_000 * crowding());
        await eventually("the slot is back", inFlight(gateway), (count) => count === 0);
        const { records } = await gateway.audit();
        assert.deepEqual(
          records.map(({ outcome, status, errorCode }) => [outcome, status, errorCode]),
          [["client_aborted", 499, "CLIENT_CLOSED"]],
        );
        assert.equal(await gateway.metric('yardmaster_client_aborts_total{upstream="u",stage="streaming"}'), 1);
        assert.deepEqual(
          gateway.logLines.filter((line) => line.includes('"level":"error"')),
          [],
        );
      });
    });
  }
}

const SILENCES: Readonly<Record<string, { readonly stream: boolean; readonly head: string }>> = {
  "a whole answer, of which no head has come": { stream: false, head: "" },
  "a whole answer, of which only the head has come": {
    stream: false,
    head: "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n",
  },
  "a stream whose head has not come": { stream: true, head: "" },
  "a stream that waits for its first event": { stream: true, head: SSE_HEAD },
  "a stream with nothing but comments so far": { stream: true, head: `${SSE_HEAD}${aChunk(": ping\n\n").toString()}` },
};

for (const [what, { stream, head }] of Object.entries(SILENCES)) {
  test(`five clients in turn that leave ${what} each give both slots back at once, and the next call is dispatched without a wait [10.A5 80.G6]`, async () => {
    await withRawEngine(2, async (gateway, engine, onCall) => {
      let closed = 0;
      onCall((one) => {
        one.socket.once("close", () => (closed += 1));
        if (head !== "") one.socket.write(head);
      });
      for (let round = 1; round <= 5; round += 1) {
        const clients = await Promise.all([RawClient.connect(gateway.port), RawClient.connect(gateway.port)]);
        for (const client of clients) await client.write(requestBytes(gateway, { body: aChat({ stream }) }));
        await eventually(
          "both are on the engine",
          () => engine.calls.length,
          (count) => count === 2 * round,
        );
        for (const client of clients) client.close();
        await eventually(
          "both are torn down",
          () => closed,
          (count) => count === 2 * round,
        );
        await eventually("both slots are back", inFlight(gateway), (count) => count === 0);
      }
      onCall((one) => one.socket.write(jsonAnswer(aCompletion())));
      const sixth = await call(gateway, { body: aChat({ stream: false }) });
      assert.deepEqual([sixth.status, sixth.queueMs], [200, 0]);
      const { records } = await gateway.audit();
      assert.deepEqual(
        records.map(({ outcome }) => outcome),
        [...Array.from({ length: 10 }, () => "client_aborted"), "ok"],
      );
      assert.equal(engine.calls.length, 11);
    });
  });
}

/** Sum over all series of a metric that a gateway shows. */
async function sumOf(gateway: TestGateway, name: string): Promise<number> {
  const page = await (await fetch(`${gateway.url}/metrics`)).text();
  return (parsePrometheus(page).find((family) => family.name === name)?.samples ?? []).reduce(
    (sum, { value }) => sum + value,
    0,
  );
}

async function allPoolsEmptyWithinASecond(gateway: TestGateway, engine: SimEngine): Promise<void> {
  const crowding = crowdingOf(process.pid);
  const from = systemClock.mono();
  for (const name of [
    "yardmaster_in_flight",
    "yardmaster_waiting",
    "yardmaster_lingering",
    "yardmaster_endpoint_in_flight",
    "yardmaster_buffered_bytes",
  ]) {
    await eventually(
      name,
      () => sumOf(gateway, name),
      (sum) => sum === 0,
    );
  }
  const tookMs = systemClock.mono() - from;
  assert.ok(tookMs < 1_000 * crowding(), `${tookMs} ms until all was 0`);
  assert.ok(await engine.waitFor((ledger) => ledger.concurrentNow === 0, 60_000));
}

let engine: SimEngine;
before(async () => {
  engine = await anEngine();
});
after(() => engine.close());

for (const [client, many] of [
  ["net", 1_000],
  ["undici", 300],
] as const) {
  test(
    `after ${many} clients that left at 0 to 100 % of their stream or in the queue, with ${client}, nothing is in use within a second, and every one is counted once [80.G6 80.I9 10.A5]`,
    { timeout: 120_000 * TIMES },
    async () => {
      const calls = many * TIMES;
      const clients = 24;
      const events = 8;
      const gapMs = 8;
      const never = new AbortController().signal;
      engine.resetLedger();
      const gateway = await startTestGateway({
        file: { upstream_client: client },
        upstreams: [upstreamTo(engine.url, { slots: 16, batch_max: 16 })],
      });
      const random = seededRandom(7);
      try {
        let begun = 0;
        let ended = 0;
        await Promise.all(
          Array.from({ length: clients }, async () => {
            while (begun < calls) {
              begun += 1;
              // 0: before anything came, be it in the queue or on the engine; more events than there are: it stays to the end.
              const after = Math.floor(random.next() * (events + 2));
              const stream = random.next() < 0.8;
              // Who leaves before the end has an engine that is far from it, however slow the machine is.
              const tokens = after >= events ? events : 40 * events;
              const one = startCall(gateway, { body: aTask({ tokens, delayBetweenMs: gapMs }, { stream }) });
              if (after > events) ended += 1;
              await one.sent();
              if (after === 0) await systemClock.sleep(random.next() * gapMs, never);
              else if (after <= events && stream)
                await Promise.race([
                  one.answer,
                  one.until(`${after} events`, (text) => text.split("data:").length > after),
                ]);
              else if (after <= events) await systemClock.sleep(random.next() * events * gapMs, never);
              if (after <= events) one.leave();
              const answer = await one.answer;
              if (after > events) assert.deepEqual([answer.status, answer.whole], [200, true]);
            }
          }),
        );
        await allPoolsEmptyWithinASecond(gateway, engine);
        assert.equal(await sumOf(gateway, "yardmaster_requests_total"), calls);
        const { finished, aborted, failed, opened, concurrentPeak } = engine.ledger();
        assert.equal(failed, 0);
        assert.equal(finished + aborted, opened);
        assert.ok(concurrentPeak <= 16, `${concurrentPeak}`);
        assert.ok(aborted > calls / 5 && ended > 0 && opened <= calls, `${aborted} aborted of ${opened}`);
        const again = await Promise.all(
          Array.from({ length: 16 }, () => call(gateway, { body: aTask({ tokens: 2, delayBetweenMs: 20 }) })),
        );
        assert.deepEqual(
          again.map(({ status, queueMs }) => [status, queueMs]),
          again.map(() => [200, 0]),
        );
      } finally {
        await gateway.stop();
      }
    },
  );
}

test(
  "after two hundred engines that were silent too long, before or in their answer, nothing is in use within a second, and the engine was told to stop [80.G6 80.I9]",
  { timeout: 120_000 * TIMES },
  async () => {
    const calls = 200 * TIMES;
    engine.resetLedger();
    const timeouts = { first_byte_s: 1, idle_s: 1 };
    const gateway = await startTestGateway({
      upstreams: [upstreamTo(engine.url, { slots: 50, batch_max: 50, timeouts, retry: { attempts: 0 } })],
    });
    try {
      const sims = [{ hangNoHead: true }, { hangAfterHead: true }, { hangAfterTokens: 1 }, { hangAfterTokens: 3 }];
      let begun = 0;
      await Promise.all(
        Array.from({ length: 50 }, async () => {
          while (begun < calls) {
            const index = begun++;
            // Two that go well for each that does not, so that the endpoint stays in rotation.
            for (let good = 0; good < 2; good += 1)
              assert.equal((await call(gateway, { body: aTask({}, {}, "good") })).status, 200);
            const { status, whole, text } = await call(gateway, {
              body: aTask({ tokens: 9, ...sims[index % sims.length] }, { stream: index % 3 !== 0 }, "silent"),
            });
            assert.ok(status === 504 || (status === 200 && !whole), `${status} ${text}`);
            assert.match(text, /UPSTREAM_TIMEOUT/);
          }
        }),
      );
      await allPoolsEmptyWithinASecond(gateway, engine);
      const { silent } = engine.ledger().byTag;
      assert.deepEqual([silent?.opened, silent?.aborted], [calls, calls]);
      assert.equal(await sumOf(gateway, "yardmaster_requests_total"), 3 * calls);
    } finally {
      await gateway.stop();
    }
  },
);
