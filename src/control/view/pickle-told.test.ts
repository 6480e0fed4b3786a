import assert from "node:assert/strict";
import { test } from "node:test";
import { aModel, aProfile } from "../../testing/fleet-builders.ts";
import { PassWorld } from "../../testing/pass-world.ts";
import { modelViews } from "./views.ts";

test("a model that may have pickle says so: at each placement as an event, and as a warning for as long as it may; others do not [40.V1 80.C43]", () => {
  const may = aModel("may", { profiles: [aProfile("p", { allowPickle: true })] });
  const world = new PassWorld([may, aModel("plain")]);
  const { events } = world.pass();
  const told = events.filter(({ kind }) => kind === "pickleAllowed");
  assert.deepEqual(
    told.map(({ model }) => model),
    ["may"],
  );
  assert.match(told[0]?.why ?? "", /runs code of whoever made the file, and may has `allow_pickle`/);
  assert.equal(world.pass().events.filter(({ kind }) => kind === "pickleAllowed").length, 0);
  const { catalog, docs, use } = world.snapshot();
  const views = modelViews({
    catalog,
    nodes: [],
    replicas: [...docs.replicas.values()],
    models: [...docs.models.values()],
    memory: [],
    unplaced: new Map(),
    use,
    restored: false,
  });
  assert.deepEqual(
    views.map(({ name, warnings }) => [name, warnings.length]),
    [
      ["may", 1],
      ["plain", 0],
    ],
  );
  assert.match(views[0]?.warnings[0] ?? "", /allow_pickle is set: .*runs code/);
});
