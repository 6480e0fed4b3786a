import type { NodeDoc, ReplicaDoc } from "../contract/fleet.ts";
import { aProfile } from "./a-start.ts";
import { aNodeDoc as aKnownNodeDoc } from "./fleet-builders.ts";

/** Stored documents with nothing in them that a test does not care about. */
export const aNodeDoc = (id: string, facts: Partial<NodeDoc> = {}): NodeDoc =>
  aKnownNodeDoc(id, { bootId: null, ...facts });

export const aReplicaDoc = (id: string, facts: Partial<ReplicaDoc> = {}): ReplicaDoc => ({
  id,
  model: "m",
  profileHash: "h",
  profile: aProfile({ hash: "h" }),
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
  port: null,
  engineKey: "CANARY-engine-key",
  ...facts,
});
