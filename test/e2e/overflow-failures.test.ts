import assert from "node:assert/strict";
import { createServer, type Server } from "node:net";
import type { AddressInfo } from "node:net";
import { after, before, beforeEach, test } from "node:test";
import type { SimEngine } from "../../src/sim-engine/sim-engine.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { anEngine } from "./support/an-engine.ts";
import { call, startCall } from "./support/calls.ts";
import { chat, PAID, settledSpend, withChatOverflow, type ChatWorld } from "./support/chat-overflow.ts";

// Chats whose tier fails them: what their client gets, what runs where, and what becomes of the money.

let here: SimEngine;
let there: SimEngine;
/** Takes connections and never answers. */
let mute: Server;
let muteUrl: string;
let muteCalls = 0;
before(async () => {
  here = await anEngine({ slots: 4 });
  there = await anEngine({ models: ["big"] });
  mute = createServer((socket) => {
    muteCalls += 1;
    socket.on("error", () => {});
    socket.resume();
  });
  await new Promise<void>((resolve) => mute.listen(0, "127.0.0.1", resolve));
  muteUrl = `http://127.0.0.1:${(mute.address() as AddressInfo).port}`;
});
beforeEach(() => {
  here.resetLedger();
  there.resetLedger();
  there.clearScript();
  muteCalls = 0;
});
after(async () => {
  await here.close();
  await there.close();
  mute.close();
});

const withTier = (
  tier: Record<string, unknown>,
  run: (gateway: ChatWorld) => Promise<void>,
  url = there.url,
): Promise<void> => withChatOverflow({ here, there: url, tier }, run);

/** Both in the queue here: the one that waited before, and the one that its tier failed. */
const waitsHere = (gateway: ChatWorld, count = 2): Promise<number> =>
  eventually(
    "it to wait here",
    async () => (await gateway.health()).upstreams[0]?.queue.waiting.interactive ?? 0,
    (now) => now === count,
  );

const goesOn: readonly [name: string, tier: Record<string, unknown>, sim: Record<string, unknown>, held: number][] = [
  ["is full", PAID, { status: 429 }, 0],
  ["is away for a moment", PAID, { status: 503 }, 0],
  ["has no money left", PAID, { status: 402 }, 0],
  ["fails inside, after who knows what work", PAID, { status: 500 }, 1],
  ["says in a good answer that it failed", PAID, { status: 200, body: { error: { message: "overloaded" } } }, 1],
  ["says in a good answer that it is full", PAID, { status: 200, body: { error: { message: "full", code: 429 } } }, 1],
  ["costs nothing and fails inside", {}, { status: 500 }, 0],
];
for (const [name, tier, sim, held] of goesOn)
  test(`a chat whose tier ${name} goes on here in its turn, is answered once, and is on record as what answered [50.V7 80.O5 80.C32]`, async () => {
    await withTier(tier, async (gateway) => {
      there.script({ do: sim });
      const mine = startCall(gateway, { body: chat() });
      await waitsHere(gateway);
      assert.equal(there.ledger().entries.length, 1);
      const spend = await settledSpend(gateway, held);
      assert.equal(spend.tiers[0]?.spent_today, 0);
      gateway.makeRoom();
      const answer = await mine.answer;
      assert.deepEqual([answer.status, answer.headers["x-yardmaster-upstream"]], [200, "u"]);
      assert.equal(there.ledger().entries.length, 1);
      const { records } = await gateway.audit(`?request_id=${String(answer.headers["x-request-id"])}`);
      assert.deepEqual(
        records.map(({ outcome, upstream }) => [outcome, upstream]),
        [
          ["money_committed", "u"],
          [held === 1 ? "money_held" : "money_freed", "u"],
          ["ok", "u"],
        ],
      );
    });
  });

test("what is wrong with the request itself is told once, and nobody else is asked [50.V7 80.O5]", async () => {
  for (const status of [400, 413, 422]) {
    there.resetLedger();
    await withTier(PAID, async (gateway) => {
      const answer = await call(gateway, { body: chat({ status }) });
      assert.deepEqual([answer.status, answer.headers["x-yardmaster-upstream"]], [status, "site"]);
      const spend = await settledSpend(gateway);
      assert.deepEqual([spend.tiers[0]?.spent_today, there.ledger().entries.length], [0, 1]);
      assert.equal(here.ledger().entries.length, 1);
    });
    here.resetLedger();
  }
});

test("a tier that can't be connected to costs nothing, and the chat goes on here [50.V7]", async () => {
  await withTier(
    PAID,
    async (gateway) => {
      const mine = startCall(gateway, { body: chat() });
      await waitsHere(gateway);
      assert.deepEqual((await settledSpend(gateway)).tiers[0]?.spent_today, 0);
      gateway.makeRoom();
      const answer = await mine.answer;
      assert.deepEqual([answer.status, answer.headers["x-yardmaster-upstream"]], [200, "u"]);
    },
    "http://127.0.0.1:9",
  );
});

test("a tier that takes a paid chat and stays mute ends it within its one time, with the money held and no second run [50.V7 80.O2 80.C32]", async () => {
  await withTier(
    { ...PAID, timeouts: { submit_s: 0.5 } },
    async (gateway) => {
      const answer = await call(gateway, { body: chat() });
      assert.equal(answer.status, 504);
      const { open } = await settledSpend(gateway, 1);
      assert.equal(open[0]?.state, "unknown");
      assert.deepEqual([muteCalls, here.ledger().entries.length], [1, 1]);
      const { records } = await gateway.audit("?outcome=money_held");
      assert.equal(records.length, 1);
    },
    muteUrl,
  );
});

test("a paid chat is sent once, also where a connection that had served before breaks with it [50.V7 80.O2 80.O5]", async () => {
  for (const stream of [false, true])
    await withTier(PAID, async (gateway) => {
      assert.equal((await call(gateway, { body: chat({}, { stream }) })).status, 200);
      there.resetLedger();
      const answer = await call(gateway, { body: chat({ cutBeforeHead: true, cut: "rst" }, { stream }) });
      assert.deepEqual([answer.status, answer.headers["x-yardmaster-upstream"]], [502, "site"]);
      await settledSpend(gateway, 1);
      assert.equal(there.ledger().entries.length, 1);
      there.resetLedger();
    });
});

test("a tier that costs nothing and stays mute is left, and the client's own time counts for both places together [50.V7]", async () => {
  await withTier(
    { timeouts: { submit_s: 0.4 } },
    async (gateway) => {
      const mine = startCall(gateway, { body: chat() });
      await waitsHere(gateway);
      const late = await call(gateway, { body: chat(), headers: { "x-request-timeout-ms": "1200" } });
      assert.deepEqual([late.status, late.headers["x-yardmaster-upstream"]], [503, "u"]);
      assert.match(late.text, /QUEUE_TIMEOUT/);
      gateway.makeRoom();
      assert.equal((await mine.answer).status, 200);
      assert.equal(muteCalls, 2);
    },
    muteUrl,
  );
});

test("a hundred chats before a mute tier take no more places there than it has, and another upstream answers all the while [50.V7 80.I9]", async () => {
  await withTier(
    { timeouts: { submit_s: 2 }, max_in_flight: 3 },
    async (gateway) => {
      const many = Array.from({ length: 100 }, () => startCall(gateway, { body: chat() }));
      await waitsHere(gateway, 98);
      await eventually(
        "the mute tier to be asked",
        () => muteCalls,
        (calls) => calls === 3,
      );
      const health = await fetch(`${gateway.url}/healthz`);
      assert.equal(health.status, 200);
      assert.equal(muteCalls, 3);
      for (const each of many) each.leave();
    },
    muteUrl,
  );
});

test("a stream that a paid tier cuts midway ends with an error event, and costs what was reserved at most [50.V7 80.O2]", async () => {
  await withTier(PAID, async (gateway) => {
    const answer = await call(gateway, { body: chat({ tokens: 8, cutAfterEvents: 3 }, { stream: true }) });
    assert.equal(answer.status, 200);
    assert.doesNotMatch(answer.text, /\[DONE\]/);
    assert.match(answer.text, /"error"/);
    const { tiers, open } = await settledSpend(gateway);
    assert.deepEqual([open.length, (tiers[0]?.spent_today ?? 0) > 0], [0, true]);
    assert.deepEqual([there.ledger().entries.length, here.ledger().entries.length], [1, 1]);
  });
});

test("a client that leaves a paid stream midway ends it there, and what was reserved is spent and not held [50.V7]", async () => {
  await withTier(PAID, async (gateway) => {
    const mine = startCall(gateway, { body: chat({ tokens: 10, delayBetweenMs: 500 }, { stream: true }) });
    await mine.headed();
    mine.leave();
    const { tiers, open } = await settledSpend(gateway);
    assert.deepEqual([open.length, (tiers[0]?.spent_today ?? 0) > 0], [0, true]);
    await eventually(
      "the tier to see it",
      () => there.ledger().concurrentNow,
      (now) => now === 0,
    );
  });
});

test("what fails here is not sent to a paid tier for it, whatever it is [50.V7 80.O5]", async () => {
  await withTier(PAID, async (gateway) => {
    gateway.makeRoom();
    await eventually(
      "the queue to be empty",
      () => here.ledger().concurrentNow,
      (now) => now === 0,
    );
    for (const sim of [400, 401, 404, 422, 429, 500, 503].map((status) => ({ status }))) {
      const answer = await call(gateway, { body: chat(sim) });
      assert.deepEqual([answer.status, answer.headers["x-yardmaster-upstream"]], [sim.status, "u"]);
    }
    const reset = await call(gateway, { body: chat({ cutBeforeHead: true }) });
    assert.equal(reset.headers["x-yardmaster-upstream"], "u");
    assert.equal(there.ledger().entries.length, 0);
  });
});
