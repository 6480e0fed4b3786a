import type { Catalog, Model } from "../../contract/catalog.ts";
import { PASS_DEFAULTS, type PassPlan, type PassSettings } from "../../decide/reconcile/snapshot.ts";
import { clearFailures } from "../../decide/reconcile/model-failures.ts";
import { runningOf } from "../../decide/reconcile/model-counts.ts";
import { type Random, seededRandom } from "../../kernel/random.ts";
import { aCatalog, aNodeDoc, someGpus } from "../fleet-builders.ts";
import { type EngineFaults, NO_FAULTS, SimAgent } from "./sim-agent.ts";
import { SimClock } from "./sim-clock.ts";
import { SimControl } from "./sim-control.ts";
import { SimLedger } from "./sim-ledger.ts";
import { SimLink } from "./sim-link.ts";
import { SimStore } from "./sim-store.ts";

const LEASE_MS = 10_000;
const DRAIN_MS = 20_000;

export interface ClusterShape {
  readonly seed: number;
  readonly nodes?: number;
  readonly controls?: number;
  readonly cardsPerNode?: number;
  readonly models: readonly Model[];
}

/** A whole cluster on virtual time. The ledger throws at the step at which something forbidden happens. */
export class SimCluster {
  readonly clock = new SimClock();
  readonly random: Random;
  readonly store = new SimStore(this.clock, LEASE_MS);
  readonly ledger: SimLedger;
  readonly agents: readonly SimAgent[];
  readonly controls: readonly SimControl[];
  readonly faults: EngineFaults = { ...NO_FAULTS };
  readonly demanded = new Set<string>();
  readonly settings: PassSettings = { ...PASS_DEFAULTS, drainGraceMs: DRAIN_MS };
  catalog: Catalog;
  restored = false;
  declare lastPlan: PassPlan | null;

  constructor({ seed, nodes = 5, controls = 2, cardsPerNode = 2, models }: ClusterShape) {
    this.random = seededRandom(seed);
    this.catalog = aCatalog(models);
    const nodeIds = Array.from({ length: nodes }, (_, at) => `n${at}`);
    const names = Array.from({ length: controls }, (_, at) => `c${at}`);
    const cardsOf = new Map(nodeIds.map((id) => [id, someGpus(id, cardsPerNode)]));
    this.ledger = new SimLedger(new Map([...cardsOf.values()].flat().map((gpu) => [gpu.uuid, gpu.memoryMib ?? 0])));
    const links = new Map(names.map((name) => [name, new Map(nodeIds.map((id) => [id, new SimLink(this.clock)]))]));
    this.agents = nodeIds.map(
      (id) =>
        new SimAgent(
          id,
          cardsOf.get(id)!,
          names.map((name) => links.get(name)!.get(id)!),
          this,
        ),
    );
    let minted = 0;
    const world = {
      clock: this.clock,
      store: this.store,
      mint: {
        replicaId: () => `r${++minted}`,
        engineKey: (id: string, generation: number) => `key-of-${id}-${generation}`,
      },
      settings: this.settings,
      demanded: this.demanded,
      catalog: () => this.catalog,
      restored: () => this.restored,
      onPlan: (plan: PassPlan) => (this.lastPlan = plan),
    };
    this.controls = names.map((name) => new SimControl(name, links.get(name)!, world));
    this.store.put(nodeIds.map((id) => ({ kind: "node", id, doc: aNodeDoc(id, { bootId: null }) })));
    // Enrolments are not what a failover loses here: nobody would enrol the nodes again.
    this.store.backup()();
  }

  get leader(): SimControl | undefined {
    return this.controls.find((control) => control.isLeading && this.store.lease?.holder === control.holder);
  }

  run(ms: number): void {
    this.clock.run(this.clock.mono() + ms, () => {});
  }

  edit(models: readonly Model[]): void {
    this.catalog = aCatalog(models, this.catalog.revision + 1);
  }

  partition(control: number, agent: number, direction: "toControl" | "toAgent" | "both"): void {
    const { blocked } = this.agents[agent]!.links[control]!;
    if (direction !== "toAgent") blocked.toControl = true;
    if (direction !== "toControl") blocked.toAgent = true;
  }

  /** Ends every fault, and lifts parks as an operator would. */
  heal(): void {
    this.store.down = false;
    this.store.silent = false;
    this.store.latencyMs = 5;
    this.clock.wallShiftMs = 0;
    Object.assign(this.faults, NO_FAULTS);
    for (const control of this.controls) {
      control.thaw();
      control.restart();
    }
    for (const agent of this.agents) {
      agent.switchOn();
      agent.startAgent();
      for (const card of agent.cards) {
        card.foreignMib = 0;
        card.sickSince = null;
      }
      for (const link of agent.links) {
        link.blocked.toControl = false;
        link.blocked.toAgent = false;
        link.flush();
      }
    }
    this.retryAll();
  }

  retryAll(): void {
    this.store.put(
      [...this.store.docs.models.values()].map((doc) => ({ kind: "model", id: doc.name, doc: clearFailures(doc) })),
    );
  }

  /**
   * What is not as the catalog wants it, in words; empty when all is well. A model that ran out of memory may need more than any
   * node has free now; then it must be told that it is not placed.
   */
  differences(): string[] {
    const { leader } = this;
    if (leader === undefined) return ["nobody leads"];
    const found: string[] = [];
    const running = [...this.ledger.running];
    const grown = new Set(
      [...this.store.docs.memories.values()].flatMap((doc) => (doc.oomAtMib === null ? [] : doc.model)),
    );
    const unplaced = leader.plan("new")?.unplaced.map((refusal) => refusal.model) ?? [];
    for (const model of this.catalog.models.values()) {
      const docs = runningOf([...this.store.docs.replicas.values()].filter((doc) => doc.model === model.name));
      const wanted = Math.max(
        model.replicas.min,
        this.store.docs.models.get(model.name)?.demandedAt === undefined ? 0 : Math.min(1, docs.length),
      );
      const isTold = docs.length < wanted && grown.has(model.name) && unplaced.includes(model.name);
      if (docs.length !== wanted && !isTold) found.push(`${model.name}: ${docs.length} replicas, ${wanted} wanted`);
      for (const doc of docs) {
        if (doc.state !== "ready") found.push(`${doc.id} of ${model.name} is ${doc.state}`);
        for (const [index, { nodeId }] of doc.shards.entries())
          if (
            !running.some((engine) => engine.replicaId === doc.id && engine.shard === index && engine.nodeId === nodeId)
          )
            found.push(`${doc.id} of ${model.name} has no engine on ${nodeId}`);
      }
    }
    for (const engine of running) {
      const doc = this.store.docs.replicas.get(engine.replicaId);
      if (doc === undefined || doc.desired !== "run")
        found.push(`${engine.nodeId} runs ${engine.replicaId} of ${engine.model}, which nobody wants`);
    }
    for (const memory of ["own", "new"] as const) {
      const plan = leader.plan(memory);
      for (const write of plan?.writes ?? [])
        found.push(`a second pass (${memory} memory) would write ${write.kind} ${write.id}`);
      for (const { nodeId, verb } of plan?.commands ?? [])
        found.push(`a second pass (${memory} memory) would send ${verb.kind} to ${nodeId}`);
    }
    return found;
  }
}
