import type { NodeDoc, ReplicaDoc } from "../contract/fleet.ts";

/** Stored documents with nothing in them that a test does not care about. */
export const aNodeDoc = (id: string, facts: Partial<NodeDoc> = {}): NodeDoc => ({
  id,
  name: id,
  cordoned: false,
  bootId: null,
  labels: {},
  lastReport: null,
  enrolledAt: "2026-01-01T00:00:00.000Z",
  ...facts,
});

export const aReplicaDoc = (id: string, facts: Partial<ReplicaDoc> = {}): ReplicaDoc => ({
  id,
  model: "m",
  profileHash: "h",
  profile: {
    hash: "h",
    engine: "sim",
    source: null,
    sha256: null,
    weightsName: null,
    gpu: null,
    cpu: null,
    diskMib: 0,
    args: {},
    env: {},
    command: null,
  },
  generation: 1,
  shards: [],
  desired: "run",
  state: "placing",
  createdAt: "2026-01-01T00:00:00.000Z",
  readyAt: null,
  reason: null,
  failure: null,
  catalogRevision: 1,
  attempt: 0,
  engineKey: "CANARY-engine-key",
  ...facts,
});
