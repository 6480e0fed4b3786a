import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { judgeStart, markGeneration, MARKS_MAX, type Generations } from "./generations.ts";

const start = (marks: Generations, generation: number): string => judgeStart(marks, "r", generation).kind;

test("a replica's generation starts once, never after it was stopped, and never below one that was here", () => {
  let marks: Generations = new Map();
  assert.equal(start(marks, 2), "new");
  marks = markGeneration(marks, "r", { generation: 2, over: false });
  assert.deepEqual([start(marks, 1), start(marks, 2), start(marks, 3)], ["stale", "known", "new"]);
  marks = markGeneration(marks, "r", { generation: 2, over: true });
  assert.deepEqual([start(marks, 2), start(marks, 3)], ["stale", "new"]);
});

test("marks only rise, whatever order they come in, and their number is bounded", () => {
  fc.assert(
    fc.property(fc.array(fc.record({ generation: fc.nat(5), over: fc.boolean() })), (steps) => {
      let marks: Generations = new Map();
      let highest = -1;
      let over = false;
      for (const step of steps) {
        marks = markGeneration(marks, "r", step);
        if (step.generation > highest) [highest, over] = [step.generation, step.over];
        else if (step.generation === highest) over ||= step.over;
        assert.deepEqual(marks.get("r"), { generation: highest, over });
      }
    }),
  );
  let marks: Generations = new Map();
  for (let i = 0; i <= MARKS_MAX; i += 1) marks = markGeneration(marks, `r${i}`, { generation: 1, over: true });
  assert.deepEqual([marks.size, marks.has("r0"), marks.has(`r${MARKS_MAX}`)], [MARKS_MAX, false, true]);
});
