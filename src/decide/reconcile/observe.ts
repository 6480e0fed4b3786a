import type { NodeState, ReplicaDoc, ReplicaState, ShardReport } from "../../contract/fleet.ts";
import type { FleetStatus } from "../fleet/node-watch.ts";

/** A shard as an agent reports it now. */
export interface ObservedShard {
  readonly nodeId: string;
  readonly shard: ShardReport;
  readonly seq: number;
}

/** What the nodes that can be heard report, by replica. */
export type Observed = ReadonlyMap<string, readonly ObservedShard[]>;

export function observe(fleet: FleetStatus): Observed {
  const observed = new Map<string, ObservedShard[]>();
  for (const { nodeId, state, report, reportSeq } of fleet.nodes.values()) {
    if (state !== "ready" || report === null) continue;
    for (const shard of report.shards) {
      const its = observed.get(shard.replicaId);
      if (its === undefined) observed.set(shard.replicaId, [{ nodeId, shard, seq: reportSeq }]);
      else its.push({ nodeId, shard, seq: reportSeq });
    }
  }
  return observed;
}

/** What is known of one shard of a replica. */
export type ShardSight =
  | { readonly kind: "reported"; readonly shard: ShardReport; readonly seq: number }
  /** Its node reports, and does not name it. */
  | { readonly kind: "absent"; readonly seq: number }
  /** Its node is silent: nothing is known. */
  | { readonly kind: "silent" }
  /** Its node is lost, or no longer part of the cluster. */
  | { readonly kind: "lost" };

export function sightOf(doc: ReplicaDoc, index: number, fleet: FleetStatus, observed: Observed): ShardSight {
  const { nodeId } = doc.shards[index]!;
  const status = fleet.nodes.get(nodeId);
  const state: NodeState = status?.state ?? "lost";
  if (status === undefined || state === "lost") return { kind: "lost" };
  if (state !== "ready") return { kind: "silent" };
  for (const seen of observed.get(doc.id) ?? []) {
    if (seen.nodeId !== nodeId || seen.shard.shard !== index || seen.shard.generation < doc.generation) continue;
    return { kind: "reported", shard: seen.shard, seq: seen.seq };
  }
  return { kind: "absent", seq: status.reportSeq };
}

/** Of a shard as it is reported, or of a replica as it is stored. */
export const isGone = ({ state }: Pick<ShardReport | ReplicaDoc, "state">): boolean =>
  state === "stopped" || state === "failed";

/**
 * The state of a replica that should run, from its shards: the least advanced one speaks for all. Null: a silent node knows,
 * so the last known state stands.
 */
export function aggregateState(sights: readonly ShardSight[]): ReplicaState | null {
  let state: ReplicaState = "ready";
  for (const sight of sights) {
    if (sight.kind === "absent") return "placing";
    if (sight.kind !== "reported") return null;
    switch (sight.shard.state) {
      case "fetching":
        state = "fetching";
        break;
      case "starting":
        if (state === "ready") state = "starting";
        break;
      case "ready":
        break;
      case "draining":
      case "stopping":
      case "stopped":
      case "failed":
        return null;
    }
  }
  return state;
}
