import assert from "node:assert/strict";
import { test } from "node:test";
import { viewOperation, type OperationJob } from "./operation-view.ts";

const JOB: OperationJob = {
  state: "queued",
  createdAt: 1_767_225_600_000,
  startedAt: null,
  endedAt: null,
  readyAt: 1_767_225_600_000,
  now: 1_767_225_601_000,
  error: null,
};

interface Shown {
  readonly status: string;
  readonly createdDateTime: string;
  readonly lastUpdatedDateTime: string;
  readonly error?: { readonly code: string; readonly message: string; readonly innererror?: { readonly code: string } };
}
function view(
  change: Partial<OperationJob>,
  answer: string | null = null,
): Shown & { readonly retryAfterMs: number | null } {
  const { text, retryAfterMs } = viewOperation({ ...JOB, ...change }, answer);
  return { ...(JSON.parse(text) as Shown), retryAfterMs };
}

test("a job's states are the operation's, with a Retry-After of at least a second while there is something to wait for [20.F2]", () => {
  const shown = (["queued", "running", "cancelled", "failed"] as const).map((state) => {
    const { status, retryAfterMs } = view({ state });
    return [state, status, retryAfterMs];
  });
  assert.deepEqual(shown, [
    ["queued", "notStarted", 1_000],
    ["running", "running", 1_000],
    ["cancelled", "canceled", null],
    ["failed", "failed", null],
  ]);
});

test("a job that waits for its next try is looked at when that comes, and within ten seconds", () => {
  assert.equal(view({ readyAt: JOB.now + 4_000 }).retryAfterMs, 4_000);
  assert.equal(view({ readyAt: JOB.now + 600_000 }).retryAfterMs, 10_000);
  assert.equal(view({ state: "running", readyAt: JOB.now + 4_000 }).retryAfterMs, 1_000);
});

test("times are those of the job [20.F2]", () => {
  const { createdDateTime, lastUpdatedDateTime } = view({ state: "running", startedAt: JOB.createdAt + 500 });
  assert.deepEqual([createdDateTime, lastUpdatedDateTime], ["2026-01-01T00:00:00.000Z", "2026-01-01T00:00:00.500Z"]);
  assert.equal(view({ state: "failed", endedAt: JOB.createdAt + 900 }).lastUpdatedDateTime, "2026-01-01T00:00:00.900Z");
});

test("a failure has the analyzer's own words where it had any, else ours under the service's code [20.F2]", () => {
  const error = { code: "ENGINE_ERROR", message: "the engine answered 400" } as const;
  const said =
    '{"error":{"code":"InvalidRequest","message":"Invalid request.","innererror":{"code":"InvalidContent"}}}';
  assert.deepEqual(view({ state: "failed", error }, said).error, (JSON.parse(said) as { error: unknown }).error);
  for (const nothing of [null, "", "<html>", "[]", '{"error":"text"}', '{"error":{"code":"X"}}'])
    assert.deepEqual(view({ state: "failed", error }, nothing).error, {
      code: "InternalServerError",
      message: error.message,
      innererror: error,
    });
  assert.equal(view({ state: "failed", error: { code: "BAD_REQUEST", message: "m" } }).error?.code, "InvalidRequest");
});

test("a job that ended well and whose result is not there is never a success [20.F2]", () => {
  const { status, error } = view({ state: "completed" });
  assert.deepEqual([status, error?.innererror?.code], ["failed", "INTERNAL"]);
});
