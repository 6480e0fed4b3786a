import type { SimEngine } from "../../../src/sim-engine/sim-engine.ts";
import type { FakeCloud } from "../../../src/testing/cloud/fake-cloud.ts";
import { aTier, ENV, OUTSIDE_KEY, outsideKey, type SignalPages } from "./overflow-world.ts";
import { startTestGateway, type TestGateway, type TestGatewayOptions } from "./test-gateway.ts";

/** A card that a semaphore speaks for, and one tier at a cloud that counts what it was asked to do. */
export interface MoneyWorld {
  readonly engine: SimEngine;
  readonly cloud: FakeCloud;
  readonly pages: SignalPages;
}

/** In the words of the file. */
export interface MoneySetup {
  readonly tier?: Record<string, unknown>;
  readonly section?: Record<string, unknown>;
  readonly file?: Record<string, unknown>;
  readonly key?: Record<string, unknown>;
  readonly env?: Record<string, string>;
}

export const moneyUpstreams = ({ engine }: MoneyWorld): Record<string, unknown>[] => [
  { id: "u", models: ["m"], engine: "vllm", slots: 4, endpoints: [{ url: engine.url }] },
];

export const moneySection = ({ cloud, pages }: MoneyWorld, setup: MoneySetup): Record<string, unknown> => ({
  upstream: "u",
  signals: [{ kind: "semaphore", url: `${pages.url}/status`, busy_field: "guard.busy" }],
  signal_memory_ms: 0,
  hold_s: 0,
  tiers: [aTier(cloud, setup.tier)],
  ...setup.section,
});

export const moneyOptions = (world: MoneyWorld, setup: MoneySetup): TestGatewayOptions => ({
  upstreams: moneyUpstreams(world),
  keys: [{ ...outsideKey, ...setup.key }],
  env: setup.env ?? ENV,
  file: { overflow: [moneySection(world, setup)], ...setup.file },
});

/** Ends the cloud and the pages with it. */
export async function withMoneyGateway(
  world: MoneyWorld,
  setup: MoneySetup,
  run: (gateway: TestGateway) => Promise<void>,
): Promise<void> {
  const gateway = await startTestGateway(moneyOptions(world, setup));
  try {
    await run({ ...gateway, keys: { ...gateway.keys, client: OUTSIDE_KEY } });
  } finally {
    await gateway.stop();
    await world.cloud.close();
    await world.pages[Symbol.asyncDispose]();
  }
}

/** By an approver, unless another key is given. */
export async function admin<T>(
  gateway: TestGateway,
  method: string,
  path: string,
  body?: unknown,
  key = gateway.keys.approver,
): Promise<{ readonly status: number; readonly json: T }> {
  const answer = await fetch(gateway.url + path, {
    method,
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  return { status: answer.status, json: (await answer.json()) as T };
}
