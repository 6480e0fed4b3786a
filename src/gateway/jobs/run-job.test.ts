import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { NO_LIMITS } from "../../contract/gateway-config.ts";
import type { AuditEvent } from "../../contract/audit-event.ts";
import type { JobRecord } from "../../contract/job.ts";
import { anAsk } from "../../coord/jobs/job-store.conformance.ts";
import type { JobStore } from "../../coord/jobs/job-store.ts";
import { openLocalJobStore } from "../../coord/local/local-job-store.ts";
import type { JobAsk } from "../../decide/jobs/new-job.ts";
import { systemClock } from "../../kernel/clock.ts";
import { silentLogger } from "../../kernel/log.ts";
import { seededRandom } from "../../kernel/random.ts";
import { aJob } from "../../testing/a-job.ts";
import { anAuditEvent } from "../../testing/an-audit-event.ts";
import { within } from "../../testing/wait-for.ts";
import type { AuditSink } from "../audit/audit-sink.ts";
import type { InferenceHandler } from "../http/inference-handler.ts";
import type { RequestContext } from "../http/request-context.ts";
import { sendError } from "../http/send-error.ts";
import type { UpstreamRegistry } from "../upstreams/upstream-registry.ts";
import { CallRecords } from "./job-call.ts";
import { JobRun } from "./run-job.ts";

// A job's run over a real store, where the way to the engines refuses as the gateway would.

interface Told {
  readonly job: JobRecord;
  readonly audited: readonly AuditEvent[];
  readonly ended: readonly JobRecord[];
}

const RUN = {
  clock: systemClock,
  random: seededRandom(1),
  log: silentLogger,
  registry: {} as UpstreamRegistry,
  resultBytesMax: () => 1_000,
  limitsOf: () => NO_LIMITS,
  claimMs: () => 30_000,
  fanoutMax: () => 4,
  onVerdict: () => {},
  errands: null,
  onLeft: () => {},
  over: new AbortController().signal,
};

/** Runs one job once against an upstream that sheds batch work. */
async function runShed(change: Partial<JobAsk>): Promise<Told> {
  const folder = await mkdtemp(join(tmpdir(), "yardmaster-run-"));
  const limits = { jobsMax: 10, bytesMax: 100_000 };
  const store = await openLocalJobStore({ path: join(folder, "jobs.db"), limits, clock: systemClock });
  const audited: AuditEvent[] = [];
  const ended: JobRecord[] = [];
  const records = new CallRecords({ record: (event: AuditEvent) => void audited.push(event) } as unknown as AuditSink);
  const inference = {
    handleModelRoute(context: RequestContext): void {
      const { requestId } = context;
      records.record(anAuditEvent({ requestId, errorCode: "GPU_SATURATED", outcome: "refused", shed: true }));
      sendError(context, "GPU_SATURATED", "batch work is refused", {
        dialect: "openai",
        requestId,
        clock: systemClock,
        retryAfterMs: 7_000,
      });
    },
  } as unknown as InferenceHandler;
  try {
    const outcome = await store.submit(anAsk(change), new Map([["body", Buffer.from("{}")]]));
    assert.ok(outcome.kind === "accepted");
    const [job] = await store.claim([{ class: "batch", lanes: ["m:m"], max: 1 }], 30_000);
    assert.ok(job !== undefined);
    const run = new JobRun(
      {
        ...RUN,
        store,
        inference,
        records,
        onEnded: (over) => void ended.push(over),
        onLost: () => assert.fail("the claim is held"),
      },
      job,
    );
    await run.ended;
    return { job: (await store.get(job.id))!.job, audited, ended };
  } finally {
    await store.close();
    await rm(folder, { recursive: true, force: true });
  }
}

test("a job that is refused because the GPUs are saturated stays queued, waits as long as it was told, and is on record [20.J9]", async () => {
  const { job, audited, ended } = await runShed({});
  assert.deepEqual([job.state, job.attempts, job.lastError?.code], ["queued", 0, "GPU_SATURATED"]);
  assert.ok(job.readyAt - job.createdAt >= 7_000);
  assert.equal(job.plan.at(-1)?.what, "postponed");
  assert.deepEqual(
    audited.map(({ errorCode, shed }) => [errorCode, shed]),
    [["GPU_SATURATED", true]],
  );
  assert.deepEqual(ended, []);
});

test("with on_shed: fail it fails with GPU_SATURATED, and is on record too [20.J9]", async () => {
  const { job, audited, ended } = await runShed({ onShed: "fail" });
  assert.deepEqual([job.state, job.error?.code], ["failed", "GPU_SATURATED"]);
  assert.equal(audited.length, 1);
  assert.equal(ended.length, 1);
});

test("parts that are refused for saturation put the whole job back [20.J9 20.J6]", async () => {
  const { job } = await runShed({ parts: 3 });
  assert.deepEqual([job.state, job.attempts, job.lastError?.code], ["queued", 0, "GPU_SATURATED"]);
});

test("a run whose store is away ends when the gateway no longer waits for it, and its claim runs out [20.J10 80.I9]", async () => {
  const over = new AbortController();
  const asked = Promise.withResolvers<void>();
  const away = (): Promise<never> => {
    asked.resolve();
    return Promise.reject(new Error("the store is away"));
  };
  const run = new JobRun(
    {
      ...RUN,
      over: over.signal,
      store: { readBlob: away, change: away } as unknown as JobStore,
      inference: {} as InferenceHandler,
      records: new CallRecords({ record: () => {} } as unknown as AuditSink),
      onEnded: () => assert.fail("no outcome was told"),
      onLost: () => {},
    },
    aJob({ state: "running", attempts: 1 }),
  );
  await asked.promise;
  const handedBack = run.handBack();
  over.abort();
  await within("the end of the run", handedBack);
});
