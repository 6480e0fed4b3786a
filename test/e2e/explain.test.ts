import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { systemClock } from "../../src/kernel/clock.ts";
import { startSimEngine, type SimEngine } from "../../src/sim-engine/sim-engine.ts";
import { startTestGateway, type TestGateway } from "./support/test-gateway.ts";

let engines: SimEngine[];
let gateway: TestGateway;

before(async () => {
  const options = {
    models: ["sim-model"],
    dialect: "vllm",
    slots: 4,
    prefillTps: 0,
    decodeTps: 0,
    seed: 1,
    clock: systemClock,
  } as const;
  engines = await Promise.all([startSimEngine(options), startSimEngine(options)]);
  gateway = await startTestGateway({
    upstreams: [
      { id: "sim", engine: "vllm", models: ["sim-model"], slots: 8, endpoints: engines.map(({ url }) => ({ url })) },
    ],
  });
});
after(async () => {
  await gateway.stop();
  await Promise.all(engines.map((engine) => engine.close()));
});

const ask = (key: string): Promise<Response> =>
  fetch(`${gateway.url}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json", "x-yardmaster-explain": "1" },
    body: JSON.stringify({ model: "sim-model", max_tokens: 1, messages: [{ role: "user", content: "Hello." }] }),
  });

test("an operator who asks gets the scores behind the choice of the endpoint in a header, a client does not [10.R2]", async () => {
  const explained = await ask(gateway.keys.operator);
  await explained.text();
  const choice = JSON.parse(explained.headers.get("x-yardmaster-choice") ?? "null");
  assert.equal(choice.kind, "chosen");
  assert.equal(choice.scores.length, 2);
  assert.ok(choice.scores.every((score: { total: unknown }) => typeof score.total === "number"));
  const plain = await ask(gateway.keys.client);
  await plain.text();
  assert.equal(plain.headers.get("x-yardmaster-choice"), null);
});

test("the state page tells the scores that a request would meet now [10.R2]", async () => {
  const health = await gateway.health();
  assert.equal(health.upstreams[0]?.choice.scores.length, 2);
});
