import assert from "node:assert/strict";
import { test } from "node:test";
import { modelView, statusView } from "../../src/contract/control-api.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { startTestControl, type TestControl } from "./support/test-control.ts";

const NEEDY = "models: [{name: big, profiles: [{engine: sim, gpu: {class: [h200], count: 2, memory_gb: 70}}]}]\n";

const shownBy = async ({ ask }: TestControl): Promise<readonly unknown[]> => {
  const { models } = (await ask("GET", "/v1/models")).body as { models: unknown[] };
  const [model] = models.map((view) => modelView.parse(view));
  const { troubles } = statusView.parse((await ask("GET", "/v1/status")).body);
  return [model?.state, model?.why, troubles];
};

test("a standby says of a model that fits nowhere what the leader says [40.V1]", async () => {
  await using leader = await startTestControl();
  await eventually(
    "the lead",
    () => leader.plane.leading,
    (leading) => leading,
  );
  await using standby = await startTestControl({ dataDir: leader.dataDir });
  assert.equal((await leader.ask("PUT", "/v1/catalog", { body: NEEDY })).status, 200);
  const why = "there is no node";
  const expected = ["waiting", why, [{ model: "big", why }]] as const;
  const isSaid = (said: readonly unknown[]): boolean => JSON.stringify(said) === JSON.stringify(expected);
  await eventually("the leader's word", () => shownBy(leader), isSaid);
  assert.equal(standby.plane.leading, false);
  await eventually("the standby's word", () => shownBy(standby), isSaid);
});
