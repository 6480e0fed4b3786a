import type { CommandEnvelope, StartVerb } from "../../contract/agent-link.ts";
import type {
  FailureKind,
  GpuReport,
  NodeReport,
  ShardFailure,
  ShardReport,
  ShardState,
} from "../../contract/fleet.ts";
import type { Random } from "../../kernel/random.ts";
import { aNodeReport } from "../fleet-builders.ts";
import type { SimClock } from "./sim-clock.ts";
import type { EngineProcess, SimLedger } from "./sim-ledger.ts";
import type { Lead, SimLink, ToAgent } from "./sim-link.ts";

export const CLUSTER = "sim";
const HEARTBEAT_MS = 2_000;

/** What engines do wrong, by chance. */
export interface EngineFaults {
  startFails: number;
  startStalls: number;
  runsOutOfMemory: number;
  crashesPerHour: number;
  /** Profiles whose hash ends so never start. */
  badVersion: string | null;
}
export const NO_FAULTS: EngineFaults = {
  startFails: 0,
  startStalls: 0,
  runsOutOfMemory: 0,
  crashesPerHour: 0,
  badVersion: null,
};

/** What an agent keeps on disk of one shard. */
interface Kept {
  readonly verb: StartVerb;
  state: ShardState;
  since: number;
  failure: ShardFailure | null;
  process: EngineProcess | null;
}

interface SimCard {
  readonly gpu: GpuReport;
  foreignMib: number;
  sickSince: number | null;
}

/**
 * One machine and the agent on it. The agent obeys the rules of the link (A1 to A5 of `contract/agent-link.ts`); it can be
 * killed and comes back with what is on its disk, while the engines run on. The machine can be switched off and on.
 */
export class SimAgent {
  readonly nodeId: string;
  readonly cards: readonly SimCard[];
  readonly links: readonly SimLink[];
  isOn = true;
  agentRuns = true;
  #boot = 1;
  #highest: (Lead & { readonly clusterId: string }) | null = null;
  readonly #kept = new Map<string, Kept>();
  readonly #leads = new Map<SimLink, Lead>();
  readonly #provenAt = new Map<SimLink, number>();
  #round = 0;
  readonly #sim: {
    readonly clock: SimClock;
    readonly random: Random;
    readonly ledger: SimLedger;
    readonly faults: EngineFaults;
  };

  constructor(
    nodeId: string,
    cards: readonly GpuReport[],
    links: readonly SimLink[],
    sim: {
      readonly clock: SimClock;
      readonly random: Random;
      readonly ledger: SimLedger;
      readonly faults: EngineFaults;
    },
  ) {
    this.nodeId = nodeId;
    this.cards = cards.map((gpu) => ({ gpu, foreignMib: 0, sickSince: null }));
    this.links = links;
    this.#sim = sim;
    for (const link of links) link.onMessage = (message) => this.#onMessage(link, message);
    this.#beat();
  }

  killAgent(): void {
    this.agentRuns = false;
    this.#leads.clear();
    for (const link of this.links) link.close();
  }

  startAgent(): void {
    if (this.isOn) this.agentRuns = true;
  }

  switchOff(): void {
    this.killAgent();
    this.isOn = false;
    this.#round += 1;
    for (const kept of this.#kept.values()) this.#endProcess(kept);
    this.#kept.clear();
  }

  switchOn(): void {
    if (this.isOn) return;
    this.isOn = true;
    this.agentRuns = true;
    this.#boot += 1;
  }

  #beat(): void {
    const { clock } = this.#sim;
    clock.after(HEARTBEAT_MS, () => this.#beat());
    if (!this.isOn || !this.agentRuns) return;
    const report = this.#report();
    for (const link of this.links) {
      link.closeIfDead();
      if (!link.isUp) {
        this.#leads.delete(link);
        if (link.dial()) this.#provenAt.set(link, clock.mono());
      }
      link.report({ type: "report", report });
    }
  }

  #onMessage(link: SimLink, message: ToAgent): void {
    if (!this.isOn || !this.agentRuns) return;
    switch (message.type) {
      case "pong":
        this.#provenAt.set(link, this.#sim.clock.mono());
        break;
      case "lead":
        this.#follow(link, { epoch: message.epoch, holder: message.holder });
        break;
      case "command":
        if (this.#refuses(link, message.command)) this.#sim.ledger.refused += 1;
        else this.#execute(message.command);
        break;
    }
  }

  /** The highest epoch is kept before anything is done under it; a second holder of its number is not followed. */
  #follow(link: SimLink, lead: Lead): void {
    const highest = this.#highest;
    if (
      highest !== null &&
      (lead.epoch < highest.epoch || (lead.epoch === highest.epoch && lead.holder !== highest.holder))
    )
      return;
    this.#highest = { clusterId: CLUSTER, ...lead };
    this.#leads.set(link, lead);
    this.#sim.ledger.followed(this.nodeId, lead.epoch);
  }

  #refuses(link: SimLink, command: CommandEnvelope): boolean {
    const { epoch, holder } = command;
    const lead = this.#leads.get(link);
    if (lead === undefined || lead.epoch !== epoch || lead.holder !== holder) return true;
    if (this.#sim.clock.mono() - (this.#provenAt.get(link) ?? 0) > command.validForMs) return true;
    return this.#highest?.epoch !== epoch || this.#highest.holder !== holder;
  }

  #execute({ epoch, holder, verb }: CommandEnvelope): void {
    this.#sim.ledger.executed(this.nodeId, epoch, holder);
    if (verb.kind === "logs" || verb.kind === "collect") return;
    const kept = this.#kept.get(verb.replicaId);
    if (kept !== undefined && verb.generation < kept.verb.generation) return;
    if (verb.kind === "start" && kept === undefined) this.#start(verb);
    if (verb.kind === "stop" && kept !== undefined) this.#stop(kept);
    if (verb.kind === "forget" && kept !== undefined && kept.process === null) this.#kept.delete(verb.replicaId);
  }

  #start(verb: StartVerb): void {
    const { random, faults } = this.#sim;
    const kept: Kept = { verb, state: "fetching", since: this.#sim.clock.mono(), failure: null, process: null };
    this.#kept.set(verb.replicaId, kept);
    this.#then(kept, 1_000 + random.next() * 5_000, () => {
      this.#enter(kept, "starting");
      kept.process = this.#launch(verb);
      const chance = random.next();
      const isBad = faults.badVersion !== null && kept.verb.profile.hash.endsWith(faults.badVersion);
      if (isBad || chance < faults.startFails) this.#failLater(kept, 3_000, "exit");
      else if (chance < faults.startFails + faults.startStalls) this.#failLater(kept, 60_000, "noProgress");
      else if (chance < faults.startFails + faults.startStalls + faults.runsOutOfMemory)
        this.#failLater(kept, 3_000, "gpuOom");
      else this.#then(kept, 2_000 + random.next() * 15_000, () => this.#serve(kept));
    });
  }

  #launch(verb: StartVerb): EngineProcess {
    const engine: EngineProcess = {
      nodeId: this.nodeId,
      replicaId: verb.replicaId,
      generation: verb.generation,
      shard: verb.shard.index,
      model: verb.model.name,
      gpuUuids: verb.gpuUuids,
      usesMib: (verb.profile.gpu?.memoryMib ?? 0) * 0.95,
    };
    const sick = this.cards.filter(({ gpu, sickSince }) => sickSince !== null && verb.gpuUuids.includes(gpu.uuid));
    const sickForMs = Math.max(0, ...sick.map(({ sickSince }) => this.#sim.clock.mono() - (sickSince ?? 0)));
    this.#sim.ledger.started(engine, sickForMs);
    return engine;
  }

  #serve(kept: Kept): void {
    this.#enter(kept, "ready");
    const { random, faults } = this.#sim;
    if (faults.crashesPerHour === 0) return;
    const crashesAfterMs = (-Math.log(1 - random.next()) * 3_600_000) / faults.crashesPerHour;
    this.#then(kept, crashesAfterMs, () => {
      if (faults.crashesPerHour > 0) this.#fail(kept, "signal");
    });
  }

  #failLater(kept: Kept, ms: number, kind: FailureKind): void {
    this.#then(kept, ms, () => this.#fail(kept, kind));
  }

  #fail(kept: Kept, kind: FailureKind): void {
    this.#endProcess(kept);
    kept.failure = { kind, message: `simulated ${kind}`, signal: null, exitCode: 1, lastLines: ["bye"] };
    this.#enter(kept, "failed");
  }

  #stop(kept: Kept): void {
    if (kept.state === "stopping" || kept.state === "stopped" || kept.state === "failed") return;
    if (kept.state === "ready") this.#sim.ledger.stopsOfReady += 1;
    this.#enter(kept, "stopping");
    this.#then(kept, 500 + this.#sim.random.next() * 4_000, () => {
      this.#endProcess(kept);
      this.#enter(kept, "stopped");
    });
  }

  #enter(kept: Kept, state: ShardState): void {
    kept.state = state;
    kept.since = this.#sim.clock.mono();
  }

  #endProcess(kept: Kept): void {
    if (kept.process !== null) this.#sim.ledger.ended(kept.process);
    kept.process = null;
  }

  /** Goes on only if the shard is still in this state and the machine has not been off meanwhile. */
  #then(kept: Kept, ms: number, run: () => void): void {
    const { state, since } = kept;
    const round = this.#round;
    this.#sim.clock.after(ms, () => {
      if (round === this.#round && kept.state === state && kept.since === since) run();
    });
  }

  #report(): NodeReport {
    const gpus = this.cards.map(({ gpu, foreignMib, sickSince }): GpuReport => {
      let own = 0;
      for (const { process } of this.#kept.values())
        if (process?.gpuUuids.includes(gpu.uuid) === true) own += process.usesMib;
      const health = sickSince === null ? "ok" : "sick";
      return { ...gpu, usedMib: Math.min(gpu.memoryMib ?? 0, own + foreignMib), foreignMib, health };
    });
    const shards = [...this.#kept.values()].map((kept) => this.#shard(kept));
    return aNodeReport(this.nodeId, {
      bootId: `boot-${this.#boot}`,
      gpus,
      shards,
      fabric: "x",
      highestEpoch: this.#highest,
    });
  }

  #shard({ verb, state, since, failure, process }: Kept): ShardReport {
    const used = process === null ? null : Object.fromEntries(verb.gpuUuids.map((uuid) => [uuid, process.usesMib]));
    return {
      replicaId: verb.replicaId,
      generation: verb.generation,
      shard: verb.shard.index,
      model: verb.model.name,
      profileHash: verb.profile.hash,
      state,
      since: this.#sim.clock.mono() - since,
      port: verb.shard.index === 0 ? 18_000 : null,
      pid: 1,
      gpuUuids: verb.gpuUuids,
      gpuUsedMib: used,
      hostUsedMib: null,
      fetch: null,
      failure,
      blockedBy: null,
      adopted: false,
    };
  }
}
