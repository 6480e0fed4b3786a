import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { systemClock } from "../../src/kernel/clock.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { catalogOf, ClusterProcesses, MODEL, PATIENCE_MS } from "./support/cluster-processes.ts";
import { readCounts } from "./support/engine-ledger.ts";
import { linesOf } from "./support/node-process.ts";
import { inOwnNetwork } from "./support/own-network.ts";
import { StreamingClients } from "./support/streaming-clients.ts";

// Cuts between nodes and the control plane, one direction at a time, while gateways reach everything. Nobody is told of a cut: packets
// are lost, connections stay.

const COUNT = 2;
/** An agent asks every 10 s whether it is heard, and waits 30 s for an answer; what a busy machine adds. */
const DEAD_MS_MAX = 35_000 + 3_000;

let cluster: ClusterProcesses;

/** A node with an engine, and the calls that its engine has finished. */
async function usedNode() {
  const [replica] = await cluster.untilSettled(COUNT);
  const node = cluster.node(replica?.nodes[0] ?? "");
  const [engine] = cluster.census.alive(node.name);
  const finished = async (): Promise<number> => (await readCounts(engine?.port ?? 0)).finished;
  return { node, finished, replica };
}

async function servedThroughout(run: () => Promise<void>): Promise<void> {
  const clients = new StreamingClients(cluster.gateways, { clients: 4, model: MODEL, tokens: 10 });
  try {
    await clients.more(8);
    await run();
    await clients.more(8);
  } finally {
    // Clients that go on would hold this file up for ever, and hide why.
    await clients.stop();
  }
  assert.deepEqual(
    clients.records.filter(({ outcome }) => outcome !== "whole"),
    [],
  );
}

inOwnNetwork(import.meta.filename, () => {
  before(async () => {
    cluster = await ClusterProcesses.start({
      controls: 1,
      nodes: 3,
      gateways: 1,
      cuttable: true,
      control: { lost_after_s: 120 },
    });
    await cluster.apply(catalogOf(COUNT));
    await cluster.untilSettled(COUNT);
    await cluster.untilRouted();
  });
  after(() => cluster[Symbol.asyncDispose]());

  test("a node that is not heard and hears, or neither, is unreachable to the control plane and goes on serving: its endpoints stay, and nothing is started or stopped [40.N3 80.A1 80.I8]", async () => {
    const runs = cluster.census.runs.length;
    for (const both of [false, true]) {
      const { node, finished, replica } = await usedNode();
      await servedThroughout(async () => {
        using _upstream = node.cut("upstream");
        using _downstream = both ? node.cut("downstream") : undefined;
        await cluster.untilNode(node.name, "unreachable");
        const before = await finished();
        await eventually(
          "more calls on the node's engine",
          () => finished(),
          (now) => now >= before + 4,
          PATIENCE_MS,
        );
        await cluster.untilRouted();
      });
      await cluster.untilNode(node.name, "ready");
      assert.ok((await cluster.untilSettled(COUNT)).some(({ id }) => id === replica?.id));
    }
    assert.equal(cluster.census.runs.length, runs);
  });

  test("a node that is heard and hears nothing finds its link dead within 35 s; the start that it was sent meanwhile is carried out once, when it is back [80.A2 80.I4]", async () => {
    const { node } = await usedNode();
    const starts = (): number => node.obeyed.filter(({ verb }) => verb === "start").length;
    const before = starts();
    for (const { name } of cluster.nodes)
      if (name !== node.name) await cluster.tell("POST", `/v1/nodes/${name}/cordon`);
    const cut = node.cut("downstream");
    const cutAt = systemClock.mono();
    // Only this node may have it, which the control plane hears and can't reach.
    await cluster.apply(catalogOf(COUNT + 1));
    await eventually(
      "the placement",
      () => cluster.replicas(),
      (replicas) => replicas.some(({ state, nodes }) => state === "placing" && nodes.includes(node.name)),
      PATIENCE_MS,
    );
    await eventually(
      "the agent to find its link dead",
      () => linesOf<{ why: string }>(node.log, "link.down"),
      (lines) => lines.some(({ why }) => why.startsWith("no answer")),
      PATIENCE_MS,
    );
    const tookMs = systemClock.mono() - cutAt;
    assert.ok(tookMs < DEAD_MS_MAX, `${Math.round(tookMs)} ms`);
    assert.equal(starts(), before, "nothing got through");
    cut[Symbol.dispose]();
    await cluster.untilSettled(COUNT + 1);
    assert.equal(starts(), before + 1);
    assert.deepEqual(cluster.census.startedTwice(), []);
  });
});
