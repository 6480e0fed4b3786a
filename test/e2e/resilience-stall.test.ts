import assert from "node:assert/strict";
import { test } from "node:test";
import { VirtualClock } from "../../src/testing/virtual-clock.ts";
import { onlyUpstream } from "./support/health.ts";
import { aTask, startCall } from "./support/calls.ts";
import { answerStream, MUTE, startPagedEngine } from "./support/paged-engine.ts";
import { SSE_HEAD } from "./support/raw-engine.ts";
import { passTime, passTimeUntil } from "./support/virtual-time.ts";
import { stateSeries, upstreamOf, virtualSim, withVirtualWorld } from "./support/virtual-world.ts";

// An engine that says that it is well and does nothing. Times are the product's own defaults, on a virtual clock; sockets are real.

const MODELS = JSON.stringify({ object: "list", data: [{ id: "m" }] });

test("one of two endpoints hangs behind healthy pages and a 200 head: within 65 s it leaves rotation with its reason shown, what waits there without a byte is answered by the other, nothing more reaches it, and it comes back by itself [80.A8 10.R5b 10.R4b 80.C23]", async () => {
  const clock = new VirtualClock();
  await using bad = await virtualSim(clock, 1);
  await using good = await virtualSim(clock, 2);
  bad.script({ do: { hangAfterHead: true } });
  await withVirtualWorld(
    clock,
    [upstreamOf("generic", [bad.url, good.url])],
    async ({ gateway, endpoint, answers }) => {
      const calls = Array.from({ length: 6 }, () => startCall(gateway, { body: aTask({ delayFirstMs: 1_000 }) }));
      await passTimeUntil(clock, "calls on the hanging endpoint", () => bad.ledger().headSent === 3, 1_000);
      assert.ok(
        calls.every((one) => one.status !== 200 || one.text !== ""),
        "a head without a byte was passed on",
      );
      const startedAt = clock.mono();
      const took = await passTimeUntil(clock, "the stall", async () => (await endpoint(bad.url)).stalled, 70_000);
      assert.ok(took > 55_000 && took <= 65_000, `ejected after ${took} ms`);
      const ends = await answers(calls);
      assert.deepEqual(
        ends.map(({ status, whole }) => [status, whole]),
        ends.map(() => [200, true]),
      );
      assert.ok(clock.mono() - startedAt < 70_000, "they went on at once");
      const away = await endpoint(bad.url);
      assert.deepEqual(
        [away.health, away.breaker, away.breaker_reason],
        ["healthy", "open", "no progress with requests in flight"],
      );
      assert.equal(await gateway.metric(stateSeries(away.id, "stalled")), 1);
      assert.ok(gateway.logLines.some((line) => line.includes("endpoint.stalled")));
      assert.equal((await onlyUpstream(gateway)).available, true);

      await answers(Array.from({ length: 20 }, () => startCall(gateway, { body: aTask() })));
      assert.equal(bad.ledger().opened, 3);
      assert.equal(bad.ledger().aborted, 3);
      assert.equal(good.ledger().finished, 26);

      bad.clearScript();
      await passTimeUntil(clock, "it is tried again", async () => !(await endpoint(bad.url)).stalled, 120_000);
      for (let i = 0; i < 6; i += 1) await answers([startCall(gateway, { body: aTask() })]);
      const back = await endpoint(bad.url);
      assert.deepEqual([back.stalled, back.breaker], [false, "closed"]);
      assert.ok(bad.ledger().finished > 0);
      assert.equal(await gateway.metric(stateSeries(back.id, "in_rotation")), 1);
    },
  );
});

test("where the engine's step counter can be read, an engine that stands still leaves rotation within 30 s, and one that hangs on its only endpoint ends its calls by their first-byte limit [80.A8 80.I9]", async () => {
  const clock = new VirtualClock();
  await using bad = await virtualSim(clock, 1);
  await using good = await virtualSim(clock, 2);
  await withVirtualWorld(
    clock,
    [upstreamOf("vllm", [bad.url, good.url], { timeouts: { first_byte_s: 100 } })],
    async ({ gateway, endpoint, answers }) => {
      await answers(Array.from({ length: 4 }, () => startCall(gateway, { body: aTask() })));
      await passTime(clock, 6_000);
      bad.script({ do: { hangWhileHealthy: true } });
      const calls = Array.from({ length: 4 }, () => startCall(gateway, { body: aTask() }));
      await passTimeUntil(clock, "calls on the hanging endpoint", () => bad.ledger().concurrentNow > 0, 1_000);
      const took = await passTimeUntil(clock, "the stall", async () => (await endpoint(bad.url)).stalled, 40_000);
      assert.ok(took <= 30_000, `ejected after ${took} ms`);
      for (const { status, whole } of await answers(calls)) assert.deepEqual([status, whole], [200, true]);
      good.script({ do: { hangWhileHealthy: true } });
      const last = startCall(gateway, { body: aTask() });
      const [end] = await answers([last]);
      assert.ok(end !== undefined && (end.status === 504 || end.status === 503), String(end?.status));
      assert.match(last.text, /UPSTREAM_TIMEOUT|UPSTREAM_UNAVAILABLE/);
    },
  );
});

test("prefills of five minutes with a moving step counter, a probe page that never answers and a long idle time eject nobody [10.R5b 80.A8 80.C23]", async () => {
  const clock = new VirtualClock();
  let steps = 0;
  let counted = 0;
  const finish: (() => void)[] = [];
  await using engine = await startPagedEngine({
    pages: {
      "/v1/models": MODELS,
      "/health": () => (finish.length > 0 ? MUTE : "ok"),
      "/metrics": () => {
        counted += 1;
        if (finish.length > 0) steps += 1;
        return `# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{engine="0"} ${finish.length}\n# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting{engine="0"} 0\n# TYPE vllm:iteration_tokens_total histogram\nvllm:iteration_tokens_total_bucket{engine="0",le="+Inf"} ${steps}\nvllm:iteration_tokens_total_sum{engine="0"} ${steps}\nvllm:iteration_tokens_total_count{engine="0"} ${steps}\n`;
      },
    },
    onPost: (_req, res) => void finish.push(() => answerStream(res)),
  });
  await withVirtualWorld(
    clock,
    [upstreamOf("vllm", [engine.url], { timeouts: { first_byte_s: 600 } })],
    async ({ gateway, endpoint, answers }) => {
      await passTime(clock, 200_000, 1_000);
      assert.deepEqual([(await endpoint(engine.url)).stalled, (await endpoint(engine.url)).health], [false, "healthy"]);
      const calls = Array.from({ length: 5 }, () => startCall(gateway, { body: aTask() }));
      await passTimeUntil(clock, "five prefills", () => finish.length === 5, 1_000);
      const before = counted;
      for (let i = 0; i < 60; i += 1) {
        await passTime(clock, 5_000, 500);
        const state = await endpoint(engine.url);
        assert.deepEqual(
          [state.stalled, state.breaker, state.health],
          [false, "closed", "healthy"],
          `after ${i * 5} s`,
        );
      }
      assert.ok(counted - before > 100, "the counter was read");
      assert.equal(engine.posts, 5);
      finish.splice(0).forEach((end) => end());
      for (const { status, whole } of await answers(calls)) assert.deepEqual([status, whole], [200, true]);
    },
  );
});

test("an engine that is replaced on its address is taken back: what the hanging one left behind holds for it no longer, and no old connection is used [10.R5 10.R5b]", async () => {
  const clock = new VirtualClock();
  const bad = await virtualSim(clock, 1);
  await using good = await virtualSim(clock, 2);
  bad.script({ do: { hangAfterHead: true } });
  await withVirtualWorld(
    clock,
    [upstreamOf("generic", [bad.url, good.url])],
    async ({ gateway, endpoint, answers }) => {
      const calls = Array.from({ length: 2 }, () => startCall(gateway, { body: aTask() }));
      await passTimeUntil(clock, "the stall", async () => (await endpoint(bad.url)).stalled, 70_000);
      await answers(calls);
      bad.kill();
      await passTimeUntil(
        clock,
        "it is seen to be gone",
        async () => (await endpoint(bad.url)).health === "unhealthy",
        20_000,
      );
      await using fresh = await virtualSim(clock, 3, bad.port);
      const took = await passTimeUntil(
        clock,
        "the new one is in rotation",
        async () => {
          await answers([startCall(gateway, { body: aTask() }), startCall(gateway, { body: aTask() })]);
          return fresh.ledger().finished > 0;
        },
        60_000,
      );
      assert.ok(took < 60_000);
      for (const { status, whole } of await answers(
        Array.from({ length: 10 }, () => startCall(gateway, { body: aTask() })),
      ))
        assert.deepEqual([status, whole], [200, true]);
      assert.equal((await endpoint(fresh.url)).stalled, false);
    },
  );
});

test("a stream that has begun stays on its stalled endpoint and ends by the limit on silence, as an error event [10.R5b 10.R4]", async () => {
  const clock = new VirtualClock();
  await using engine = await startPagedEngine({
    pages: { "/health": "ok", "/v1/models": MODELS },
    onPost: (_req, res) => {
      res.socket?.write(SSE_HEAD);
      const event = 'data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}\n\n';
      res.socket?.write(`${event.length.toString(16)}\r\n${event}\r\n`);
    },
  });
  await using other = await virtualSim(clock, 2);
  await withVirtualWorld(
    clock,
    [upstreamOf("generic", [engine.url, other.url], { timeouts: { idle_s: 120 } })],
    async ({ gateway, endpoint, answers }) => {
      const calls = [startCall(gateway, { body: aTask() }), startCall(gateway, { body: aTask() })];
      await passTimeUntil(clock, "the stall", async () => (await endpoint(engine.url)).stalled, 70_000);
      await answers(calls);
      const begun = calls.find((one) => one.text.includes('"a"'));
      assert.ok(begun !== undefined);
      assert.match(begun.text, /UPSTREAM_TIMEOUT/);
      assert.doesNotMatch(begun.text, /\[DONE\]/);
      assert.equal((await begun.answer).whole, false);
      assert.equal(other.ledger().opened, 1);
    },
  );
});

test("clients that give up sooner than the stall time, one after the other, do not keep a mute endpoint in rotation [10.R5b 80.A8]", async () => {
  const clock = new VirtualClock();
  await using bad = await virtualSim(clock, 1);
  await using good = await virtualSim(clock, 2);
  bad.script({ do: { hangNoHead: true } });
  await withVirtualWorld(
    clock,
    [upstreamOf("generic", [bad.url, good.url], { routing: { policy: "round_robin" } })],
    async ({ gateway, endpoint, answers }) => {
      let stalled = false;
      for (let round = 0; round < 10 && !stalled; round += 1) {
        const calls = [1, 2].map(() =>
          startCall(gateway, { body: aTask(), headers: { "x-request-timeout-ms": "20000" } }),
        );
        const leaver = startCall(gateway, { body: aTask() });
        await passTime(clock, 10_000);
        leaver.leave();
        await answers(calls);
        await passTime(clock, 2_000);
        stalled = (await endpoint(bad.url)).stalled;
      }
      assert.ok(stalled);
      const before = bad.ledger().opened;
      for (const { status } of await answers(Array.from({ length: 6 }, () => startCall(gateway, { body: aTask() }))))
        assert.equal(status, 200);
      assert.equal(bad.ledger().opened, before);
    },
  );
});
