import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { systemClock } from "../../src/kernel/clock.ts";
import { startSimEngine, type SimEngine } from "../../src/sim-engine/sim-engine.ts";
import { startRedis } from "../../src/testing/servers/redis-server.ts";
import type { TestServer } from "../../src/testing/servers/server-process.ts";
import { startTestGateway, type TestGateway } from "./support/test-gateway.ts";

const ENGINES = 4;
const TURNS = 4;
let redis: TestServer;
let engines: SimEngine[];
/** Two that share their slots: each asks the store for every slot, and is told on which endpoint it has it. */
let gateways: TestGateway[];

before(async () => {
  redis = await startRedis();
  const options = {
    models: ["warm", "named"],
    dialect: "vllm",
    slots: 16,
    prefillTps: 0,
    decodeTps: 0,
    seed: 1,
    clock: systemClock,
  } as const;
  engines = await Promise.all(Array.from({ length: ENGINES }, () => startSimEngine(options)));
  const upstream = (id: string, routing: object) => ({
    id,
    engine: "vllm",
    models: [id],
    slots: 16 * ENGINES,
    routing,
    endpoints: engines.map(({ url }) => ({ url })),
  });
  const upstreams = [
    upstream("warm", { prefix_affinity: true }),
    upstream("named", { session_header: "x-session-id" }),
  ];
  const file = { coordination: "redis", redis_url: redis.url, coordination_timeout_ms: 2_000 };
  const settings = { upstreams, file };
  gateways = await Promise.all([startTestGateway(settings), startTestGateway(settings)]);
});
after(async () => {
  await Promise.all(gateways.map((gateway) => gateway.stop()));
  await Promise.all(engines.map((engine) => engine.close()));
  await redis.close();
});

interface Call {
  readonly model: string;
  readonly user: string;
  readonly messages: readonly { readonly role: string; readonly content: string }[];
}

async function ask(gateway: TestGateway, body: Call, headers: Readonly<Record<string, string>> = {}): Promise<void> {
  const response = await fetch(`${gateway.url}/v1/chat/completions`, {
    method: "POST",
    headers: { ...gateway.auth, "content-type": "application/json", ...headers },
    body: JSON.stringify({ ...body, max_tokens: 1 }),
  });
  assert.equal(response.status, 200, await response.text());
}

const SYSTEM = { role: "system", content: "You answer briefly. ".repeat(10) };
const turn = (name: string, at: number) => [
  { role: "user", content: `Question ${at} of ${name}: ${`what follows from ${name}? `.repeat(20)}` },
  { role: "assistant", content: `Answer ${at}. ${"It depends. ".repeat(20)}` },
];

/** By the engines' ledgers: how many requests of the tag each had. */
const placesOf = (tag: string): number[] => engines.map((engine) => engine.ledger().byTag[tag]?.opened ?? 0);

test("where gateways share slots through a store, each turn of a conversation still reaches the engine that has its beginning, through either [10.R3]", async () => {
  const names = Array.from({ length: 8 }, (_, at) => `talk-${at}`);
  for (const name of names) {
    const messages = [SYSTEM];
    for (let at = 0; at < TURNS; at += 1) {
      messages.push(turn(name, at)[0]!);
      await ask(gateways[at % 2]!, { model: "warm", user: name, messages });
      messages.push(turn(name, at)[1]!);
    }
  }
  const homes = names.map((name) => {
    const places = placesOf(name);
    assert.equal(Math.max(...places), TURNS, `${name} went to ${places.join(", ")}`);
    return places.indexOf(TURNS);
  });
  assert.ok(new Set(homes).size >= 2, `all went to engines ${homes.join(", ")}`);
});

test("where gateways share slots through a store, requests of one session still go to one engine, also several that wait at once [10.R3]", async () => {
  for (let at = 0; at < 8; at += 1) {
    const messages = [{ role: "user", content: `${at}` }];
    await ask(gateways[at % 2]!, { model: "named", user: "s1", messages }, { "x-session-id": "one" });
  }
  assert.equal(Math.max(...placesOf("s1")), 8, placesOf("s1").join(", "));
  for (let round = 0; round < 4; round += 1)
    await Promise.all(
      ["a", "b"].map((name) =>
        ask(
          gateways[0]!,
          { model: "named", user: `pair-${name}`, messages: [{ role: "user", content: `${round}` }] },
          { "x-session-id": `pair-${name}` },
        ),
      ),
    );
  for (const name of ["pair-a", "pair-b"])
    assert.ok(Math.max(...placesOf(name)) >= 3, `${name}: ${placesOf(name).join(", ")}`);
});

test("a burst of one conversation stays within the bounded share of each engine also where gateways share slots [10.R3]", async () => {
  const messages = [SYSTEM, ...turn("burst", 0), turn("burst", 1)[0]!];
  for (const engine of engines) engine.script({ do: { delayHeadMs: 1_500 } });
  await Promise.all(Array.from({ length: 40 }, () => ask(gateways[0]!, { model: "warm", user: "burst", messages })));
  for (const engine of engines) engine.clearScript();
  const peaks = engines.map((engine) => engine.ledger().byTag["burst"]?.concurrentPeak ?? 0);
  assert.ok(Math.max(...peaks) <= Math.ceil((40 * 1.35) / ENGINES), peaks.join(", "));
  assert.ok(peaks.filter((peak) => peak > 0).length >= 3, peaks.join(", "));
});
