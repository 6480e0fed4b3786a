import type { Verb } from "../../contract/agent-link.ts";
import type { ReplicaDoc } from "../../contract/fleet.ts";
import type { PassDraft } from "./pass-draft.ts";

type StartVerb = Extract<Verb, { kind: "start" }>;

/** Starts shard `index` on its node. A model that is no longer in the catalog starts nothing. */
export function sendStart(draft: PassDraft, doc: ReplicaDoc, index: number): void {
  const shard = doc.shards[index]!;
  const verb = startVerb(draft, doc, index);
  if (verb !== null) draft.send(shard.nodeId, verb, index);
}

function startVerb(draft: PassDraft, doc: ReplicaDoc, index: number): StartVerb | null {
  const { catalog, fleet, settings } = draft.snapshot;
  const model = catalog.models.get(doc.model);
  if (model === undefined) return null;
  const [head] = doc.shards;
  const several = doc.shards.length > 1;
  return {
    kind: "start",
    replicaId: doc.id,
    generation: doc.generation,
    shard: {
      index,
      of: doc.shards.length,
      headAddress: several && head !== undefined ? (fleet.nodes.get(head.nodeId)?.report?.address ?? null) : null,
      rendezvousPort: head?.rendezvousPort ?? null,
    },
    model: { name: model.name, aliases: [...model.aliases], slots: model.slotsPerReplica },
    profile: doc.profile,
    gpuUuids: [...doc.shards[index]!.gpuUuids],
    gpuMemoryMib: doc.shards[index]!.memoryMib,
    engineKey: doc.engineKey,
    startStallMs: settings.startStallMs,
    stopGraceMs: settings.stopGraceMs,
  };
}

export function sendStop(draft: PassDraft, nodeId: string, replicaId: string, generation: number, why: string): void {
  const { stopGraceMs } = draft.snapshot.settings;
  draft.send(nodeId, { kind: "stop", replicaId, generation, graceMs: stopGraceMs, why });
}

export function sendForget(draft: PassDraft, nodeId: string, replicaId: string, generation: number): void {
  draft.send(nodeId, { kind: "forget", replicaId, generation });
}
