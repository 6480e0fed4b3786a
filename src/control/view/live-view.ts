import { randomBytes } from "node:crypto";
import { controlEvent } from "../../contract/control-event.ts";
import type { NodeDoc, RestartPace } from "../../contract/fleet.ts";
import {
  type Asked,
  askRestart,
  askRollout,
  type Fleet,
  type RestartWish,
} from "../../decide/reconcile/ask-restart.ts";
import { explainModel, type ModelExplanation } from "../../decide/reconcile/explain-model.ts";
import { clearFailures, newModelDoc } from "../../decide/reconcile/model-failures.ts";
import { planPass } from "../../decide/reconcile/plan-pass.ts";
import {
  NO_MEMORY,
  NO_USE,
  type PassMint,
  type PassSettings,
  type PassSnapshot,
  type PlacementRefusal,
} from "../../decide/reconcile/snapshot.ts";
import type { Clock } from "../../kernel/clock.ts";
import { listCaches, toCollect, whyNothing } from "../../decide/weights/plan-collection.ts";
import { messageOf, YardmasterError } from "../../kernel/errors.ts";
import type { CatalogKeeper } from "../catalog/catalog-keeper.ts";
import type { FeedServer } from "../feed/feed-server.ts";
import type { AgentLinkServer } from "../link/agent-link-server.ts";
import type { ReconcileLoop } from "../loop/reconcile-loop.ts";
import { clusterWrite, TermDocs } from "../loop/term-docs.ts";
import type { ControlStore } from "../store/control-store.ts";
import type {
  ActionOutcome,
  ClusterSnapshot,
  ClusterView,
  GatewaySeen,
  SeenWeights,
  WeightsCollection,
} from "./cluster-view.ts";

export interface LiveViewPorts {
  readonly clock: Clock;
  readonly store: Pick<ControlStore, "load" | "revokeNode">;
  readonly keeper: CatalogKeeper;
  readonly loop: ReconcileLoop;
  readonly links: AgentLinkServer;
  readonly feed: FeedServer;
  readonly settings: PassSettings;
}

/** What a pass saw, in the form in which it is shown. */
export function clusterSnapshot(
  { catalog, docs, fleet, restored, use }: PassSnapshot,
  unplaced: readonly PlacementRefusal[],
): ClusterSnapshot {
  return {
    catalog,
    nodes: [...docs.nodes.values()].map((doc) => {
      const { state = "never_seen", silentMs = null, report = null } = fleet.nodes.get(doc.id) ?? {};
      return { doc, state, silentMs, report };
    }),
    replicas: [...docs.replicas.values()],
    models: [...docs.models.values()],
    memory: [...docs.memories.values()],
    unplaced: new Map(unplaced.map(({ model, why }) => [model, why])),
    use,
    restored,
  };
}

const NODE_ACTIONS = {
  open: ["nodeUncordoned", "uncordoned"],
  cordoned: ["nodeCordoned", "cordoned"],
  draining: ["nodeDraining", "told to drain"],
} as const;

interface Known {
  readonly snapshot: PassSnapshot;
  readonly unplaced: readonly PlacementRefusal[];
}

/**
 * The cluster as it is now. A leader shows what its last pass saw, which costs no look into the store; another one shows what the
 * store has and what the agents say, since it hears every one of them as well.
 */
export class LiveView implements ClusterView {
  readonly #ports: LiveViewPorts;

  constructor(ports: LiveViewPorts) {
    this.#ports = ports;
  }

  async snapshot(): Promise<ClusterSnapshot> {
    const { snapshot, unplaced } = await this.#known();
    return clusterSnapshot(snapshot, unplaced);
  }

  async explain(model: string): Promise<ModelExplanation | undefined> {
    const { clock } = this.#ports;
    const { snapshot } = await this.#known();
    return explainModel(snapshot, model, { mono: clock.mono(), wall: clock.wall() });
  }

  gateways(): readonly GatewaySeen[] {
    return this.#ports.feed.gateways();
  }

  setNode(nodeId: string, to: "open" | "cordoned" | "draining", by: string): Promise<ActionOutcome> {
    return this.#ports.loop.act((docs) => {
      const doc = docs.nodes.get(nodeId);
      if (doc === undefined) return undefined;
      const [kind, done] = NODE_ACTIONS[to];
      const why = `node ${doc.name} was ${done}`;
      // A node that drains is cordoned as well; a cordon of one that drains ends no drain.
      const draining = to === "draining" || (to === "cordoned" && doc.draining === true);
      const next: NodeDoc = { ...doc, cordoned: to !== "open", draining };
      return { writes: [{ kind: "node", id: nodeId, doc: next }], events: [controlEvent(kind, why, { nodeId, by })] };
    });
  }

  /** Its credential ends first: a node that may still connect would get a new document with the next pass. */
  async removeNode(nodeId: string, by: string): Promise<ActionOutcome> {
    const { loop, links, store } = this.#ports;
    if (!(await this.#known()).snapshot.docs.nodes.has(nodeId)) return { kind: "unknownTarget" };
    if (!loop.leads) return { kind: "notLeader" };
    await store.revokeNode(nodeId);
    links.disconnect(nodeId, "the node was removed");
    loop.forget(nodeId);
    return loop.act((docs) => {
      const doc = docs.nodes.get(nodeId);
      if (doc === undefined) return undefined;
      const event = controlEvent("nodeRemoved", `node ${doc.name} was removed`, { nodeId, by });
      return { writes: [{ kind: "node", id: nodeId, doc: null }], events: [event] };
    });
  }

  retry(model: string, by: string): Promise<ActionOutcome> {
    return this.#ports.loop.act((docs) => {
      const doc = docs.models.get(model);
      const event = controlEvent("modelRetried", `the park and back-off of ${model} were lifted`, { model, by });
      return {
        writes: doc === undefined ? [] : [{ kind: "model", id: model, doc: clearFailures(doc) }],
        events: [event],
      };
    });
  }

  restart(replicaId: string, wish: RestartWish, by: string): Promise<ActionOutcome> {
    return this.#ask((fleet) => askRestart(fleet, replicaId, wish), "restartAsked", by);
  }

  rollout(model: string | null, pace: RestartPace, continues: boolean, by: string): Promise<ActionOutcome> {
    const rollout = { id: `rollout-${randomBytes(6).toString("hex")}`, continues };
    return this.#ask((fleet) => askRollout(fleet, model, { pace, rollout }), "rolloutAsked", by);
  }

  async #ask(ask: (fleet: Fleet) => Asked, kind: "restartAsked" | "rolloutAsked", by: string): Promise<ActionOutcome> {
    let replicas: readonly string[] = [];
    const outcome = await this.#ports.loop.act((docs) => {
      const asked = ask({ catalog: this.#ports.keeper.snapshot.catalog, replicas: docs.replicas });
      if (asked.kind === "unknown") return undefined;
      if (asked.kind === "refused") return { refused: asked.why };
      replicas = asked.replicas.map(({ id }) => id);
      const writes = asked.replicas.map((doc) => ({ kind: "replica", id: doc.id, doc }) as const);
      const events = asked.replicas.map(({ id, model, restart }) =>
        controlEvent(kind, restart?.stopFirst === true ? "in its place" : "beside it where there is room", {
          model,
          replicaId: id,
          by,
        }),
      );
      return { writes, events };
    });
    return outcome.kind === "done" ? { kind: "done", replicas } : outcome;
  }

  scale(name: string, replicas: number, by: string): Promise<ActionOutcome> {
    return this.#ports.loop.act((docs) => {
      const { catalog } = this.#ports.keeper.snapshot;
      const model = catalog.models.get(name);
      if (model === undefined) return undefined;
      const { min, max } = model.replicas;
      if (replicas < min || replicas > max)
        return { refused: `the catalog allows ${min} to ${max} replicas of ${name}, not ${replicas}` };
      const before = docs.models.get(name) ?? newModelDoc(name, model);
      // Scaled to none it starts again when somebody asks, and not because somebody once did.
      const doc = { ...before, scaledTo: replicas, ...(replicas === 0 ? { demandedAt: null } : {}) };
      const event = controlEvent("modelScaled", `${replicas} replicas were asked for`, { model: name, by });
      return { writes: [{ kind: "model", id: name, doc }], events: [event] };
    });
  }

  confirmRestored(by: string): Promise<ActionOutcome> {
    return this.#ports.loop.act((docs) => {
      const { restoredAbove } = docs.cluster;
      if (restoredAbove === null) return undefined;
      const why = `what runs was looked at: from now on it is as the catalog wants it (the store was a copy from epoch ${restoredAbove} or before)`;
      return {
        writes: [clusterWrite({ ...docs.cluster, restoredAbove: null })],
        events: [controlEvent("restoredConfirmed", why, { by })],
      };
    });
  }

  async logs(replicaId: string, shard: number, lines: number): Promise<readonly string[] | undefined> {
    if (!this.#ports.loop.leads)
      throw new YardmasterError("NOT_LEADER", "agents answer the leader alone: ask the control plane that leads");
    const { snapshot } = await this.#known();
    const replica = snapshot.docs.replicas.get(replicaId);
    const nodeId = replica?.shards[shard]?.nodeId;
    if (replica === undefined || nodeId === undefined) return undefined;
    const { failure } = replica;
    // What has failed is forgotten by its node; its last words were kept, and one that never ran has none but the reason.
    if (failure !== null) return failure.lastLines.length === 0 ? [failure.message] : failure.lastLines.slice(-lines);
    if (!this.#ports.links.isConnected(nodeId))
      throw new YardmasterError("NODE_SILENT", "its node is not connected to this control plane");
    return this.#ports.links.logs(nodeId, replicaId, lines);
  }

  async weights(): Promise<SeenWeights> {
    const { snapshot } = await this.#known();
    const { docs, fleet, restored } = snapshot;
    // The last pass may not have seen the newest catalog yet.
    const { catalog } = await this.#ports.keeper.refresh();
    const before = await this.#ports.keeper.catalogBefore(catalog.revision);
    const heard = [...docs.nodes.keys()].flatMap((nodeId) => {
      const status = fleet.nodes.get(nodeId);
      return status?.state === "ready" && status.report !== null ? [{ nodeId, report: status.report }] : [];
    });
    const catalogs = [snapshot.catalog, catalog, ...(before === null || before === undefined ? [] : [before])];
    const { braked, settling } = fleet;
    return {
      cached: listCaches({ catalogs, replicas: docs.replicas.values(), nodes: heard }),
      held: whyNothing({ restored, braked, settling, revision: catalog.revision, knowsBefore: before !== undefined }),
    };
  }

  async collectWeights(
    damaged: boolean,
    by: string,
  ): Promise<WeightsCollection | Exclude<ActionOutcome, { kind: "done" }>> {
    const { loop } = this.#ports;
    if (!loop.leads) return { kind: "notLeader" };
    const { cached, held } = await this.weights();
    if (held !== null) throw new YardmasterError("WEIGHTS_HELD", `nothing is removed: ${held}`);
    const byNode = Map.groupBy(toCollect(cached, damaged), ({ nodeId }) => nodeId);
    if (byNode.size === 0) return { kind: "collected", nodes: [] };
    const count = [...byNode.values()].reduce((sum, asked) => sum + asked.length, 0);
    const why = `${byNode.size} nodes are asked to remove ${count} weights that ${damaged ? "are damaged" : "nobody wants"}`;
    const noted = await loop.act(() => ({ writes: [], events: [controlEvent("weightsCollected", why, { by })] }));
    if (noted.kind !== "done") return noted;
    const nodes = [...byNode].map(async ([nodeId, asked]) => {
      const names = asked.map(({ name }) => name);
      try {
        return { nodeId, asked, results: await this.#ports.links.collect(nodeId, names), why: null };
      } catch (error) {
        return { nodeId, asked, results: null, why: messageOf(error) };
      }
    });
    return { kind: "collected", nodes: await Promise.all(nodes) };
  }

  async #known(): Promise<Known> {
    const { clock, loop, store, keeper, settings } = this.#ports;
    const { seen } = loop;
    if (seen !== null) return { snapshot: seen.snapshot, unplaced: seen.plan.unplaced };
    const [state, { catalog }] = await Promise.all([store.load(), keeper.look()]);
    const docs = new TermDocs(state);
    const fleet = loop.observe(docs.nodes.values());
    const restored = docs.cluster.restoredAbove !== null;
    const snapshot = { catalog, docs, fleet, demanded: NOTHING, idle: NOTHING, use: NO_USE, restored, settings };
    // Planned as a leader would and thrown away: what finds no room is not shown as if it were about to start.
    const now = { mono: clock.mono(), wall: clock.wall() };
    return { snapshot, unplaced: planPass(snapshot, NO_MEMORY, now, mintForShow()).unplaced };
  }
}

const NOTHING: ReadonlySet<string> = new Set();

function mintForShow(): PassMint {
  let made = 0;
  return { replicaId: () => `planned-${(made += 1)}`, engineKey: () => "" };
}
