import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { appliedView, diffView, leaderView, statusView } from "../../src/contract/control-api.ts";
import { systemClock } from "../../src/kernel/clock.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { watchLoop } from "../../src/testing/watch-loop.ts";
import { startTestControl, type TestControl } from "./support/test-control.ts";

let control: TestControl;
before(async () => {
  control = await startTestControl();
  await eventually(
    "the lead",
    () => control.plane.leading,
    (leading) => leading,
  );
});
after(() => control[Symbol.asyncDispose]());

const MODELS = 3_000;
const models = (count: number): string =>
  `models:\n${Array.from(
    { length: count },
    (_, index) =>
      `  - {name: m${index}, replicas: {min: 0}, profiles: [{engine: sim, cpu: {cores: 1, memory_gb: 1}}]}\n`,
  ).join("")}`;
const unknownKeys = Array.from({ length: 20_000 }, (_, index) => `k${index}: 1\n`).join("");

const leader = async (): Promise<readonly [role: string, epoch: number | null]> => {
  const { role, epoch } = leaderView.parse((await control.ask("GET", "/v1/leader")).body);
  return [role, epoch];
};

const modelsAre = (count: number): Promise<number> =>
  eventually(
    `${count} models`,
    async () => statusView.parse((await control.ask("GET", "/v1/status")).body).catalog.models,
    (found) => found === count,
  );

/** The answer, and the longest time for which the control plane did nothing else, as a part of the time until it came. */
async function asked(
  method: string,
  path: string,
  body: string,
): Promise<{ readonly status: number; readonly body: unknown; readonly heldUp: number }> {
  const loop = watchLoop();
  const start = systemClock.mono();
  const answer = await control.ask(method, path, { body });
  return { ...answer, heldUp: loop.stop() / (systemClock.mono() - start) };
}

test("a catalog of thousands of models, or of mistakes, is read beside everything else, answered truly, and costs no lead [80.P10 40.L3]", async () => {
  const before = await leader();
  const mistaken = await asked("POST", "/v1/catalog/diff", unknownKeys);
  assert.equal(mistaken.status, 422);
  const diff = await asked("POST", "/v1/catalog/diff", models(MODELS));
  assert.equal(diff.status, 200);
  assert.equal(diffView.parse(diff.body).added.length, MODELS);
  const applied = await asked("PUT", "/v1/catalog", models(MODELS));
  assert.deepEqual([applied.status, appliedView.parse(applied.body).revision], [200, 1]);
  await modelsAre(MODELS);
  // Read in this thread, each of them would be most of its time.
  for (const { heldUp } of [mistaken, diff, applied]) assert.ok(heldUp < 0.25, `held up for ${heldUp} of the time`);
  assert.deepEqual(await leader(), before);

  // Back to few: what is compared is large, what is given is small.
  const few = await control.ask("PUT", "/v1/catalog", { body: models(1) });
  assert.equal(few.status, 200);
  await modelsAre(1);
});
