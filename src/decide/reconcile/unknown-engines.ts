import type { Profile } from "../../contract/catalog.ts";
import type { ReplicaDoc } from "../../contract/fleet.ts";
import { sendForget, sendStop } from "./commands.ts";
import { countRunning, wantedCount } from "./model-counts.ts";
import { aggregateState, isGone, type Observed, type ObservedShard } from "./observe.ts";
import { aboutReplica, type PassDraft } from "./pass-draft.ts";
import type { UnknownEngine } from "./snapshot.ts";

/**
 * Engines that agents report and the store does not know: those of nodes that were given up and came back, and those whose
 * documents were lost with a store's last commits. What the catalog wants one more of is adopted as it is; the others were
 * replaced, and are stopped. With a store that was restored from a copy nothing is stopped, and all that the catalog knows is
 * adopted: the surplus is for the operator to see first.
 */
export function settleUnknown(draft: PassDraft, observed: Observed): readonly UnknownEngine[] {
  const unknown: UnknownEngine[] = [];
  let running: Map<string, number> | undefined;
  for (const [replicaId, shards] of observed) {
    if (draft.snapshot.docs.replicas.has(replicaId)) continue;
    const alive = shards.filter(({ shard }) => !isGone(shard));
    for (const { nodeId, shard } of shards) if (isGone(shard)) sendForget(draft, nodeId, replicaId, shard.generation);
    const [first] = alive;
    if (first === undefined) continue;
    running ??= countRunning(draft.replicas());
    const adopted = isWanted(draft, first.shard.model, running) ? asReplica(draft, replicaId, alive) : undefined;
    if (adopted === undefined) unknown.push(...alive.map((seen) => endUnknown(draft, seen)));
    else {
      draft.writeReplica(adopted);
      running.set(adopted.model, (running.get(adopted.model) ?? 0) + 1);
      draft.event("replicaAdopted", aboutReplica(adopted, first.nodeId), "it runs, and the store did not know it");
    }
  }
  return unknown;
}

function isWanted(draft: PassDraft, name: string, running: ReadonlyMap<string, number>): boolean {
  const model = draft.snapshot.catalog.models.get(name);
  if (model === undefined) return false;
  const count = running.get(name) ?? 0;
  return draft.snapshot.restored || wantedCount(model, draft.model(name), count) > count;
}

function endUnknown(draft: PassDraft, { nodeId, shard, seq }: ObservedShard): UnknownEngine {
  const { replicaId, model } = shard;
  const key = `unknown ${replicaId} ${nodeId}`;
  const isNews = draft.isNews(`told ${key}`);
  const stops = draft.confirmed(key, seq) && draft.mayStop;
  if (stops)
    sendStop(draft, nodeId, replicaId, shard.generation, "replaced while its node was away, or not in the catalog");
  if (isNews) draft.event("unknownEngine", { model, replicaId, nodeId }, "an engine runs that the store does not know");
  return { nodeId, replicaId, model, fate: stops ? "stopping" : "kept" };
}

/** The document it would have; undefined where the catalog does not know it so, or part of it is missing or about to end. */
function asReplica(draft: PassDraft, replicaId: string, alive: readonly ObservedShard[]): ReplicaDoc | undefined {
  const { catalog, docs } = draft.snapshot;
  const shards = alive.toSorted((a, b) => a.shard.shard - b.shard.shard);
  const head = shards[0]!.shard;
  const model = catalog.models.get(head.model);
  const profile = model?.profiles.find(({ hash }) => hash === head.profileHash);
  if (model === undefined || profile === undefined || shards.length !== (model.multiNode?.nodes ?? 1)) return undefined;
  const whole = shards.every(
    ({ nodeId, shard }, at) =>
      shard.shard === at &&
      shard.generation === head.generation &&
      shard.profileHash === head.profileHash &&
      docs.nodes.has(nodeId),
  );
  const state = aggregateState(shards.map(({ shard, seq }) => ({ kind: "reported", shard, seq })));
  if (!whole || state === null) return undefined;
  return {
    id: replicaId,
    model: model.name,
    profileHash: profile.hash,
    profile,
    generation: head.generation,
    shards: shards.map(({ nodeId, shard }) => ({
      nodeId,
      gpuUuids: shard.gpuUuids,
      memoryMib: givenMib(profile, shard.gpuUsedMib),
      rendezvousPort: null,
    })),
    desired: "run",
    state,
    createdAt: draft.today,
    readyAt: state === "ready" ? draft.today : null,
    reason: "adopted",
    failure: null,
    catalogRevision: catalog.revision,
    attempt: draft.model(model.name).failuresInRow,
    port: head.port,
    engineKey: draft.mint.engineKey(replicaId, head.generation),
  };
}

const givenMib = ({ gpu }: Profile, used: Readonly<Record<string, number>> | null): number =>
  gpu === null ? 0 : Math.max(gpu.memoryMib, ...Object.values(used ?? {}));
