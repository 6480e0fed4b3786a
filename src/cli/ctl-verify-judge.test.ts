import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import {
  failed,
  holds,
  judgeBacklog,
  notRun,
  passed,
  tally,
  type BacklogFacts,
  type StepOutcome,
} from "./ctl-verify-judge.ts";

const GOOD: BacklogFacts = {
  batchMax: 8,
  waitMsMax: 0,
  offered: 24,
  samples: [
    { batchInUse: 3, batchWaiting: 0 },
    { batchInUse: 8, batchWaiting: 16 },
  ],
  batchEnds: Array.from({ length: 24 }, () => ({ status: 200, code: "" })),
  people: [
    { status: 200, queuedMs: 0, ms: 1_050 },
    { status: 200, queuedMs: 0, ms: 1_100 },
  ],
  aloneMs: 1_000,
};

test("the reference case passes with its figures [20.V1]", () => {
  const outcome = judgeBacklog(GOOD);
  assert.equal(outcome.kind, "passed");
  assert.match(
    JSON.stringify(outcome),
    /24 batch calls: 8 at once of 8 allowed, 16 waiting; 2 interactive calls: waited 0 ms, slowest 1100 ms/,
  );
});

const wrong: readonly (readonly [what: string, change: Partial<BacklogFacts>, says: RegExp])[] = [
  [
    "batch above batch_max",
    {
      samples: [
        { batchInUse: 9, batchWaiting: 15 },
        { batchInUse: 8, batchWaiting: 16 },
      ],
    },
    /more than batch_max/,
  ],
  ["a backlog that never stood", { samples: [{ batchInUse: 8, batchWaiting: 15 }] }, /not seen standing/],
  ["no sample at all", { samples: [] }, /not seen standing/],
  [
    "a batch call that failed",
    { batchEnds: [...GOOD.batchEnds.slice(1), { status: 503, code: "QUEUE_TIMEOUT" }] },
    /1 batch calls failed \(503 QUEUE_TIMEOUT\)/,
  ],
  [
    "a key that may not send batch work",
    { samples: [], batchEnds: [{ status: 403, code: "CLASS_FORBIDDEN" }] },
    /^1 batch calls failed \(403 CLASS_FORBIDDEN\): the key needs `--classes interactive,batch` —/,
  ],
  ["an interactive call that failed", { people: [{ status: 429, queuedMs: 0, ms: 5 }] }, /interactive call failed/],
  ["an interactive call that waited", { people: [{ status: 200, queuedMs: 3, ms: 1_000 }] }, /waited behind batch/],
  ["a queue time that nobody told", { people: [{ status: 200, queuedMs: undefined, ms: 1_000 }] }, /no queue time/],
  ["interactive calls that became slow", { people: [{ status: 200, queuedMs: 0, ms: 3_001 }] }, /became slow/],
];
for (const [what, change, says] of wrong) {
  test(`the reference case fails for ${what} [20.V1]`, () => {
    const outcome = judgeBacklog({ ...GOOD, ...change });
    assert.ok(outcome.kind === "failed");
    assert.match(outcome.figure, says);
  });
}

test("where slots are shared a person's call may wait for its lease, and no longer [20.V1]", () => {
  const waited = (queuedMs: number) =>
    judgeBacklog({ ...GOOD, waitMsMax: 100, people: [{ status: 200, queuedMs, ms: 1_000 }] }).kind;
  assert.deepEqual([waited(100), waited(101)], ["passed", "failed"]);
});

test("what was not run is never counted as passed, and fails where all is asked for [20.V1]", () => {
  const any = fc.array(fc.constantFrom<StepOutcome>(passed("x"), failed("y"), notRun("z")));
  fc.assert(
    fc.property(any, fc.boolean(), (outcomes, all) => {
      const counts = tally(outcomes);
      assert.equal(counts.passed + counts.failed + counts.notRun, outcomes.length);
      const good = holds(counts, all);
      if (good) assert.ok(!outcomes.some(({ kind }) => kind === "failed" || (all && kind === "notRun")));
      else assert.ok(outcomes.some(({ kind }) => kind === "failed" || kind === "notRun"));
    }),
  );
});
