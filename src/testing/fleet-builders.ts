import type { Catalog, Model, Profile } from "../contract/catalog.ts";
import type {
  GpuReport,
  ModelDoc,
  NodeDoc,
  NodeReport,
  ReplicaDoc,
  ShardFailure,
  ShardReport,
} from "../contract/fleet.ts";

export const GIB = 1_024;

export const aGpu = (uuid: string, part: Partial<GpuReport> = {}): GpuReport => ({
  uuid,
  index: 0,
  name: "H200",
  class: "h200",
  memoryMib: 140 * GIB,
  usedMib: 0,
  foreignMib: 0,
  utilization: 0,
  temperatureC: 40,
  health: "ok",
  healthWhy: null,
  ...part,
});

/** `count` free cards of one class, `node/0` and so on. */
export const someGpus = (node: string, count: number, part: Partial<GpuReport> = {}): GpuReport[] =>
  Array.from({ length: count }, (_, index) => aGpu(`${node}/${index}`, { index, ...part }));

export const aNodeReport = (nodeId: string, part: Partial<NodeReport> = {}): NodeReport => ({
  nodeId,
  name: nodeId,
  bootId: "boot-1",
  agentVersion: "0.1.0",
  address: `${nodeId}.test`,
  labels: {},
  fabric: null,
  cores: 64,
  memoryMib: 512 * GIB,
  memoryFreeMib: 512 * GIB,
  diskFreeMib: 4_096 * GIB,
  weights: [],
  leftovers: [],
  engines: ["vllm", "sglang", "llama.cpp", "tei", "comfyui", "command", "sim"],
  commands: [],
  gpus: someGpus(nodeId, 8),
  gpuDiscovery: "nvidia-smi",
  gpuDiscoveryWhy: null,
  shards: [],
  highestEpoch: null,
  highestCommit: 0,
  proofs: { epoch: "", commit: "" },
  ...part,
});

export const aNodeDoc = (id: string, part: Partial<NodeDoc> = {}): NodeDoc => ({
  id,
  name: id,
  cordoned: false,
  bootId: "boot-1",
  labels: {},
  lastReport: null,
  enrolledAt: "2026-01-01T00:00:00.000Z",
  ...part,
});

export const aProfile = (hash: string, part: Partial<Profile> = {}): Profile => ({
  hash,
  engine: "vllm",
  source: `file:///weights/${hash}`,
  sha256: null,
  weightsName: `w-${hash}`,
  gpu: { classes: ["h200"], count: 1, memoryMib: 70 * GIB },
  cpu: null,
  diskMib: 75 * GIB,
  args: {},
  env: {},
  command: null,
  ...part,
});

export const aModel = (name: string, part: Partial<Model> = {}): Model => ({
  name,
  aliases: [],
  priority: 50,
  replicas: { min: 1, max: 4 },
  idleStopMs: null,
  autoscale: null,
  slotsPerReplica: 16,
  rollout: "manual",
  profiles: [aProfile(`${name}-1`)],
  nodes: { require: {}, avoid: {}, gpuUuids: [] },
  multiNode: null,
  ...part,
});

export const aModelDoc = (name: string, part: Partial<ModelDoc> = {}): ModelDoc => ({
  name,
  failuresInRow: 0,
  backoffMs: null,
  failedOn: {},
  profileHashes: [],
  lastFailure: null,
  parked: null,
  demandedAt: null,
  ...part,
});

export const aCatalog = (models: readonly Model[], revision = 1): Catalog => ({
  revision,
  models: new Map(models.map((model) => [model.name, model])),
});

export const aReplicaDoc = (id: string, model: Model, nodeId: string, part: Partial<ReplicaDoc> = {}): ReplicaDoc => {
  const profile = model.profiles[0] ?? aProfile("none");
  return {
    id,
    model: model.name,
    profileHash: profile.hash,
    profile,
    generation: 1,
    shards: [
      {
        nodeId,
        gpuUuids: Array.from({ length: profile.gpu?.count ?? 0 }, (_, index) => `${nodeId}/${index}`),
        memoryMib: profile.gpu?.memoryMib ?? 0,
        rendezvousPort: null,
      },
    ],
    desired: "run",
    state: "ready",
    createdAt: "2026-01-01T00:00:00.000Z",
    readyAt: "2026-01-01T00:01:00.000Z",
    reason: null,
    failure: null,
    catalogRevision: 1,
    attempt: 0,
    port: 18_000,
    engineKey: `key-of-${id}`,
    ...part,
  };
};

/** What the agent reports of a replica's shard. */
export const aShard = (replica: ReplicaDoc, part: Partial<ShardReport> = {}): ShardReport => ({
  replicaId: replica.id,
  generation: replica.generation,
  shard: 0,
  model: replica.model,
  profileHash: replica.profileHash,
  state: "ready",
  since: 60_000,
  port: 18_000,
  pid: 4_242,
  gpuUuids: replica.shards[0]?.gpuUuids ?? [],
  gpuUsedMib: null,
  hostUsedMib: null,
  fetch: null,
  failure: null,
  blockedBy: null,
  adopted: false,
  ...part,
});

export const aFailure = (part: Partial<ShardFailure> = {}): ShardFailure => ({
  kind: "exit",
  message: "ended with code 1",
  signal: null,
  exitCode: 1,
  lastLines: ["Traceback", "RuntimeError: no"],
  ...part,
});
