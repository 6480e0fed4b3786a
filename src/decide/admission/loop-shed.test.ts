import assert from "node:assert/strict";
import { test } from "node:test";
import { averageLate, shedClasses, SHED_FROM_MS } from "./loop-shed.ts";

test("a gateway that is late sheds the lowest class first and the others as it gets worse [80.C24 80.G7]", () => {
  assert.deepEqual(shedClasses(0), []);
  assert.deepEqual(shedClasses(SHED_FROM_MS.batch - 1), []);
  assert.deepEqual(shedClasses(SHED_FROM_MS.batch), ["batch"]);
  assert.deepEqual(shedClasses(SHED_FROM_MS.system), ["system", "batch"]);
  assert.deepEqual(shedClasses(SHED_FROM_MS.interactive), ["interactive", "system", "batch"]);
});

test("one long turn of half a second sheds nobody, a row of them does, and a second and a half without one ends it [80.C24]", () => {
  let late = averageLate(0, 500, 750);
  assert.deepEqual(shedClasses(late), []);
  for (let turn = 0; turn < 8; turn += 1) late = averageLate(late, 700, 950);
  assert.deepEqual(shedClasses(late), ["batch"]);
  for (let tick = 0; tick < 6; tick += 1) late = averageLate(late, 0, 250);
  assert.deepEqual(shedClasses(late), []);
});
