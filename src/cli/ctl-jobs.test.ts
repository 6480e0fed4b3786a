import assert from "node:assert/strict";
import { test } from "node:test";
import { viewJob } from "../contract/job-view.ts";
import { aJob } from "../testing/a-job.ts";
import { runCtl } from "../testing/run-ctl.ts";

const JOB = viewJob(
  aJob({
    plan: [{ at: 0, what: "queued", why: "for model m\u001b[2J" }],
    error: { code: "ENGINE_ERROR", message: "no" },
  }),
  0,
);

test("`ctl jobs list` shows each job in a line and where the next page begins [20.J1]", async () => {
  const page = { object: "list", data: [JOB, JOB], next_cursor: "7" };
  const ran = await runCtl(["ctl", "jobs", "list", "--state", "failed", "--limit", "2"], 200, page);
  assert.deepEqual(ran.asked, [["GET /v1/jobs?limit=2&state=failed", null]]);
  assert.equal(ran.code, 0);
  const lines = ran.out.trimEnd().split("\n");
  assert.equal(lines.length, 4);
  assert.match(lines[1] ?? "", /^job_00000000_a +queued +batch +m +k .* 0\/1 +0\/3 +ENGINE_ERROR$/);
  assert.equal(lines[3], "more: --cursor 7");
  for (const asked of [["--json"], ["-o", "json"], ["--output=json"]]) {
    const asJson = await runCtl(["ctl", "jobs", "list", ...asked], 200, page);
    assert.equal((JSON.parse(asJson.out) as { jobs: unknown[] }).jobs.length, 2, asked.join(" "));
  }
  assert.equal((await runCtl(["ctl", "jobs", "list", "-o", "table"], 200, page)).out, ran.out);
  const other = await runCtl(["ctl", "jobs", "list", "-o", "yaml"], 200, page);
  assert.deepEqual([other.code, other.asked], [2, []]);
});

test("`ctl jobs show` tells what was decided, with nothing that moves a terminal's cursor [20.J2 80.D36]", async () => {
  const ran = await runCtl(["ctl", "jobs", "show", "job_00000000_a"], 200, JOB);
  assert.deepEqual(ran.asked, [["GET /v1/jobs/job_00000000_a", null]]);
  assert.match(ran.out, /queued: for model m\\u001b\[2J/);
  assert.equal(ran.out.includes("\u001b"), false);
});

test("`ctl jobs cancel` ends a job, and a refusal is an exit code of its own [20.J1]", async () => {
  const ran = await runCtl(["ctl", "jobs", "cancel", "job_00000000_a"], 200, { ...JOB, state: "cancelled" });
  assert.deepEqual(
    [ran.code, ran.asked, ran.out],
    [0, [["DELETE /v1/jobs/job_00000000_a", null]], "job job_00000000_a is cancelled\n"],
  );
  const refused = await runCtl(["ctl", "jobs", "cancel", "x"], 404, { error: { code: "JOB_UNKNOWN", message: "no" } });
  assert.equal(refused.code, 1);
  assert.equal((await runCtl(["ctl", "jobs", "cancel", "../x"], 200, JOB)).code, 2);
  assert.equal((await runCtl(["ctl", "jobs", "show", "x"], 200, { nonsense: true })).code, 1);
});

test("a command that something else answers than what it asks says whom it asks and where that usually is [20.J1]", async () => {
  const refusal = { error: { code: "ROUTE_UNKNOWN", message: "there is no such route" } };
  const gateway = await runCtl(["ctl", "jobs", "list"], 404, refusal);
  assert.match(gateway.err, /404 ROUTE_UNKNOWN.*\nThis command asks a gateway, which is usually at port 8200: /);
  const control = await runCtl(["ctl", "nodes"], 405, { error: { code: "METHOD_NOT_ALLOWED", message: "POST" } });
  assert.match(control.err, /asks a control plane, which is usually at port 8300: /);
  const meant = await runCtl(["ctl", "jobs", "show", "x"], 404, { error: { code: "JOB_UNKNOWN", message: "no" } });
  assert.doesNotMatch(meant.err, /This command asks/);
});
