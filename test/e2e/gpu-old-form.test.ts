import assert from "node:assert/strict";
import { test } from "node:test";
import { startFakeExporter } from "../../src/testing/fake-exporter.ts";
import { anEngine } from "./support/an-engine.ts";
import { aTask, call } from "./support/calls.ts";
import { fastGpuHealth, guardedOf, untilGpus } from "./support/gpu-world.ts";
import { startTestGateway } from "./support/test-gateway.ts";

// The trap of the field: `gpu_ids: [0]`, written for a host that was the only one, on upstreams whose engines run elsewhere now. The
// old host is 127.0.0.1, the new ones are other addresses of this machine.

const OLD = ["chat", "embed", "rerank", "ocr", "spare"];

test("one card's fault on an old host takes out no endpoint that runs elsewhere, though five upstreams name its index [30.G1 30.G2]", async () => {
  const exporter = await startFakeExporter({ host: "old-host" });
  const here = await anEngine();
  const elsewhere = await Promise.all(Array.from({ length: 6 }, (_, at) => anEngine({ host: `127.0.0.${at + 2}` })));
  exporter.cards({ index: 0, xid: 0 }, { index: 1 });
  const gateway = await startTestGateway({
    upstreams: OLD.map((id) => ({
      id,
      models: [id === "chat" ? "m" : id],
      engine: "vllm",
      slots: 8,
      gpu_ids: [0],
      endpoints: (id === "chat" ? elsewhere : id === "embed" ? [here] : []).map(({ url }) => ({ url })),
    })),
    file: {
      gpu_health: fastGpuHealth({
        dcgm_url: exporter.url,
        couple_faults: true,
        couple_xid: true,
        last_endpoint: "drop",
      }),
    },
  });
  try {
    await untilGpus("the cards", gateway, ({ gpus }) => gpus.length === 2);
    exporter.cards({ index: 0, xid: 79, temperature: 99 }, { index: 1 });
    const view = await untilGpus("the fault", gateway, (now) => guardedOf(now, "embed").length === 1);
    assert.deepEqual(guardedOf(view, "chat"), []);
    assert.deepEqual(view.upstreams[0]?.gpu_ids?.ties, []);
    assert.equal(view.upstreams[0]?.gpu_ids?.leaves.length, 6);
    for (let sent = 0; sent < 12; sent += 1) assert.equal((await call(gateway, { body: aTask() })).status, 200);
    assert.equal(elsewhere.filter((engine) => engine.ledger().entries.length > 0).length, 6);
    const said = gateway.logLines
      .map((line) => JSON.parse(line) as Record<string, unknown>)
      .filter(({ op }) => op === "gpu.gpu_ids");
    assert.deepEqual(
      said.map(({ upstream }) => upstream),
      OLD,
    );
    assert.deepEqual([said[0]?.["ties"], String(said[0]?.["not_tied"]).split(" ").length], ["", 6]);
    assert.deepEqual([said[1]?.["ties"], said[1]?.["gpus"]], [new URL(here.url).host, "127.0.0.1/0"]);
  } finally {
    await gateway.stop();
    await exporter.close();
    for (const engine of [here, ...elsewhere]) await engine.close();
  }
});
