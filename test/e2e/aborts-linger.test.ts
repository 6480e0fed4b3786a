import assert from "node:assert/strict";
import { test } from "node:test";
import { systemClock } from "../../src/kernel/clock.ts";
import { seededRandom } from "../../src/kernel/random.ts";
import type { SimEngine } from "../../src/sim-engine/sim-engine.ts";
import { parsePrometheus } from "../../src/testing/exposition-parser.ts";
import { RawServer } from "../../src/testing/raw-server.ts";
import { anEngine } from "./support/an-engine.ts";
import { aTask, call, startCall } from "./support/calls.ts";
import { upstreamHealth } from "./support/health.ts";
import { aChat } from "./support/raw-answers.ts";
import { aCompletion, jsonAnswer } from "./support/raw-engine.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { startTestGateway, type TestGateway } from "./support/test-gateway.ts";

// An engine that works on for a client that is gone, as llama.cpp's server does on calls without a stream. It has exactly the
// slots that the gateway may use: a slot given away too early shows in the engine's own queue.

const SLOTS = 3;

async function withEngine(
  upstream: Record<string, unknown>,
  run: (gateway: TestGateway, engine: SimEngine) => Promise<void>,
): Promise<void> {
  await using engine = await anEngine({ dialect: "llama.cpp", slots: SLOTS });
  const gateway = await startTestGateway({
    upstreams: [
      {
        id: "u",
        models: ["m"],
        engine: "llama.cpp",
        slots: SLOTS,
        batch_max: SLOTS,
        endpoints: [{ url: engine.url }],
        ...upstream,
      },
    ],
  });
  try {
    await run(gateway, engine);
  } finally {
    await gateway.stop();
  }
}

const lingering = (gateway: TestGateway) => (): Promise<number | undefined> =>
  gateway.metric('yardmaster_lingering{upstream="u"}');

async function deferredOf(engine: SimEngine): Promise<number> {
  const page = parsePrometheus(await (await fetch(`${engine.url}/metrics`)).text());
  return page.find(({ name }) => name === "llamacpp:requests_deferred")?.samples[0]?.value ?? Number.NaN;
}

test("an abandoned call without a stream keeps its slot, shown as lingering, until the engine is seen free; then who waits goes on, and the engine's own queue stayed empty [10.A5b 80.I3]", async () => {
  await withEngine({}, async (gateway, engine) => {
    const abandoned = Array.from({ length: 2 }, () =>
      startCall(gateway, { body: aTask({ tokens: 2, delayBetweenMs: 2_500 }, { stream: false }, "abandoned") }),
    );
    assert.ok(await engine.waitFor((ledger) => ledger.inSlotNow === 2, 60_000));
    for (const one of abandoned) one.leave();
    const view = await eventually(
      "two linger",
      () => upstreamHealth(gateway),
      (upstream) => upstream.lingering === 2,
    );
    assert.equal(view.endpoints[0]?.lingering, 2);
    assert.equal(view.endpoints[0]?.in_flight, 0);
    assert.equal(await lingering(gateway)(), 2);

    // One slot is left: one runs, one waits, though nobody else holds a slot for anyone.
    const next = Array.from({ length: 2 }, () =>
      startCall(gateway, { body: aTask({ tokens: 3, delayBetweenMs: 1_500 }, { stream: false }, "next") }),
    );
    await eventually(
      "one waits",
      () => upstreamHealth(gateway),
      ({ queue }) => queue.waiting.interactive === 1,
    );
    assert.equal(await deferredOf(engine), 0);
    const answers = await Promise.all(next.map((one) => one.answer));
    assert.deepEqual(
      answers.map(({ status }) => status),
      [200, 200],
    );
    await eventually("none lingers", lingering(gateway), (count) => count === 0);

    const ledger = engine.ledger();
    assert.deepEqual([ledger.queuedPeak, ledger.inSlotPeak], [0, SLOTS]);
    const freeAt = Math.min(
      ...ledger.entries.filter(({ tag }) => tag === "abandoned").map(({ slotFreeMs }) => slotFreeMs ?? Infinity),
    );
    const second = ledger.entries.filter(({ tag }) => tag === "next")[1]?.openedMs ?? 0;
    // After the engine was free, and long before it would have been given back unseen (60 s).
    assert.ok(second >= freeAt && second - freeAt < 10_000, `${second - freeAt} ms after the engine was free`);
    const { records } = await gateway.audit("?outcome=client_aborted");
    assert.equal(records.length, 2);
    assert.ok(
      records.every(({ totalMs }) => totalMs < 2_500),
      "audited when the client left, not when the engine was done",
    );
  });
});

test("an abandoned stream does not linger where the engine stops for it [10.A5b 10.A5]", async () => {
  await withEngine({}, async (gateway, engine) => {
    const streams = Array.from({ length: SLOTS }, () =>
      startCall(gateway, { body: aTask({ tokens: 9, hangAfterTokens: 2 }) }),
    );
    await Promise.all(streams.map((one) => one.received("data:")));
    for (const one of streams) one.leave();
    const next = await call(gateway, { body: aTask({ tokens: 2 }, { stream: false }) });
    assert.equal(next.status, 200);
    assert.equal(await lingering(gateway)(), 0);
    assert.equal(engine.ledger().queuedPeak, 0);
  });
});

test("a slot comes back after linger_s when the engine can't be asked, and not before [10.A5b 80.I9]", async () => {
  await withEngine({ health: "passive", timeouts: { linger_s: 1.5 } }, async (gateway, engine) => {
    const abandoned = Array.from({ length: SLOTS }, () =>
      startCall(gateway, { body: aTask({ hangNoHead: true }, { stream: false }, "abandoned") }),
    );
    assert.ok(await engine.waitFor((ledger) => ledger.inSlotNow === SLOTS, 60_000));
    const leftAt = systemClock.mono();
    for (const one of abandoned) one.leave();
    const next = startCall(gateway, {
      body: aTask({ status: 400, body: { error: { message: "no", code: 400 } } }, { stream: false }, "next"),
    });
    await eventually("all linger", lingering(gateway), (count) => count === SLOTS);
    assert.equal((await next.answer).status, 400);
    const openedAt = engine.ledger().entries.find(({ tag }) => tag === "next")?.openedMs ?? 0;
    assert.ok(openedAt - leftAt >= 1_450, `${openedAt - leftAt} ms`);
    await eventually("none lingers", lingering(gateway), (count) => count === 0);
    assert.deepEqual((await upstreamHealth(gateway)).in_use, { interactive: 0, system: 0, batch: 0 });
  });
});

test(
  "calls that are left at any moment, streamed or not, and those that stay never fill the engine's own queue, and all slots come back [10.A5b 80.I3 80.G6]",
  { timeout: 240_000 },
  async () => {
    await withEngine({}, async (gateway, engine) => {
      const random = seededRandom(3);
      const never = new AbortController().signal;
      const deferred: number[] = [];
      let stopped = false;
      const watching = (async () => {
        while (!stopped) {
          deferred.push(await deferredOf(engine));
          await systemClock.sleep(20, never);
        }
      })();
      await Promise.all(
        Array.from({ length: 8 }, async () => {
          for (let i = 0; i < 8; i += 1) {
            const one = startCall(gateway, {
              body: aTask({ tokens: 4, delayBetweenMs: 15 }, { stream: random.next() < 0.3 }),
            });
            if (random.next() < 0.6) {
              await systemClock.sleep(random.next() * 100, never);
              one.leave();
            }
            await one.answer;
          }
        }),
      );
      await eventually("none lingers", lingering(gateway), (count) => count === 0);
      stopped = true;
      await watching;
      assert.deepEqual(new Set(deferred), new Set([0]));
      const { queuedPeak, inSlotPeak, inSlotNow } = engine.ledger();
      assert.deepEqual([queuedPeak, inSlotPeak <= SLOTS, inSlotNow], [0, true, 0]);
      const view = await upstreamHealth(gateway);
      assert.deepEqual(
        [view.in_use, view.queue.waiting, view.endpoints[0]?.in_flight],
        [{ interactive: 0, system: 0, batch: 0 }, { interactive: 0, system: 0, batch: 0 }, 0],
      );
    });
  },
);

test("a call abandoned before the engine counts it as work keeps its slot all the same [10.A5b 80.I3]", async () => {
  // By the clock since the first call: not yet counted, then worked on, then free.
  const countedMs = 150;
  const freeMs = 1_200;
  const posts: { readonly user: string; readonly at: number }[] = [];
  await using engine = await RawServer.listen({
    onCall: ({ method, path, body, socket }) => {
      const at = systemClock.mono();
      if (method === "POST") {
        const { user } = JSON.parse(body.toString()) as { user: string };
        posts.push({ user, at });
        if (user === "next") socket.write(jsonAnswer(aCompletion()));
        return;
      }
      const since = at - (posts[0]?.at ?? at);
      if (path === "/slots")
        socket.write(jsonAnswer([{ id: 0, is_processing: posts.length > 0 && since > countedMs && since < freeMs }]));
      else socket.write(jsonAnswer({ status: "ok" }, path === "/health" ? "200 OK" : "404 Not Found"));
    },
  });
  const gateway = await startTestGateway({
    upstreams: [
      {
        id: "u",
        models: ["m"],
        engine: "llama.cpp",
        slots: 1,
        batch_max: 1,
        endpoints: [{ url: `http://127.0.0.1:${engine.port}` }],
      },
    ],
  });
  try {
    const abandoned = startCall(gateway, { body: aChat({ user: "abandoned", stream: false }) });
    await eventually(
      "it is on the engine",
      () => posts.length,
      (count) => count === 1,
    );
    abandoned.leave();
    const next = await call(gateway, { body: aChat({ user: "next", stream: false }) });
    assert.equal(next.status, 200);
    const [first, second] = posts;
    assert.ok(
      (second?.at ?? 0) - (first?.at ?? 0) >= freeMs,
      `${(second?.at ?? 0) - (first?.at ?? 0)} ms after the abandoned one`,
    );
  } finally {
    await gateway.stop();
  }
});
