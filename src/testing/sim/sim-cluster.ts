import type { Catalog, Model } from "../../contract/catalog.ts";
import { PASS_DEFAULTS, type PassPlan, type PassSettings } from "../../decide/reconcile/snapshot.ts";
import { type Asked, askRestart, askRollout } from "../../decide/reconcile/ask-restart.ts";
import { DEFAULT_PACE } from "../../decide/reconcile/restart-queue.ts";
import { clearFailures } from "../../decide/reconcile/model-failures.ts";
import { runningOf, servingOf } from "../../decide/reconcile/model-counts.ts";
import { isGone } from "../../decide/reconcile/observe.ts";
import { type Random, seededRandom } from "../../kernel/random.ts";
import { aCatalog, aNodeDoc, someGpus } from "../fleet-builders.ts";
import { type EngineFaults, NO_FAULTS, SimAgent } from "./sim-agent.ts";
import { SimClock } from "./sim-clock.ts";
import { SimControl } from "./sim-control.ts";
import { type Heir, type Kept, SimLedger } from "./sim-ledger.ts";
import { SimLink } from "./sim-link.ts";
import { SimStore } from "./sim-store.ts";

const LEASE_MS = 10_000;
const DRAIN_MS = 20_000;
const MIN_RUN_MS = 30_000;

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
  readonly settings: PassSettings = { ...PASS_DEFAULTS, drainGraceMs: DRAIN_MS, minRunMs: MIN_RUN_MS };
  catalog: Catalog;
  restored = false;
  declare lastPlan: PassPlan | null;

  constructor({ seed, nodes = 5, controls = 2, cardsPerNode = 2, models }: ClusterShape) {
    this.random = seededRandom(seed);
    this.catalog = aCatalog(models);
    const nodeIds = Array.from({ length: nodes }, (_, at) => `n${at}`);
    const names = Array.from({ length: controls }, (_, at) => `c${at}`);
    const cardsOf = new Map(nodeIds.map((id) => [id, someGpus(id, cardsPerNode)]));
    const cardMib = new Map([...cardsOf.values()].flat().map((gpu) => [gpu.uuid, gpu.memoryMib ?? 0]));
    this.ledger = new SimLedger(cardMib, () => ({ heirs: this.#heirs(), kept: this.#kept() }));
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
      onPlan: (plan: PassPlan) => {
        this.#checkRestarts(plan);
        this.lastPlan = plan;
      },
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

  /** As an operator does; one that can't be restarted is not. */
  askRestart(id: string, stopFirst: boolean): void {
    this.#ask(askRestart({ catalog: this.catalog, ...this.store.docs }, id, { stopFirst, pace: DEFAULT_PACE }));
  }

  askRollout(model: string | null): void {
    const rollout = { id: `rollout ${this.clock.mono()}`, continues: true };
    this.#ask(askRollout({ catalog: this.catalog, ...this.store.docs }, model, { pace: DEFAULT_PACE, rollout }));
  }

  drain(nodeId: string, draining: boolean): void {
    const doc = this.store.docs.nodes.get(nodeId);
    if (doc !== undefined)
      this.store.put([{ kind: "node", id: nodeId, doc: { ...doc, cordoned: draining, draining } }]);
  }

  #ask(asked: Asked): void {
    if (asked.kind === "asked") this.store.put(asked.replicas.map((doc) => ({ kind: "replica", id: doc.id, doc })));
  }

  /** Replacements that hold the room of others which are not gone yet. */
  #heirs(): readonly Heir[] {
    const { replicas } = this.store.docs;
    return [...replicas.values()].flatMap(({ id, desired, state, shards, profile, waitsFor = [] }) => {
      const left = waitsFor.filter((other) => {
        const doc = replicas.get(other);
        return doc !== undefined && !isGone(doc);
      });
      if (desired !== "run" || state !== "placing" || left.length === 0) return [];
      const usesMib = (profile.gpu?.memoryMib ?? 0) * 0.95;
      return { replicaId: id, gpuUuids: shards.flatMap(({ gpuUuids }) => gpuUuids), usesMib, waitsFor: left };
    });
  }

  #kept(): readonly Kept[] {
    return [...this.store.docs.models.values()].flatMap(({ name, keepsRoom = [] }) =>
      keepsRoom.flatMap(({ of, heir, nodes }) =>
        nodes.flatMap(({ cards }) =>
          Object.entries(cards).map(([uuid, mib]) => ({
            model: name,
            uuid,
            usesMib: mib * 0.95,
            of: heir === null ? [of] : [of, heir],
          })),
        ),
      ),
    );
  }

  /** A restart by this pace takes one replica of a model away at most, and none while another is missing. */
  #checkRestarts({ writes }: PassPlan): void {
    const after = new Map(this.store.docs.replicas);
    const taken = new Set<string>();
    /** Those that an operator asked for in their place, whoever else is away. */
    const byName = new Map<string, number>();
    for (const { kind, id, doc } of writes) {
      if (kind !== "replica") continue;
      const before = this.store.docs.replicas.get(id);
      const begins = doc?.restart?.state === "inPlace" && before?.restart?.state === "queued";
      if (begins && !doc.restart.stopFirst) taken.add(doc.model);
      if (begins && doc.restart.stopFirst) byName.set(doc.model, (byName.get(doc.model) ?? 0) + 1);
      if (doc === null) after.delete(id);
      else after.set(id, doc);
    }
    for (const name of taken) {
      const running = servingOf(runningOf([...after.values()].filter(({ model }) => model === name)));
      const ready = running.filter(({ state }) => state === "ready").length + (byName.get(name) ?? 0);
      const wanted = this.catalog.models.get(name)?.replicas.min ?? 0;
      if (ready < Math.max(wanted, running.length) - 1)
        throw new Error(`a restart leaves ${ready} of ${wanted} replicas of ${name} ready`);
    }
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
      this.drain(agent.nodeId, false);
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
