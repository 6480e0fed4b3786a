import assert from "node:assert/strict";
import { test } from "node:test";
import { startFakeExporter } from "../../src/testing/fake-exporter.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { anEngine } from "./support/an-engine.ts";
import { aTask, call } from "./support/calls.ts";
import { fastGpuHealth, untilGpus } from "./support/gpu-world.ts";
import { startTestGateway } from "./support/test-gateway.ts";

const familiesOf = (page: string): string[] =>
  [...page.matchAll(/^# TYPE (\S+)/gm)].map((match) => match[1] ?? "").toSorted();

test("without gpu_health nothing is asked for and no series is there; with it, and nothing coupled, requests go as without [30.T1]", async () => {
  const exporter = await startFakeExporter();
  const engine = await anEngine();
  exporter.cards({ index: 0, temperature: 99, utilization: 100, xid: 79 });
  const upstreams = [
    {
      id: "u",
      models: ["m"],
      engine: "vllm",
      slots: 4,
      gpu_ids: [0],
      endpoints: [{ url: engine.url, gpus: ["gpu-host/0"] }],
    },
  ];
  const sources = [{ dcgm_url: exporter.url, host: "gpu-host" }];
  const seen: { statuses: number[]; requests: unknown[]; families: string[] }[] = [];
  try {
    for (const file of [{}, { gpu_health: fastGpuHealth({ sources }) }]) {
      engine.resetLedger();
      const gateway = await startTestGateway({ upstreams, file });
      try {
        if ("gpu_health" in file)
          await untilGpus("a saturated card", gateway, ({ gpus }) => gpus[0]?.saturated === true);
        const statuses: number[] = [];
        for (const requestClass of ["interactive", "system", "batch"] as const)
          for (let sent = 0; sent < 5; sent += 1)
            statuses.push((await call(gateway, { class: requestClass, body: aTask() })).status);
        const page = await eventually(
          "its usage to be written",
          async () => (await fetch(`${gateway.url}/metrics`)).text(),
          (text) => text.includes("\nyardmaster_usage_writes_total"),
        );
        const requests = engine.ledger().entries.map(({ path, status }) => [path, status]);
        seen.push({ statuses, requests, families: familiesOf(page) });
        if (!("gpu_health" in file)) {
          assert.equal(exporter.asked, 0);
          assert.equal(((await gateway.health()) as unknown as { gpu_health: unknown }).gpu_health, null);
          gateway.gateway.applyGpuReadings("node-a", []);
          const unknown = await fetch(`${gateway.url}/admin/gpus`, {
            headers: { authorization: `Bearer ${gateway.keys.operator}` },
          });
          assert.equal(unknown.status, 404);
        }
      } finally {
        await gateway.stop();
      }
    }
  } finally {
    await exporter.close();
    await engine.close();
  }
  const [without, watched] = seen;
  assert.deepEqual([watched?.statuses, watched?.requests], [without?.statuses, without?.requests]);
  assert.ok(without?.families.every((name) => !name.startsWith("yardmaster_gpu_")));
  // Nobody knows the delay before it was measured for a while.
  const lasting = (names: readonly string[] = []): string[] =>
    names.filter((name) => !name.startsWith("yardmaster_gpu_") && name !== "yardmaster_event_loop_delay_seconds");
  assert.deepEqual(lasting(watched?.families), lasting(without?.families));
});
