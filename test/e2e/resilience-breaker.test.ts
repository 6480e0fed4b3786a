import assert from "node:assert/strict";
import { test } from "node:test";
import type { SimEngine } from "../../src/sim-engine/sim-engine.ts";
import { FaultProxy } from "../../src/testing/fault-proxy.ts";
import { VirtualClock } from "../../src/testing/virtual-clock.ts";
import { onlyUpstream } from "./support/health.ts";
import { aTask, startCall } from "./support/calls.ts";
import { passTime, passTimeUntil } from "./support/virtual-time.ts";
import {
  shownEndpoints,
  stateSeries,
  upstreamOf,
  virtualSim,
  type VirtualWorld,
  withVirtualWorld,
} from "./support/virtual-world.ts";

// When one endpoint's failures take it out of rotation, and how it comes back. Times on a virtual clock; sockets are real.

const PASSIVE = { health: "passive" };
const statuses = (answers: readonly { readonly status: number }[]): number[] => answers.map(({ status }) => status);
const many = (count: number, value: number): number[] => Array.from({ length: count }, () => value);

test("three refused connections open an endpoint's breaker while its clients are served elsewhere; it is asked again by one request at a time, and closes when that one is answered [10.R5 10.R4 10.R1]", async () => {
  const clock = new VirtualClock();
  await using first = await virtualSim(clock, 1);
  await using second = await virtualSim(clock, 2);
  await using proxy = await FaultProxy.start({ clock, target: { port: first.port } });
  const url = `http://127.0.0.1:${proxy.port}`;
  await withVirtualWorld(
    clock,
    [upstreamOf("generic", [url, second.url], PASSIVE)],
    async ({ gateway, endpoint, answers }) => {
      await proxy.down();
      for (let i = 0; i < 12; i += 1)
        assert.deepEqual(statuses(await answers([startCall(gateway, { body: aTask() })])), [200]);
      const broken = await endpoint(url);
      assert.deepEqual([broken.breaker, broken.breaker_reason], ["open", "3 connections in a row failed"]);
      assert.equal(await gateway.metric(stateSeries(broken.id, "broken")), 1);
      assert.equal(second.ledger().finished, 12);

      await proxy.up();
      first.script({ do: { delayFirstMs: 3_000 } });
      second.script({ do: { delayFirstMs: 3_000 } });
      await passTimeUntil(clock, "half-open", async () => (await endpoint(url)).breaker === "halfOpen", 7_000);
      const calls = Array.from({ length: 10 }, () => startCall(gateway, { body: aTask() }));
      await passTime(clock, 1_000);
      assert.equal(first.ledger().opened, 1, "one probe");
      assert.deepEqual(statuses(await answers(calls)), many(10, 200));
      assert.equal(first.ledger().concurrentPeak, 1);
      assert.equal((await endpoint(url)).breaker, "closed");
      await answers(Array.from({ length: 4 }, () => startCall(gateway, { body: aTask() })));
      assert.ok(first.ledger().opened > 1);
    },
  );
});

test("on a single endpoint that is half-open one call is the probe and the others wait for it; a probe that fails lets none through [10.R5 80.I9]", async () => {
  const clock = new VirtualClock();
  await using engine = await virtualSim(clock, 1);
  await using proxy = await FaultProxy.start({ clock, target: { port: engine.port } });
  const url = `http://127.0.0.1:${proxy.port}`;
  await withVirtualWorld(clock, [upstreamOf("generic", [url], PASSIVE)], async ({ gateway, endpoint, answers }) => {
    await proxy.down();
    for (let i = 0; i < 3; i += 1)
      assert.deepEqual(statuses(await answers([startCall(gateway, { body: aTask() })])), [502]);
    const [refused] = await answers([startCall(gateway, { body: aTask() })]);
    assert.equal(refused?.status, 503);
    assert.match(refused?.text ?? "", /UPSTREAM_UNAVAILABLE.*|breaker open/);
    assert.ok(Number(refused?.headers["retry-after"]) >= 1 && Number(refused?.headers["retry-after"]) <= 5);
    await proxy.up();
    engine.script({ do: { delayFirstMs: 2_000 } });
    await passTimeUntil(clock, "half-open", async () => (await endpoint(url)).breaker === "halfOpen", 7_000);
    const calls = Array.from({ length: 8 }, () => startCall(gateway, { body: aTask() }));
    await passTime(clock, 1_000);
    assert.deepEqual([engine.ledger().opened, (await onlyUpstream(gateway)).queue.waiting.interactive], [1, 7]);
    assert.deepEqual(statuses(await answers(calls)), many(8, 200));
    assert.equal(engine.ledger().opened, 8);
  });
});

/** A world whose only engine was well, and then could not be connected to three times. */
async function afterRefusals(
  run: (world: VirtualWorld & { engine: SimEngine; proxy: FaultProxy; url: string }) => Promise<void>,
): Promise<void> {
  const clock = new VirtualClock();
  await using engine = await virtualSim(clock, 1);
  await using proxy = await FaultProxy.start({ clock, target: { port: engine.port } });
  const url = `http://127.0.0.1:${proxy.port}`;
  await withVirtualWorld(clock, [upstreamOf("vllm", [url])], async (world) => {
    await passTimeUntil(clock, "healthy", async () => (await world.endpoint(url)).health === "healthy", 5_000);
    await proxy.down();
    for (let i = 0; i < 3; i += 1) await world.answers([startCall(world.gateway, { body: aTask() })]);
    await run({ ...world, engine, proxy, url });
  });
}

test("an engine that was only started anew is served from as soon as its health page answers, and not after the breaker's whole time [10.R5]", async () => {
  await afterRefusals(async ({ gateway, endpoint, answers, clock, proxy, url }) => {
    assert.equal((await endpoint(url)).breaker, "open");
    await proxy.up();
    await passTimeUntil(clock, "half-open", async () => (await endpoint(url)).breaker === "halfOpen", 3_000);
    assert.deepEqual(statuses(await answers([startCall(gateway, { body: aTask() })])), [200]);
    assert.equal((await endpoint(url)).breaker, "closed");
  });
});

test("a first call that takes minutes after an engine was started anew keeps the others waiting for seconds only, where its health page is well [10.R5 10.A2]", async () => {
  await afterRefusals(async ({ gateway, endpoint, answers, clock, engine, proxy, url }) => {
    await proxy.up();
    await passTimeUntil(clock, "half-open", async () => (await endpoint(url)).breaker === "halfOpen", 7_000);
    const long = startCall(gateway, { body: aTask({ delayFirstMs: 100_000 }, { stream: false }) });
    await passTimeUntil(clock, "the probe is there", () => engine.ledger().opened === 1, 2_000);
    const from = clock.mono();
    const others = Array.from({ length: 6 }, () => startCall(gateway, { body: aTask() }));
    await passTime(clock, 1_000);
    assert.equal(engine.ledger().opened, 1, "until it is known to be there, it is the only one");
    assert.deepEqual(statuses(await answers(others)), many(6, 200));
    assert.ok(clock.mono() - from <= 6_000, `${clock.mono() - from} ms`);
    const { breaker, in_flight } = await endpoint(url);
    assert.deepEqual([breaker, in_flight], ["closed", 1]);
    assert.deepEqual(statuses(await answers([long])), [200]);
  });
});

test("a probe whose client leaves, or whose own deadline is spent, says nothing: the next call is the probe at once [10.R5 80.I9]", async () => {
  const clock = new VirtualClock();
  await using engine = await virtualSim(clock, 1);
  await using proxy = await FaultProxy.start({ clock, target: { port: engine.port } });
  const url = `http://127.0.0.1:${proxy.port}`;
  await withVirtualWorld(clock, [upstreamOf("generic", [url], PASSIVE)], async ({ gateway, endpoint, answers }) => {
    await proxy.down();
    for (let i = 0; i < 3; i += 1) await answers([startCall(gateway, { body: aTask() })]);
    await proxy.up();
    engine.script({ do: { delayFirstMs: 10_000 } });
    await passTimeUntil(clock, "half-open", async () => (await endpoint(url)).breaker === "halfOpen", 7_000);
    const leaver = startCall(gateway, { body: aTask() });
    await passTimeUntil(clock, "the probe is there", () => engine.ledger().opened === 1, 2_000);
    leaver.leave();
    await passTimeUntil(clock, "the probe is gone", () => engine.ledger().aborted === 1, 2_000);
    const hasty = startCall(gateway, { body: aTask(), headers: { "x-request-timeout-ms": "2000" } });
    assert.deepEqual(statuses(await answers([hasty])), [504]);
    assert.equal((await endpoint(url)).breaker, "halfOpen");
    engine.clearScript();
    const [next] = await answers([startCall(gateway, { body: aTask() })]);
    assert.equal(next?.status, 200);
    assert.equal((await endpoint(url)).breaker, "closed");
  });
});

test("answers that are a client's fault, and deadlines that clients chose too short, never open a breaker: the next good call is served at once [10.R5 80.C23]", async () => {
  const clock = new VirtualClock();
  await using engine = await virtualSim(clock, 1);
  await withVirtualWorld(clock, [upstreamOf("vllm", [engine.url])], async ({ gateway, endpoint, answers }) => {
    for (const status of [400, 404, 422, 413, 429]) {
      const body = { error: { message: "maximum context length is 10 tokens", type: "BadRequestError", code: status } };
      const calls = Array.from({ length: 20 }, () => startCall(gateway, { body: aTask({ status, body }) }));
      assert.deepEqual(statuses(await answers(calls)), many(20, status));
    }
    const hasty = Array.from({ length: 12 }, () =>
      startCall(gateway, { body: aTask({ delayFirstMs: 60_000 }), headers: { "x-request-timeout-ms": "1000" } }),
    );
    assert.deepEqual(statuses(await answers(hasty)), many(12, 504));
    const state = await endpoint(engine.url);
    assert.deepEqual([state.breaker, state.ejected], ["closed", false]);
    const opened = engine.ledger().opened;
    assert.deepEqual(statuses(await answers([startCall(gateway, { body: aTask() })])), [200]);
    assert.equal(engine.ledger().opened, opened + 1);
  });
});

test("an error of the engine's own in a JSON answer with status 200 counts as its status would, and passes as it came [10.R5]", async () => {
  const clock = new VirtualClock();
  await using engine = await virtualSim(clock, 1);
  await withVirtualWorld(clock, [upstreamOf("vllm", [engine.url])], async ({ gateway, endpoint, answers }) => {
    const saying = async (code: number, times: number): Promise<void> => {
      const body = { error: { message: "said with 200", type: "x", code } };
      for (let i = 0; i < times; i += 1) {
        const [got] = await answers([startCall(gateway, { body: aTask({ status: 200, body }, { stream: false }) })]);
        assert.deepEqual([got?.status, JSON.parse(got?.text ?? "")], [200, body]);
      }
    };
    await saying(400, 12);
    await answers(Array.from({ length: 4 }, () => startCall(gateway, { body: aTask({}, { stream: false }) })));
    assert.equal((await endpoint(engine.url)).breaker, "closed");
    await passTime(clock, 21_000);
    await saying(500, 10);
    const state = await endpoint(engine.url);
    assert.deepEqual([state.breaker, state.breaker_reason], ["open", "10 of 10 requests in 20 s failed"]);
  });
});

test("long answers that reach the total limit while they make progress do not take their engine out [10.R5b 10.R5]", async () => {
  const clock = new VirtualClock();
  await using engine = await virtualSim(clock, 1);
  await withVirtualWorld(
    clock,
    [upstreamOf("vllm", [engine.url], { timeouts: { total_s: 5 } })],
    async ({ gateway, endpoint, answers }) => {
      const calls = Array.from({ length: 12 }, () =>
        startCall(gateway, { body: aTask({ tokens: 100, delayBetweenMs: 500 }) }),
      );
      for (const answer of await answers(calls)) {
        assert.equal(answer.whole, false);
        assert.match(answer.text, /UPSTREAM_TIMEOUT/);
      }
      assert.equal((await endpoint(engine.url)).breaker, "closed");
    },
  );
});

test("one of two endpoints fails fast with 503: it is ejected after a few failures, hardly a client notices, and it gets one probe at a time until it is well [10.R5 10.R2]", async () => {
  const clock = new VirtualClock();
  await using slow = await virtualSim(clock, 1);
  await using broken = await virtualSim(clock, 2);
  slow.script({ do: { delayFirstMs: 2_000 } });
  broken.script({ do: { status: 503, body: { error: { message: "broken", code: 503 } } } });
  await withVirtualWorld(
    clock,
    [upstreamOf("vllm", [slow.url, broken.url], { slots: 32 })],
    async ({ gateway, endpoint, answers }) => {
      const all: number[] = [];
      for (let round = 0; round < 10; round += 1)
        all.push(...statuses(await answers(Array.from({ length: 10 }, () => startCall(gateway, { body: aTask() })))));
      assert.ok(all.filter((status) => status === 200).length >= 95, String(all));
      const seen = broken.ledger();
      assert.ok(seen.opened >= 5 && seen.opened < 30, `${seen.opened} calls reached the broken one`);
      const state = await endpoint(broken.url);
      assert.deepEqual([state.ejected, state.breaker === "closed"], [true, false]);
      assert.match(state.breaker_reason ?? "", /of \d+ requests in 20 s failed/);
    },
  );
});

test("when all endpoints fail, never more than half are ejected for it, and those left still answer their clients with the engine's own error [10.R5 80.C23]", async () => {
  const clock = new VirtualClock();
  const engines = await Promise.all([1, 2, 3, 4].map((seed) => virtualSim(clock, seed)));
  await using stack = new AsyncDisposableStack();
  for (const engine of engines) {
    stack.use(engine);
    engine.script({ do: { status: 500, body: { error: { message: "boom", code: 500 } } } });
  }
  await withVirtualWorld(
    clock,
    [
      upstreamOf(
        "vllm",
        engines.map(({ url }) => url),
      ),
    ],
    async ({ gateway, answers }) => {
      let ejectedMost = 0;
      for (let round = 0; round < 12; round += 1) {
        assert.deepEqual(
          statuses(await answers(Array.from({ length: 12 }, () => startCall(gateway, { body: aTask() })))),
          many(12, 500),
        );
        ejectedMost = Math.max(ejectedMost, (await shownEndpoints(gateway)).filter(({ ejected }) => ejected).length);
      }
      assert.equal(ejectedMost, 2);
      assert.equal(
        engines.reduce((sum, engine) => sum + engine.ledger().opened, 0),
        144,
      );
      for (const engine of engines) engine.clearScript();
      assert.deepEqual(
        statuses(await answers(Array.from({ length: 12 }, () => startCall(gateway, { body: aTask() })))),
        many(12, 200),
      );
    },
  );
});
