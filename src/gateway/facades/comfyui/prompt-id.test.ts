import assert from "node:assert/strict";
import { test } from "node:test";
import { promptIdOf, readCallName } from "./prompt-id.ts";

test("a job's attempt has the same prompt at every gateway, and another one for each attempt, part and repetition [20.F3]", () => {
  const names = ["job_1.1", "job_1.2", "job_1.1.p0", "job_1.1.p1", "job_2.1"].map((text) => readCallName(text));
  const ids = names.flatMap((name) => (name === undefined ? [] : [promptIdOf(name), promptIdOf(name, 1)]));
  assert.equal(new Set(ids).size, 10);
  for (const id of ids) assert.match(id, /^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  assert.equal(promptIdOf({ jobId: "job_1", attempt: 1, part: "" }), ids[0]);
});

test("a job's call is told by its request id, and other ids are none", () => {
  assert.deepEqual(readCallName("job_00000000_a.12.p3"), { jobId: "job_00000000_a", attempt: 12, part: ".p3" });
  assert.deepEqual(readCallName("a.b.2"), { jobId: "a.b", attempt: 2, part: "" });
  for (const id of ["", "job", "job.x", ".1", "job.1.2x"]) assert.equal(readCallName(id), undefined, id);
});
