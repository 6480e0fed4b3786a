// B12: what a reconcile pass costs over 1 000 nodes of 8 GPUs with 2 000 models and 5 000 replicas: `node bench/reconcile-pass.ts
// [--rounds N] [--scale F] [--write]`. Processor time, in one process, medians of the rounds. --scale multiplies everything (B14: what
// ten times as much costs), --write puts the result into docs/benchmarks.md.
import { parseArgs } from "node:util";
import type { Catalog, Model, Profile } from "../src/contract/catalog.ts";
import type { GpuReport, NodeDoc, NodeReport, ReplicaDoc, ShardReport } from "../src/contract/fleet.ts";
import { type FleetStatus, NodeWatch, WATCH_DEFAULTS } from "../src/decide/fleet/node-watch.ts";
import { planPass } from "../src/decide/reconcile/plan-pass.ts";
import {
  NO_MEMORY,
  NO_USE,
  PASS_DEFAULTS,
  type PassPlan,
  type PassSnapshot,
} from "../src/decide/reconcile/snapshot.ts";
import { asEpoch, asMono } from "../src/kernel/clock.ts";
import { machine, showTable } from "./page-table.ts";

const { values } = parseArgs({
  options: {
    rounds: { type: "string", default: "15" },
    scale: { type: "string", default: "1" },
    write: { type: "boolean", default: false },
  },
});
const ROUNDS = Number(values.rounds);
const LEAD = { clusterId: "bench", epoch: 1, holder: "bench" };
const CARDS = 8;
const CARD_MIB = 140_000;
const REPLICA_MIB = 60_000;

interface Size {
  readonly nodes: number;
  readonly models: number;
  readonly replicas: number;
}
const sizeOf = (scale: number): Size => ({
  nodes: Math.round(1_000 * scale),
  models: Math.round(2_000 * scale),
  replicas: Math.round(5_000 * scale),
});

const profileOf = (name: string): Profile => ({
  hash: `hash-of-${name}`,
  engine: "vllm",
  source: `file:///weights/${name}`,
  sha256: null,
  weightsName: `w-${name}`,
  gpu: { classes: ["h200"], count: 1, memoryMib: REPLICA_MIB },
  cpu: null,
  diskMib: 1_000,
  args: {},
  env: {},
  command: null,
});
const modelOf = (at: number, count: number): Model => ({
  name: `model-${at}`,
  aliases: [],
  priority: at % 100,
  replicas: { min: count, max: count },
  idleStopMs: null,
  slotsPerReplica: 16,
  autoscale: null,
  rollout: "manual",
  profiles: [profileOf(`model-${at}`)],
  nodes: { require: {}, avoid: {}, gpuUuids: [] },
  multiNode: null,
});

function fleet(size: Size): {
  catalog: Catalog;
  nodes: Map<string, NodeDoc>;
  replicas: Map<string, ReplicaDoc>;
  reports: NodeReport[];
} {
  const models = new Map<string, Model>();
  for (let at = 0; at < size.models; at++) {
    const count = Math.floor(size.replicas / size.models) + Number(at < size.replicas % size.models);
    models.set(`model-${at}`, modelOf(at, count));
  }
  const shardsOf = new Map<string, ShardReport[]>();
  const replicas = new Map<string, ReplicaDoc>();
  let next = 0;
  for (const model of models.values()) {
    for (let copy = 0; copy < model.replicas.min; copy++) {
      const id = `replica-${next}`;
      const nodeId = `node-${next % size.nodes}`;
      const uuid = `${nodeId}/${Math.floor(next / size.nodes) % CARDS}`;
      next += 1;
      const profile = model.profiles[0]!;
      replicas.set(id, {
        id,
        model: model.name,
        profileHash: profile.hash,
        profile,
        generation: 1,
        shards: [{ nodeId, gpuUuids: [uuid], memoryMib: REPLICA_MIB, rendezvousPort: null }],
        desired: "run",
        state: "ready",
        createdAt: "2026-01-01T00:00:00.000Z",
        readyAt: "2026-01-01T00:00:00.000Z",
        reason: null,
        failure: null,
        catalogRevision: 1,
        attempt: 0,
        port: 18_000,
        engineKey: `key-${id}`,
      });
      const shard: ShardReport = {
        replicaId: id,
        generation: 1,
        shard: 0,
        model: model.name,
        profileHash: profile.hash,
        state: "ready",
        since: 60_000,
        port: 18_000,
        pid: 1,
        gpuUuids: [uuid],
        gpuUsedMib: { [uuid]: REPLICA_MIB },
        hostUsedMib: null,
        fetch: null,
        failure: null,
        blockedBy: null,
        adopted: false,
      };
      shardsOf.set(nodeId, [...(shardsOf.get(nodeId) ?? []), shard]);
    }
  }
  const reports: NodeReport[] = [];
  const nodes = new Map<string, NodeDoc>();
  for (let at = 0; at < size.nodes; at++) {
    const id = `node-${at}`;
    const shards = shardsOf.get(id) ?? [];
    const gpus = Array.from({ length: CARDS }, (_, index): GpuReport => {
      const uuid = `${id}/${index}`;
      const used = REPLICA_MIB * shards.filter((shard) => shard.gpuUuids.includes(uuid)).length;
      return {
        uuid,
        index,
        name: "H200",
        class: "h200",
        memoryMib: CARD_MIB,
        usedMib: used,
        foreignMib: 0,
        utilization: 0,
        temperatureC: 40,
        health: "ok",
        healthWhy: null,
      };
    });
    const report: NodeReport = {
      nodeId: id,
      name: id,
      bootId: "boot",
      agentVersion: "0.1.0",
      address: id,
      labels: {},
      fabric: null,
      cores: 64,
      memoryMib: 1_000_000,
      memoryFreeMib: 1_000_000,
      diskFreeMib: 1_000_000,
      weights: [],
      leftovers: [],
      engines: ["vllm"],
      commands: [],
      gpus,
      gpuDiscovery: "nvidia-smi",
      gpuDiscoveryWhy: null,
      shards,
      highestEpoch: LEAD,
      highestCommit: 0,
      proofs: { epoch: "", commit: "" },
    };
    reports.push(report);
    nodes.set(id, {
      id,
      name: id,
      cordoned: false,
      bootId: "boot",
      labels: {},
      lastReport: { ...report, shards: [], weights: [], leftovers: [] },
      enrolledAt: "2026-01-01T00:00:00.000Z",
    });
  }
  return { catalog: { revision: 1, models }, nodes, replicas, reports };
}

let minted = 0;
const mint = { replicaId: () => `new-${minted++}`, engineKey: (id: string) => `key-${id}` };
const median = (numbers: readonly number[]): number =>
  numbers.toSorted((a, b) => a - b)[numbers.length >> 1] ?? Number.NaN;

/** Milliseconds of processor time of one pass, hearing every node and judging the fleet included. */
function measure(world: ReturnType<typeof fleet>, missing: number): number {
  const replicas = new Map(world.replicas);
  let taken = 0;
  for (const id of replicas.keys()) {
    if (taken++ >= missing) break;
    replicas.delete(id);
  }
  const gone = new Set([...world.replicas.keys()].filter((id) => !replicas.has(id)));
  const reports = world.reports.map((report) => ({
    ...report,
    shards: report.shards.filter(({ replicaId }) => !gone.has(replicaId)),
  }));
  const watch = new NodeWatch(WATCH_DEFAULTS, LEAD, asMono(0));
  const memories = new Map();
  let memory = NO_MEMORY;
  const pass = (at: number): { status: FleetStatus; plan: PassPlan; ms: number } => {
    const before = process.cpuUsage();
    for (const report of reports) watch.heard(report, asMono(at));
    const status = watch.judge(world.nodes.values(), asMono(at));
    const snapshot: PassSnapshot = {
      catalog: world.catalog,
      docs: { nodes: world.nodes, replicas, models: new Map(), memories },
      fleet: status,
      demanded: new Set(),
      idle: new Set(),
      use: NO_USE,
      restored: false,
      settings: PASS_DEFAULTS,
    };
    const plan = planPass(snapshot, memory, { mono: asMono(at), wall: asEpoch(at) }, mint);
    const used = process.cpuUsage(before);
    return { status, plan, ms: (used.user + used.system) / 1_000 };
  };
  const first = pass(1_000);
  for (const write of first.plan.writes)
    if (write.kind === "memory" && write.doc !== null) memories.set(write.id, write.doc);
  if (missing > 0) {
    const placed = first.plan.writes.filter(({ kind }) => kind === "replica").length;
    if (placed !== missing) throw new Error(`${placed} of ${missing} were placed`);
    return first.ms;
  }
  memory = first.plan.memory;
  const second = pass(3_000);
  if (second.plan.writes.length + second.plan.commands.length > 0) throw new Error("the cluster is not unchanged");
  return second.ms;
}

function figures(scale: number): { unchanged: number; placing: number } {
  const rounds = scale > 1 ? Math.ceil(ROUNDS / 3) : ROUNDS;
  const world = fleet(sizeOf(scale));
  const missing = Math.round(500 * scale);
  const unchanged: number[] = [];
  const placing: number[] = [];
  for (let round = -3; round < rounds; round++) {
    const [a, b] = [measure(world, 0), measure(world, missing)];
    if (round < 0) continue;
    unchanged.push(a);
    placing.push(b);
  }
  return { unchanged: median(unchanged), placing: median(placing) };
}

const { unchanged, placing } = figures(Number(values.scale));
const grown = figures(10 * Number(values.scale)).unchanged / (10 * unchanged);
const grade = (ms: number, first: number, goal: number): string =>
  ms <= goal ? "goal" : ms <= first ? "first stage" : "**missed**";
showTable(
  "reconcile",
  [
    `Machine: ${machine()}; medians of ${ROUNDS} rounds, one process, every node heard in each pass.`,
    "",
    "| bar | what | CPU ms, or ratio | first stage | goal | |",
    "| --- | --- | --- | --- | --- | --- |",
    `| B12 | unchanged cluster | ${unchanged.toFixed(1)} | ≤ 100 | ≤ 10 | ${grade(unchanged, 100, 10)} |`,
    `| B12 | 500 replicas to place | ${placing.toFixed(1)} | ≤ 1 000 | ≤ 150 | ${grade(placing, 1_000, 150)} |`,
    `| B14 | unchanged cluster ten times as large, cost of each node, model and replica / above | ${grown.toFixed(2)} | ≤ 1.3 | ≤ 1.05 | ${grade(grown, 1.3, 1.05)} |`,
  ],
  values.write,
);
