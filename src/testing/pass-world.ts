import type { Catalog, Model } from "../contract/catalog.ts";
import type {
  FleetEventKind,
  MemoryDoc,
  ModelDoc,
  NodeDoc,
  NodeReport,
  NodeState,
  ReplicaDoc,
  RestartPace,
  ShardReport,
} from "../contract/fleet.ts";
import type { NodeStatus } from "../decide/fleet/node-watch.ts";
import { type Asked, askRestart, askRollout, type RestartWish } from "../decide/reconcile/ask-restart.ts";
import { restartState } from "../decide/reconcile/judge-restart.ts";
import { planPass } from "../decide/reconcile/plan-pass.ts";
import { DEFAULT_PACE } from "../decide/reconcile/restart-queue.ts";
import {
  NO_MEMORY,
  PASS_DEFAULTS,
  type PassMemory,
  type PassPlan,
  type PassSettings,
  type PassSnapshot,
  type ReplicaUse,
} from "../decide/reconcile/snapshot.ts";
import { asEpoch, asMono } from "../kernel/clock.ts";
import { aCatalog, aNodeDoc, aNodeReport, aShard } from "./fleet-builders.ts";

interface WorldNode {
  state: NodeState;
  report: NodeReport;
  seq: number;
}

/** A store and a fleet in memory, for tests of single passes. Nothing happens in it by itself. */
export class PassWorld {
  now = 0;
  catalog: Catalog;
  memory: PassMemory = NO_MEMORY;
  settling = false;
  braked = false;
  restored = false;
  settings: PassSettings = PASS_DEFAULTS;
  readonly nodes = new Map<string, WorldNode>();
  readonly nodeDocs = new Map<string, NodeDoc>();
  readonly replicas = new Map<string, ReplicaDoc>();
  readonly models = new Map<string, ModelDoc>();
  readonly memories = new Map<string, MemoryDoc>();
  readonly demanded = new Set<string>();
  readonly idle = new Set<string>();
  readonly use = new Map<string, ReplicaUse>();
  readonly told: FleetEventKind[] = [];
  #minted = 0;

  constructor(models: readonly Model[], nodeIds: readonly string[] = ["a", "b"]) {
    this.catalog = aCatalog(models);
    for (const id of nodeIds) this.addNode(id);
  }

  addNode(id: string, part: Partial<NodeReport> = {}): void {
    const report = aNodeReport(id, part);
    this.nodes.set(id, { state: "ready", report, seq: 1 });
    this.nodeDocs.set(id, aNodeDoc(id, { lastReport: { ...report, shards: [], weights: [], leftovers: [] } }));
  }

  apply(models: readonly Model[]): void {
    this.catalog = aCatalog(models, this.catalog.revision + 1);
  }

  snapshot(): PassSnapshot {
    const nodes = new Map<string, NodeStatus>();
    for (const [nodeId, { state, report, seq }] of this.nodes)
      nodes.set(nodeId, { nodeId, state, silentMs: 0, report, reportSeq: seq });
    return {
      catalog: this.catalog,
      docs: { nodes: this.nodeDocs, replicas: this.replicas, models: this.models, memories: this.memories },
      fleet: {
        nodes,
        settling: this.settling,
        braked: this.braked,
        silentZones: new Set(),
        nextChangeAt: null,
        events: [],
      },
      demanded: this.demanded,
      idle: this.idle,
      use: this.use,
      restored: this.restored,
      settings: this.settings,
    };
  }

  plan(): PassPlan {
    return planPass(
      this.snapshot(),
      this.memory,
      { mono: asMono(this.now), wall: asEpoch(1_767_225_600_000 + this.now) },
      { replicaId: () => `r${++this.#minted}`, engineKey: (id, generation) => `key-of-${id}-${generation}` },
    );
  }

  /** A pass whose commit succeeds, `ms` after the last one, with fresh reports from all nodes. */
  pass(ms = 2_000): PassPlan {
    this.now += ms;
    for (const node of this.nodes.values()) node.seq += 1;
    const plan = this.plan();
    this.memory = plan.memory;
    for (const write of plan.writes) {
      const docs = { node: this.nodeDocs, replica: this.replicas, model: this.models, memory: this.memories }[
        write.kind
      ];
      if (write.doc === null) docs.delete(write.id);
      else (docs as Map<string, object>).set(write.id, write.doc);
    }
    this.told.push(...plan.events.map(({ kind }) => kind));
    return plan;
  }

  /** What the node's next reports say of its shards. */
  report(nodeId: string, shards: readonly ShardReport[], part: Partial<NodeReport> = {}): void {
    const node = this.nodes.get(nodeId)!;
    node.report = { ...node.report, ...part, shards };
  }

  /** All nodes report each replica of the store that should run as ready, and nothing else. */
  reportReady(part: Partial<ShardReport> = {}): void {
    for (const nodeId of this.nodes.keys()) {
      this.report(
        nodeId,
        [...this.replicas.values()].flatMap((doc) =>
          doc.shards.flatMap((shard, index) =>
            shard.nodeId === nodeId && doc.desired === "run" && doc.state !== "failed"
              ? [aShard(doc, { shard: index, gpuUuids: shard.gpuUuids, ...part })]
              : [],
          ),
        ),
      );
    }
  }

  /** As an operator does between two passes; tells why it was refused. */
  askRestart(id: string, wish: Partial<RestartWish> = {}): string | null {
    const fleet = { catalog: this.catalog, replicas: this.replicas };
    return this.#take(askRestart(fleet, id, { stopFirst: false, pace: DEFAULT_PACE, ...wish }));
  }

  /** Null: all that is outdated. */
  askRollout(model: string | null, pace: Partial<RestartPace> = {}, continues = false): string | null {
    const fleet = { catalog: this.catalog, replicas: this.replicas };
    const rollout = { id: `rollout-${++this.#minted}`, continues };
    return this.#take(askRollout(fleet, model, { pace: { ...DEFAULT_PACE, ...pace }, rollout }));
  }

  #take(asked: Asked): string | null {
    if (asked.kind !== "asked") return asked.kind === "unknown" ? "unknown" : asked.why;
    for (const doc of asked.replicas) this.replicas.set(doc.id, doc);
    return null;
  }

  /** `replica: state of its restart`, of those that are to be restarted. */
  restarts(): string[] {
    return [...this.replicas.values()].flatMap((doc) => {
      const state = restartState(doc);
      return state === "none" ? [] : `${doc.id}: ${state}`;
    });
  }

  only(): ReplicaDoc {
    const [doc, ...more] = this.replicas.values();
    if (doc === undefined || more.length > 0) throw new Error(`there are ${this.replicas.size} replicas`);
    return doc;
  }

  states(): string[] {
    return [...this.replicas.values()].map(
      ({ model, state, shards }) => `${model} ${state} on ${shards.map((shard) => shard.nodeId).join("+")}`,
    );
  }
}

/** Commands as `verb replica@node`. */
export const sent = (plan: PassPlan): string[] =>
  plan.commands.map(({ nodeId, verb }) => `${verb.kind} ${"replicaId" in verb ? verb.replicaId : ""}@${nodeId}`);
