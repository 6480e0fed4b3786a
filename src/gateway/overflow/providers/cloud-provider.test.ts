import assert from "node:assert/strict";
import { test } from "node:test";
import type { ProviderSettings } from "../../../contract/provider-settings.ts";
import type { PollOutcome, ProviderWork } from "../../../decide/overflow/providers/provider-work.ts";
import { systemClock } from "../../../kernel/clock.ts";
import {
  CLOUD_KEY,
  klingSetup,
  minimaxSetup,
  minimaxTasksSetup,
  openaiSetup,
  providerOf,
  tasksSetup,
  videoBody,
  type CloudSetup,
} from "../../../testing/cloud/cloud-setups.ts";
import type { CloudAction } from "../../../testing/cloud/cloud-script.ts";
import { startFakeCloud, videoOf, type FakeCloud } from "../../../testing/cloud/fake-cloud.ts";
import { makeProvider } from "./make-provider.ts";
import type { Provider } from "./provider.ts";

const VIDEO_CLOUDS = [minimaxSetup, minimaxTasksSetup, klingSetup, tasksSetup];
const never = new AbortController().signal;
const BYTES_MAX = 1_000_000;

const aWork = (change: Partial<ProviderWork> = {}): ProviderWork => ({
  jobId: "job-1",
  idempotencyKey: "key-of-job-1",
  path: "/prompt",
  body: videoBody,
  maxMicros: 500_000,
  ...change,
});
const aChat = (change: Partial<ProviderWork> = {}): ProviderWork =>
  aWork({
    path: "/v1/chat/completions",
    body: { model: "local", stream: true, max_tokens: 100, messages: [{ role: "user", content: "hi" }] },
    maxMicros: 5_000_000,
    ...change,
  });

interface Stage extends AsyncDisposable {
  readonly cloud: FakeCloud;
  readonly provider: Provider;
}

async function stage(setup: CloudSetup, action?: CloudAction, change: Partial<ProviderSettings> = {}): Promise<Stage> {
  const cloud = await startFakeCloud(setup.dialect(), { priceMicros: setup.priceMicros });
  if (action !== undefined) cloud.script({ do: action });
  const settings = { ...providerOf(setup.file(cloud.url)), ...change };
  return { cloud, provider: makeProvider(settings, systemClock), [Symbol.asyncDispose]: () => cloud.close() };
}

async function accepted(provider: Provider, work: ProviderWork): Promise<string> {
  const outcome = await provider.submit(work, never);
  assert.equal(outcome.kind, "accepted", JSON.stringify(outcome));
  return outcome.kind === "accepted" ? outcome.taskId : "";
}

async function pollUntilEnded(provider: Provider, taskId: string): Promise<PollOutcome> {
  for (let looks = 0; looks < 20; looks += 1) {
    const outcome = await provider.poll(taskId, never);
    if (outcome.kind !== "running") return outcome;
  }
  throw new Error("the task never ended");
}

for (const setup of VIDEO_CLOUDS) {
  test(`${setup.name}: priced, submitted once, polled and fetched, and charged what was quoted [50.V6]`, async () => {
    await using stageOf = await stage(setup);
    const { cloud, provider } = stageOf;
    assert.deepEqual(provider.price(aWork()), { kind: "priced", micros: setup.priceMicros, currency: "EUR" });
    const taskId = await accepted(provider, aWork());
    assert.equal((await provider.poll(taskId, never)).kind, "running");
    const done = await pollUntilEnded(provider, taskId);
    assert.equal(done.kind, "succeeded", JSON.stringify(done));
    const result = done.kind === "succeeded" ? done.result : "";
    const fetched = await provider.fetch(result, BYTES_MAX, never);
    const [task] = cloud.ledger().tasks;
    assert.ok(task !== undefined);
    const body = videoOf(task);
    assert.deepEqual(fetched, { kind: "fetched", result: { status: 200, contentType: "video/mp4", body } });
    assert.equal(cloud.ledger().submits, 1);
    assert.equal(cloud.ledger().chargedMicros, setup.priceMicros);
    assert.ok(task.body.includes("a train at night"));
    assert.ok(!task.body.includes("SaveVideo") || setup === tasksSetup, "the graph stays in the house");
    assert.ok(setup === tasksSetup || !task.body.includes("callback_url"), "a client names no address to a cloud");
    assert.equal((await provider.fetch(result, body.length - 1, never)).kind, "tooLarge");
  });
}

interface Row {
  readonly submit: NonNullable<CloudAction["submit"]>;
  /** By the cloud's name; else `kind`. */
  readonly kind: string;
  readonly but?: Readonly<Record<string, string>>;
}

const SUBMITS: readonly Row[] = [
  { submit: "rateLimited", kind: "unavailable" },
  { submit: "unavailable", kind: "unavailable" },
  { submit: "serverError", kind: "unknown" },
  { submit: "badRequest", kind: "refused input" },
  { submit: "badKey", kind: "refused auth" },
  { submit: "noMoney", kind: "refused quota" },
  {
    submit: "policy",
    kind: "refused input",
    but: { [minimaxSetup.name]: "refused policy", [openaiSetup.name]: "refused policy" },
  },
  {
    submit: "errorInside",
    kind: "unknown",
    but: { [minimaxTasksSetup.name]: "unavailable", [openaiSetup.name]: "unavailable" },
  },
  { submit: "resetBefore", kind: "unknown" },
  { submit: "resetAfter", kind: "unknown" },
  { submit: "garbage", kind: "unknown" },
  { submit: "noTask", kind: "unknown" },
  { submit: "mute", kind: "unknown" },
];

for (const setup of [...VIDEO_CLOUDS, openaiSetup]) {
  for (const { submit, kind, but } of SUBMITS) {
    const expected = but?.[setup.name] ?? kind;
    test(`${setup.name}, submission ${submit}: ${expected}, asked once, and what is called certain is certain [50.V6]`, async () => {
      const patience = submit === "mute" ? { submitMs: 300 } : {};
      await using stageOf = await stage(setup, { submit, retryAfterS: 7 }, patience);
      const { cloud, provider } = stageOf;
      const outcome = await provider.submit(setup === openaiSetup ? aChat() : aWork(), never);
      const told = outcome.kind === "refused" ? `refused ${outcome.reason}` : outcome.kind;
      assert.equal(told, expected, JSON.stringify(outcome));
      assert.equal(cloud.ledger().submits, 1);
      if (outcome.kind === "refused" || outcome.kind === "unavailable") assert.equal(cloud.ledger().chargedMicros, 0);
      if (outcome.kind === "unavailable") assert.equal(outcome.retryAfterMs, 7_000);
    });
  }

  test(`${setup.name}: a place that can't be connected to has certainly taken nothing [50.V6]`, async () => {
    const stageOf = await stage(setup);
    await stageOf.cloud.close();
    const outcome = await stageOf.provider.submit(setup === openaiSetup ? aChat() : aWork(), never);
    assert.equal(outcome.kind, "unavailable", JSON.stringify(outcome));
  });

  test(`${setup.name}: what costs more than may be spent is not sent [50.V6]`, async () => {
    await using stageOf = await stage(setup);
    const work = setup === openaiSetup ? aChat({ maxMicros: 1 }) : aWork({ maxMicros: setup.priceMicros - 1 });
    const outcome = await stageOf.provider.submit(work, never);
    assert.equal(outcome.kind === "refused" && outcome.reason, "price");
    assert.equal(stageOf.cloud.ledger().submits, 0);
  });
}

for (const setup of VIDEO_CLOUDS) {
  for (const look of ["rateLimited", "serverError", "garbage", "reset", "errorInside", "badKey"] as const) {
    test(`${setup.name}, look ${look}: it tells nothing of the task, which is found done later [50.V6]`, async () => {
      await using stageOf = await stage(setup, { look, spoiltLooks: 1 });
      const taskId = await accepted(stageOf.provider, aWork());
      assert.equal((await stageOf.provider.poll(taskId, never)).kind, "unavailable");
      assert.equal((await pollUntilEnded(stageOf.provider, taskId)).kind, "succeeded");
      assert.equal(stageOf.cloud.ledger().submits, 1);
    });
  }

  test(`${setup.name}: a failed task is a failure, and success without a result is none [50.V6]`, async () => {
    await using failing = await stage(setup, { end: "failed" });
    const failed = await pollUntilEnded(failing.provider, await accepted(failing.provider, aWork()));
    assert.equal(failed.kind, "failed");
    await using hollow = await stage(setup, { end: "noResult" });
    const outcome = await pollUntilEnded(hollow.provider, await accepted(hollow.provider, aWork()));
    assert.equal(outcome.kind, "unavailable");
  });

  for (const [result, kind] of [
    ["gone", "lost"],
    ["reset", "unavailable"],
    ["empty", "unavailable"],
    ["serverError", "unavailable"],
  ] as const) {
    test(`${setup.name}: a result that is ${result} is ${kind} and never an empty success [50.V6]`, async () => {
      await using stageOf = await stage(setup, { result, looksUnder: 0 });
      const done = await pollUntilEnded(stageOf.provider, await accepted(stageOf.provider, aWork()));
      assert.equal(done.kind, "succeeded");
      const fetched = await stageOf.provider.fetch(done.kind === "succeeded" ? done.result : "", BYTES_MAX, never);
      assert.equal(fetched.kind, kind);
    });
  }

  test(`${setup.name}: a result's address inside the house is not fetched from [50.V6]`, async () => {
    await using inside = await startFakeCloud(minimaxSetup.dialect());
    for (const resultUrl of [`${inside.url}/videos/1.mp4`, "https://169.254.169.254/latest", "https://localhost/x"]) {
      await using stageOf = await stage(setup, { resultUrl, looksUnder: 0 });
      const done = await pollUntilEnded(stageOf.provider, await accepted(stageOf.provider, aWork()));
      const fetched = await stageOf.provider.fetch(done.kind === "succeeded" ? done.result : "", BYTES_MAX, never);
      assert.equal(fetched.kind, "unavailable", resultUrl);
    }
  });
}

test("a task that the place forgot is lost, where the place says so [50.V6]", async () => {
  for (const setup of [minimaxTasksSetup, klingSetup, tasksSetup]) {
    await using stageOf = await stage(setup, { lostAfterLooks: 0 });
    const taskId = await accepted(stageOf.provider, aWork());
    assert.equal((await stageOf.provider.poll(taskId, never)).kind, "lost", setup.name);
  }
});

test("a place that knows idempotency keys gets the job's, and makes nothing anew for it [50.V6]", async () => {
  await using stageOf = await stage(tasksSetup);
  const first = await accepted(stageOf.provider, aWork());
  const second = await accepted(stageOf.provider, aWork());
  assert.equal(second, first);
  assert.equal(stageOf.cloud.ledger().tasks.length, 1);
  await using kling = await stage(klingSetup);
  await accepted(kling.provider, aWork());
  assert.equal(kling.cloud.ledger().tasks[0]?.idempotencyKey, "key-of-job-1");
});

test("a task is called off where the place has a request for it, and not after its end [50.V6]", async () => {
  await using stageOf = await stage(tasksSetup);
  const taskId = await accepted(stageOf.provider, aWork());
  assert.deepEqual(await stageOf.provider.cancel(taskId, never), { kind: "cancelled" });
  assert.equal(stageOf.cloud.ledger().chargedMicros, 0);
  assert.deepEqual(await stageOf.provider.cancel(taskId, never), { kind: "tooLate" });
  await using minimax = await stage(minimaxSetup);
  const other = await accepted(minimax.provider, aWork());
  assert.deepEqual(await minimax.provider.cancel(other, never), { kind: "unsupported" });
});

test("what a place says that it charged is told as it is, and nonsense is no price [50.V6]", async () => {
  const rows: readonly (readonly [unknown, number | undefined])[] = [
    [9.5, 9_500_000],
    ["0.25", 250_000],
    [-1, undefined],
    ["free", undefined],
    [null, 500_000],
    [{ amount: 1 }, undefined],
    // The largest amount, which halts the tier.
    [1e300, 1_000_000_000_000_000],
  ];
  for (const [chargeTold, expected] of rows) {
    await using stageOf = await stage(tasksSetup, { chargeTold, looksUnder: 0 });
    const done = await pollUntilEnded(stageOf.provider, await accepted(stageOf.provider, aWork()));
    assert.equal(done.kind === "succeeded" ? done.chargedMicros : -1, expected, JSON.stringify(chargeTold));
  }
});

test("a chat is answered whole by the tier's model, and costs what its tokens cost [50.V6]", async () => {
  await using stageOf = await stage(openaiSetup);
  const outcome = await stageOf.provider.submit(aChat(), never);
  assert.equal(outcome.kind, "done", JSON.stringify(outcome));
  if (outcome.kind !== "done") return;
  assert.equal(outcome.chargedMicros, 100_000);
  const body = JSON.parse(outcome.result.body.toString("utf8")) as { readonly model: string };
  assert.equal(body.model, "big-model");
  const sent = JSON.parse(stageOf.cloud.ledger().tasks[0]?.body ?? "{}") as Record<string, unknown>;
  assert.equal(sent["stream"], undefined);
});

test("a chat's usage that can't be is no charge that is told [50.V6]", async () => {
  for (const chargeTold of [{ total_tokens: -5 }, { total_tokens: "many" }, {}]) {
    await using stageOf = await stage(openaiSetup, { chargeTold });
    const outcome = await stageOf.provider.submit(aChat(), never);
    assert.equal(outcome.kind === "done" ? outcome.chargedMicros : -1, undefined, JSON.stringify(chargeTold));
  }
});

test("a key that a place says back is masked in what is kept of its words", async () => {
  const gossip = { ...tasksSetup.dialect(), refused: () => ({ status: 400, body: { error: `no: ${CLOUD_KEY}` } }) };
  await using cloud = await startFakeCloud(gossip);
  cloud.script({ do: { submit: "badRequest" } });
  const outcome = await makeProvider(providerOf(tasksSetup.file(cloud.url)), systemClock).submit(aWork(), never);
  assert.equal(outcome.kind === "refused" && outcome.why, "the place answered 400: no: [redacted]");
});

test("who no longer waits ends a call at once, and what was sent stays in doubt [50.V6]", async () => {
  await using stageOf = await stage(minimaxSetup, { submit: "mute" });
  const gone = new AbortController();
  const submitted = stageOf.provider.submit(aWork(), gone.signal);
  await stageOf.cloud.until("the work was taken", (ledger) => ledger.tasks.length === 1);
  gone.abort();
  assert.equal((await submitted).kind, "unknown");
  assert.equal((await stageOf.provider.submit(aWork(), gone.signal)).kind, "unavailable");
  assert.equal(stageOf.cloud.ledger().submits, 1);
});

test("a tier's key goes to the tier's own host alone, whatever a place names or a path is made of [80.C46]", async () => {
  await using thief = await startFakeCloud(tasksSetup.dialect(), {});
  for (const path of ["@evil.example/x/{id}", `//${new URL(thief.url).host}/{id}`, "/tasks/{id}"]) {
    await using stageOf = await stage(tasksSetup);
    const { cloud } = stageOf;
    const settings = providerOf(tasksSetup.file(cloud.url));
    assert.ok(settings.template !== null);
    const { template } = settings;
    const provider = makeProvider(
      { ...settings, template: { ...template, poll: { ...template.poll, path } } },
      systemClock,
    );
    const outcome = await provider.poll(`@${new URL(thief.url).host}/`, never);
    assert.notEqual(outcome.kind, "succeeded", path);
  }
  assert.equal(thief.ledger().submits, 0);
});
