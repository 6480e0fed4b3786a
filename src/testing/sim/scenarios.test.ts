import assert from "node:assert/strict";
import { test } from "node:test";
import type { Model } from "../../contract/catalog.ts";
import { aModel, aProfile, GIB } from "../fleet-builders.ts";
import { SimCluster } from "./sim-cluster.ts";

const model = (name: string, copies: number, count = 1, memoryGib = 60): Model =>
  aModel(name, {
    replicas: { min: copies, max: 8 },
    profiles: [aProfile(`${name}-1`, { gpu: { classes: ["h200"], count, memoryMib: memoryGib * GIB }, diskMib: 1 })],
  });
const MODELS = [model("chat", 3), model("embed", 2)];

function settled(seed: number, models: readonly Model[] = MODELS, controls = 2): SimCluster {
  const cluster = new SimCluster({ seed, models, controls });
  cluster.run(120_000);
  assert.deepEqual(cluster.differences(), [], `seed ${seed}`);
  return cluster;
}
const untouched = (cluster: SimCluster, before: number): void => {
  assert.equal(cluster.ledger.starts.length, before, "nothing was started");
  assert.equal(cluster.ledger.stopsOfReady, 0, "nothing was stopped");
};
/** Runs in small steps until it holds, and tells how long that took in ms; gives up after `ms`. */
function until(cluster: SimCluster, ms: number, holds: () => boolean): number {
  const from = cluster.clock.mono();
  while (!holds()) {
    assert.ok(cluster.clock.mono() - from < ms, `not within ${ms} ms`);
    cluster.run(100);
  }
  return cluster.clock.mono() - from;
}
const SEEDS = Array.from({ length: 20 }, (_, at) => at + 1);

test("a killed or cleanly replaced leader restarts nothing: engines are taken over as they run [40.R2 80.P6]", () => {
  for (const seed of SEEDS) {
    const cluster = settled(seed);
    const before = cluster.ledger.starts.length;
    for (let round = 0; round < 4; round++) {
      const leader = cluster.leader!;
      leader.kill();
      const took = until(cluster, 17_000, () => cluster.leader !== undefined);
      assert.ok(took <= 17_000);
      cluster.run(20_000);
      leader.restart();
      cluster.run(10_000);
    }
    untouched(cluster, before);
    assert.deepEqual(cluster.differences(), []);
  }
});

test("a leader that froze with a placement on its way executes nothing of it when it wakes, and stands down [80.P5]", () => {
  let refused = 0;
  for (const seed of SEEDS) {
    const cluster = settled(seed);
    const leader = cluster.leader!;
    cluster.edit([...MODELS, model("late", 2)]);
    cluster.store.latencyMs = 500;
    cluster.run(2_300);
    leader.freeze();
    cluster.store.latencyMs = 5;
    const other = cluster.controls.find((control) => control !== leader)!;
    until(cluster, 17_000, () => other.isLeading);
    // Most wake while what they were about to say is not yet too old to be carried out: only its epoch is.
    cluster.run(seed % 4 === 0 ? 23_000 : 2_000);
    const refusedBefore = cluster.ledger.refused;
    leader.thaw();
    cluster.run(1_000);
    assert.equal(leader.isLeading, false, `seed ${seed}: it stood down`);
    refused += cluster.ledger.refused - refusedBefore;
    cluster.run(60_000);
    assert.deepEqual(cluster.differences(), [], `seed ${seed}`);
  }
  assert.ok(refused > 0, "it did try; the ledger throws when one of these is carried out");
});

test("30 s of partition, one way or both, from all control planes: nothing is started or stopped [80.A1 80.A2]", () => {
  for (const seed of SEEDS) {
    for (const direction of ["toControl", "toAgent", "both"] as const) {
      const cluster = settled(seed);
      const before = cluster.ledger.starts.length;
      for (const control of cluster.controls.keys()) cluster.partition(control, seed % 5, direction);
      cluster.run(30_000);
      cluster.heal();
      cluster.run(60_000);
      untouched(cluster, before);
      assert.deepEqual(cluster.differences(), []);
    }
  }
});

test("10 minutes of partition: each replica of the node is replaced once, and after the heal the surplus is gone in 30 s and its drain [80.A1 40.N3]", () => {
  for (const seed of SEEDS) {
    const cluster = settled(seed);
    const agent = cluster.agents.findIndex(({ nodeId }) =>
      [...cluster.ledger.running].some((engine) => engine.nodeId === nodeId),
    );
    const there = [...cluster.ledger.running].filter(({ nodeId }) => nodeId === cluster.agents[agent]!.nodeId).length;
    const before = cluster.ledger.starts.length;
    for (const control of cluster.controls.keys()) cluster.partition(control, agent, "both");
    cluster.run(600_000);
    assert.equal(cluster.ledger.starts.length - before, there, "each once");
    assert.equal([...cluster.ledger.running].length, 5 + there, "the node's own engines work on");
    cluster.heal();
    cluster.run(30_000 + cluster.settings.drainGraceMs);
    assert.deepEqual(cluster.differences(), [], `seed ${seed}`);
    assert.equal(cluster.ledger.starts.length - before, there);
  }
});

test("a machine switched off: its replicas run elsewhere within the lost time and a start, none is left on it, and back on it takes nothing needlessly [40.N3 80.A4]", () => {
  for (const seed of SEEDS) {
    const cluster = settled(seed);
    const [engine] = cluster.ledger.running;
    const agent = cluster.agents.find(({ nodeId }) => nodeId === engine!.nodeId)!;
    agent.switchOff();
    cluster.run(60_000 + 30_000);
    const onDead = [...cluster.store.docs.replicas.values()].filter(({ shards }) =>
      shards.some(({ nodeId }) => nodeId === agent.nodeId),
    );
    assert.deepEqual(onDead, []);
    assert.deepEqual(cluster.differences(), [], `seed ${seed}`);
    const before = cluster.ledger.starts.length;
    agent.switchOn();
    cluster.run(60_000);
    untouched(cluster, before);
  }
});

test("most of the fleet behind a cut: nothing moves however long it lasts, and nothing when it heals [40.N3b 80.A14]", () => {
  for (const seed of SEEDS) {
    const cluster = settled(seed);
    const before = cluster.ledger.starts.length;
    for (const control of cluster.controls.keys())
      for (const agent of [0, 1, 2]) cluster.partition(control, agent, "both");
    cluster.run(900_000);
    untouched(cluster, before);
    cluster.heal();
    cluster.run(120_000);
    untouched(cluster, before);
    assert.deepEqual(cluster.differences(), []);
  }
});

test("the store away for 5 minutes, then all control planes restarted at once: nothing is started or stopped [80.P1 80.A17 80.I8]", () => {
  for (const seed of SEEDS) {
    const cluster = settled(seed);
    const before = cluster.ledger.starts.length;
    cluster.store.down = true;
    cluster.run(300_000);
    untouched(cluster, before);
    cluster.store.down = false;
    for (const control of cluster.controls) control.kill();
    cluster.run(5_000);
    for (const control of cluster.controls) control.restart();
    cluster.run(120_000);
    untouched(cluster, before);
    assert.deepEqual(cluster.differences(), []);
  }
});

test("yesterday's backup put back: no engine is stopped before an operator confirms, and then only what is too much [80.P7]", () => {
  for (const seed of SEEDS) {
    const cluster = settled(seed, [model("chat", 1)]);
    const restore = cluster.store.backup();
    const chat = model("chat", 1);
    cluster.edit([chat, model("embed", 2), model("other", 1)]);
    cluster.run(60_000);
    const engines = cluster.ledger.running.size;
    assert.equal(engines, 4);
    for (const control of cluster.controls) control.kill();
    restore();
    cluster.restored = true;
    cluster.edit([chat, model("embed", 1)]);
    for (const control of cluster.controls) control.restart();
    cluster.run(300_000);
    assert.equal(cluster.ledger.stopsOfReady, 0, `seed ${seed}`);
    assert.equal(cluster.ledger.running.size, engines, "all run on, and nothing beside them");
    cluster.restored = false;
    cluster.run(120_000);
    assert.deepEqual(cluster.differences(), [], `seed ${seed}`);
    assert.equal(cluster.ledger.running.size, 2);
  }
});

test("a failover that loses the last commit, with a start just sent: the engine is found and kept, no second one is started [80.P2 80.P3]", () => {
  for (const seed of SEEDS) {
    const cluster = settled(seed);
    cluster.edit([...MODELS, model("late", 1)]);
    until(cluster, 10_000, () => [...cluster.store.docs.replicas.values()].some((doc) => doc.model === "late"));
    cluster.store.loseLastCommit();
    cluster.run(90_000);
    assert.equal(cluster.ledger.starts.filter((engine) => engine.model === "late").length, 1, `seed ${seed}`);
    assert.deepEqual(cluster.differences(), [], `seed ${seed}`);
  }
});

test("a failover that loses a new leader's lease: the number it had is not used by another, and agents follow one holder of each [80.P3]", () => {
  for (const seed of SEEDS) {
    const cluster = settled(seed);
    const first = cluster.leader!;
    const second = cluster.controls.find((control) => control !== first)!;
    first.kill();
    until(cluster, 17_000, () => cluster.leader === second);
    const { epoch } = cluster.store.lease!;
    cluster.run(2_500);
    second.kill();
    cluster.store.loseLastCommit();
    assert.ok(cluster.store.lease!.epoch < epoch);
    first.restart();
    cluster.edit([...MODELS, model("late", 1)]);
    cluster.run(90_000);
    assert.ok(cluster.store.lease!.epoch > epoch, `seed ${seed}`);
    assert.deepEqual(cluster.differences(), [], `seed ${seed}`);
  }
});

test("a model that always crashes: at most 15 starts in the fleet and 5 on a node, then none, and other models feel nothing [80.A11]", () => {
  for (const seed of SEEDS) {
    const cluster = settled(seed);
    const before = cluster.ledger.starts.length;
    cluster.faults.startFails = 1;
    cluster.edit([...MODELS, model("poison", 6, 1, 10)]);
    cluster.run(3_600_000);
    const starts = cluster.ledger.starts.slice(before);
    assert.ok(
      starts.every((engine) => engine.model === "poison") && starts.length <= 15,
      `seed ${seed}: ${starts.length} starts`,
    );
    for (const { nodeId } of cluster.agents) assert.ok(starts.filter((engine) => engine.nodeId === nodeId).length <= 5);
    assert.notEqual(cluster.store.docs.models.get("poison")?.parked ?? null, null);
    assert.equal(cluster.ledger.stopsOfReady, 0);
  }
});

test("the same seed gives the same run, to the last step", () => {
  const run = (): unknown => {
    const cluster = settled(3);
    cluster.agents[0]!.switchOff();
    cluster.run(200_000);
    return [cluster.clock.steps, cluster.ledger.commands, cluster.ledger.starts, [...cluster.store.docs.replicas]];
  };
  assert.deepEqual(run(), run());
});
