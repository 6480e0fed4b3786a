import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";
import type { SimEngine } from "../../src/sim-engine/sim-engine.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { anEngine } from "./support/an-engine.ts";
import { call, startCall } from "./support/calls.ts";
import { chat, PAID, settledSpend, withChatOverflow, type ChatWorld } from "./support/chat-overflow.ts";
import { OUTSIDE_KEY } from "./support/overflow-world.ts";
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

const withGateway = (tier: Record<string, unknown>, run: (gateway: ChatWorld) => Promise<void>): Promise<void> =>
  withChatOverflow({ here, there: there.url, tier }, run);

test("a chat that would wait is streamed from the other site, in that site's words for the model, and headers and record name the tier [50.V7]", async () => {
  await withGateway({}, async (gateway) => {
    const answer = await call(gateway, { body: chat({}, { stream: true }) });
    assert.deepEqual([answer.status, answer.headers["x-yardmaster-upstream"]], [200, "site"]);
    assert.match(answer.text, /data: \[DONE\]\n\n$/);
    assert.match(answer.text, /"model":"big"/);
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
  await withGateway(PAID, async (gateway) => {
    const answer = await call(gateway, { body: chat() });
    const { usage } = JSON.parse(answer.text) as { usage: { prompt_tokens: number; completion_tokens: number } };
    const { tiers } = await settledSpend(gateway);
    assert.equal(tiers[0]?.spent_today, ((usage.prompt_tokens + usage.completion_tokens) * 100) / 1_000);
    assert.equal(there.ledger().entries.length, 1);
    const used = (await rowsOf(gateway, "&key_id=outside")).get("outside m");
    assert.deepEqual([used?.cost, used?.outcomes, used?.gpu_seconds], [{ EUR: tiers[0]?.spent_today }, { ok: 1 }, 0]);
    assert.equal(used?.completion_tokens, usage.completion_tokens);
  });
});

test("two chats that their client names alike are two, each paid for by itself [50.V7 80.O2]", async () => {
  await withGateway(PAID, async (gateway) => {
    const headers = { "x-request-id": "job_of-mine" };
    for (let index = 0; index < 2; index += 1) {
      const answer = await call(gateway, { body: chat(), headers });
      assert.equal(answer.headers["x-yardmaster-upstream"], "site");
    }
    const { tiers } = await settledSpend(gateway);
    const each = tiers[0]?.spent_today ?? 0;
    assert.deepEqual([there.ledger().entries.length, each > 0], [2, true]);
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
  ["its cost has no bound", PAID, chat({}, { max_tokens: undefined }), {}],
  [
    "a picture costs what no byte of it says",
    PAID,
    chat({}, { messages: [{ role: "user", content: [{ type: "image_url", image_url: { url: "http://x/y.png" } }] }] }),
    {},
  ],
  ["the budget has no room", { ...PAID, budget: { per_day: 0.1, per_month: 9 } }, chat(), {}],
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
