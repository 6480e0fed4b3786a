import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { eventually } from "../../src/testing/wait-for.ts";
import { catalogOf, ClusterProcesses } from "./support/cluster-processes.ts";
import { checkOneLeader } from "./support/one-leader.ts";

// Everything ends at once, and everything is started again at once.

const COUNT = 3;
let cluster: ClusterProcesses;
before(async () => {
  // An agent that finds no control plane comes back within half a minute, and is not to be lost before.
  cluster = await ClusterProcesses.start({ controls: 2, nodes: 3, control: { lost_after_s: 60 } });
  await cluster.apply(catalogOf(COUNT));
  await cluster.untilSettled(COUNT);
});
after(() => cluster[Symbol.asyncDispose]());

const startAll = (): Promise<unknown> =>
  Promise.all([...cluster.controls, ...cluster.nodes].map((process) => process.start()));

test("every agent and control plane killed and started again at once: what runs is taken over, and nothing is started or stopped [40.R2 80.A3 80.I8]", async () => {
  const before = cluster.census.runs.length;
  const ids = (await cluster.replicas()).map(({ id }) => id).toSorted();
  await Promise.all([
    ...cluster.controls.map((control) => control.kill()),
    ...cluster.nodes.map((node) => node.killAgent()),
  ]);
  assert.equal(cluster.census.alive().length, COUNT, "engines need nobody");
  await startAll();
  await cluster.untilNodes("all nodes", (nodes) => nodes.every(({ state }) => state === "ready"));
  const replicas = await cluster.untilSettled(COUNT);
  assert.deepEqual(replicas.map(({ id }) => id).toSorted(), ids);
  assert.equal(cluster.census.runs.length, before);
  await checkOneLeader(cluster);
});

test("the power of the whole site fails: afterwards each replica runs once more, and none is started twice [80.A4 80.I4 80.P6]", async () => {
  const before = cluster.census.runs.length;
  await Promise.all([
    ...cluster.controls.map((control) => control.kill()),
    ...cluster.nodes.map((node) => node.killTree()),
  ]);
  await eventually(
    "the end of all engines",
    () => cluster.census.alive(),
    (alive) => alive.length === 0,
  );
  await startAll();
  await cluster.untilSettled(COUNT);
  // Whoever would do more than was needed does it in the passes that follow a change.
  await cluster.apply(catalogOf(COUNT - 1));
  await cluster.untilSettled(COUNT - 1);
  assert.equal(cluster.census.runs.length, before + COUNT, "as many starts as replicas");
  assert.deepEqual(cluster.census.startedTwice(), []);
  await checkOneLeader(cluster);
});
