import assert from "node:assert/strict";
import { test } from "node:test";
import { fileOf, startFakeComfy, type FakeComfy } from "../../src/testing/comfyui/fake-comfyui.ts";
import { OwnRedis } from "../../src/testing/servers/redis-server.ts";
import { accepted, ask, ended, jobOf } from "./support/jobs.ts";
import { CLIENT_KEY } from "./support/program.ts";
import { shareFile } from "./support/shared-world.ts";
import { SupervisedGateway } from "./support/supervised-gateway.ts";
import type { TestGateway } from "./support/test-gateway.ts";

// Real gateway processes that are killed while ComfyUI is at work for them.

type Asked = Pick<TestGateway, "port" | "keys">;
const asked = (gateway: SupervisedGateway): Asked =>
  ({ port: gateway.port, keys: { client: CLIENT_KEY } }) as unknown as Asked;
const upstreams = (...urls: readonly string[]): readonly Record<string, unknown>[] => [
  { id: "video", kind: "comfyui", slots: urls.length, batch_max: urls.length, endpoints: urls.map((url) => ({ url })) },
];
const workflow = {
  upstream: "video",
  path: "/prompt",
  body: { prompt: { "9": { class_type: "SaveVideo", inputs: {} } } },
};
const runs = (comfy: FakeComfy): Promise<void> =>
  comfy.until("it runs", ({ prompts }) => prompts.at(-1)?.state === "running");

for (const signal of ["SIGKILL", "SIGTERM"] as const) {
  test(`a prompt that runs when its gateway gets ${signal} is followed by the next one, and never submitted again [20.F3]`, async () => {
    await using comfy = await startFakeComfy();
    comfy.script({ do: { end: "never" } });
    await using gateway = await SupervisedGateway.start({
      upstreams: upstreams(comfy.url),
      drain_s: 0.5,
      jobs: { claim_ttl_s: 2 },
    });
    const { id } = await accepted(asked(gateway), workflow);
    await runs(comfy);
    await gateway.restart(signal);
    const looks = comfy.ledger().prompts[0]?.looks ?? 0;
    await comfy.until("the next gateway looks at it", ({ prompts }) => (prompts[0]?.looks ?? 0) > looks + 2);
    comfy.finish();
    const job = await ended(asked(gateway), id);
    assert.equal(job.state, "completed", JSON.stringify(job.plan));
    const { submits, interrupts, prompts } = comfy.ledger();
    assert.deepEqual([submits, interrupts], [1, 0]);
    const result = await ask(asked(gateway), `/${id}/result`);
    assert.equal(result.text, fileOf(`${prompts[0]?.id ?? ""}_output_0.mp4`).toString());
  });
}

test("a prompt that ended while no gateway ran is handed over, and one that ComfyUI lost meanwhile is made again [20.F3]", async () => {
  for (const lost of [false, true]) {
    await using comfy = await startFakeComfy();
    comfy.script({ times: 1, do: { end: "never" } });
    await using gateway = await SupervisedGateway.start({ upstreams: upstreams(comfy.url), jobs: { claim_ttl_s: 2 } });
    const { id } = await accepted(asked(gateway), workflow);
    await runs(comfy);
    const restarted = gateway.restart("SIGKILL");
    if (lost) comfy.restart();
    else comfy.finish();
    await restarted;
    const job = await ended(asked(gateway), id);
    assert.equal(job.state, "completed", JSON.stringify(job.plan));
    assert.equal(comfy.ledger().submits, lost ? 2 : 1);
  }
});

test("another gateway that takes the job over follows the prompt where it runs, also at another of the upstream's ComfyUIs [20.F3]", async () => {
  await using redis = await OwnRedis.start();
  await using one = await startFakeComfy();
  await using two = await startFakeComfy();
  for (const comfy of [one, two]) comfy.script({ do: { end: "never" } });
  const file = shareFile(redis.url, { jobs: { claim_ttl_s: 2 } });
  await using first = await SupervisedGateway.start({ ...file, upstreams: upstreams(one.url, two.url) });
  const { id } = await accepted(asked(first), workflow);
  await Promise.race([runs(one), runs(two)]);
  const [has, other] = one.ledger().submits === 1 ? [one, two] : [two, one];
  // The second gateway knows both, and reaches first for the one that has nothing of it.
  await using second = await SupervisedGateway.start({ ...file, upstreams: upstreams(other.url, has.url) });
  const looks = has.ledger().prompts[0]?.looks ?? 0;
  await first[Symbol.asyncDispose]();
  await has.until("somebody looks at it", ({ prompts }) => (prompts[0]?.looks ?? 0) > looks + 2);
  has.finish();
  const job = await ended(asked(second), id);
  assert.equal(job.state, "completed", JSON.stringify(job.plan));
  assert.deepEqual([has.ledger().submits, other.ledger().submits, has.ledger().interrupts], [1, 0, 0]);
});

test("a job that is cancelled after its gateway was killed and started again has its prompt called off [20.F3]", async () => {
  await using comfy = await startFakeComfy();
  comfy.script({ do: { end: "never" } });
  await using gateway = await SupervisedGateway.start({ upstreams: upstreams(comfy.url), jobs: { claim_ttl_s: 2 } });
  const { id } = await accepted(asked(gateway), workflow);
  await runs(comfy);
  await gateway.restart("SIGKILL");
  const looks = comfy.ledger().prompts[0]?.looks ?? 0;
  await comfy.until("the next gateway looks at it", ({ prompts }) => (prompts[0]?.looks ?? 0) > looks + 2);
  await ask(asked(gateway), `/${id}`, { method: "DELETE" });
  await comfy.until("it is interrupted", ({ prompts }) => prompts[0]?.state === "interrupted");
  assert.equal((await jobOf(asked(gateway), id)).state, "cancelled");
  assert.equal(comfy.ledger().submits, 1);
});
