import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { systemClock } from "../../src/kernel/clock.ts";
import { rounds } from "../../src/testing/rounds.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { catalogOf, ClusterProcesses, LEASE_MS, PATIENCE_MS } from "./support/cluster-processes.ts";
import { checkOneLeader } from "./support/one-leader.ts";

// Processes that stand still and come back: they know nothing of the time that has passed.

const COUNT = 2;
const never = new AbortController().signal;
let cluster: ClusterProcesses;
before(async () => {
  cluster = await ClusterProcesses.start({ controls: 2, nodes: 3 });
  await cluster.apply(catalogOf(COUNT));
  await cluster.untilSettled(COUNT);
});
after(() => cluster[Symbol.asyncDispose]());

/** Whether the engine itself answers, whoever else can be reached. */
async function serves(port: number): Promise<boolean> {
  return (await fetch(`http://127.0.0.1:${port}/health`)).ok;
}

test("a leader that freezes with a placement on its way, for longer than its lease, does nothing of it when it wakes [40.L2 80.P5 80.A7 80.I4]", async () => {
  let starts = cluster.census.runs.length;
  for (let round = 0; round < rounds(2, 50); round += 1) {
    starts += round % 2 === 0 ? 1 : 0;
    const wanted = round % 2 === 0 ? COUNT + 1 : COUNT;
    const leader = await cluster.leading();
    const standby = cluster.standby(leader);
    const { epoch } = (await leader.leader())!;
    const applied = cluster.apply(catalogOf(wanted));
    // Somewhere between the change of the catalog and the command that follows from it.
    await systemClock.sleep(15 + 15 * (round % 4), never);
    leader.signal("SIGSTOP");
    const frozenAt = systemClock.mono();
    await eventually(
      "the takeover",
      () => standby.leads(),
      (leads) => leads,
      PATIENCE_MS,
    );
    const tookMs = systemClock.mono() - frozenAt;
    assert.ok(tookMs < LEASE_MS + 8_000, `the next one led after ${Math.round(tookMs)} ms`);
    await applied;
    await cluster.apply(catalogOf(wanted));
    await cluster.untilSettled(wanted);
    leader.signal("SIGCONT");
    const wokenAt = systemClock.mono();
    await eventually(
      "the old one standing down",
      async () => (await leader.leader())?.role,
      (role) => role === "standby",
      PATIENCE_MS,
    );
    assert.ok(systemClock.mono() - wokenAt < 4_000, "it stood down at once");
    assert.ok(((await standby.leader())?.epoch ?? 0) > (epoch ?? 0));
    await cluster.untilSettled(wanted);
    assert.equal(cluster.census.runs.length, starts, "one start for what was wanted, and none besides");
  }
  assert.deepEqual(cluster.census.startedTwice(), []);
  await checkOneLeader(cluster);
});

test("a node whose agent freezes is unreachable, then lost and replaced, while its engine serves on; awake again it gives up what was replaced [80.A1 80.I4 40.N3]", async () => {
  await cluster.apply(catalogOf(COUNT));
  const replica = (await cluster.untilSettled(COUNT)).find(({ state }) => state === "ready");
  const node = cluster.node(replica?.nodes[0] ?? "");
  const others = cluster.nodes.map(({ name }) => name).filter((name) => name !== node.name);
  const [engine] = cluster.census.alive(node.name);
  node.signal("SIGSTOP");
  await cluster.untilNode(node.name, "unreachable");
  assert.ok(
    (await cluster.replicas()).some(({ id, state }) => id === replica?.id && state === "ready"),
    "silence alone takes no replica away",
  );
  assert.ok(await serves(engine?.port ?? 0));
  await cluster.untilNode(node.name, "lost");
  await cluster.untilSettled(COUNT, others);
  assert.ok(await serves(engine?.port ?? 0), "nobody could have stopped it");
  node.signal("SIGCONT");
  await cluster.untilNode(node.name, "ready");
  await cluster.untilSettled(COUNT);
  assert.deepEqual(cluster.census.alive(node.name), [], "what was replaced is stopped");
  assert.deepEqual(cluster.census.startedTwice(), []);
  await checkOneLeader(cluster);
});

test("what a lost node still runs is adopted as it is when it comes back and is wanted [40.N3 80.I4]", async () => {
  await cluster.apply(catalogOf(COUNT));
  const replica = (await cluster.untilSettled(COUNT)).find(({ state }) => state === "ready");
  const node = cluster.node(replica?.nodes[0] ?? "");
  const others = cluster.nodes.map(({ name }) => name).filter((name) => name !== node.name);
  const [engine] = cluster.census.alive(node.name);
  const runs = cluster.census.runs.length;
  // Nothing can be rebuilt elsewhere.
  for (const name of others) await cluster.tell("POST", `/v1/nodes/${name}/cordon`);
  node.signal("SIGSTOP");
  await cluster.untilNode(node.name, "lost");
  await eventually(
    "the replica given up",
    () => cluster.replicas(),
    (replicas) => !replicas.some(({ id }) => id === replica?.id),
    PATIENCE_MS,
  );
  node.signal("SIGCONT");
  const replicas = await cluster.untilSettled(COUNT);
  for (const name of others) await cluster.tell("POST", `/v1/nodes/${name}/uncordon`);
  assert.ok(replicas.some(({ id, nodes }) => id === replica?.id && nodes[0] === node.name));
  assert.deepEqual(
    cluster.census.alive(node.name).map(({ pid }) => pid),
    [engine?.pid],
  );
  assert.equal(cluster.census.runs.length, runs, "nothing was started");
  await checkOneLeader(cluster);
});
