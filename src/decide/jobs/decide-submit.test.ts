import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { JobRecord } from "../../contract/job.ts";
import type { ErrorCode } from "../../kernel/errors.ts";
import { aJob } from "../../testing/a-job.ts";
import { decideSubmit } from "./decide-submit.ts";
import { placeInLane } from "./fair-order.ts";

const known = (change: Partial<JobRecord> = {}): JobRecord =>
  aJob({ idempotency: { scope: "s", fingerprint: "f" }, ...change });
const failedWith = (code: ErrorCode): JobRecord => known({ state: "failed", error: { code, message: "" } });

const rows: readonly { name: string; job: JobRecord | undefined; fingerprint: string; kind: string }[] = [
  { name: "a key that is new makes a job", job: undefined, fingerprint: "f", kind: "new" },
  { name: "the same request gets the queued job", job: known(), fingerprint: "f", kind: "replay" },
  { name: "the same request gets the running job", job: known({ state: "running" }), fingerprint: "f", kind: "replay" },
  {
    name: "the same request gets the finished job",
    job: known({ state: "completed" }),
    fingerprint: "f",
    kind: "replay",
  },
  { name: "another body under the key is refused", job: known(), fingerprint: "g", kind: "mismatch" },
  {
    name: "another body under the key of a failed job is refused too",
    job: failedWith("QUEUE_TIMEOUT"),
    fingerprint: "g",
    kind: "mismatch",
  },
  {
    name: "a job that failed for saturation is driven afresh",
    job: failedWith("GPU_SATURATED"),
    fingerprint: "f",
    kind: "afresh",
  },
  {
    name: "a job whose upstream was away is driven afresh",
    job: failedWith("UPSTREAM_UNAVAILABLE"),
    fingerprint: "f",
    kind: "afresh",
  },
  {
    name: "a job that waited too long is driven afresh",
    job: failedWith("QUEUE_TIMEOUT"),
    fingerprint: "f",
    kind: "afresh",
  },
  {
    name: "a job that an engine refused stays failed",
    job: failedWith("ENGINE_ERROR"),
    fingerprint: "f",
    kind: "replay",
  },
  { name: "a cancelled job stays cancelled", job: known({ state: "cancelled" }), fingerprint: "f", kind: "replay" },
];
for (const row of rows)
  test(`${row.name} [20.J5]`, () => assert.equal(decideSubmit(row.job, row.fingerprint).kind, row.kind));

test("a key's job is behind at most one turn of each other key, whatever their backlog", () => {
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 500 }), fc.integer({ min: 0, max: 400 }), (backlog, claimed) => {
      const places: number[] = [];
      let last: number | undefined;
      for (let i = 0; i < backlog; i += 1) places.push((last = placeInLane(0, last, 1)));
      const front = claimed === 0 ? 0 : (places[Math.min(claimed, backlog) - 1] ?? 0);
      const newcomer = placeInLane(front, undefined, 1);
      assert.ok(places.filter((place) => place > front && place < newcomer).length <= 1);
    }),
  );
});

test("a key of twice the weight has two turns for one of another", () => {
  const heavy = [1, 2, 3, 4].reduce<number[]>((all) => [...all, placeInLane(0, all.at(-1), 2)], []);
  const light = [1, 2].reduce<number[]>((all) => [...all, placeInLane(0, all.at(-1), 1)], []);
  assert.deepEqual(
    [heavy, light],
    [
      [0.5, 1, 1.5, 2],
      [1, 2],
    ],
  );
});
