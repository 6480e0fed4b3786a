import assert from "node:assert/strict";
import { test } from "node:test";
import { eventually } from "../../src/testing/wait-for.ts";
import { asEpoch, asMono, type Clock, parseIsoTime, systemClock } from "../../src/kernel/clock.ts";
import { aTask, call, startCall } from "./support/calls.ts";
import { waitingIn } from "./support/health.ts";
import { accepted, aChat, ended } from "./support/jobs.ts";
import { entriesOf, median, peakOf } from "./support/ledger-check.ts";
import { withSharedWorld } from "./support/shared-world.ts";

/** What two gateways ask of Redis though nobody calls, and more. */
const IDLE_STEPS_PER_S = 10;

test("three gateways with twenty calls each on six slots never have more than six at the engine, and all end well [20.S3 10.A1]", async () => {
  await withSharedWorld({ slots: 6, gateways: 3 }, async ({ gateways, engine, leases }) => {
    const answers = await Promise.all(
      gateways.flatMap((gateway) =>
        Array.from({ length: 20 }, () => call(gateway, { body: aTask({ tokens: 10, delayBetweenMs: 20 }) })),
      ),
    );
    assert.deepEqual(
      answers.map(({ status, whole }) => [status, whole]),
      answers.map(() => [200, true]),
    );
    const { entries } = engine.ledger();
    assert.equal(entries.length, 60);
    assert.equal(peakOf(entries), 6);
    await eventually("all leases to be given back", leases, (count) => count === 0);
  });
});

test("on a Redis that was never used the first calls of a fresh gateway wait for nothing [80.R4 20.S1]", async () => {
  await withSharedWorld({ slots: 8, gateways: 1, fresh: true }, async ({ gateways: [gateway], engine, leases }) => {
    assert.ok(gateway !== undefined);
    const answers = await Promise.all([call(gateway), call(gateway)]);
    for (const { status, queueMs } of answers) {
      assert.equal(status, 200);
      assert.ok(queueMs !== undefined && queueMs < 1_000, `${queueMs} ms in the queue; a store is young for 3 s`);
    }
    assert.equal(engine.ledger().entries.length, 2);
    await eventually("all leases to be given back", leases, (count) => count === 0);
  });
});

test("a slot that one gateway gives back is taken at another by its notice, long before the slow look [20.S4]", async () => {
  await withSharedWorld({ slots: 1, gateways: 2 }, async ({ gateways, engine }) => {
    const [a, b] = gateways;
    assert.ok(a !== undefined && b !== undefined);
    const gaps: number[] = [];
    for (let round = 0; round < 25; round += 1) {
      const held = startCall(a, { body: aTask({ tokens: 200, delayBetweenMs: 10 }, {}, `held-${round}`) });
      await held.received("data:");
      const waiting = startCall(b, { body: aTask({ tokens: 1 }, {}, `next-${round}`) });
      await eventually(
        "the wait",
        () => waitingIn(b),
        (count) => count === 1,
      );
      held.leave();
      assert.equal((await waiting.answer).status, 200);
      const { entries } = engine.ledger();
      const [before] = entriesOf(entries, `held-${round}`);
      const [after] = entriesOf(entries, `next-${round}`);
      gaps.push((after?.openedMs ?? Number.NaN) - (before?.endedMs ?? Number.NaN));
    }
    // A second is the slow look without the notice; `npm run bench` gives the figure.
    assert.ok(median(gaps) < 250, `median ${median(gaps)} ms of ${gaps.map((ms) => ms.toFixed(1)).join(" ")}`);
  });
});

test("people at one gateway go before batch at another, and batch never holds more than its part of all slots [20.S5 10.A2]", async () => {
  await withSharedWorld({ slots: 4, gateways: 2, upstream: { batch_max: 2 } }, async ({ gateways, engine }) => {
    const [a, b] = gateways;
    assert.ok(a !== undefined && b !== undefined);
    const held = [a, b].map((gateway) =>
      startCall(gateway, { class: "batch", body: aTask({ hangAfterTokens: 1 }, {}, "batch") }),
    );
    await Promise.all(held.map((one) => one.received("data:")));
    const batch = Array.from({ length: 14 }, (_, i) =>
      startCall(i % 2 === 0 ? a : b, { class: "batch", body: aTask({ tokens: 10, delayBetweenMs: 20 }, {}, "batch") }),
    );
    await eventually(
      "batch to wait",
      async () => (await waitingIn(a)) + (await waitingIn(b)),
      (count) => count === 14,
    );
    const person = (): ReturnType<typeof call> =>
      call(b, { class: "interactive", body: aTask({ tokens: 2 }, {}, "person") });
    // While batch holds what it may and ends nothing.
    const answers = await Promise.all([person(), person()]);
    assert.ok(answers.every(({ status }) => status === 200));
    for (const one of held) one.leave();
    const ended = await Promise.all(batch.map(({ answer }) => answer));
    assert.ok(ended.every(({ status }) => status === 200));
    const { entries } = engine.ledger();
    assert.equal(peakOf(entriesOf(entries, "batch")), 2);
    assert.ok(peakOf(entries) <= 4);
  });
});

test("a call costs Redis two steps, and a hundred that wait cost it a few a second [20.S4]", async () => {
  await withSharedWorld({ slots: 2, gateways: 2 }, async ({ gateways, admin }) => {
    const [a, b] = gateways;
    assert.ok(a !== undefined && b !== undefined);
    const steps = async (): Promise<number> =>
      Number(/cmdstat_evalsha:calls=(\d+)/.exec(await admin.info("commandstats"))?.[1] ?? 0);
    const before = await steps();
    const began = systemClock.mono();
    for (let i = 0; i < 40; i += 1) assert.equal((await call(a, { body: aTask({ tokens: 1 }) })).status, 200);
    const spent = (await steps()) - before;
    const tookS = (systemClock.mono() - began) / 1_000;
    // Two gateways look and renew once in a while, longer where the calls take longer.
    assert.ok(spent <= 2 * 40 + 20 + IDLE_STEPS_PER_S * tookS, `${spent} steps for 40 calls in ${tookS} s`);

    const held = [a, b].map((gateway) => startCall(gateway, { body: aTask({ tokens: 10_000, delayBetweenMs: 50 }) }));
    await Promise.all(held.map((one) => one.received("data:")));
    const waiting = Array.from({ length: 100 }, (_, i) => startCall(i % 2 === 0 ? a : b, { body: aTask() }));
    await eventually(
      "all to wait",
      async () => (await waitingIn(a)) + (await waitingIn(b)),
      (count) => count === 100,
    );
    const from = await steps();
    const at = systemClock.mono();
    await systemClock.sleep(2_000, new AbortController().signal); // The figure is one of time that passes.
    const perSecond = ((await steps()) - from) / ((systemClock.mono() - at) / 1_000);
    assert.ok(perSecond < 20, `${perSecond} steps a second`);
    for (const one of [...held, ...waiting]) one.leave();
  });
});

/** As on a machine whose clocks, both of them, are off. */
const offBy = (ms: number): Clock => ({
  ...systemClock,
  mono: () => asMono(systemClock.mono() + Math.abs(ms)),
  wall: () => asEpoch(systemClock.wall() + ms),
});

test("gateways whose clocks are half a day apart share slots and jobs as if they were not: what lapses, lapses by the server's clock [80.C5 80.C6]", async () => {
  const HALF_DAY_MS = 12 * 3_600_000;
  const clocks = [offBy(-HALF_DAY_MS), systemClock, offBy(HALF_DAY_MS)];
  const shape = { slots: 6, gateways: 3, clocks };
  await withSharedWorld(shape, async ({ gateways, engine, admin, leases }) => {
    const answers = await Promise.all(
      gateways.flatMap((gateway) =>
        Array.from({ length: 10 }, () => call(gateway, { body: aTask({ tokens: 10, delayBetweenMs: 20 }) })),
      ),
    );
    assert.ok(answers.every(({ status, whole }) => status === 200 && whole));
    assert.equal(peakOf(engine.ledger().entries), 6);
    await eventually("all leases to be given back", leases, (count) => count === 0);
    const [early, , late] = gateways;
    assert.ok(early !== undefined && late !== undefined);
    // Each job's lease outlives many looks of those who would find it lapsed, or never lapsing, by their own clock.
    for (const from of [early, late]) {
      const { id } = await accepted(from, { body: aChat({ tokens: 20, delayBetweenMs: 100 }) });
      const done = await ended(from === early ? late : early, id);
      assert.deepEqual([done.state, done.attempts], ["completed", 1]);
      const [seconds = 0] = (await admin.time()).map(Number);
      assert.ok(
        Math.abs((parseIsoTime(done.ended_at ?? "") ?? 0) / 1_000 - seconds) < 60,
        "its times are the server's",
      );
    }
  });
});
