import type { DocWrite } from "../../contract/fleet.ts";
import { controlEvent, type NewEvent } from "../../contract/control-event.ts";
import { fleetRoom } from "../../decide/placement/fleet-room.ts";
import { explainPlacement, type ProfileExplanation } from "../../decide/placement/place-replica.ts";
import { PASS_DEFAULTS } from "../../decide/reconcile/snapshot.ts";
import type { CatalogKeeper } from "../catalog/catalog-keeper.ts";
import type { Leadership } from "../leader/leadership.ts";
import type { ControlStore } from "../store/control-store.ts";
import type { ActionOutcome, ClusterSnapshot, ClusterView } from "./cluster-view.ts";

export interface StoredViewPorts {
  readonly store: Pick<ControlStore, "load" | "commit">;
  readonly keeper: CatalogKeeper;
  readonly leadership: Leadership;
}

/** The cluster as the store has it, seen by a control plane that hears no agent: every node is one that it has not seen. */
export class StoredView implements ClusterView {
  readonly #ports: StoredViewPorts;

  constructor(ports: StoredViewPorts) {
    this.#ports = ports;
  }

  async snapshot(): Promise<ClusterSnapshot> {
    const { store, keeper } = this.#ports;
    const [{ nodes, replicas, models, memory }, { catalog }] = await Promise.all([store.load(), keeper.refresh()]);
    return {
      catalog,
      nodes: nodes.map((doc) => ({ doc, state: "never_seen", silentMs: null, report: null })),
      replicas,
      models,
      memory,
      unplaced: new Map(),
    };
  }

  async explain(name: string): Promise<readonly ProfileExplanation[] | undefined> {
    const { catalog, nodes } = await this.snapshot();
    const model = catalog.models.get(name);
    if (model === undefined) return undefined;
    const seen = nodes.map(({ doc, state }) => ({
      nodeId: doc.id,
      state,
      silentMs: null,
      cordoned: doc.cordoned,
      report: null,
    }));
    return explainPlacement(fleetRoom(seen, []), {
      model,
      truth: () => undefined,
      avoidNodes: new Set(),
      failedOn: {},
      failuresPerNodeMax: PASS_DEFAULTS.failuresPerNodeMax,
    });
  }

  async setCordon(nodeId: string, cordoned: boolean, by: string): Promise<ActionOutcome> {
    const { nodes } = await this.#ports.store.load();
    const doc = nodes.find(({ id }) => id === nodeId);
    if (doc === undefined) return { kind: "unknownTarget" };
    const kind = cordoned ? "nodeCordoned" : "nodeUncordoned";
    return this.#write(
      [{ kind: "node", id: nodeId, doc: { ...doc, cordoned } }],
      controlEvent(kind, `node ${doc.name} was ${cordoned ? "cordoned" : "uncordoned"}`, { nodeId, by }),
    );
  }

  async removeNode(nodeId: string, by: string): Promise<ActionOutcome> {
    const { nodes } = await this.#ports.store.load();
    const doc = nodes.find(({ id }) => id === nodeId);
    if (doc === undefined) return { kind: "unknownTarget" };
    const event = controlEvent("nodeRemoved", `node ${doc.name} was removed`, { nodeId, by });
    return this.#write([{ kind: "node", id: nodeId, doc: null }], event);
  }

  async retry(model: string, by: string): Promise<ActionOutcome> {
    const { models } = await this.#ports.store.load();
    const doc = models.find(({ name }) => name === model);
    const event = controlEvent("modelRetried", `the park and back-off of ${model} were lifted`, { model, by });
    if (doc === undefined) return this.#write([], event);
    const cleared = { ...doc, failuresInRow: 0, backoffMs: null, failedOn: {}, parked: null };
    return this.#write([{ kind: "model", id: model, doc: cleared }], event);
  }

  async #write(writes: readonly DocWrite[], event: NewEvent): Promise<ActionOutcome> {
    const { store, leadership } = this.#ports;
    const { term } = leadership;
    if (term === null || !leadership.mayAct()) return { kind: "notLeader" };
    const outcome = await store.commit(term, writes, [event]);
    if (outcome === "ok") return { kind: "done" };
    if (outcome === "unknown") return { kind: "storeUnavailable" };
    leadership.fenced(term.epoch);
    return { kind: "notLeader" };
  }
}
