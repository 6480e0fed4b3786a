import assert from "node:assert/strict";
import { mkdtemp, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { patientClock } from "../../testing/patient-clock.ts";
import { anAsk, jobStoreSuite } from "../jobs/job-store.conformance.ts";
import type { JobStore, JobStoreLimits } from "../jobs/job-store.ts";
import { openLocalJobStore } from "./local-job-store.ts";

const folders: string[] = [];
after(() => Promise.all(folders.map((folder) => rm(folder, { recursive: true, force: true }))));

async function aPath(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "yardmaster-jobs-"));
  folders.push(folder);
  return join(folder, "jobs.db");
}

const open = (path: string, limits: Partial<JobStoreLimits> = {}): Promise<JobStore> =>
  openLocalJobStore({ path, limits: { jobsMax: 1_000, bytesMax: 10_000_000, ...limits }, clock: patientClock });

jobStoreSuite("the embedded database", async () => {
  const path = await aPath();
  return { open: (limits) => open(path, limits) };
});

test("the claims of a process that ended are taken back at the start, with the attempt they cost [20.J4]", async () => {
  const path = await aPath();
  const first = await open(path);
  const outcome = await first.submit(anAsk(), new Map());
  assert.ok(outcome.kind === "accepted");
  await first.claim([{ class: "batch", lanes: ["m:m"], max: 1 }], 3_600_000);
  await first.close();
  const second = await open(path);
  await second.sweep();
  const read = await second.get(outcome.job.id);
  assert.deepEqual([read?.job.state, read?.job.attempts], ["queued", 1]);
  await second.close();
});

test("a file of another program is left alone, and the store says so [80.I9]", async () => {
  const path = await aPath();
  await writeFile(
    path,
    "this is no database, but it is somebody's file, and it is long enough to be looked at ".repeat(20),
  );
  await assert.rejects(open(path), { code: "JOB_STORE_UNAVAILABLE" });
});

test("the file is its owner's alone", async () => {
  const path = await aPath();
  const store = await open(path);
  assert.equal((await stat(path)).mode & 0o777, 0o600);
  await store.close();
  await assert.rejects(store.get("x"), { code: "JOB_STORE_UNAVAILABLE" });
});
