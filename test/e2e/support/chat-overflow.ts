import type { SpendView } from "../../../src/contract/overflow-view.ts";
import type { SimEngine } from "../../../src/sim-engine/sim-engine.ts";
import { eventually } from "../../../src/testing/wait-for.ts";
import { startCall } from "./calls.ts";
import { OUTSIDE_KEY, outsideKey } from "./overflow-world.ts";
import { startTestGateway, type TestGateway } from "./test-gateway.ts";

// People's chats whose own site has a long queue: one that runs, one that waits, and a tier for whoever comes next.

/** At 0.1 a token, which the simulated engine counts. */
export const PAID = { price: { per_1k_tokens: 100, currency: "EUR" }, budget: { per_day: 1_000, per_month: 1_000 } };

export const chat = (
  sim: Readonly<Record<string, unknown>> = {},
  more: Readonly<Record<string, unknown>> = {},
): Readonly<Record<string, unknown>> => ({
  model: "m",
  messages: [{ role: "user", content: "hi" }],
  max_tokens: 10,
  sim: { tokens: 4, ...sim },
  ...more,
});

export interface ChatWorld extends TestGateway {
  /** Whoever runs here and whoever waits leave, so that the next ones come to their turn. */
  makeRoom(): void;
}

export interface ChatWorldOptions {
  readonly here: SimEngine;
  /** Base URL of the other site. */
  readonly there: string;
  /** Of the tier, in the words of the file. */
  readonly tier?: Record<string, unknown>;
  /** Of the upstream. */
  readonly upstream?: Record<string, unknown>;
}

export async function withChatOverflow(
  { here, there, tier, upstream }: ChatWorldOptions,
  run: (gateway: ChatWorld) => Promise<void>,
): Promise<void> {
  const site = { id: "site", provider: "openai", base_url: there, model: "big", approved: true, max_in_flight: 8 };
  const gateway = await startTestGateway({
    upstreams: [{ id: "u", models: ["m"], engine: "vllm", slots: 1, endpoints: [{ url: here.url }], ...upstream }],
    keys: [{ ...outsideKey, classes: ["interactive", "batch"] }],
    env: { SITE_KEY: "site-key" },
    file: {
      overflow: [
        {
          upstream: "u",
          signals: [{ kind: "queue_depth", min: 1 }],
          signal_memory_ms: 0,
          tiers: [{ ...site, ...tier }],
        },
      ],
    },
  });
  const asked = { ...gateway, keys: { ...gateway.keys, client: OUTSIDE_KEY } };
  const running = startCall(asked, { body: chat({ delayHeadMs: 60_000 }) });
  try {
    await eventually(
      "the slot to be taken",
      () => here.ledger().concurrentNow,
      (now) => now === 1,
    );
    const waiting = startCall(asked, { body: chat() });
    await eventually(
      "a call to wait",
      async () => (await gateway.health()).upstreams[0]?.queue.waiting.interactive ?? 0,
      (count) => count === 1,
    );
    await run({
      ...asked,
      makeRoom: () => {
        running.leave();
        waiting.leave();
      },
    });
    waiting.leave();
  } finally {
    running.leave();
    await gateway.stop();
  }
}

export async function spendOf(gateway: TestGateway): Promise<SpendView> {
  const headers = { authorization: `Bearer ${gateway.keys.operator}` };
  return (await (await fetch(`${gateway.url}/admin/overflow/spend`, { headers })).json()) as SpendView;
}

/** What the one tier has cost, once nothing is reserved but what is held on purpose. */
export const settledSpend = (gateway: TestGateway, held = 0): Promise<SpendView> =>
  eventually(
    "the money to be settled",
    () => spendOf(gateway),
    ({ tiers, open }) =>
      tiers[0] !== undefined && open.every(({ state }) => state === "unknown") && open.length === held,
  );
