import assert from "node:assert/strict";
import { test } from "node:test";
import { aGpu, fakeNvidiaSmi } from "../../src/testing/fake-nvidia-smi.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { call } from "./support/calls.ts";
import { gpusOf, guardedOf, statesOf, untilGpus } from "./support/gpu-world.ts";
import { allReady, LiveWorld, simModel } from "./support/live-world.ts";
import { keyOf } from "./support/test-control.ts";
import { startTestGateway, type TestGateway } from "./support/test-gateway.ts";

// A card of a real agent, under engines that a real control plane placed, and the gateways that follow it.

const following = (world: LiveWorld, file: Record<string, unknown> = {}): Promise<TestGateway> =>
  startTestGateway({
    upstreams: [],
    env: { YARDMASTER_TOKEN: keyOf("gateway") },
    file: { gateway: { name: "gw", control: [world.control.url.replace("http", "ws")] }, ...file },
  });

test("a card that its agent finds sick takes the endpoint on it out of rotation and only that, with no exporter and no configuration; mended, it is let back in [30.G2 30.T1 30.U1 30.U2]", async () => {
  await using world = await LiveWorld.start();
  const cards = [aGpu(0), aGpu(1)] as const;
  const smi = fakeNvidiaSmi(world.folder, { gpus: cards });
  await world.addAgent("node-a", { nvidia_smi: smi.path });
  const gateway = await following(world);
  const quick = await following(world, {
    gpu_health: { couple_faults: true, couple_xid: true, clear_after_s: 1, poll_s: 0.5 },
  });
  try {
    const gpu = { class: ["h200"], count: 1, memory_gb: 100 };
    await world.apply(simModel("m", { replicas: { min: 2 }, profiles: [{ engine: "sim", gpu }] }));
    await world.untilReplicas("a replica on each card", (list) => allReady(list, 2));
    for (const at of [gateway, quick])
      await untilGpus(
        "good cards under both endpoints",
        at,
        ({ gpus }) =>
          gpus.length === 2 && gpus.every(({ state, endpoints }) => state === "good" && endpoints.length === 1),
      );

    smi.set({ gpus: [aGpu(0, { cells: { "remapped_rows.failure": "Yes" } }), cards[1]] });
    const view = await untilGpus("the guard", gateway, (told) => guardedOf(told, "m").length > 0);
    await untilGpus("the guard of the other gateway", quick, (told) => guardedOf(told, "m").length === 1);
    assert.deepEqual(statesOf(view), { [cards[0].uuid]: "faulted", [cards[1].uuid]: "good" });
    const on = (uuid: string): readonly string[] => view.gpus.find(({ gpu: name }) => name === uuid)?.endpoints ?? [];
    assert.deepEqual(
      guardedOf(view, "m").map((id) => `m ${id}`),
      on(cards[0].uuid),
    );
    for (let sent = 0; sent < 6; sent += 1) assert.equal((await call(gateway)).status, 200);
    const places = await eventually(
      "the six calls on record",
      async () => {
        const { records } = await gateway.audit();
        return records.filter(({ method }) => method === "POST").map(({ endpoint }) => `m ${endpoint}`);
      },
      (list) => list.length === 6,
    );
    assert.deepEqual([...new Set(places)], on(cards[1].uuid));

    smi.set({ gpus: cards });
    const back = await eventually(
      "it is back",
      () => gpusOf(quick),
      (told) => guardedOf(told, "m").length === 0,
      60_000,
    );
    assert.deepEqual(statesOf(back), { [cards[0].uuid]: "good", [cards[1].uuid]: "good" });
  } finally {
    await gateway.stop();
    await quick.stop();
  }
});
