import assert from "node:assert/strict";
import { test } from "node:test";
import type { JobRecord } from "../../contract/job.ts";
import { seededRandom } from "../../kernel/random.ts";
import { aJob } from "../../testing/a-job.ts";
import { CALLBACK_TRIES_MAX } from "./job-delays.ts";
import { PLAN_STEPS_MAX, stepJob, type JobEvent } from "./step-job.ts";

const random = { next: () => 0 };
const RESULT = { status: 200, contentType: "application/json", bytes: 2 };
const LEASE_MS = 30_000;
const error = { code: "UPSTREAM_ERROR", message: "it broke off" } as const;

function moved(job: JobRecord, event: JobEvent, now: number): JobRecord {
  const step = stepJob(job, event, now, random);
  if (step.kind !== "moved") throw new Error(`${event.kind}: ${JSON.stringify(step)}`);
  return step.job;
}
const claimed = (job: JobRecord, token: string, now: number): JobRecord =>
  moved(job, { kind: "claim", token, leaseMs: LEASE_MS }, now);

test("a job goes from queued over running to completed, with its times, attempts and reasons [20.J2]", () => {
  const running = claimed(aJob(), "t1", 500);
  assert.deepEqual([running.state, running.attempts, running.startedAt], ["running", 1, 500]);
  const step = stepJob(running, { kind: "complete", token: "t1", result: RESULT, why: "answered" }, 900, random);
  assert.ok(step.kind === "moved" && step.ended);
  const { job } = step;
  assert.deepEqual(
    [job.state, job.endedAt, job.result, job.claim, job.expiresAt],
    ["completed", 900, RESULT, null, 900 + 86_400_000],
  );
  assert.deepEqual(
    job.plan.map(({ what }) => what),
    ["queued", "claimed", "ended"],
  );
});

test("a late worker whose claim was taken changes nothing [20.J3 80.G4 80.C26]", () => {
  const first = claimed(aJob(), "t1", 0);
  const back = moved(first, { kind: "tick" }, LEASE_MS);
  assert.equal(back.state, "queued");
  const second = claimed(back, "t2", back.readyAt);
  const late: JobEvent[] = [
    { kind: "complete", token: "t1", result: RESULT, why: "" },
    { kind: "fail", token: "t1", error, result: null },
    { kind: "retry", token: "t1", error, result: null },
    { kind: "postpone", token: "t1", error, afterMs: 0 },
    { kind: "handBack", token: "t1" },
    { kind: "renew", token: "t1", leaseMs: LEASE_MS },
  ];
  for (const event of late) assert.deepEqual(stepJob(second, event, 40_000, random), { kind: "refused", why: "stale" });
});

test("a claim that is renewed is not taken, one that is not is taken when its lease ends [20.J3]", () => {
  let job = claimed(aJob(), "t1", 0);
  for (let now = 10_000; now <= 300_000; now += 10_000) {
    assert.equal(stepJob(job, { kind: "tick" }, now, random).kind, "same");
    job = moved(job, { kind: "renew", token: "t1", leaseMs: LEASE_MS }, now);
  }
  assert.equal(stepJob(job, { kind: "tick" }, 329_999, random).kind, "same");
  assert.equal(moved(job, { kind: "tick" }, 330_000).state, "queued");
});

test("a job whose worker ends each time is started three times, 1 and 4 s after the loss, and fails [20.J3 80.G5 80.C29]", () => {
  let job = aJob();
  let now = 0;
  const delays: number[] = [];
  for (let attempt = 1; attempt <= 3; attempt += 1) {
    job = claimed(job, `t${attempt}`, now);
    now += LEASE_MS;
    job = moved(job, { kind: "tick" }, now);
    if (job.state === "queued") delays.push(job.readyAt - now);
    now = job.readyAt;
  }
  assert.deepEqual(
    [job.state, job.error?.code, job.attempts, delays],
    ["failed", "JOB_INTERRUPTED", 3, [1_000, 4_000]],
  );
});

test("a worker that ends after parts were done costs no attempt, ten times, and one that ends with nothing done three times ends the job [20.J3 20.J6 80.G5]", () => {
  const ends = (partsDoneAt: (loss: number) => number): { readonly job: JobRecord; readonly losses: number } => {
    let job = aJob({ parts: 200, attemptsMax: 3 });
    let [now, losses] = [0, 0];
    while (job.state === "queued" && losses < 100) {
      job = claimed(job, `t${losses}`, now);
      now += LEASE_MS;
      losses += 1;
      job = moved(job, { kind: "tick", partsDone: partsDoneAt(losses) }, now);
      now = job.readyAt;
    }
    return { job, losses };
  };
  const told = (partsDoneAt: (loss: number) => number): unknown => {
    const { job, losses } = ends(partsDoneAt);
    return [job.error?.code, job.attempts, losses];
  };
  assert.deepEqual(
    told(() => 0),
    ["JOB_INTERRUPTED", 3, 3],
  );
  assert.deepEqual(
    told(() => 50),
    ["JOB_INTERRUPTED", 3, 4],
    "the same parts count once",
  );
  assert.deepEqual(
    told((loss) => Math.min(loss, 5)),
    ["JOB_INTERRUPTED", 3, 8],
    "one part is left that ends its worker",
  );
  assert.deepEqual(
    told((loss) => loss),
    ["JOB_INTERRUPTED", 3, 13],
  );
});

test("delays before a retry are 1, 4 and 16 s and up to a quarter more [80.G5 80.C29]", () => {
  for (let seed = 1; seed <= 50; seed += 1) {
    for (const [attempts, base] of [
      [1, 1_000],
      [2, 4_000],
      [3, 16_000],
    ] as const) {
      const running = aJob({ state: "running", attempts, attemptsMax: 9, claim: { token: "t", until: 1 } });
      const step = stepJob(running, { kind: "retry", token: "t", error, result: null }, 0, seededRandom(seed));
      assert.ok(step.kind === "moved" && step.job.readyAt >= base && step.job.readyAt <= base * 1.25);
    }
  }
});

test("a job put back without an engine having been asked keeps its attempts, and waits longer each time [20.J9]", () => {
  let job = aJob();
  let now = 0;
  const waits: number[] = [];
  for (let i = 0; i < 8; i += 1) {
    job = claimed(job, `t${i}`, now);
    job = moved(
      job,
      { kind: "postpone", token: `t${i}`, error: { code: "GPU_SATURATED", message: "saturated" }, afterMs: 0 },
      now,
    );
    waits.push(job.readyAt - now);
    now = job.readyAt;
  }
  assert.deepEqual(waits, [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000]);
  assert.equal(job.attempts, 0);
  assert.equal(job.plan.filter(({ what }) => what === "postponed").length, 1, "one line for one reason");
  const late = moved(job, { kind: "tick" }, job.deadlineAt);
  assert.deepEqual(
    [late.state, late.error?.code],
    ["failed", "GPU_SATURATED"],
    "it fails with the reason it waited for",
  );
});

test("a graceful stop hands the claim back: the job can be had at once, and costs no attempt [20.J10]", () => {
  const back = moved(claimed(aJob(), "t1", 100), { kind: "handBack", token: "t1" }, 5_000);
  assert.deepEqual([back.state, back.attempts, back.readyAt, back.claim], ["queued", 0, 5_000, null]);
});

test("an ended job stays what it is, whatever comes after [20.J3 80.I2]", () => {
  const done = moved(claimed(aJob(), "t1", 0), { kind: "complete", token: "t1", result: RESULT, why: "" }, 10);
  const events: JobEvent[] = [
    { kind: "cancel", by: "k" },
    { kind: "claim", token: "t2", leaseMs: LEASE_MS },
    { kind: "complete", token: "t2", result: RESULT, why: "" },
    { kind: "renew", token: "t1", leaseMs: LEASE_MS },
    { kind: "tick" },
  ];
  for (const event of events) assert.notEqual(stepJob(done, event, 20, random).kind, "moved", event.kind);
  assert.equal(
    stepJob(done, { kind: "complete", token: "t1", result: RESULT, why: "" }, 20, random).kind,
    "same",
    "told twice",
  );
  assert.equal(stepJob(done, { kind: "tick" }, 10 + 86_400_000, random).kind, "forgotten");
});

test("cancel ends a job at once, and the worker's claim with it [20.J1]", () => {
  const cancelled = moved(claimed(aJob(), "t1", 0), { kind: "cancel", by: "k" }, 50);
  assert.deepEqual([cancelled.state, cancelled.claim], ["cancelled", null]);
  assert.equal(stepJob(cancelled, { kind: "renew", token: "t1", leaseMs: 1 }, 60, random).kind, "refused");
  assert.equal(stepJob(cancelled, { kind: "cancel", by: "k" }, 60, random).kind, "same");
});

test("a job's own deadline ends it however dutifully its claim is renewed [20.J3]", () => {
  let job = claimed(aJob({ deadlineAt: 60_000 }), "t1", 0);
  for (let now = 5_000; now < 60_000; now += 5_000)
    job = moved(job, { kind: "renew", token: "t1", leaseMs: LEASE_MS }, now);
  job = moved(job, { kind: "tick" }, 60_000);
  assert.deepEqual([job.state, job.error?.code], ["failed", "JOB_DEADLINE"]);
  assert.match(
    job.error?.message ?? "",
    /60 s after .*an engine may have done it already\. Submit it anew with a longer/,
  );
});

test("a job whose time is over says what it waited for, that it was the deadline, and whether an engine may have done it [20.J3 20.J9]", () => {
  const waited = moved(
    claimed(aJob({ deadlineAt: 60_000 }), "t1", 0),
    { kind: "postpone", token: "t1", error: { code: "GPU_SATURATED", message: "the GPUs are saturated" }, afterMs: 0 },
    1_000,
  );
  const { error: told } = moved(waited, { kind: "tick" }, 60_000);
  assert.equal(told?.code, "GPU_SATURATED");
  assert.match(told.message, /^the GPUs are saturated; its time was over 60 s after .*; no engine had it\. It can be/);
  const long = moved(
    aJob({ deadlineAt: 60_000, lastError: { code: "UPSTREAM_ERROR", message: "x".repeat(500) } }),
    { kind: "tick" },
    60_000,
  );
  assert.match(long.error?.message ?? "", /submitted anew$/, "a long reason leaves room for the rest");
});

test("the reasons kept are bounded, and the first stays [80.I9]", () => {
  let job = aJob({ attemptsMax: 1_000 });
  let now = 0;
  for (let i = 0; i < 200; i += 1) {
    job = claimed(job, `t${i}`, now);
    job = moved(
      job,
      { kind: "retry", token: `t${i}`, error: { ...error, message: `${i}`.repeat(2_000) }, result: null },
      now,
    );
    now = job.readyAt;
  }
  assert.equal(job.plan.length, PLAN_STEPS_MAX);
  assert.equal(job.plan[0]?.what, "queued");
  assert.ok(JSON.stringify(job).length < 40_000);
});

test("the word of a job's end is sent by one, tried eight times, and kept when it is given up [20.J8]", () => {
  const callback = { url: "https://h/", state: "idle", tries: 0, nextAt: 0, token: null, lastError: null } as const;
  let job = moved(aJob({ callback }), { kind: "cancel", by: "k" }, 10);
  assert.equal(job.callback?.state, "waiting");
  let now = 10;
  let sent = 0;
  while (job.callback?.state === "waiting") {
    job = moved(job, { kind: "takeCallback", token: `c${sent}`, leaseMs: 10_000 }, now);
    assert.equal(stepJob(job, { kind: "takeCallback", token: "other", leaseMs: 1 }, now, random).kind, "refused");
    assert.equal(stepJob(job, { kind: "callbackSent", token: "other" }, now, random).kind, "refused");
    job = moved(job, { kind: "callbackFailed", token: `c${sent}`, why: "500", final: false }, now);
    sent += 1;
    now = job.callback?.nextAt ?? now;
  }
  assert.deepEqual([sent, job.callback?.state, job.callback?.lastError], [CALLBACK_TRIES_MAX, "given_up", "500"]);
});
