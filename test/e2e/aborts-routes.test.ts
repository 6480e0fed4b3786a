import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { SimEngine } from "../../src/sim-engine/sim-engine.ts";
import { parsePrometheus } from "../../src/testing/exposition-parser.ts";
import { anEngine } from "./support/an-engine.ts";
import { call, startCall, type CallAnswer, type CallOptions } from "./support/calls.ts";
import { upstreamHealth } from "./support/health.ts";
import { SIM_ROUTES, type SimRoute } from "./support/sim-routes.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { startTestGateway, type TestGateway } from "./support/test-gateway.ts";

// Every route that leads to an engine, with calls that end in every way: the slot comes back each time, and each call is
// counted once.

const CALLS = 20;
const SLOTS = 4;
/** Longer than any test waits. */
const LONG_MS = 120_000;
const KEY = "limited-0123456789abcdef0123456789abcdef";

let engine: SimEngine;

before(async () => {
  engine = await anEngine();
});
after(() => engine.close());

async function startGateway(): Promise<TestGateway> {
  const upstream = { slots: SLOTS, batch_max: SLOTS, endpoints: [{ url: engine.url }] };
  return startTestGateway({
    upstreams: [
      { id: "u", models: ["m"], engine: "vllm", ...upstream },
      { id: "passthrough", kind: "http", health: "passive", ...upstream },
    ],
    keys: [{ id: "limited", key: KEY, limits: { max_in_flight: 2 * SLOTS } }],
  });
}

/** Requests counted as ended, by outcome. */
async function outcomes(gateway: TestGateway, route: SimRoute): Promise<Record<string, number>> {
  const page = await (await fetch(`${gateway.url}/metrics`)).text();
  const counts: Record<string, number> = {};
  for (const { labels, value } of parsePrometheus(page).find(({ name }) => name === "yardmaster_requests_total")
    ?.samples ?? []) {
    assert.deepEqual([labels["upstream"], labels["route"]], [route.upstream, route.pattern]);
    const outcome = String(labels["outcome"]);
    counts[outcome] = (counts[outcome] ?? 0) + value;
  }
  return counts;
}

async function allIsFree(gateway: TestGateway, route: SimRoute, what: string): Promise<void> {
  await eventually(
    `${what}: nothing in flight`,
    () => gateway.metric(`yardmaster_in_flight{upstream="${route.upstream}",class="interactive"}`),
    (count) => count === 0,
  );
  const view = await upstreamHealth(gateway, route.upstream);
  assert.deepEqual(
    [view.in_use, view.lingering, view.queue.waiting, view.queue.waiting_bytes],
    [{ interactive: 0, system: 0, batch: 0 }, 0, { interactive: 0, system: 0, batch: 0 }, 0],
    what,
  );
  assert.deepEqual(
    view.endpoints.map((endpoint) => [endpoint.in_flight, endpoint.lingering]),
    [[0, 0]],
    what,
  );
  assert.equal(await gateway.metric("yardmaster_buffered_bytes"), 0, what);
  assert.ok(
    await engine.waitFor(
      (ledger) => ledger.concurrentNow === 0 && ledger.inSlotNow === 0 && ledger.queuedNow === 0,
      60_000,
    ),
    `${what}: the engine is free`,
  );
}

/** Runs the calls four at a time, as many as the slots. */
async function series(run: (index: number) => Promise<void>): Promise<void> {
  let next = 0;
  await Promise.all(
    Array.from({ length: SLOTS }, async () => {
      while (next < CALLS) await run(next++);
    }),
  );
}

for (const route of SIM_ROUTES) {
  test(
    `no slot is lost and each call counts once, whether it ends well, is left before or in its answer, or fails: ${route.name} [10.A1 10.A5 80.G6]`,
    { timeout: 240_000 },
    async () => {
      const gateway = await startGateway();
      engine.resetLedger();
      const ask = (sim: Readonly<Record<string, unknown>>): CallOptions => ({ key: KEY, ...route.call(sim) });
      const wanted: Record<string, number> = {};
      const noted = async (what: string, outcome: string): Promise<void> => {
        wanted[outcome] = (wanted[outcome] ?? 0) + CALLS;
        await allIsFree(gateway, route, what);
        assert.deepEqual(await outcomes(gateway, route), wanted, what);
      };
      /** Leaves each call when the engine is as far as `met` says. */
      const leave = (
        sim: Readonly<Record<string, unknown>>,
        ready: (one: ReturnType<typeof startCall>, index: number) => Promise<unknown>,
      ): Promise<void> =>
        series(async (index) => {
          const one = startCall(gateway, ask(sim));
          await ready(one, index);
          one.leave();
          assert.notEqual((await one.answer).status, 429);
        });
      try {
        await series(async () => {
          const answer = await call(gateway, ask({ tokens: 2 }));
          assert.deepEqual([answer.status, answer.whole], [200, true], answer.text);
        });
        await noted("normal", "ok");

        let { opened } = engine.ledger();
        await leave({ delayHeadMs: LONG_MS }, async (_, index) =>
          assert.ok(await engine.waitFor((ledger) => ledger.opened > opened + index, 60_000)),
        );
        await noted("left before a head", "client_aborted");

        const { firstByte } = engine.ledger();
        const slow = route.streams ? { tokens: 5, hangAfterTokens: 2 } : { chunkBytes: 4, chunkGapMs: LONG_MS };
        await leave(slow, async (one, index) =>
          route.streams
            ? one.received("data:")
            : assert.ok(await engine.waitFor((ledger) => ledger.firstByte > firstByte + index, 60_000)),
        );
        await noted("left inside the answer", "client_aborted");
        assert.equal(engine.ledger().aborted, 2 * CALLS);

        opened = engine.ledger().opened;
        const failed: CallAnswer[] = [];
        await series(
          async () =>
            void failed.push(
              await call(
                gateway,
                ask({ status: 500, body: { error: { message: "no", type: "server_error", code: 500 } } }),
              ),
            ),
        );
        await allIsFree(gateway, route, "engine errors");
        // After a few of these the endpoint leaves rotation, and the others are told so without troubling it.
        for (const { status } of failed) assert.ok(status === 500 || status === 503, `${status}`);
        const counts = await outcomes(gateway, route);
        assert.equal(
          Object.values(counts).reduce((sum, count) => sum + count, 0),
          4 * CALLS,
        );
        const seen = engine.ledger().opened - opened;
        assert.ok(seen > 0);
        assert.equal(failed.filter(({ status }) => status === 500).length, seen);
        assert.equal((await gateway.audit("?limit=1000")).records.length, 4 * CALLS);
        assert.equal(engine.ledger().concurrentPeak <= SLOTS, true, `${engine.ledger().concurrentPeak}`);
      } finally {
        await gateway.stop();
      }
    },
  );
}
