import assert from "node:assert/strict";
import { test } from "node:test";
import { aGpu, fakeNvidiaSmi } from "../../src/testing/fake-nvidia-smi.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { aTask, call, startCall, type LiveCall } from "./support/calls.ts";
import { allReady, LiveWorld, QUICK, simModel } from "./support/live-world.ts";
import { keyOf } from "./support/test-control.ts";
import { startTestGateway, type TestGateway } from "./support/test-gateway.ts";

// What gateways tell of demand and use decides what runs: two of them, a real agent, and engines that are processes.

/** Gateways are gathered for 2.5 times `settle_s` before anything that they have not said counts as known. */
const SECTION = { ...QUICK, settle_s: 1, min_run_s: 0, drain_grace_s: 60 };
const gpu = { class: ["h200"], count: 1, memory_gb: 120 };
const onCard = (name: string, more: Record<string, unknown>): Record<string, unknown> =>
  simModel(name, { profiles: [{ engine: "sim", gpu }], ...more });

async function withGateways(
  models: readonly Record<string, unknown>[],
  act: (world: LiveWorld, gateways: readonly [TestGateway, TestGateway]) => Promise<void>,
): Promise<void> {
  await using world = await LiveWorld.start(SECTION);
  const smi = fakeNvidiaSmi(world.folder, { gpus: [aGpu(0)] });
  await world.addAgent("node-a", { nvidia_smi: smi.path });
  const start = (name: string): Promise<TestGateway> =>
    startTestGateway({
      upstreams: [],
      env: { YARDMASTER_TOKEN: keyOf("gateway") },
      file: { gateway: { name, control: [world.control.url.replace("http", "ws")] } },
    });
  const gateways = [await start("gw-1"), await start("gw-2")] as const;
  try {
    await world.apply(...models);
    await untilKnown(gateways, models.length);
    await act(world, gateways);
  } finally {
    for (const gateway of gateways) await gateway.stop();
  }
}

async function untilKnown(gateways: readonly TestGateway[], models: number): Promise<void> {
  for (const gateway of gateways)
    await eventually(
      "the models are known",
      async () => (await gateway.health()).upstreams.length,
      (count) => count === models,
      30_000,
    );
}

/** A call whose answer takes about so long. */
const long = (gateway: TestGateway, model: string, ms: number): LiveCall =>
  startCall(gateway, { body: aTask({ tokens: 10, delayBetweenMs: ms / 10 }, { model }) });
const answerOf = async (gateway: TestGateway, model: string): Promise<string> => {
  const { status, text } = await call(gateway, { body: aTask({}, { model }) });
  return status === 200 ? "200" : `${status} ${text}`;
};

test("a model of higher priority takes the card: the lower one's calls at both gateways end well first, then the other serves, and nothing goes back and forth [40.P5 10.L1]", () =>
  withGateways([onCard("low", { priority: 10 })], async (world, gateways) => {
    await world.untilReplicas("the lower one", (list) => allReady(list, 1));
    for (const gateway of gateways)
      await eventually(
        "it serves",
        () => answerOf(gateway, "low"),
        (told) => told === "200",
        30_000,
      );
    const running = gateways.map((gateway) => long(gateway, "low", 8_000));
    await Promise.all(running.map((one) => one.headed()));
    await world.apply(onCard("low", { priority: 10 }), onCard("high", { priority: 90 }));
    await untilKnown(gateways, 2);
    const asked = gateways.map((gateway) => startCall(gateway, { body: aTask({}, { model: "high" }) }));
    await eventually(
      "the lower one is displaced",
      () => world.events("replicaDisplaced"),
      (told) => told.length === 1,
      30_000,
    );
    // Before its calls have ended nothing of the other is on the card.
    const during = await world.replicas();
    assert.equal(during.find(({ model }) => model === "low")?.state, "draining");
    assert.equal(during.find(({ model }) => model === "high")?.state, "placing");
    const answers = await Promise.all(running.map(({ answer }) => answer));
    assert.deepEqual(
      answers.map(({ status, whole, text }) => [status, whole, text.includes("[DONE]")]),
      [
        [200, true, true],
        [200, true, true],
      ],
    );
    await world.untilReplicas("the higher one alone", (list) =>
      list.some(({ model, state }) => model === "high" && state === "ready"),
    );
    for (const { answer } of asked) {
      const { status, text } = await answer;
      assert.equal(status, 200, text);
    }
    const [displaced] = await world.events("replicaDisplaced");
    assert.match(displaced?.why ?? "", /displaced by r-\w+ of high \(priority 90 over 10\)/);
    const refused = await call(gateways[0], { body: aTask({}, { model: "low" }) });
    assert.equal(refused.status, 503);
    assert.match(refused.text, /node-a: needs .* of high stays: priority 90 is not lower than 10/);
    assert.equal((await world.events("replicaDisplaced")).length, 1);
  }));

test("a model on demand stops once both gateways have known it idle for its time, starts for the next request, and leaves its room to another; no call that was taken fails [40.P6 10.L1 10.L2]", () =>
  withGateways(
    [onCard("a", { replicas: { min: 0 }, idle_stop_s: 3 }), onCard("b", { replicas: { min: 0 }, idle_stop_s: 3_600 })],
    async (world, gateways) => {
      const [first, second] = gateways;
      assert.equal(await answerOf(first, "a"), "200");
      // One gateway's call keeps it, whatever the other has not asked for.
      const held = long(second, "a", 6_000);
      await held.headed();
      assert.equal((await held.answer).status, 200);
      assert.equal((await world.events("modelIdle")).length, 0);
      await world.untilReplicas("it has stopped", (list) => list.every(({ state }) => state !== "ready"));
      const [idle] = await world.events("modelIdle");
      assert.match(idle?.why ?? "", /nobody has asked for it for 3 s/);
      await eventually(
        "no engine is left",
        () => world.engines().size,
        (count) => count === 0,
        30_000,
      );
      assert.equal(await answerOf(second, "a"), "200");
      // The card is full until it is idle for its time again; then the other has it.
      assert.match(await answerOf(first, "b"), /^503 .*node-a: needs /);
      await world.untilReplicas("the other, which somebody has asked for", (list) =>
        list.some(({ model, state }) => model === "b" && state === "ready"),
      );
      assert.equal(await answerOf(first, "b"), "200");
      assert.equal(await answerOf(second, "b"), "200");
      assert.ok((await world.replicas()).every(({ model, state }) => model === "b" || state !== "ready"));
    },
  ));

test("a model that follows the load gets a second replica while both gateways keep it above its aim, and gives it back slowly afterwards; no call fails [40.P9]", () =>
  withGateways(
    [
      simModel("m", {
        slots_per_replica: 2,
        replicas: { min: 1, max: 2 },
        autoscale: { target_in_flight_per_slot: 0.7, up_after_s: 1, down_after_s: 3 },
      }),
    ],
    async (world, gateways) => {
      await world.untilReplicas("one", (list) => allReady(list, 1));
      const ended: Promise<number>[] = [];
      let isEnough = false;
      const keepAsking = async (gateway: TestGateway): Promise<void> => {
        while (!isEnough) {
          const answer = long(gateway, "m", 1_500).answer.then(({ status }) => status);
          ended.push(answer);
          await answer;
        }
      };
      const asking = gateways.flatMap((gateway) => [keepAsking(gateway), keepAsking(gateway)]);
      await world.untilReplicas("a second one", (list) => allReady(list, 2));
      isEnough = true;
      await Promise.all(asking);
      assert.ok(ended.length > 4);
      assert.deepEqual(new Set(await Promise.all(ended)), new Set([200]));
      await world.untilReplicas("one again", (list) => list.filter(({ state }) => state === "ready").length === 1);
      const steps = (await world.events("modelScaled")).map(({ why }) => why);
      assert.match(steps[0] ?? "", /^to 2: \d+ % of its slots are in use, 70 % is the aim$/);
      assert.match(steps.at(-1) ?? "", /^to 1: /);
      assert.equal(await answerOf(gateways[0], "m"), "200");
    },
  ));
