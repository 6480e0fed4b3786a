import assert from "node:assert/strict";
import { test } from "node:test";
import { startFakeComfy } from "../../src/testing/comfyui/fake-comfyui.ts";
import { accepted, ended } from "./support/jobs.ts";
import { aCloud, aTier, ENV, OUTSIDE_KEY, outsideKey, signalPages } from "./support/overflow-world.ts";
import { startTestGateway } from "./support/test-gateway.ts";

test("a job that ComfyUI is still at work on from an earlier attempt goes to no tier, however busy its own prompt makes the card [20.F3]", async () => {
  await using comfy = await startFakeComfy();
  comfy.script({ do: { runMs: 2_500 } });
  await using pages = await signalPages();
  const cloud = await aCloud();
  const signal = { kind: "semaphore", url: `${pages.url}/status`, busy_field: "guard.busy" };
  const gateway = await startTestGateway({
    upstreams: [{ id: "video", kind: "comfyui", slots: 1, timeouts: { total_s: 1 }, endpoints: [{ url: comfy.url }] }],
    keys: [outsideKey],
    env: ENV,
    file: {
      overflow: [{ upstream: "video", signals: [signal], signal_memory_ms: 0, hold_s: 0, tiers: [aTier(cloud)] }],
    },
  });
  try {
    const asked = { ...gateway, keys: { ...gateway.keys, client: OUTSIDE_KEY } };
    const body = { prompt: { "9": { class_type: "SaveVideo", inputs: {} } }, overflow: { prompt: "a train" } };
    const { id } = await accepted(asked, { upstream: "video", path: "/prompt", body });
    await comfy.until("it runs", ({ prompts }) => prompts[0]?.state === "running");
    pages.taken = true;
    const job = await ended(asked, id);
    assert.equal(job.state, "completed", JSON.stringify(job.plan));
    assert.ok(job.attempts > 1, "its first attempt ran out of time");
    assert.deepEqual([comfy.ledger().submits, cloud.ledger().submits], [1, 0]);
  } finally {
    await gateway.stop();
    await cloud.close();
  }
});
