import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { STEP_MS_MIN, StepBudget } from "./step-budget.ts";

test("however many steps a call takes, and however long each lasts, together they wait no longer than the budget [80.R1 80.C9]", () => {
  fc.assert(
    fc.property(fc.integer({ min: STEP_MS_MIN, max: 5_000 }), fc.array(fc.nat(6_000)), (ms, steps) => {
      const budget = new StepBudget(ms);
      let waited = 0;
      for (const step of steps) {
        const took = Math.min(step, budget.leftMs);
        waited += took;
        budget.spend(took);
      }
      assert.ok(waited <= ms);
    }),
  );
});

test("what is left is not used for a step that could not be answered in it", () => {
  const budget = new StepBudget(100);
  assert.deepEqual([budget.leftMs, budget.short], [100, false]);
  budget.spend(45);
  assert.deepEqual([budget.leftMs, budget.short], [55, false]);
  budget.spend(20);
  assert.deepEqual([budget.leftMs, budget.short], [35, true]);
  budget.spend(30);
  assert.deepEqual([budget.leftMs, budget.short], [0, true]);
});
