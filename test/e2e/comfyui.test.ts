import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";
import type { JobView } from "../../src/contract/job-view.ts";
import { fileOf, startFakeComfy, type FakeComfy } from "../../src/testing/comfyui/fake-comfyui.ts";
import type { ComfyPrompt } from "../../src/testing/comfyui/comfy-line.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { call } from "./support/calls.ts";
import { accepted, ask, ended, jobOf, submit } from "./support/jobs.ts";
import { upstreamHealth } from "./support/health.ts";
import { startTestGateway, type TestGateway } from "./support/test-gateway.ts";

// Workflows as jobs, against a ComfyUI that keeps a ledger of what it was asked to do.

let comfy: FakeComfy;
let gateway: TestGateway;
const PREFIX = "/behind/a/proxy";

const videoUpstream = (url: string, more: Record<string, unknown> = {}): Record<string, unknown> => ({
  id: "video",
  kind: "comfyui",
  slots: 2,
  batch_max: 2,
  endpoints: [{ url }],
  ...more,
});

before(async () => {
  comfy = await startFakeComfy({ prefix: PREFIX });
  gateway = await startTestGateway({ upstreams: [videoUpstream(comfy.url)] });
});
after(async () => {
  await gateway.stop();
  await comfy.close();
});
beforeEach(() => comfy.clearScript());

let tags = 0;
/** A workflow that is found again in the ledger by its tag, with a seed that has more digits than a double. */
const aWorkflow = (tag: string): string =>
  `{"prompt":{"1":{"class_type":"KSampler","inputs":{"seed":18446744073709551615,"tag":"${tag}"}},"9":{"class_type":"SaveVideo","inputs":{}}},"front":true,"client_id":"mine"}`;
const aTag = (): string => `tag-${(tags += 1)}`;

async function aJob(tag: string, at: TestGateway = gateway, more: Record<string, unknown> = {}): Promise<JobView> {
  const body_base64 = Buffer.from(aWorkflow(tag)).toString("base64");
  const how = { upstream: "video", path: "/prompt", body_base64, content_type: "application/json" };
  return accepted(at, { ...how, ...more });
}

const promptsOf = (tag: string, at: FakeComfy = comfy): readonly ComfyPrompt[] =>
  at.ledger().prompts.filter(({ body }) => body.includes(`"${tag}"`));

const running = (tag: string, at: FakeComfy = comfy): Promise<void> =>
  at.until(`${tag} runs`, () => promptsOf(tag, at).at(-1)?.state === "running");

test("a workflow is a job, its video the job's result, and its bytes reach ComfyUI as they were, in everybody's line [20.F3]", async () => {
  const tag = aTag();
  const { id } = await aJob(tag);
  const job = await ended(gateway, id);
  assert.equal(job.state, "completed", JSON.stringify(job.plan));
  assert.equal(job.result?.content_type, "video/mp4");
  const [prompt] = promptsOf(tag);
  assert.ok(prompt !== undefined);
  const result = await ask(gateway, `/${id}/result`);
  assert.equal(result.text, fileOf(`${prompt.id}_output_0.mp4`).toString());
  assert.equal(promptsOf(tag).length, 1);
  assert.ok(prompt.body.includes('"seed":18446744073709551615'), prompt.body);
  assert.ok(prompt.number > 0, "a job goes before nobody");
  assert.equal(prompt.clientId, prompt.id);
});

test("several outputs are a list with each one's bytes, in order; previews are no outputs; words without a file are JSON [20.F3]", async () => {
  const tag = aTag();
  comfy.script({ holds: tag, do: { files: 3, previews: 2 } });
  const { id } = await aJob(tag);
  assert.equal((await ended(gateway, id)).state, "completed");
  const list = JSON.parse((await ask(gateway, `/${id}/result`)).text) as {
    readonly data: readonly { readonly index: number; readonly filename: string; readonly body_base64: string }[];
  };
  const prompt = promptsOf(tag)[0]?.id ?? "";
  assert.deepEqual(
    list.data.map(({ index, filename }) => [index, filename]),
    [0, 1, 2].map((index) => [index, `${prompt}_output_${index}.mp4`]),
  );
  for (const { filename, body_base64 } of list.data)
    assert.deepEqual(Buffer.from(body_base64, "base64"), fileOf(filename));
  const words = aTag();
  comfy.script({ holds: words, do: { end: "text" } });
  const told = await ended(gateway, (await aJob(words)).id);
  assert.equal(told.result?.content_type, "application/json");
});

test("progress comes from the socket, in hundredths, and the end from the history [20.F3]", async () => {
  const tag = aTag();
  comfy.script({ holds: tag, do: { end: "never" } });
  const { id } = await aJob(tag);
  await running(tag);
  const half = await eventually(
    "half of one of two nodes",
    () => {
      comfy.tellStep(10, 20);
      return jobOf(gateway, id);
    },
    ({ progress }) => progress.done > 0,
  );
  assert.deepEqual(half.progress, { done: 25, total: 100 });
  assert.equal(half.state, "running");
  comfy.finish();
  const job = await ended(gateway, id);
  assert.deepEqual([job.state, job.progress], ["completed", { done: 100, total: 100 }]);
});

test("without a socket, and with one that says nothing, the history is looked at until it tells the end [20.F3]", async () => {
  await using bare = await startFakeComfy({ socketless: true });
  const own = await startTestGateway({ upstreams: [videoUpstream(bare.url)] });
  try {
    bare.script({ do: { runMs: 700 } });
    const tag = aTag();
    assert.equal((await ended(own, (await aJob(tag, own)).id)).state, "completed");
    assert.equal(promptsOf(tag, bare).length, 1);
  } finally {
    await own.stop();
  }
});

test("a socket that breaks off midway takes nothing along: the prompt goes on, once, and the history tells the end [20.F3]", async () => {
  const tag = aTag();
  comfy.script({ holds: tag, do: { end: "never" } });
  const { id } = await aJob(tag);
  await running(tag);
  await eventually(
    "progress by the socket",
    () => {
      comfy.tellStep(10, 20);
      return jobOf(gateway, id);
    },
    ({ progress }) => progress.done > 0,
  );
  assert.equal(comfy.breakSockets(), 1);
  comfy.finish();
  const job = await ended(gateway, id);
  assert.deepEqual([job.state, job.attempts, promptsOf(tag).length], ["completed", 1, 1], JSON.stringify(job.plan));
});

test("a history that has forgotten the prompt before it was read is no success: it is tried again, as often as a job may be [20.F3]", async () => {
  const once = aTag();
  comfy.script({ holds: once, times: 1, do: { history: "pruned" } });
  const again = await ended(gateway, (await aJob(once)).id);
  assert.deepEqual([again.state, again.attempts], ["completed", 2], JSON.stringify(again.plan));
  const ever = aTag();
  comfy.script({ holds: ever, do: { history: "pruned" } });
  const lost = await ended(gateway, (await aJob(ever)).id);
  assert.deepEqual([lost.state, lost.attempts, promptsOf(ever).length], ["failed", 3, 3], JSON.stringify(lost.plan));
});

test("a cancelled job's prompt is taken from the line, or interrupted when it runs, and nobody else's is touched [20.F3]", async () => {
  const [first, second] = [aTag(), aTag()];
  comfy.script({ do: { end: "never" } });
  const before = comfy.ledger();
  const runs = await aJob(first);
  await running(first);
  const foreign = comfy.addForeign({});
  const waits = await aJob(second);
  await comfy.until("both are there", () => promptsOf(second).length === 1);
  await ask(gateway, `/${waits.id}`, { method: "DELETE" });
  await comfy.until("the waiting one is gone", () => promptsOf(second)[0]?.state === "deleted");
  assert.equal(promptsOf(first)[0]?.state, "running");
  await ask(gateway, `/${runs.id}`, { method: "DELETE" });
  await comfy.until("the running one is interrupted", () => promptsOf(first)[0]?.state === "interrupted");
  await comfy.until(
    "the stranger's ran",
    ({ prompts }) => prompts.find(({ id }) => id === foreign)?.state === "success",
  );
  const { interrupts, wrongInterrupts } = comfy.ledger();
  assert.deepEqual([interrupts - before.interrupts, wrongInterrupts], [1, 0]);
  assert.deepEqual([promptsOf(first).length, promptsOf(second).length], [1, 1]);
});

test("ComfyUI restarted: a prompt that it knows no more is lost, and the job is tried again under another id [20.F3]", async () => {
  const tag = aTag();
  comfy.script({ holds: tag, times: 1, do: { end: "never" } });
  const { id } = await aJob(tag);
  await running(tag);
  comfy.restart();
  const job = await ended(gateway, id);
  assert.deepEqual([job.state, job.attempts], ["completed", 2], JSON.stringify(job.plan));
  const prompts = promptsOf(tag);
  assert.deepEqual(
    prompts.map(({ state }) => state),
    ["lost", "success"],
  );
  assert.equal(new Set(prompts.map((prompt) => prompt.id)).size, 2);
});

for (const { name, action, state, code, submits } of [
  {
    name: "a node that throws fails the job at once, with ComfyUI's words",
    action: { end: "error" },
    state: "failed",
    code: "ENGINE_ERROR",
    submits: 1,
  },
  {
    name: "a workflow that gives nothing never succeeds",
    action: { end: "nothing" },
    state: "failed",
    code: "ENGINE_ERROR",
    submits: 1,
  },
  {
    name: "a workflow that ComfyUI refuses is refused once",
    action: { submit: "invalid" },
    state: "failed",
    code: "ENGINE_ERROR",
    submits: 1,
  },
] as const)
  test(`${name} [20.F3]`, async () => {
    const tag = aTag();
    comfy.script({ holds: tag, do: action });
    const before = comfy.ledger().submits;
    const job = await ended(gateway, (await aJob(tag)).id);
    assert.deepEqual([job.state, job.error?.code], [state, code], JSON.stringify(job));
    assert.equal(comfy.ledger().submits - before, submits);
    if (action.end === "error")
      assert.match((await ask(gateway, `/${job.id}/result`)).text, /KSampler failed: the latent has the wrong shape/);
  });

for (const { name, action } of [
  { name: "a card that is full in one moment is tried again", action: { end: "outOfMemory" } },
  {
    name: "a submission that is broken off before it was taken is made again by another attempt",
    action: { submit: "resetBefore" },
  },
] as const)
  test(`${name} [20.F3]`, async () => {
    const tag = aTag();
    comfy.script({ holds: tag, times: 1, do: action });
    const job = await ended(gateway, (await aJob(tag)).id);
    assert.deepEqual([job.state, job.attempts], ["completed", 2], JSON.stringify(job.plan));
  });

test("a submission whose answer is lost is found in the line and never made again [20.F3]", async () => {
  const tag = aTag();
  comfy.script({ holds: tag, do: { submit: "resetAfter", runMs: 300 } });
  const job = await ended(gateway, (await aJob(tag)).id);
  assert.deepEqual([job.state, job.attempts, promptsOf(tag).length], ["completed", 1, 1], JSON.stringify(job.plan));
});

test("a prompt that somebody else interrupts is tried again [20.F3]", async () => {
  const tag = aTag();
  comfy.script({ holds: tag, times: 1, do: { end: "never" } });
  const { id } = await aJob(tag);
  await running(tag);
  await fetch(`${comfy.url}/interrupt`, { method: "POST", body: "{}" });
  const job = await ended(gateway, id);
  assert.equal(job.state, "completed", JSON.stringify(job.plan));
});

for (const history of ["serverError", "garbage", "reset"] as const)
  test(`looks at the history that end in ${history} say nothing of the prompt, and a later one tells [20.F3]`, async () => {
    const tag = aTag();
    comfy.script({ holds: tag, do: { history, spoiltLooks: 3 } });
    const job = await ended(gateway, (await aJob(tag)).id);
    assert.deepEqual([job.state, promptsOf(tag).length], ["completed", 1], JSON.stringify(job.plan));
  });

test("an output that can't be had is no success [20.F3]", async () => {
  const tag = aTag();
  comfy.script({ holds: tag, do: { view: "missing" } });
  const job = await ended(gateway, (await aJob(tag)).id);
  assert.equal(job.state, "failed", JSON.stringify(job.plan));
  assert.equal(promptsOf(tag).length, 1, "what was made is not made again");
});

test("an older ComfyUI, with ids of its own and one interruption for all, is followed and called off by its own id [20.F3]", async () => {
  await using old = await startFakeComfy({ old: true });
  const own = await startTestGateway({ upstreams: [videoUpstream(old.url)] });
  try {
    const [done, cancelled] = [aTag(), aTag()];
    assert.equal((await ended(own, (await aJob(done, own)).id)).state, "completed");
    old.script({ holds: cancelled, do: { end: "never" } });
    const { id } = await aJob(cancelled, own);
    await running(cancelled, old);
    await ask(own, `/${id}`, { method: "DELETE" });
    await old.until("it is interrupted", () => promptsOf(cancelled, old)[0]?.state === "interrupted");
    assert.equal(old.ledger().wrongInterrupts, 0);
  } finally {
    await own.stop();
  }
});

test("no more workflows are with ComfyUI than the upstream has slots [20.F3]", async () => {
  comfy.script({ do: { runMs: 60 } });
  const tag = aTag();
  let most = 0;
  const watching = comfy.until("all have run", ({ prompts }) => {
    const ours = prompts.filter(({ body, state }) => body.includes(tag) && ["pending", "running"].includes(state));
    most = Math.max(most, ours.length);
    return prompts.filter(({ body, state }) => body.includes(tag) && state === "success").length === 8;
  });
  const jobs = await Promise.all(Array.from({ length: 8 }, (_none, i) => aJob(`${tag}-${i}`)));
  await watching;
  for (const { id } of jobs) assert.equal((await ended(gateway, id)).state, "completed");
  assert.equal(most, 2);
});

test("only a job's workflow goes to ComfyUI: no call of another kind, and no other path [20.F3]", async () => {
  const before = comfy.ledger().submits;
  const sync = await call(gateway, { path: "/upstreams/video/prompt", body: { prompt: {} } });
  assert.equal(sync.status, 404);
  for (const job of [{ path: "/interrupt" }, { path: "/prompt", method: "PUT" }, { path: "/prompt?front=1" }]) {
    const answer = await submit(gateway, { upstream: "video", body: {}, ...job });
    assert.equal(answer.status, 400, JSON.stringify(job));
  }
  const odd = await ended(
    gateway,
    (await accepted(gateway, { upstream: "video", path: "/prompt", body: { prompt: "a cat" } })).id,
  );
  assert.equal(odd.state, "failed");
  assert.equal(comfy.ledger().submits, before);
});

test("its line and its card's memory are seen: /health and /metrics tell what ComfyUI says [20.F3]", async () => {
  comfy.setVram(1_000, 250);
  comfy.script({ do: { end: "never" } });
  const foreign = comfy.addForeign();
  const shown = await eventually(
    "what ComfyUI says",
    async () => (await upstreamHealth(gateway, "video")).endpoints[0],
    (endpoint) => endpoint?.reported.running === 1 && endpoint.reported.memory_use === 0.75,
  );
  assert.equal(shown?.health, "healthy");
  const labels = `upstream="video",endpoint="${shown?.id ?? ""}"`;
  assert.equal(await gateway.metric(`yardmaster_engine_memory_use_ratio{${labels}}`), 0.75);
  assert.equal(await gateway.metric(`yardmaster_engine_running{${labels}}`), 1);
  await fetch(`${comfy.url}/interrupt`, { method: "POST", body: JSON.stringify({ prompt_id: foreign }) });
});
