import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { systemClock } from "../../src/kernel/clock.ts";
import { startSimEngine, type SimEngine } from "../../src/sim-engine/sim-engine.ts";
import { startTestGateway, type TestGateway } from "./support/test-gateway.ts";

const ENGINES = 4;
const CONVERSATIONS = 12;
const TURNS = 5;
let engines: SimEngine[];
/** Two that know nothing of each other but the same endpoints. */
let gateways: TestGateway[];

before(async () => {
  const options = {
    models: ["warm", "plain", "named"],
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
    upstream("named", { session_header: "X-Session-Id" }),
    upstream("plain", { policy: "round_robin" }),
  ];
  gateways = await Promise.all([startTestGateway({ upstreams }), startTestGateway({ upstreams })]);
});
after(async () => {
  await Promise.all(gateways.map((gateway) => gateway.stop()));
  await Promise.all(engines.map((engine) => engine.close()));
});

interface Message {
  readonly role: string;
  readonly content: string;
}

async function ask(
  gateway: TestGateway,
  body: { readonly model: string; readonly user: string; readonly messages: readonly Message[] },
  headers: Readonly<Record<string, string>> = {},
): Promise<Response> {
  const response = await fetch(`${gateway.url}/v1/chat/completions`, {
    method: "POST",
    headers: { ...gateway.auth, "content-type": "application/json", ...headers },
    body: JSON.stringify({ ...body, max_tokens: 1 }),
  });
  assert.equal(response.status, 200, await response.text());
  return response;
}

const SYSTEM: Message = { role: "system", content: "You answer briefly. ".repeat(10) };
const turn = (name: string, at: number): Message[] => [
  { role: "user", content: `Question ${at} of ${name}: ${`what follows from ${name}? `.repeat(20)}` },
  { role: "assistant", content: `Answer ${at}. ${"It depends. ".repeat(20)}` },
];

/** Each a turn longer than the one before; every other turn by another gateway. */
async function converse(model: string, name: string): Promise<void> {
  const messages: Message[] = [SYSTEM];
  for (let at = 0; at < TURNS; at += 1) {
    messages.push(turn(name, at)[0]!);
    await ask(gateways[at % 2]!, { model, user: name, messages });
    messages.push(turn(name, at)[1]!);
  }
}

/** By the engines' ledgers: how many requests of the tag each had. */
const placesOf = (tag: string): number[] => engines.map((engine) => engine.ledger().byTag[tag]?.opened ?? 0);

test("each turn of a conversation reaches the engine that has its beginning, through either of two gateways that share nothing, and the conversations are spread [10.R3]", async () => {
  const names = Array.from({ length: CONVERSATIONS }, (_, at) => `talk-${at}`);
  for (const name of names) await converse("warm", name);
  const homes = names.map((name) => {
    const places = placesOf(name);
    assert.equal(Math.max(...places), TURNS, `${name} went to ${places.join(", ")}`);
    return places.indexOf(TURNS);
  });
  assert.ok(new Set(homes).size >= 3, `all went to engines ${homes.join(", ")}`);
});

test("requests of one session go to one engine whatever they ask, and a session of another key is another one [10.R3]", async () => {
  for (let at = 0; at < 8; at += 1) {
    const messages = [{ role: "user", content: `${at}` }];
    await ask(gateways[at % 2]!, { model: "named", user: "s1", messages }, { "x-session-id": "one" });
    await ask(gateways[0]!, { model: "named", user: `k${at}`, messages }, { "x-session-id": `other ${at}` });
  }
  assert.equal(Math.max(...placesOf("s1")), 8);
  const others = engines.map((_, at) => Array.from({ length: 8 }, (_e, k) => placesOf(`k${k}`)[at]!));
  assert.ok(others.filter((counts) => counts.some((count) => count > 0)).length > 1);
});

test("an operator sees what was warm and why an endpoint was chosen, in the header, on the state page and as a metric [10.R3 10.R2]", async () => {
  const [gateway] = gateways as [TestGateway];
  const before = (await gateway.metric('yardmaster_affinity_choices_total{upstream="warm",outcome="warm"}')) ?? 0;
  const messages = [SYSTEM, turn("talk-0", 0)[0]!];
  const response = await ask(
    gateway,
    { model: "warm", user: "op", messages },
    { authorization: `Bearer ${gateway.keys.operator}`, "x-yardmaster-explain": "1" },
  );
  const choice = JSON.parse(response.headers.get("x-yardmaster-choice") ?? "null");
  assert.equal(choice.affinity.outcome, "warm");
  assert.ok(choice.affinity.part > 0.9, JSON.stringify(choice));
  const after = await gateway.metric('yardmaster_affinity_choices_total{upstream="warm",outcome="warm"}');
  assert.equal(after, before + 1);
  const page = (await gateway.health()).upstreams as unknown as readonly {
    readonly id: string;
    readonly affinity: unknown;
  }[];
  const shown = page.find(({ id }) => id === "warm")?.affinity as { readonly known: number } | null;
  assert.ok(shown !== null && shown.known > CONVERSATIONS);
  assert.equal(page.find(({ id }) => id === "plain")?.affinity, null);
});

test("a burst of one conversation does not pile up on the engine that has it warm: no engine has more than its bounded share [10.R3]", async () => {
  const messages = [SYSTEM, ...turn("burst", 0), turn("burst", 1)[0]!];
  for (const engine of engines) engine.script({ do: { delayHeadMs: 1_500 } });
  await Promise.all(Array.from({ length: 40 }, () => ask(gateways[0]!, { model: "warm", user: "burst", messages })));
  for (const engine of engines) engine.clearScript();
  const peaks = engines.map((engine) => engine.ledger().byTag["burst"]?.concurrentPeak ?? 0);
  assert.ok(Math.max(...peaks) <= Math.ceil((40 * 1.35) / ENGINES), peaks.join(", "));
  assert.ok(peaks.filter((peak) => peak > 0).length >= 3, peaks.join(", "));
});
