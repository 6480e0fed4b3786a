import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";
import { systemClock } from "../../src/kernel/clock.ts";
import type { SimEngine } from "../../src/sim-engine/sim-engine.ts";
import { anEngine } from "./support/an-engine.ts";
import { aTask, call, errorCodeOf, startCall, type CallAnswer } from "./support/calls.ts";
import { waitingIn } from "./support/health.ts";
import { entriesOf, peakOf } from "./support/ledger-check.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { startTestGateway, type TestGateway, type TestGatewayOptions } from "./support/test-gateway.ts";

// Who gets how much when there is not enough: keys of a class, lower classes, limits of a key, and a broken endpoint that looks
// idle. The engine's ledger counts.

let engine: SimEngine;

before(async () => {
  engine = await anEngine();
});
beforeEach(() => engine.resetLedger());
after(() => engine.close());

const plain = (id: string): string => `${id}-0123456789abcdef0123456789abcdef`;
const aKey = (id: string, more: Record<string, unknown> = {}) => ({
  id,
  key: plain(id),
  classes: ["interactive", "batch"],
  ...more,
});

async function withGateway(
  upstream: Record<string, unknown>,
  run: (gateway: TestGateway) => Promise<void>,
  more: Omit<TestGatewayOptions, "upstreams"> = {},
): Promise<void> {
  const gateway = await startTestGateway({
    ...more,
    upstreams: [
      { id: "u", models: ["m"], engine: "vllm", slots: 4, batch_max: 4, endpoints: [{ url: engine.url }], ...upstream },
    ],
  });
  try {
    await run(gateway);
  } finally {
    await gateway.stop();
  }
}

/** Clients that ask again as soon as they have their answer, until told to stop. */
class Crowd {
  readonly answers: CallAnswer[] = [];
  readonly #ended: Promise<unknown>;
  #stopped = false;

  constructor(clients: number, ask: () => Promise<CallAnswer>) {
    this.#ended = Promise.all(
      Array.from({ length: clients }, async () => {
        // A gateway that is gone ends the crowd too, so that a test that failed ends.
        while (!this.#stopped && this.answers.at(-1)?.status !== 0) this.answers.push(await ask());
      }),
    );
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    await this.#ended;
  }
}

test(
  "a key that sends nine tenths of the load leaves each other key its fair share, by weight [80.G8 10.A3]",
  { timeout: 240_000 },
  async () => {
    const keys = [aKey("flood"), aKey("small"), aKey("double", { weight: 2 })];
    await withGateway(
      {},
      async (gateway) => {
        const ask = (id: string) => (): Promise<CallAnswer> =>
          call(gateway, { key: plain(id), body: aTask({ tokens: 2, delayBetweenMs: 20 }, {}, id) });
        // Each crowd is large enough that some of it always waits, however slowly its members come back.
        const crowds = [new Crowd(150, ask("flood")), new Crowd(30, ask("small")), new Crowd(50, ask("double"))];
        await eventually(
          "all but those that run wait",
          () => waitingIn(gateway),
          (waiting) => waiting >= 220,
        );
        engine.resetLedger();
        assert.ok(await engine.waitFor((ledger) => ledger.opened >= 300, 40_000));
        const { byTag, opened } = engine.ledger();
        await Promise.all(crowds.map((crowd) => crowd.stop()));
        const share = (id: string): number => (byTag[id]?.opened ?? 0) / opened;
        assert.ok(share("small") >= 0.9 * 0.25, `small ${share("small")}`);
        assert.ok(share("double") >= 0.9 * 0.5, `double ${share("double")}`);
        for (const crowd of crowds) for (const answer of crowd.answers) assert.equal(answer.status, 200);
      },
      { keys },
    );
  },
);

test("a backlog of three hundred of one key delays another key's single call by one turn [10.A3]", async () => {
  await withGateway(
    { slots: 1, batch_max: 1 },
    async (gateway) => {
      const holder = startCall(gateway, { key: plain("flood"), body: aTask({ hangAfterTokens: 1 }, {}, "flood") });
      await holder.received("data:");
      const backlog = Array.from({ length: 300 }, () =>
        startCall(gateway, { key: plain("flood"), body: aTask({ tokens: 1 }, {}, "flood") }),
      );
      await eventually(
        "the backlog waits",
        () => waitingIn(gateway),
        (count) => count === 300,
      );
      const single = startCall(gateway, { key: plain("other"), body: aTask({ tokens: 1 }, {}, "other") });
      await eventually(
        "it waits too",
        () => waitingIn(gateway),
        (count) => count === 301,
      );
      holder.leave();
      assert.equal((await single.answer).status, 200);
      const place = engine.ledger().entries.findIndex(({ tag }) => tag === "other");
      assert.ok(place >= 1 && place <= 2, `${place - 1} calls of the backlog went first`);
      for (const one of backlog) one.leave();
    },
    { keys: [aKey("flood"), aKey("other")] },
  );
});

for (const share of [0.05, 0]) {
  const what =
    share > 0
      ? "gets its share of the slots' time and no more"
      : "waits until its time is over where the share is turned off";
  test(
    `under endless load of people waiting batch ${what}, and each batch call gets its result or a reason [10.A2b 10.A2 80.C17]`,
    { timeout: 240_000 },
    async () => {
      await withGateway(
        { slots: 2, batch_max: 2, batch_min_share: share, queue: { timeout_s: { batch: 5 } } },
        async (gateway) => {
          const people = new Crowd(10, () =>
            call(gateway, { class: "interactive", body: aTask({ tokens: 2, delayBetweenMs: 30 }, {}, "person") }),
          );
          assert.ok(await engine.waitFor((ledger) => ledger.finished >= 10, 60_000));
          engine.resetLedger();
          const from = systemClock.mono();
          const batch = await Promise.all(
            Array.from({ length: 20 }, () =>
              call(gateway, { class: "batch", body: aTask({ tokens: 2, delayBetweenMs: 30 }, {}, "batch") }),
            ),
          );
          const tookMs = systemClock.mono() - from;
          await people.stop();
          const { entries } = engine.ledger();
          const served = batch.filter(({ status }) => status === 200);
          for (const answer of batch.filter(({ status }) => status !== 200)) {
            assert.deepEqual([answer.status, errorCodeOf(answer.text)], [503, "QUEUE_TIMEOUT"]);
            assert.match(String(answer.headers["retry-after"]), /^[1-9]\d*$/);
          }
          const slotMs = entriesOf(entries, "batch").reduce(
            (sum, { openedMs, endedMs }) => sum + ((endedMs ?? openedMs) - openedMs),
            0,
          );
          if (share === 0) assert.equal(served.length, 0);
          else {
            assert.ok(served.length >= 3, `${served.length} served`);
            // One call more than the share may have begun: the time it takes is spent afterwards.
            const most = share * 2 * tookMs + slotMs / served.length;
            assert.ok(slotMs <= 1.5 * most, `${slotMs} ms of ${2 * tookMs} ms slot time`);
          }
          for (const answer of people.answers) assert.equal(answer.status, 200);
          assert.ok(peakOf(entries) <= 2);
        },
      );
    },
  );
}

const LIMITS: Readonly<
  Record<
    string,
    { readonly upstream: Record<string, unknown>; readonly key: Record<string, unknown>; readonly code: string }
  >
> = {
  "a key's max_in_flight": { upstream: { slots: 16 }, key: { limits: { max_in_flight: 2 } }, code: "RATE_LIMITED" },
  "an upstream's slots without a queue": {
    upstream: { slots: 2, batch_max: 2, queue: { max: 0 } },
    key: {},
    code: "QUEUE_FULL",
  },
};

for (const [what, { upstream, key, code }] of Object.entries(LIMITS)) {
  test(`a limit of two by ${what} lets two in, counts no refused call, and lets exactly two in again when they have ended [80.I3 80.C19]`, async () => {
    await withGateway(
      upstream,
      async (gateway) => {
        const hang = (): ReturnType<typeof startCall> =>
          startCall(gateway, { key: plain("k"), body: aTask({ tokens: 3, hangAfterTokens: 1 }) });
        for (let round = 0; round < 3; round += 1) {
          const running = [hang(), hang()];
          await Promise.all(running.map((one) => one.received("data:")));
          const refused = await Promise.all(Array.from({ length: 50 }, () => call(gateway, { key: plain("k") })));
          for (const answer of refused) {
            assert.deepEqual([answer.status, errorCodeOf(answer.text)], [429, code]);
            assert.match(String(answer.headers["retry-after"]), /^[1-9]\d*$/);
          }
          assert.equal(await gateway.metric('yardmaster_in_flight{upstream="u",class="interactive"}'), 2);
          for (const one of running) one.leave();
          await eventually(
            "none in flight",
            () => gateway.metric('yardmaster_in_flight{upstream="u",class="interactive"}'),
            (count) => count === 0,
          );
          const ten = Array.from({ length: 10 }, hang);
          const refusedNow = await eventually(
            "eight have their answer",
            () => ten.filter(({ status }) => status === 429).length,
            (count) => count === 8,
          );
          assert.equal(refusedNow, 8);
          await eventually(
            "two run",
            () => ten.filter(({ text }) => text.includes("data:")).length,
            (count) => count === 2,
          );
          for (const one of ten) one.leave();
          await eventually(
            "none in flight",
            () => gateway.metric('yardmaster_in_flight{upstream="u",class="interactive"}'),
            (count) => count === 0,
          );
        }
        assert.deepEqual([engine.ledger().concurrentPeak, engine.ledger().opened], [2, 12]);
      },
      { keys: [aKey("k", key)] },
    );
  });
}

test(
  "an endpoint that fails fast does not draw the load: it leaves rotation after a few calls, nearly all succeed, and it is probed by one call at a time [10.R5 10.R2]",
  { timeout: 90_000 },
  async () => {
    await using broken = await anEngine();
    broken.script({ do: { status: 503, body: { error: { message: "overloaded", type: "server_error", code: 503 } } } });
    await withGateway(
      { slots: 16, batch_max: 16, endpoints: [{ url: engine.url }, { url: broken.url }] },
      async (gateway) => {
        const ask = (): Promise<CallAnswer> => call(gateway, { body: aTask({ tokens: 2, delayBetweenMs: 100 }) });
        let begun = 0;
        const answers: CallAnswer[] = [];
        await Promise.all(
          Array.from({ length: 8 }, async () => {
            while (begun < 100) {
              begun += 1;
              answers.push(await ask());
            }
          }),
        );
        // The first ones are retried while the budget of retries lasts; those after them, until the breaker opens, are not.
        const failed = answers.filter(({ status }) => status !== 200);
        assert.ok(failed.length <= 10, failed.map(({ status, text }) => `${status}: ${text}`).join("\n"));
        const tripped = broken.ledger().opened;
        assert.ok(tripped <= 25, `${tripped} calls went to the broken endpoint`);

        // From here it fails slowly, so that two probes at once would be seen.
        broken.script({ do: { delayHeadMs: 400 } });
        const crowd = new Crowd(6, ask);
        assert.ok(await broken.waitFor((ledger) => ledger.opened > tripped, 60_000));
        assert.ok(await broken.waitFor((ledger) => ledger.concurrentNow === 0, 60_000));
        await crowd.stop();
        const probes = broken.ledger().entries.slice(tripped);
        assert.equal(peakOf(probes), 1);
        assert.ok(crowd.answers.every(({ status }) => status === 200));
      },
    );
  },
);
