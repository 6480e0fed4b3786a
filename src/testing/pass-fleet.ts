import type { StartVerb } from "../contract/agent-link.ts";
import type { Model } from "../contract/catalog.ts";
import type { ReplicaDoc, ShardState } from "../contract/fleet.ts";
import type { PassPlan } from "../decide/reconcile/snapshot.ts";
import { aFailure, aShard, GIB, someGpus } from "./fleet-builders.ts";
import { PassWorld } from "./pass-world.ts";

interface Engine {
  readonly nodeId: string;
  readonly verb: StartVerb;
  readonly doc: ReplicaDoc;
  state: ShardState;
  /** Passes until it has gone. */
  endsIn: number;
  readySince: number;
}

/**
 * A `PassWorld` whose nodes obey: what is started is ready with the next pass, what is stopped takes a while to go. It keeps account of
 * who held which card, and throws where two engines do not fit on one.
 */
export class PassFleet {
  readonly world: PassWorld;
  /** Models by card, in the order in which their engines were started there. */
  readonly history = new Map<string, string[]>();
  /** Passes that an engine takes to stop. */
  stopsIn = 2;
  /** Whether requests of draining replicas end at once. */
  drains = true;
  fails: (verb: StartVerb) => boolean = () => false;
  readonly #engines = new Map<string, Engine>();

  /** `cards`: of each node, with 140 GiB. */
  constructor(models: readonly Model[], cards: Readonly<Record<string, number>> = { a: 1 }) {
    this.world = new PassWorld(models, []);
    for (const [id, count] of Object.entries(cards)) this.world.addNode(id, { gpus: someGpus(id, count) });
  }

  step(ms = 2_000): PassPlan {
    const plan = this.world.pass(ms);
    for (const { nodeId, verb } of plan.commands) {
      const key = `${"replicaId" in verb ? verb.replicaId : ""} ${nodeId}`;
      const engine = this.#engines.get(key);
      if (verb.kind === "start" && engine === undefined) this.#start(key, nodeId, verb);
      if (verb.kind === "stop" && engine !== undefined && engine.state !== "stopping") {
        engine.state = "stopping";
        engine.endsIn = this.stopsIn;
      }
      if (verb.kind === "forget") this.#engines.delete(key);
    }
    this.#report();
    for (const { id, state } of this.world.replicas.values())
      if (this.drains && state === "draining") this.world.idle.add(id);
    return plan;
  }

  steps(count: number, ms = 2_000): this {
    for (let at = 0; at < count; at++) this.step(ms);
    return this;
  }

  /** Steps until it holds. */
  until(holds: () => boolean, max = 100): this {
    for (let at = 0; !holds(); at++) {
      if (at === max) throw new Error(`not within ${max} passes: ${this.world.states().join(", ")}`);
      this.step();
    }
    return this;
  }

  ready(model: string): ReplicaDoc[] {
    return [...this.world.replicas.values()].filter(
      (doc) => doc.model === model && doc.state === "ready" && doc.desired === "run",
    );
  }

  /** Ends by itself, and unasked. */
  crash(replicaId: string): void {
    for (const engine of this.#engines.values()) if (engine.verb.replicaId === replicaId) engine.state = "failed";
    this.#report();
  }

  #start(key: string, nodeId: string, verb: StartVerb): void {
    const doc = this.world.replicas.get(verb.replicaId)!;
    const state = this.fails(verb) ? "failed" : "ready";
    this.#engines.set(key, { nodeId, verb, doc, state, endsIn: 0, readySince: this.world.now });
    for (const uuid of verb.gpuUuids) {
      this.history.set(uuid, [...(this.history.get(uuid) ?? []), verb.model.name]);
      let used = 0;
      for (const other of this.#engines.values())
        if (other.verb.gpuUuids.includes(uuid) && other.state !== "failed" && other.state !== "stopped")
          used += other.verb.profile.gpu?.memoryMib ?? 0;
      if (used > 140 * GIB) throw new Error(`${uuid} holds engines of ${used} MiB`);
    }
  }

  #report(): void {
    for (const engine of this.#engines.values())
      if (engine.state === "stopping" && engine.endsIn-- <= 0) engine.state = "stopped";
    for (const nodeId of this.world.nodes.keys()) {
      const its = [...this.#engines.values()].filter((engine) => engine.nodeId === nodeId);
      this.world.report(
        nodeId,
        its.map(({ doc, verb, state, readySince }) =>
          aShard(doc, {
            state,
            shard: verb.shard.index,
            gpuUuids: verb.gpuUuids,
            since: this.world.now - readySince,
            failure: state === "failed" ? aFailure() : null,
          }),
        ),
      );
    }
  }
}
