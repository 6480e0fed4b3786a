import assert from "node:assert/strict";
import { test } from "node:test";
import { judgeCall, type CallReport } from "./judge-run.ts";

const refused = (code: Extract<CallReport, { kind: "refused" }>["code"], unreached = false): CallReport => ({
  kind: "refused",
  code,
  message: "m",
  retryAfterMs: 2_000,
  unreached,
});

const rows: readonly { name: string; report: CallReport; verdict: string; code?: string; onShed?: "fail" }[] = [
  { name: "a whole answer is the result", report: { kind: "answered", status: 200, outcome: "ok" }, verdict: "done" },
  {
    name: "an error event in a stream that ended well is no result",
    report: { kind: "answered", status: 200, outcome: "engine_error" },
    verdict: "again",
    code: "UPSTREAM_ERROR",
  },
  {
    name: "a stream without a finish reason is no result",
    report: { kind: "answered", status: 200, outcome: "upstream_truncated" },
    verdict: "again",
    code: "UPSTREAM_ERROR",
  },
  {
    name: "an engine's 400 is final",
    report: { kind: "answered", status: 400, outcome: "engine_error" },
    verdict: "final",
    code: "ENGINE_ERROR",
  },
  {
    name: "an engine's 422 is final",
    report: { kind: "answered", status: 422, outcome: "engine_error" },
    verdict: "final",
    code: "ENGINE_ERROR",
  },
  {
    name: "an engine's 500 is tried again",
    report: { kind: "answered", status: 500, outcome: "engine_error" },
    verdict: "again",
    code: "ENGINE_ERROR",
  },
  {
    name: "an engine's 429 is tried again",
    report: { kind: "answered", status: 429, outcome: "engine_error" },
    verdict: "again",
    code: "ENGINE_ERROR",
  },
  {
    name: "an answer that broke off is tried again",
    report: { kind: "brokenOff", code: null },
    verdict: "again",
    code: "UPSTREAM_ERROR",
  },
  {
    name: "an answer that is too large is final",
    report: { kind: "tooLarge", bytesMax: 9 },
    verdict: "final",
    code: "RESULT_TOO_LARGE",
  },
  {
    name: "saturation puts the job back",
    report: refused("GPU_SATURATED"),
    verdict: "postpone",
    code: "GPU_SATURATED",
  },
  {
    name: "saturation fails a job that asked for it",
    report: refused("GPU_SATURATED"),
    verdict: "final",
    code: "GPU_SATURATED",
    onShed: "fail",
  },
  { name: "a full queue puts the job back", report: refused("QUEUE_FULL"), verdict: "postpone", code: "QUEUE_FULL" },
  {
    name: "an upstream that is away puts the job back",
    report: refused("UPSTREAM_UNAVAILABLE"),
    verdict: "postpone",
    code: "UPSTREAM_UNAVAILABLE",
  },
  {
    name: "a limit of the key puts the job back",
    report: refused("RATE_LIMITED"),
    verdict: "postpone",
    code: "RATE_LIMITED",
  },
  {
    name: "an engine that broke the connection was asked",
    report: refused("UPSTREAM_ERROR"),
    verdict: "again",
    code: "UPSTREAM_ERROR",
  },
  {
    name: "an engine that no connection reached was not",
    report: refused("UPSTREAM_ERROR", true),
    verdict: "postpone",
    code: "UPSTREAM_ERROR",
  },
  { name: "a timeout is tried again", report: refused("UPSTREAM_TIMEOUT"), verdict: "again", code: "UPSTREAM_TIMEOUT" },
  {
    name: "a model that does not exist is final",
    report: refused("MODEL_UNKNOWN"),
    verdict: "final",
    code: "MODEL_UNKNOWN",
  },
];
for (const row of rows) {
  test(`${row.name} [20.J3]`, () => {
    const verdict = judgeCall(row.report, row.onShed ?? "requeue");
    assert.equal(verdict.kind, row.verdict);
    if (verdict.kind !== "done") assert.equal(verdict.error.code, row.code);
    if (verdict.kind === "postpone") assert.equal(verdict.afterMs, 2_000);
  });
}
