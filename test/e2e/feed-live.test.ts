import assert from "node:assert/strict";
import { test } from "node:test";
import { systemClock } from "../../src/kernel/clock.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { aTask, call, errorCodeOf, startCall } from "./support/calls.ts";
import { upstreamHealth } from "./support/health.ts";
import { allReady, LiveWorld, QUICK, simModel } from "./support/live-world.ts";
import { keyOf } from "./support/test-control.ts";
import { startTestGateway, type TestGateway } from "./support/test-gateway.ts";

// A gateway that follows a real control plane, with real agents and simulated engines that are processes of their own.

const following = (world: LiveWorld, token = keyOf("gateway")): Promise<TestGateway> =>
  startTestGateway({
    upstreams: [],
    env: { YARDMASTER_TOKEN: token },
    file: { gateway: { name: "gw", control: [world.control.url.replace("http", "ws")] } },
  });

const untilServed = (gateway: TestGateway, model: string, status: number): Promise<number> =>
  eventually(
    `${model} is answered ${status}`,
    async () => (await call(gateway, { body: aTask({}, { model }) })).status,
    (got) => got === status,
    60_000,
  );

test("the first request for a model that runs on demand has it started and waits for it, many have it started once; it is served on with the control plane away, and goes with its entry [10.L1 10.L2 40.C3 80.I8]", async () => {
  await using world = await LiveWorld.start();
  await world.addAgent("node-a");
  const { body } = await world.control.ask<{ credential: string }>("POST", "/v1/gateways/credentials", {
    body: JSON.stringify({ name: "gw" }),
  });
  const gateway = await following(world, body.credential);
  try {
    await world.apply(simModel("m", { replicas: { min: 0, max: 3 } }), simModel("kept"));
    await untilServed(gateway, "kept", 200);
    assert.equal((await world.replicas()).length, 1);
    const calls = Array.from({ length: 12 }, () => startCall(gateway, { body: aTask({}, { model: "m" }) }));
    const answers = await Promise.all(calls.map(({ answer }) => answer));
    assert.deepEqual(
      answers.map(({ status }) => status),
      Array<number>(12).fill(200),
    );
    assert.ok(answers.some(({ queueMs }) => (queueMs ?? 0) > 100));
    await world.untilReplicas("one replica of each", (list) => allReady(list, 2));
    assert.equal((await world.events("replicaPlaced")).filter(({ model }) => model === "m").length, 1);

    await world.apply(simModel("kept"));
    await untilServed(gateway, "m", 404);
    await world.stopControl();
    await eventually(
      "the gateway is on its own",
      async () => (await gateway.health()).control?.state,
      (state) => state === "on_its_own",
    );
    assert.equal((await call(gateway, { body: aTask({}, { model: "kept" }) })).status, 200);
    await world.startControl();
  } finally {
    await gateway.stop();
  }
});

test("requests that wait for a start are told of each that fails, and once the model is parked they are refused with the reason; `retry` lifts it [10.L1 40.N6 80.A11]", async () => {
  await using world = await LiveWorld.start({ ...QUICK, park_after: 1 });
  await world.addAgent("node-a");
  const gateway = await following(world);
  try {
    const broken = { profiles: [{ engine: "sim", args: { "no-such-flag": 1 } }] };
    await world.apply(simModel("m", { replicas: { min: 0 }, ...broken }));
    await eventually(
      "the model is known",
      async () => (await gateway.health()).upstreams.length,
      (count) => count === 1,
    );
    const waiting = await Promise.all(
      Array.from({ length: 3 }, () => startCall(gateway, { body: aTask({}, { model: "m" }) }).answer),
    );
    for (const { status, text } of waiting) {
      assert.deepEqual([status, errorCodeOf(text)], [503, "UPSTREAM_UNAVAILABLE"]);
      assert.match(text, /no-such-flag/);
    }
    await eventually(
      "the park",
      async () => (await upstreamHealth(gateway, "m")).reason ?? "",
      (reason) => reason.includes("parked") || reason.startsWith("failed once"),
    );
    const before = systemClock.mono();
    assert.equal((await call(gateway, { body: aTask({}, { model: "m" }) })).status, 503);
    assert.ok(systemClock.mono() - before < 2_000);
    await world.apply(simModel("m", { replicas: { min: 0 } }));
    await untilServed(gateway, "m", 200);
  } finally {
    await gateway.stop();
  }
});
