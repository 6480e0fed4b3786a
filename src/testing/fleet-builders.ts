import type { Model, Profile } from "../contract/catalog.ts";
import type { GpuReport, NodeDoc, NodeReport } from "../contract/fleet.ts";

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
  engines: ["vllm", "sglang", "llama.cpp", "tei", "comfyui", "command", "sim"],
  commands: [],
  gpus: someGpus(nodeId, 8),
  gpuDiscovery: "nvidia-smi",
  gpuDiscoveryWhy: null,
  shards: [],
  highestEpoch: null,
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
  slotsPerReplica: 16,
  rollout: "manual",
  profiles: [aProfile(`${name}-1`)],
  nodes: { require: {}, avoid: {}, gpuUuids: [] },
  multiNode: null,
  ...part,
});
