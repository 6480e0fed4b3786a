import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";
import { systemClock } from "../../src/kernel/clock.ts";
import type { SimEngine } from "../../src/sim-engine/sim-engine.ts";
import { RawClient } from "../../src/testing/raw-client.ts";
import { anEngine } from "./support/an-engine.ts";
import { aTask, call, errorCodeOf, startCall, type LiveCall } from "./support/calls.ts";
import { upstreamHealth, waitingIn } from "./support/health.ts";
import { heard, requestBytes } from "./support/raw-answers.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { crowdingOf } from "./support/run-queue.ts";
import { startTestGateway, type TestGateway } from "./support/test-gateway.ts";

// What a queue promises to those in it and to those who find it full.

let engine: SimEngine;

before(async () => {
  engine = await anEngine();
});
beforeEach(() => engine.resetLedger());
after(() => engine.close());

async function withGateway(
  upstream: Record<string, unknown>,
  run: (gateway: TestGateway) => Promise<void>,
): Promise<void> {
  const gateway = await startTestGateway({
    upstreams: [
      { id: "u", models: ["m"], engine: "vllm", slots: 1, batch_max: 1, endpoints: [{ url: engine.url }], ...upstream },
    ],
  });
  try {
    await run(gateway);
  } finally {
    await gateway.stop();
  }
}

/** Takes the only slot until it leaves. */
async function holdSlot(gateway: TestGateway): Promise<LiveCall> {
  const holder = startCall(gateway, { body: aTask({ hangAfterTokens: 1 }, {}, "holder") });
  await holder.received("data:");
  return holder;
}

test("one call more than queue.max is answered 429 QUEUE_FULL at once, with Retry-After, and those in the queue are served [10.A4 80.C17 80.C19]", async () => {
  await withGateway({ queue: { max: 3 } }, async (gateway) => {
    const holder = await holdSlot(gateway);
    const queued = Array.from({ length: 3 }, () => startCall(gateway, { body: aTask({}, {}, "queued") }));
    await eventually(
      "three wait",
      () => waitingIn(gateway),
      (count) => count === 3,
    );
    const over = await Promise.all(Array.from({ length: 4 }, () => call(gateway, { body: aTask({}, {}, "over") })));
    for (const answer of over) {
      assert.deepEqual([answer.status, errorCodeOf(answer.text)], [429, "QUEUE_FULL"]);
      assert.match(String(answer.headers["retry-after"]), /^[1-9]\d*$/);
    }
    assert.equal(await waitingIn(gateway), 3);
    holder.leave();
    assert.deepEqual(
      (await Promise.all(queued.map((one) => one.answer))).map((answer) => answer.status),
      [200, 200, 200],
    );
    assert.equal(engine.ledger().byTag["over"], undefined);
    const { records } = await gateway.audit("?outcome=refused");
    for (const record of records)
      assert.ok(record.errorCode === "QUEUE_FULL" && record.totalMs < 1_000, `${record.totalMs}`);
  });
});

test("bodies that would fill more than queue.max_bytes are answered 429 QUEUE_FULL, and the bytes come back when a waiting client leaves [10.A4 80.C17]", async () => {
  await withGateway({ queue: { max: 100, max_bytes: 100_000 } }, async (gateway) => {
    const holder = await holdSlot(gateway);
    const large = aTask({}, { messages: [{ role: "user", content: "x".repeat(40_000) }] }, "large");
    const first = startCall(gateway, { body: large });
    const second = startCall(gateway, { body: large });
    await eventually(
      "two wait",
      () => waitingIn(gateway),
      (count) => count === 2,
    );
    const over = await call(gateway, { body: large });
    assert.deepEqual([over.status, errorCodeOf(over.text)], [429, "QUEUE_FULL"]);
    assert.match(String(over.headers["retry-after"]), /^[1-9]\d*$/);
    const bytes = (await upstreamHealth(gateway)).queue.waiting_bytes;
    assert.ok(bytes > 80_000 && bytes <= 100_000);
    // A small one still fits beside them.
    const small = startCall(gateway, { body: aTask({}, {}, "small") });
    await eventually(
      "three wait",
      () => waitingIn(gateway),
      (count) => count === 3,
    );
    first.leave();
    await eventually(
      "the bytes are back",
      async () => (await upstreamHealth(gateway)).queue.waiting_bytes,
      (count) => count < 60_000,
    );
    const again = startCall(gateway, { body: large });
    await eventually(
      "there is room again",
      () => waitingIn(gateway),
      (count) => count === 3,
    );
    holder.leave();
    for (const one of [second, small, again]) assert.equal((await one.answer).status, 200);
    assert.equal(engine.ledger().byTag["large"]?.opened, 2);
    assert.equal(await gateway.metric('yardmaster_waiting_bytes{upstream="u"}'), 0);
  });
});

test("a full queue sheds batch for a person's call, and answers the displaced one like a full queue [10.A4 80.C17 80.G7]", async () => {
  await withGateway({ queue: { max: 2 }, batch_min_share: 0 }, async (gateway) => {
    const holder = await holdSlot(gateway);
    const batch = Array.from({ length: 2 }, () => startCall(gateway, { class: "batch", body: aTask({}, {}, "batch") }));
    await eventually(
      "two wait",
      () => waitingIn(gateway),
      (count) => count === 2,
    );
    const person = startCall(gateway, { class: "interactive", body: aTask({}, {}, "person") });
    const shed = await Promise.race(batch.map((one) => one.answer));
    assert.deepEqual([shed.status, errorCodeOf(shed.text)], [429, "QUEUE_FULL"]);
    assert.match(String(shed.headers["retry-after"]), /^[1-9]\d*$/);
    // Batch is never taken in for batch: the one that waits keeps its place.
    assert.equal((await call(gateway, { class: "batch", body: aTask({}, {}, "late") })).status, 429);
    holder.leave();
    assert.equal((await person.answer).status, 200);
    assert.deepEqual(
      (await Promise.all(batch.map((one) => one.answer))).map((answer) => answer.status).toSorted(),
      [200, 429],
    );
    assert.deepEqual(
      engine.ledger().entries.map((entry) => entry.tag),
      ["holder", "person", "batch"],
    );
  });
});

test("a wait ends with 503 QUEUE_TIMEOUT at the class's own limit, never before and within 100 ms of it, and reaches no engine [10.A4 80.C19]", async () => {
  const timeouts = { interactive: 0.4, system: 0.8, batch: 1.2 } as const;
  await withGateway({ queue: { timeout_s: timeouts } }, async (gateway) => {
    // An untroubled look at the lateness: on a machine that stood still in between, one of three rounds is enough.
    let latest = Number.POSITIVE_INFINITY;
    const crowding = crowdingOf(process.pid);
    for (let round = 0; round < 3 && latest > 100; round += 1) {
      const holder = await holdSlot(gateway);
      const classes = Object.keys(timeouts) as (keyof typeof timeouts)[];
      const answers = await Promise.all(
        classes.map((requestClass) => call(gateway, { class: requestClass, body: aTask({}, {}, "late") })),
      );
      for (const answer of answers) {
        assert.deepEqual([answer.status, errorCodeOf(answer.text)], [503, "QUEUE_TIMEOUT"]);
        assert.match(String(answer.headers["retry-after"]), /^[1-9]\d*$/);
      }
      holder.leave();
      await eventually(
        "the slot is free",
        () => gateway.metric('yardmaster_in_flight{upstream="u",class="interactive"}'),
        (count) => count === 0,
      );
      const { records } = await gateway.audit("?outcome=queue_timeout");
      const late = records.slice(-3).map((record) => (record.queueMs ?? 0) - timeouts[record.class ?? "batch"] * 1_000);
      for (const ms of late) assert.ok(ms >= -1, `${ms} ms after the limit`);
      latest = Math.max(...late);
    }
    const times = crowding();
    assert.ok(latest <= 100 * times, `${latest} ms after the limit, on a machine that makes it ${times} times longer`);
    assert.equal(engine.ledger().byTag["late"], undefined);
  });
});

test(
  "Retry-After and the estimated wait follow the measured drain, not a fixed figure [10.A4]",
  { timeout: 240_000 },
  async () => {
    await withGateway({ queue: { max: 8, timeout_s: { interactive: 600 } } }, async (gateway) => {
      const retryAfter = async (holdMs: number): Promise<number> => {
        // Half a minute of such calls would weigh more; what counts here is the order of size.
        for (let i = 0; i < 3; i += 1) await call(gateway, { body: aTask({ tokens: 1, delayFirstMs: holdMs }) });
        const holder = await holdSlot(gateway);
        const queued = Array.from({ length: 8 }, () => startCall(gateway, {}));
        await eventually(
          "eight wait",
          () => waitingIn(gateway),
          (count) => count === 8,
        );
        const answer = await call(gateway, {});
        assert.equal(answer.status, 429);
        holder.leave();
        await Promise.all(queued.map((one) => one.answer));
        return Number(answer.headers["retry-after"]);
      };
      const slow = await retryAfter(1_500);
      // Nine calls ahead at about a second and a half each, with the short ones of before in the mean; without a measurement it
      // would be the class's limit, 600.
      assert.ok(slow >= 6 && slow <= 60, `${slow} s`);
      const quick = await retryAfter(1);
      assert.ok(quick < slow, `${quick} s after quick calls, ${slow} s after slow ones`);
    });
  },
);

test(
  "a stream that asks for it is told its place, which only falls, and then gets the engine's answer; one that doesn't ask gets the engine's bytes only [10.A4]",
  { timeout: 240_000 },
  async () => {
    await withGateway({}, async (gateway) => {
      const holder = await holdSlot(gateway);
      const steps = [1, 2, 3].map(() => startCall(gateway, { body: aTask({ tokens: 2, delayBetweenMs: 1_300 }) }));
      await eventually(
        "three wait",
        () => waitingIn(gateway),
        (count) => count === 3,
      );
      const told = startCall(gateway, {
        headers: { "x-yardmaster-queue-events": "1" },
        body: aTask({ tokens: 2 }, {}, "told"),
      });
      await told.received(": queue position=4 ");
      // Another key's calls, whose turns come before, must not make the told place worse.
      const before = Array.from({ length: 2 }, () =>
        startCall(gateway, { key: gateway.keys.admin, body: aTask({ tokens: 2, delayBetweenMs: 900 }) }),
      );
      const silent = startCall(gateway, { body: aTask({ tokens: 2 }, {}, "silent") });
      await eventually(
        "seven wait",
        () => waitingIn(gateway),
        (count) => count === 7,
      );
      holder.leave();
      const answer = await told.answer;
      assert.equal(answer.status, 200);
      assert.match(String(answer.headers["content-type"]), /^text\/event-stream/);
      const places = [...answer.text.matchAll(/^: queue position=(\d+) estimated_wait_s=(\d+|-)$/gm)].map((match) =>
        Number(match[1]),
      );
      assert.ok(places.length >= 2, answer.text);
      assert.deepEqual(
        places,
        places.toSorted((a, b) => b - a),
      );
      assert.equal(new Set(places).size, places.length);
      assert.ok(answer.whole && answer.text.trimEnd().endsWith("data: [DONE]"));
      assert.ok(
        answer.text.lastIndexOf(": queue") < answer.text.indexOf("data:"),
        "no place is told once the answer runs",
      );
      assert.ok(!(await silent.answer).text.includes(": queue"));
      await Promise.all([...steps, ...before].map((one) => one.answer));
    });
  },
);

test("once a place was told, a wait that ends in vain is an error event in the stream's own form and a broken connection [10.A4 10.X5]", async () => {
  await withGateway({ queue: { timeout_s: { interactive: 0.5 } } }, async (gateway) => {
    const holder = await holdSlot(gateway);
    const headers = { "x-yardmaster-queue-events": "1" };
    const chat = startCall(gateway, { headers });
    const messages = startCall(gateway, { headers, path: "/v1/messages", body: aTask({}, { max_tokens: 5 }) });
    const whole = startCall(gateway, { headers, body: aTask({}, { stream: false }) });
    const ended = await chat.answer;
    assert.equal(ended.status, 200);
    assert.match(ended.text, /^: queue position=\d+ /);
    const event = /^data: (\{"error".*\})$/m.exec(ended.text)?.[1];
    assert.equal(JSON.parse(event ?? "{}").error.code, "QUEUE_TIMEOUT");
    assert.ok(!ended.whole && !ended.text.includes("[DONE]"));
    const anthropic = await messages.answer;
    assert.match(anthropic.text, /^event: error\ndata: \{"type":"error"/m);
    assert.equal(anthropic.whole, false);
    // Without a stream there is nothing to comment on: a plain refusal.
    const plain = await whole.answer;
    assert.deepEqual(
      [plain.status, errorCodeOf(plain.text), plain.text.includes(": queue")],
      [503, "QUEUE_TIMEOUT", false],
    );
    holder.leave();
    assert.equal(engine.ledger().opened, 1);
  });
});

test("a request's own deadline is spent by queueing: it leaves the queue when it is over and reaches no engine, and the engine is told what is left [10.A4 80.C18]", async () => {
  await withGateway({}, async (gateway) => {
    const holder = await holdSlot(gateway);
    const short = startCall(gateway, { headers: { "x-request-timeout-ms": "400" }, body: aTask({}, {}, "short") });
    const long = startCall(gateway, { headers: { "x-request-timeout-ms": "30000" }, body: aTask({}, {}, "long") });
    const answer = await short.answer;
    assert.deepEqual([answer.status, errorCodeOf(answer.text)], [503, "QUEUE_TIMEOUT"]);
    assert.match(String(answer.headers["retry-after"]), /^[1-9]\d*$/);
    assert.equal(await waitingIn(gateway), 1);
    holder.leave();
    assert.equal((await long.answer).status, 200);
    const { entries } = engine.ledger();
    assert.deepEqual(
      entries.map((entry) => entry.tag),
      ["holder", "long"],
    );
    const { headers = [] } = entries[1] ?? {};
    const left = Number(headers[headers.findIndex((name) => name.toLowerCase() === "x-request-timeout-ms") + 1]);
    assert.ok(left > 0 && left <= 30_000 - 390, `${left} ms left`);
    const { records } = await gateway.audit("?outcome=queue_timeout");
    assert.deepEqual(
      records.map((record) => [record.errorCode, record.attempts]),
      [["QUEUE_TIMEOUT", 0]],
    );
  });
});

test("a deadline that passes while the body comes is answered without a slot being taken, and one that ends on the engine cuts the answer there [10.A4 80.C18]", async () => {
  await withGateway({}, async (gateway) => {
    const bytes = requestBytes(gateway, { headers: ["X-Request-Timeout-Ms: 100"] });
    using slow = await RawClient.connect(gateway.port);
    await slow.write(bytes.subarray(0, -5));
    await systemClock.sleep(150, new AbortController().signal);
    await slow.write(bytes.subarray(-5));
    const late = await heard(slow);
    assert.deepEqual([late.status, errorCodeOf(late.text)], [503, "QUEUE_TIMEOUT"]);
    assert.equal(engine.ledger().opened, 0);

    const running = startCall(gateway, {
      headers: { "x-request-timeout-ms": "500" },
      body: aTask({ hangAfterTokens: 1 }, {}, "running"),
    });
    const ended = await running.answer;
    assert.match(ended.text, /"code":"UPSTREAM_TIMEOUT"/);
    assert.equal(ended.whole, false);
    assert.ok(await engine.waitFor((ledger) => ledger.aborted === 1 && ledger.concurrentNow === 0, 60_000));
    for (const bad of ["0", "-5", "soon", "1.5"])
      assert.equal((await call(gateway, { headers: { "x-request-timeout-ms": bad } })).status, 400);
    assert.equal(engine.ledger().opened, 1);
    assert.equal((await call(gateway, {})).status, 200);
  });
});
