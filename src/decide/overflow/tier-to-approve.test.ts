import assert from "node:assert/strict";
import { test } from "node:test";
import { tierToApprove } from "./tier-to-approve.ts";

const rows: readonly [name: string, decision: "local" | "held" | "tier", lacks: string[][], tier: string | null][] = [
  ["lacks an approval", "held", [["no_job_approval"]], "t0"],
  ["lacks one at the second tier alone", "local", [["no_key"], ["budget_day", "approval_expired"]], "t1"],
  ["lacks what no approver gives", "held", [["budget_day", "halted"]], null],
  ["has an approval that was forged", "held", [["approval_forged"]], null],
  ["lacks nothing", "local", [], null],
  ["is with a tier", "tier", [["no_job_approval"]], null],
];
for (const [name, decision, lacks, tier] of rows)
  test(`a job that ${name} waits for ${tier === null ? "nobody's word" : "an approver"} [60.K2 50.V4]`, () => {
    const lacking = lacks.map((each, index) => ({ tier: `t${index}`, lacks: each }));
    assert.equal(tierToApprove(decision, lacking), tier);
  });
