import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";
import type { SpendView } from "../../src/contract/overflow-view.ts";
import type { SimEngine } from "../../src/sim-engine/sim-engine.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { anEngine } from "./support/an-engine.ts";
import { call, startCall, type LiveCall } from "./support/calls.ts";
import { OUTSIDE_KEY, outsideKey } from "./support/overflow-world.ts";
import { startTestGateway, type TestGateway } from "./support/test-gateway.ts";
import { rowsOf } from "./support/usage.ts";

// People's chats whose own site has a long queue; the other site is a second engine, whose ledger says what came there.

let here: SimEngine;
let there: SimEngine;
before(async () => {
  here = await anEngine({ slots: 4 });
  there = await anEngine({ models: ["big"] });
});
beforeEach(() => {
  here.resetLedger();
  there.resetLedger();
});
after(async () => {
  await here.close();
  await there.close();
});

async function withGateway(tier: Record<string, unknown>, run: (gateway: TestGateway) => Promise<void>): Promise<void> {
  const gateway = await startTestGateway({
    upstreams: [{ id: "u", models: ["m"], engine: "vllm", slots: 1, endpoints: [{ url: here.url }] }],
    keys: [{ ...outsideKey, classes: ["interactive", "batch"] }],
    env: { SITE_KEY: "site-key" },
    file: {
      overflow: [
        {
          upstream: "u",
          signals: [{ kind: "queue_depth", min: 1 }],
          signal_memory_ms: 0,
          tiers: [
            {
              id: "site",
              provider: "openai",
              base_url: there.url,
              model: "big",
              approved: true,
              max_in_flight: 8,
              ...tier,
            },
          ],
        },
      ],
    },
  });
  const asked = { ...gateway, keys: { ...gateway.keys, client: OUTSIDE_KEY } };
  const running = startCall(asked, { body: chat({ delayHeadMs: 60_000 }) });
  let waiting: LiveCall | null = null;
  try {
    await eventually(
      "the slot to be taken",
      () => here.ledger().concurrentNow,
      (now) => now === 1,
    );
    waiting = startCall(asked, { body: chat() });
    await eventually(
      "a call to wait",
      async () => (await gateway.health()).upstreams[0]?.queue.waiting.interactive ?? 0,
      (count) => count === 1,
    );
    await run(asked);
  } finally {
    running.leave();
    waiting?.leave();
    await gateway.stop();
  }
}

const chat = (
  sim: Readonly<Record<string, unknown>> = {},
  more: Readonly<Record<string, unknown>> = {},
): Readonly<Record<string, unknown>> => ({
  model: "m",
  messages: [{ role: "user", content: "hi" }],
  max_tokens: 10,
  sim: { tokens: 4, ...sim },
  ...more,
});

const spendOf = async (gateway: TestGateway): Promise<SpendView["tiers"][number] | undefined> => {
  const headers = { authorization: `Bearer ${gateway.keys.operator}` };
  const page = (await (await fetch(`${gateway.url}/admin/overflow/spend`, { headers })).json()) as SpendView;
  return page.tiers[0];
};

test("a chat that would wait is streamed from the other site, in that site's words for the model, and the record names the tier [50.V7]", async () => {
  await withGateway({}, async (gateway) => {
    const answer = await call(gateway, { body: chat({}, { stream: true }) });
    assert.equal(answer.status, 200);
    assert.match(answer.text, /data: \[DONE\]\n\n$/);
    const [entry] = there.ledger().entries;
    assert.deepEqual([there.ledger().entries.length, here.ledger().entries.length, entry?.end], [1, 1, "finished"]);
    const { records } = await gateway.audit("?outcome=ok");
    assert.deepEqual(
      records.map(({ overflow }) => overflow),
      ["site"],
    );
  });
});

test("a paid chat is reserved at what it may cost at most, settled at what it used, and counted as its key's use [50.V7 50.V4 60.K4]", async () => {
  const tier = { price: { per_1k_tokens: 100, currency: "EUR" }, budget: { per_day: 1_000, per_month: 1_000 } };
  await withGateway(tier, async (gateway) => {
    const answer = await call(gateway, { body: chat() });
    const { usage } = JSON.parse(answer.text) as { usage: { prompt_tokens: number; completion_tokens: number } };
    const spend = await eventually(
      "the money to be settled",
      () => spendOf(gateway),
      (each) => each?.reserved_today === 0 && each.spent_today > 0,
    );
    assert.equal(spend?.spent_today, ((usage.prompt_tokens + usage.completion_tokens) * 100) / 1_000);
    assert.equal(there.ledger().entries.length, 1);
    const used = (await rowsOf(gateway, "&key_id=outside")).get("outside m");
    assert.deepEqual([used?.cost, used?.outcomes, used?.gpu_seconds], [{ EUR: spend?.spent_today }, { ok: 1 }, 0]);
    assert.equal(used?.completion_tokens, usage.completion_tokens);
  });
});

const stays: readonly [
  name: string,
  tier: Record<string, unknown>,
  body: Readonly<Record<string, unknown>>,
  options: { readonly inside?: true; readonly class?: "batch" },
][] = [
  ["nobody approved it", { approved: false }, chat(), {}],
  ["the key's data stays in the house", {}, chat(), { inside: true }],
  ["the class is batch", {}, chat(), { class: "batch" }],
  [
    "its cost has no bound",
    { price: { per_1k_tokens: 1, currency: "EUR" }, budget: { per_day: 9, per_month: 9 } },
    chat({}, { max_tokens: undefined }),
    {},
  ],
  [
    "the budget has no room",
    { price: { per_1k_tokens: 1_000, currency: "EUR" }, budget: { per_day: 0.1, per_month: 9 } },
    chat(),
    {},
  ],
];
for (const [name, tier, body, options] of stays)
  test(`a chat stays in the queue here: ${name} [50.V7 50.V4]`, async () => {
    await withGateway(tier, async (gateway) => {
      const { inside, ...more } = options;
      const mine = startCall(gateway, { body, ...more, key: inside === true ? gateway.keys.admin : OUTSIDE_KEY });
      await eventually(
        "it to wait here",
        async () => {
          const queue = (await gateway.health()).upstreams[0]?.queue.waiting;
          return (queue?.interactive ?? 0) + (queue?.batch ?? 0);
        },
        (count) => count === 2,
      );
      assert.equal(there.ledger().entries.length, 0);
      mine.leave();
    });
  });

test("a tier that refuses is told to the client once, nothing is charged, and it is asked no further [50.V7 80.O5]", async () => {
  const tier = { price: { per_1k_tokens: 100, currency: "EUR" }, budget: { per_day: 1_000, per_month: 1_000 } };
  await withGateway(tier, async (gateway) => {
    const answer = await call(gateway, { body: chat({ status: 500 }) });
    assert.equal(answer.status, 500);
    const spend = await eventually(
      "the money to be back",
      () => spendOf(gateway),
      (each) => each?.reserved_today === 0,
    );
    assert.deepEqual([spend?.spent_today, there.ledger().entries.length], [0, 1]);
  });
});
