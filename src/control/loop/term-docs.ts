import {
  CLUSTER_DOC_ID,
  type ClusterDoc,
  type MemoryDoc,
  type ModelDoc,
  NO_CLUSTER_DOC,
  type NodeDoc,
  type ReplicaDoc,
  type StoreWrite,
} from "../../contract/fleet.ts";
import { memoryDocId, type StoredDocs } from "../../decide/reconcile/snapshot.ts";
import type { StoredState } from "../store/control-store.ts";

/**
 * The documents as the leader knows them: read once, and then as its own committed writes left them. Nobody else writes while
 * its term holds, and a write of a term that no longer holds is refused by the store.
 */
export class TermDocs implements StoredDocs {
  readonly nodes: Map<string, NodeDoc>;
  readonly replicas: Map<string, ReplicaDoc>;
  readonly models: Map<string, ModelDoc>;
  readonly memories: Map<string, MemoryDoc>;
  cluster: ClusterDoc;

  constructor({ nodes, replicas, models, memory, cluster }: StoredState) {
    this.nodes = new Map(nodes.map((doc) => [doc.id, doc]));
    this.replicas = new Map(replicas.map((doc) => [doc.id, doc]));
    this.models = new Map(models.map((doc) => [doc.name, doc]));
    this.memories = new Map(memory.map((doc) => [memoryDocId(doc.model, doc.profileHash, doc.gpuClass), doc]));
    this.cluster = cluster;
  }

  /** After their commit. */
  apply(writes: readonly StoreWrite[]): void {
    const maps = { node: this.nodes, replica: this.replicas, model: this.models, memory: this.memories };
    for (const { kind, id, doc } of writes) {
      if (kind === "cluster") this.cluster = doc ?? NO_CLUSTER_DOC;
      else if (doc === null) maps[kind].delete(id);
      else (maps[kind] as Map<string, object>).set(id, doc);
    }
  }
}

/** Of the cluster as a whole. */
export const clusterWrite = (doc: ClusterDoc): StoreWrite => ({ kind: "cluster", id: CLUSTER_DOC_ID, doc });
