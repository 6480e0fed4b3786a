import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { catalogOf, ClusterProcesses, MODEL } from "./support/cluster-processes.ts";
import { untilBusy } from "./support/engine-ledger.ts";
import { checkOneLeader } from "./support/one-leader.ts";
import { StreamingClients, toldOfError } from "./support/streaming-clients.ts";

// A whole machine stands still, as a virtual one does that is suspended: its sockets stay open, and nobody there answers.

const COUNT = 3;
/** Between two tokens an engine takes 20 ms, and a busy machine now and then a second. */
const STALL_S = 5;
const IDLE_S = 8;
let cluster: ClusterProcesses;
before(async () => {
  cluster = await ClusterProcesses.start({
    controls: 1,
    nodes: 3,
    gateways: 1,
    upstream: { timeouts: { stall_s: STALL_S, idle_s: IDLE_S } },
  });
  await cluster.apply(catalogOf(COUNT));
  await cluster.untilSettled(COUNT);
  await cluster.untilRouted();
});
after(() => cluster[Symbol.asyncDispose]());

test("a node that is suspended with its engine is lost and replaced: calls that its engine had not begun to answer end well elsewhere; resumed, it does nothing that is old [80.A7 40.E1 80.I4]", async (t) => {
  const [replica] = await cluster.replicas();
  const node = cluster.node(replica?.nodes[0] ?? "");
  const others = cluster.nodes.map(({ name }) => name).filter((name) => name !== node.name);
  const engines = cluster.census.alive(node.name);
  const clients = new StreamingClients(cluster.gateways, { clients: 6, model: MODEL, tokens: 150 });
  await clients.more(12);
  await untilBusy(engines[0]?.port ?? 0);
  node.signal("SIGSTOP");
  for (const { pid } of engines) process.kill(pid, "SIGSTOP");
  try {
    await cluster.untilNode(node.name, "lost");
    await cluster.untilSettled(COUNT, others);
    await clients.more(12);
    await clients.stop();
  } finally {
    for (const { pid } of engines) process.kill(pid, "SIGCONT");
    node.signal("SIGCONT");
  }
  await cluster.untilNode(node.name, "ready");
  await cluster.untilSettled(COUNT);
  const bad = clients.records.filter(({ outcome }) => outcome !== "whole");
  const slowest = Math.max(...clients.records.map(({ startedAt, endedAt }) => endedAt - startedAt));
  t.diagnostic(`${clients.records.length} calls, ${bad.length} cut, slowest ${Math.round(slowest)} ms`);
  assert.ok(bad.length > 0, "an answer had begun on the node");
  assert.deepEqual(
    bad.filter((record) => record.outcome !== "cut" || !toldOfError(record)),
    [],
  );
  assert.deepEqual(cluster.census.startedTwice(), []);
  await checkOneLeader(cluster);
});
