import assert from "node:assert/strict";
import { after, before, test, type TestContext } from "node:test";
import { type MonoMs, systemClock } from "../../src/kernel/clock.ts";
import { seededRandom, type Random } from "../../src/kernel/random.ts";
import { rounds } from "../../src/testing/rounds.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { catalogOf, ClusterProcesses, MODEL, PATIENCE_MS } from "./support/cluster-processes.ts";
import { untilBusy } from "./support/engine-ledger.ts";
import { checkOneLeader } from "./support/one-leader.ts";
import { StrangerFiles } from "./support/stranger-files.ts";
import { type ClientRecord, StreamingClients, toldOfError } from "./support/streaming-clients.ts";

// Nodes, control planes and gateways are killed in turn while clients stream without pause. What broke is told by the clients' own
// records and by the process table; nobody's figures are asked.

const COUNT = 3;
const CLIENTS = 4;
/** A little more than a second. */
const TOKENS = 60;
/** From a kill to the end of the last call that can have met it. */
const FELT_MS = 15_000;

let cluster: ClusterProcesses;
let strangers: StrangerFiles;
before(async () => {
  cluster = await ClusterProcesses.start({ controls: 2, nodes: 3, gateways: 2 });
  await cluster.apply(catalogOf(COUNT));
  await cluster.untilSettled(COUNT);
  await cluster.untilRouted();
  strangers = await StrangerFiles.lay(cluster.folder);
});
after(() => cluster[Symbol.asyncDispose]());

interface Kill {
  readonly what: "node" | "leader" | "gateway";
  /** Before the first process was sent its signal. */
  readonly from: MonoMs;
  /** After the last one had ended: calls can begin on what is being killed. */
  readonly until: MonoMs;
  /** Engines that ran there. */
  readonly engines: number;
  /** What may end badly: names of endpoints, or of a gateway. */
  readonly hurts: ReadonlySet<string>;
}

const pick = <T>(random: Random, items: readonly T[]): T => items[Math.floor(random.next() * items.length)]!;

function shuffled<T>(random: Random, items: readonly T[]): T[] {
  const left = [...items];
  return items.map(() => left.splice(Math.floor(random.next() * left.length), 1)[0]!);
}

/** One that runs an engine. Healed when the engine runs elsewhere; the node comes back after that. */
async function killNode(random: Random): Promise<{ readonly kill: Kill; readonly heal: () => Promise<void> }> {
  const used = cluster.nodes.filter(({ name }) => cluster.census.alive(name).length > 0);
  const node = pick(random, used);
  const ports = cluster.census.alive(node.name).map(({ port }) => port);
  const hurts = new Set<string>();
  for (const gateway of cluster.gateways)
    for (const { url, public_id: id } of (await gateway.upstream(MODEL))?.endpoints ?? [])
      if (ports.includes(Number(new URL(url).port))) hurts.add(id);
  const others = cluster.nodes.map(({ name }) => name).filter((name) => name !== node.name);
  await untilBusy(ports[0] ?? 0);
  const from = systemClock.mono();
  await node.killTree();
  const until = systemClock.mono();
  const heal = async (): Promise<void> => {
    const replicas = await cluster.untilSettled(COUNT, others);
    assert.ok(!replicas.some(({ nodes }) => nodes.includes(node.name)), "none is left on the dead node");
    assert.deepEqual(cluster.census.alive(node.name), []);
    await node.start();
  };
  return { kill: { what: "node", from, until, engines: ports.length, hurts }, heal };
}

async function killLeader(): Promise<{ readonly kill: Kill; readonly heal: () => Promise<void> }> {
  const leader = await cluster.leading();
  const standby = cluster.standby(leader);
  const { epoch } = (await leader.leader())!;
  const from = systemClock.mono();
  await leader.kill();
  const until = systemClock.mono();
  const heal = async (): Promise<void> => {
    const view = await eventually(
      "the next leader",
      () => standby.leader(),
      (next) => next?.role === "leading",
      PATIENCE_MS,
    );
    assert.ok((view?.epoch ?? 0) > (epoch ?? 0));
    await leader.start();
  };
  return { kill: { what: "leader", from, until, engines: 0, hurts: new Set() }, heal };
}

async function killGateway(random: Random): Promise<{ readonly kill: Kill; readonly heal: () => Promise<void> }> {
  const gateway = pick(random, cluster.gateways);
  const from = systemClock.mono();
  await gateway.kill();
  const until = systemClock.mono();
  return {
    kill: { what: "gateway", from, until, engines: 0, hurts: new Set([gateway.name]) },
    heal: () => gateway.start(),
  };
}

const lost = (kills: readonly Kill[]): number => kills.reduce((sum, { engines }) => sum + engines, 0);

const isExcused = (record: ClientRecord, kills: readonly Kill[]): boolean =>
  kills.some(({ what, from, until, hurts }) => {
    if (record.startedAt > until || record.endedAt < from || record.endedAt > until + FELT_MS) return false;
    if (what === "gateway") return hurts.has(record.gateway);
    return hurts.has(record.endpoint ?? "") && toldOfError(record);
  });

/** All is as the catalog says again, and what ended badly is excused by a kill. */
async function checkHealed(clients: StreamingClients, kills: readonly Kill[], t: TestContext): Promise<void> {
  await cluster.untilNodes("all nodes", (nodes) => nodes.every(({ state }) => state === "ready"));
  await cluster.untilSettled(COUNT);
  await cluster.untilRouted();
  await clients.more(2 * CLIENTS);
  await clients.stop();
  const bad = clients.records.filter(({ outcome }) => outcome !== "whole");
  t.diagnostic(`${clients.records.length} calls, ${bad.length} cut`);
  assert.deepEqual(
    bad.filter((record) => record.outcome === "failed" || !isExcused(record, kills)),
    [],
    "no call failed, and no stream ended but those on what was killed",
  );
  assert.ok(bad.some(toldOfError), "a stream was on the node that was killed");
  assert.deepEqual(cluster.census.startedTwice(), []);
  await checkOneLeader(cluster);
}

const streaming = (): StreamingClients =>
  new StreamingClients(cluster.gateways, { clients: CLIENTS, model: MODEL, tokens: TOKENS });

for (let seed = 1; seed <= rounds(3, 40); seed += 1) {
  test(`a node, the leading control plane and a gateway killed in turn under streams: no call that had not begun fails, only streams of what was killed end, with an error event, and all is rebuilt, seed ${seed} [40.E1 80.I4 80.I8]`, async (t) => {
    const random = seededRandom(seed);
    const runs = cluster.census.runs.length;
    const kills: Kill[] = [];
    const clients = streaming();
    for (const what of shuffled(random, ["node", "leader", "gateway"] as const)) {
      await clients.more(CLIENTS + Math.floor(random.next() * 2 * CLIENTS));
      if (what === "leader") await cluster.untilHeardByAll();
      const { kill, heal } =
        what === "node" ? await killNode(random) : what === "leader" ? await killLeader() : await killGateway(random);
      kills.push(kill);
      await heal();
    }
    await checkHealed(clients, kills, t);
    assert.equal(cluster.census.runs.length, runs + lost(kills), "for each engine that was lost one was started");
  });
}

test("a node, the leading control plane and a gateway killed in one moment: nobody is left to lead, and still no call fails that had not begun [40.E1 80.I4 80.I8]", async (t) => {
  const random = seededRandom(1);
  const runs = cluster.census.runs.length;
  await cluster.untilHeardByAll();
  const clients = streaming();
  await clients.more(CLIENTS);
  const killed = [await killNode(random), await killLeader(), await killGateway(random)];
  const kills = killed.map(({ kill }) => kill);
  for (const { heal } of killed.toReversed()) await heal();
  await checkHealed(clients, kills, t);
  assert.equal(cluster.census.runs.length, runs + lost(kills));
});

test("whatever was killed and rebuilt, files that somebody else laid into the folders of nodes, control planes and gateways are as they were [80.I6]", async () => {
  assert.ok(strangers.count > 4 * cluster.nodes.length, `${strangers.count} files`);
  assert.deepEqual(await strangers.changed(), []);
});
