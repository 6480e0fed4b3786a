import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";
import { systemClock } from "../../src/kernel/clock.ts";
import type { SimEngine } from "../../src/sim-engine/sim-engine.ts";
import { anEngine } from "./support/an-engine.ts";
import { aTask, call, errorCodeOf, startCall } from "./support/calls.ts";
import { upstreamHealth } from "./support/health.ts";
import { entriesOf, median, peakOf } from "./support/ledger-check.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { startTestGateway, type TestGateway, type TestGatewayOptions } from "./support/test-gateway.ts";

// Who gets a slot, and when, seen from the engine: its ledger counts what reached it, and it has more slots than the gateway
// may use, so that one too many would show.

let engine: SimEngine;

before(async () => {
  engine = await anEngine();
});
beforeEach(() => engine.resetLedger());
after(() => engine.close());

async function withGateway(
  upstream: Record<string, unknown>,
  run: (gateway: TestGateway) => Promise<void>,
  more: Omit<TestGatewayOptions, "upstreams"> = {},
): Promise<void> {
  const gateway = await startTestGateway({
    ...more,
    upstreams: [{ id: "u", models: ["m"], engine: "vllm", slots: 16, endpoints: [{ url: engine.url }], ...upstream }],
  });
  try {
    await run(gateway);
  } finally {
    await gateway.stop();
  }
}

test("of 24 batch calls on 16 slots with batch_max 8 exactly 8 run and 16 wait, and people's calls into that backlog wait for nothing and take as long as alone [10.A7 10.A2 10.A1]", async () => {
  await withGateway({ batch_max: 8 }, async (gateway) => {
    const person = (): Promise<Awaited<ReturnType<typeof call>>> =>
      call(gateway, { class: "interactive", body: aTask({ tokens: 5, delayBetweenMs: 10 }, {}, "person") });
    const alone: number[] = [];
    for (let i = 0; i < 5; i += 1) alone.push((await person()).tookMs);
    engine.resetLedger();

    const batch = Array.from({ length: 24 }, () =>
      startCall(gateway, { class: "batch", body: aTask({ tokens: 60, delayBetweenMs: 20 }, {}, "batch") }),
    );
    const full = await eventually(
      "the backlog",
      () => upstreamHealth(gateway),
      (upstream) => upstream.in_use.batch === 8 && upstream.queue.waiting.batch === 16,
    );
    assert.equal(full.in_use.interactive, 0);
    assert.ok(await engine.waitFor((ledger) => ledger.byTag["batch"]?.concurrentNow === 8, 60_000));

    const into: Awaited<ReturnType<typeof call>>[] = [];
    for (let i = 0; i < 5; i += 1) into.push(await person());
    const backlogMedian = median(into.map((answer) => answer.tookMs));
    into.push(...(await Promise.all(Array.from({ length: 8 }, person))));
    assert.deepEqual(
      into.map((answer) => [answer.status, answer.whole, answer.queueMs]),
      into.map(() => [200, true, 0]),
    );
    // A batch call holds its slot for over a second: one wait for it would show.
    assert.ok(backlogMedian < median(alone) * 2 + 400, `${backlogMedian} ms in the backlog, ${median(alone)} ms alone`);

    const answers = await Promise.all(batch.map((one) => one.answer));
    assert.deepEqual(
      answers.map((answer) => [answer.status, answer.whole]),
      answers.map(() => [200, true]),
    );
    const ledger = engine.ledger();
    assert.equal(ledger.byTag["batch"]?.concurrentPeak, 8);
    assert.equal(peakOf(entriesOf(ledger.entries, "batch")), 8);
    assert.equal(ledger.byTag["batch"]?.finished, 24);
    assert.equal(ledger.byTag["person"]?.finished, 13);
    assert.ok(ledger.concurrentPeak <= 16);
    assert.equal(answers.filter((answer) => (answer.queueMs ?? 0) > 0).length, 16);
    const { records } = await gateway.audit("?limit=500");
    assert.deepEqual(new Set(records.map((record) => record.outcome)), new Set(["ok"]));
    assert.deepEqual(
      new Set(records.filter((record) => record.class === "interactive").map((record) => record.queueMs)),
      new Set([0]),
    );
  });
});

test(
  "an engine never sees more than its slots, nor an upstream more than its own, under mixed classes, aborts and errors on two endpoints [10.A1 80.I3]",
  { timeout: 240_000 },
  async () => {
    await using second = await anEngine({ seed: 2 });
    const endpoints = [
      { url: engine.url, slots: 4 },
      { url: second.url, slots: 3 },
    ];
    await withGateway({ slots: 6, batch_max: 2, endpoints }, async (gateway) => {
      const classes = ["interactive", "batch", "system"] as const;
      const ends = Array.from({ length: 150 }, (_, i) => {
        const requestClass = classes[i % 3] ?? "batch";
        const sim =
          i % 10 === 0
            ? { status: 400, body: { error: { message: "no", code: 400 } } }
            : { tokens: 1 + (i % 6), delayBetweenMs: 8 };
        const one = startCall(gateway, {
          class: requestClass,
          body: aTask(sim, { stream: i % 2 === 0 }, requestClass),
        });
        if (i % 7 === 0) void systemClock.sleep(i, new AbortController().signal).then(() => one.leave());
        return one.answer;
      });
      const answers = await Promise.all(ends);
      for (const answer of answers)
        assert.ok(answer.status === 0 || answer.status === 200 || answer.status === 400, String(answer.status));
      const [one, two] = [engine.ledger(), second.ledger()];
      assert.ok(one.concurrentPeak <= 4, `first ${one.concurrentPeak}`);
      assert.ok(two.concurrentPeak <= 3, `second ${two.concurrentPeak}`);
      assert.equal(one.concurrentPeak + two.concurrentPeak >= 6, true, "the slots were used");
      const both = [...one.entries, ...two.entries];
      assert.ok(peakOf(both) <= 6, `both ${peakOf(both)}`);
      assert.ok(peakOf(entriesOf(both, "batch")) <= 2);
      const idle = await eventually(
        "idle",
        () => upstreamHealth(gateway),
        (upstream) => upstream.endpoints.every((endpoint) => endpoint.in_flight === 0),
      );
      assert.deepEqual(idle.in_use, { interactive: 0, system: 0, batch: 0 });
    });
  },
);

test("waiting calls go by class, then in the order in which they came [10.A2]", async () => {
  // Without the share that who waits long earns: here only the order counts.
  await withGateway({ slots: 1, batch_max: 1, batch_min_share: 0 }, async (gateway) => {
    const holder = startCall(gateway, { body: aTask({ hangAfterTokens: 1 }, {}, "holder") });
    await holder.received("data:");
    const calls = [];
    for (const [index, requestClass] of (
      ["batch", "system", "interactive", "batch", "system", "interactive"] as const
    ).entries()) {
      calls.push(
        startCall(gateway, { class: requestClass, body: aTask({ tokens: 2 }, {}, `${requestClass}-${index}`) }),
      );
      await eventually(
        "one more waits",
        () => upstreamHealth(gateway),
        ({ queue }) => queue.waiting.interactive + queue.waiting.system + queue.waiting.batch === index + 1,
      );
    }
    holder.leave();
    for (const one of calls) assert.equal((await one.answer).status, 200);
    assert.deepEqual(
      engine.ledger().entries.map((entry) => entry.tag),
      ["holder", "interactive-2", "interactive-5", "system-1", "system-4", "batch-0", "batch-3"],
    );
    assert.equal(engine.ledger().concurrentPeak, 1);
  });
});

test("a class by header must be one of the key's, the key's first is the default, and a refused one reaches no engine [10.A6]", async () => {
  const keys = [
    { id: "people", key: "people-0123456789abcdef0123456789abcdef", classes: ["interactive", "system"] },
    { id: "nightly", key: "nightly-0123456789abcdef0123456789abcdef", classes: ["batch"] },
  ];
  await withGateway(
    {},
    async (gateway) => {
      const [people, nightly] = keys.map(({ key }) => key) as [string, string];
      const refused = await call(gateway, { key: people, class: "batch" });
      assert.deepEqual([refused.status, errorCodeOf(refused.text)], [403, "CLASS_FORBIDDEN"]);
      const raised = await call(gateway, { key: nightly, class: "interactive" });
      assert.deepEqual([raised.status, errorCodeOf(raised.text)], [403, "CLASS_FORBIDDEN"]);
      const unknown = await call(gateway, { key: people, headers: { "x-yardmaster-class": "urgent" } });
      assert.deepEqual([unknown.status, errorCodeOf(unknown.text)], [400, "CLASS_UNKNOWN"]);
      assert.equal(engine.ledger().opened, 0);

      assert.equal((await call(gateway, { key: people })).status, 200);
      assert.equal((await call(gateway, { key: people, class: "system" })).status, 200);
      assert.equal((await call(gateway, { key: nightly })).status, 200);
      const { records } = await gateway.audit();
      const admitted = records
        .filter((record) => record.outcome === "ok")
        .map((record) => `${record.keyId} ${record.class}`);
      assert.deepEqual(admitted, ["people interactive", "people system", "nightly batch"]);
      assert.equal(records.filter((record) => record.outcome === "refused").length, 3);
    },
    { keys },
  );
});

test(
  "slots 16, then 4, then 16 by reload under load: running calls end, nothing is lost, and the engine sees no more than allowed [10.A1 10.A8]",
  { timeout: 240_000 },
  async () => {
    const upstream = (slots: number): Record<string, unknown> => ({
      id: "u",
      models: ["m"],
      engine: "vllm",
      slots,
      batch_max: slots,
      endpoints: [{ url: engine.url }],
    });
    const gateway = await startTestGateway({ upstreams: [upstream(16)] });
    try {
      let stopped = false;
      const answers: Awaited<ReturnType<typeof call>>[] = [];
      const clients = Array.from({ length: 24 }, async (_, i) => {
        // A gateway that is gone ends them too, so that a test that failed ends.
        while (!stopped && answers.at(-1)?.status !== 0)
          answers.push(
            await call(gateway, {
              class: i % 2 === 0 ? "interactive" : "batch",
              body: aTask({ tokens: 4, delayBetweenMs: 10 }),
            }),
          );
      });
      assert.ok(await engine.waitFor((ledger) => ledger.concurrentPeak === 16 && ledger.finished > 30, 60_000));

      gateway.gateway.applyConfig(gateway.configOf({ upstreams: [upstream(4)] }));
      await eventually(
        "down to four",
        () => upstreamHealth(gateway),
        (view) => view.slots === 4 && view.in_use.interactive + view.in_use.batch <= 4,
      );
      assert.ok(await engine.waitFor((ledger) => ledger.concurrentNow <= 4, 60_000));
      const fewAt = systemClock.mono();
      const finished = engine.ledger().finished;
      assert.ok(await engine.waitFor((ledger) => ledger.finished >= finished + 40, 60_000));
      const manyAt = systemClock.mono();

      gateway.gateway.applyConfig(gateway.configOf({ upstreams: [upstream(16)] }));
      assert.ok(await engine.waitFor((ledger) => ledger.concurrentNow === 16, 60_000));
      stopped = true;
      await Promise.all(clients);

      assert.deepEqual(
        answers.filter((answer) => answer.status !== 200 || !answer.whole),
        [],
      );
      const { entries, concurrentPeak } = engine.ledger();
      assert.equal(concurrentPeak, 16);
      const between = entries.filter((entry) => entry.openedMs < manyAt && (entry.endedMs ?? Infinity) > fewAt);
      assert.ok(peakOf(between) <= 4, `${peakOf(between)} with four slots`);
      assert.equal(entries.length, answers.length);
    } finally {
      await gateway.stop();
    }
  },
);

test("work that others do on the engine counts against its slots, and stops counting when it ends [10.A5b 80.I3]", async () => {
  await withGateway({ slots: 4, batch_max: 4 }, async (gateway) => {
    const direct = Array.from({ length: 3 }, () =>
      startCall({ port: engine.port, keys: gateway.keys }, { body: aTask({ hangAfterTokens: 1 }, {}, "others") }),
    );
    await Promise.all(direct.map((one) => one.received("data:")));
    await eventually(
      "the others' work",
      () => upstreamHealth(gateway),
      (upstream) => upstream.endpoints[0]?.external === 3,
      20_000,
    );

    const own = Array.from({ length: 3 }, () =>
      startCall(gateway, { body: aTask({ tokens: 3, delayBetweenMs: 5 }, {}, "own") }),
    );
    const answers = await Promise.all(own.map((one) => one.answer));
    assert.deepEqual(
      answers.map((answer) => answer.status),
      [200, 200, 200],
    );
    assert.equal(engine.ledger().byTag["own"]?.concurrentPeak, 1);
    assert.equal(engine.ledger().concurrentPeak, 4);

    for (const one of direct) one.leave();
    await eventually(
      "no others",
      () => upstreamHealth(gateway),
      (upstream) => upstream.endpoints[0]?.external === 0,
      20_000,
    );
    const after = Array.from({ length: 4 }, () =>
      startCall(gateway, { body: aTask({ hangAfterTokens: 1 }, {}, "after") }),
    );
    assert.ok(await engine.waitFor((ledger) => ledger.byTag["after"]?.concurrentNow === 4, 60_000));
    for (const one of after) one.leave();
  });
});
