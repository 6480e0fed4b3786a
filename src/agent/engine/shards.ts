import { createHash, randomBytes } from "node:crypto";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import type { StartVerb, Verb } from "../../contract/agent-link.ts";
import type { ShardReport } from "../../contract/fleet.ts";
import { judgeStart } from "../../decide/agent/generations.ts";
import type { OwnUse } from "../../decide/agent/gpu-inventory.ts";
import { refusedStart } from "../../decide/agent/judge-death.ts";
import type { LaunchPlan } from "../../decide/agent/launch/launch-plan.ts";
import { needsPort, planLaunch } from "../../decide/agent/launch/plan-launch.ts";
import { judgeAdoption, type ProcessEntry } from "../../decide/agent/process-tree.ts";
import { parseSource } from "../../decide/weights/source.ts";
import { type ErrorCode, messageOf } from "../../kernel/errors.ts";
import { makeFolder } from "../../kernel/make-folder.ts";
import type { ShardRecord } from "../state/shard-record.ts";
import { ControlGroup } from "../system/control-group.ts";
import { EnginePorts } from "./engine-ports.ts";
import type { EnginePrograms } from "./engine-programs.ts";
import { ShardRunner, type Neighbours, type RunnerPorts } from "./shard-runner.ts";
import { keyFileIn } from "./spawn-engine.ts";

/**
 * All engines of this node.
 *
 * Invariants:
 *   N1. At most one engine of a replica: a later generation begins when the earlier one has ended.
 *   N2. What a start led to stays reported until it is forgotten; a start that was refused, too.
 *   N3. Only processes that bear this agent's mark are ever signalled.
 *   N4. An agent that ends its engines begins no other: the leader asks for one in the place of each that it hears has stopped.
 */
const SHARDS_MAX = 256;
const BUSY_EVERY_MS = 500;
const CALM_EVERY_MS = 2_000;
/** What an agent that lost a record may find of its own. */
const STRAYS_MS_MAX = 10_000;

export type VerbOutcome =
  | { readonly kind: "accepted" | "done" }
  | { readonly kind: "refused"; readonly code: ErrorCode; readonly why: string };

export interface ShardsPorts extends Omit<RunnerPorts, "wake"> {
  readonly bootId: string;
  readonly programs: EnginePrograms;
  readonly commands: readonly string[];
  readonly enginePorts: { readonly first: number; readonly last: number };
  /** The reports have changed. */
  readonly onChange: () => void;
}

const refuse = (code: ErrorCode, why: string): VerbOutcome => ({ kind: "refused", code, why });

export class Shards {
  readonly #ports: ShardsPorts;
  readonly #runnerPorts: RunnerPorts;
  readonly #freePorts: EnginePorts;
  readonly #runners = new Map<string, ShardRunner>();
  #closed = false;
  #woken = false;
  #wakeUp: (() => void) | null = null;
  #looking: Promise<void> = Promise.resolve();

  constructor(ports: ShardsPorts) {
    this.#ports = ports;
    this.#runnerPorts = { ...ports, wake: () => this.#wake() };
    this.#freePorts = new EnginePorts(ports.enginePorts);
  }

  /** What earlier agents of this folder left running, before any command is taken. */
  async adopt(): Promise<void> {
    const { state, processes, log } = this.#ports;
    await makeFolder(join(state.folder, "logs"));
    const table = await processes.list();
    for (const record of state.shards) {
      const found = record.spawned ? judgeAdoption(table, record) : null;
      const kept = found === null ? record : { ...record, main: found.kind === "adopt" ? found.main : null };
      const runner = this.#runnerOf(kept, record.ended === null ? this.#plan(record) : null, "adopted");
      await runner.resume();
      this.#runners.set(record.start.replicaId, runner);
      if (record.ended === null)
        log.info("engine.found", {
          replica: record.start.replicaId,
          found: found?.kind ?? "not started",
          pid: kept.main?.pid,
        });
    }
    await this.#endStrays();
    ControlGroup.sweep(this.#ports.groupFolder, state.agentId);
    await this.look();
  }

  /** Engines whose record was lost, by hand or with the disk: nobody can ever stop them but their agent. */
  async #endStrays(): Promise<void> {
    const { state, processes, log, clock, exempt } = this.#ports;
    const recorded = new Set(state.shards.map((record) => record.proof));
    const end = clock.mono() + STRAYS_MS_MAX;
    const isStray = ({ proof, zombie, pid }: ProcessEntry): boolean =>
      proof !== null && proof.startsWith(`${state.agentId}.`) && !recorded.has(proof) && !zombie && !exempt.has(pid);
    for (;;) {
      const strays = (await processes.list()).filter(isStray);
      if (strays.length === 0 || clock.mono() > end) return;
      for (const stray of strays) {
        log.warn("engine.stray", { pid: stray.pid, message: "an engine of this agent without a record is ended" });
        processes.signal(stray, "SIGKILL");
      }
      await clock.sleep(100, new AbortController().signal);
    }
  }

  reports(): ShardReport[] {
    return [...this.#runners.values()].map((runner) => runner.report());
  }

  own(): OwnUse {
    const runners = [...this.#runners.values()];
    return {
      pids: new Set(runners.flatMap((runner) => [...runner.pids])),
      uuids: new Set(runners.flatMap((runner) => runner.cards)),
    };
  }

  async start(verb: StartVerb): Promise<VerbOutcome> {
    if (this.#closed) return refuse("AGENT_BUSY", "the agent ends its engines, and itself");
    const { replicaId, generation } = verb;
    const verdict = judgeStart(this.#ports.state.generations, replicaId, generation);
    if (verdict.kind === "stale") return refuse("STALE_GENERATION", verdict.why);
    const known = this.#runners.get(replicaId);
    if (known !== undefined) {
      if (known.record.start.generation === generation) return { kind: "done" };
      if (!known.over) {
        await known.askStop(known.record.start.stopGraceMs);
        return refuse(
          "SHARD_BUSY",
          `generation ${known.record.start.generation} of ${replicaId} is being stopped first`,
        );
      }
      await this.#drop(known);
    } else if (this.#runners.size >= SHARDS_MAX) return refuse("AGENT_BUSY", `the node holds ${SHARDS_MAX} engines`);
    const { state } = this.#ports;
    const fileName = `${createHash("sha256").update(replicaId).digest("hex").slice(0, 16)}-${generation}`;
    const port = needsPort(verb) ? await this.#takePort() : null;
    const plan = this.#plan({ start: verb, port, fileName });
    const record: ShardRecord = {
      fileName,
      bootId: this.#ports.bootId,
      start: verb,
      proof: `${state.agentId}.${randomBytes(16).toString("hex")}`,
      main: null,
      spawned: false,
      port,
      served: false,
      stopGraceMs: null,
      ended: plan.kind === "refused" ? { state: "failed", failure: refusedStart(plan.why), blockedBy: null } : null,
      usedBeforeMib: {},
    };
    await state.markGeneration(replicaId, { generation, over: false });
    await state.keepShard(record);
    this.#runners.set(replicaId, this.#runnerOf(record, plan, "new"));
    this.#wake();
    this.#ports.onChange();
    return plan.kind === "refused" ? refuse("LAUNCH_REFUSED", plan.why) : { kind: "accepted" };
  }

  async stop(verb: Extract<Verb, { kind: "stop" }>): Promise<VerbOutcome> {
    const { replicaId, generation } = verb;
    const runner = this.#runners.get(replicaId);
    if (runner !== undefined && generation < runner.record.start.generation)
      return refuse("STALE_GENERATION", `generation ${runner.record.start.generation} of ${replicaId} runs here`);
    // A start that was overtaken by its stop must find the mark.
    await this.#ports.state.markGeneration(replicaId, { generation, over: true });
    if (runner === undefined || runner.over) return { kind: "done" };
    this.#ports.log.info("engine.stop", { replica: replicaId, generation, why: verb.why });
    await runner.askStop(verb.graceMs);
    return { kind: "accepted" };
  }

  async forget(verb: Extract<Verb, { kind: "forget" }>): Promise<VerbOutcome> {
    const { replicaId, generation } = verb;
    const runner = this.#runners.get(replicaId);
    if (runner === undefined || generation > runner.record.start.generation) return { kind: "done" };
    if (generation < runner.record.start.generation)
      return refuse("STALE_GENERATION", `generation ${runner.record.start.generation} of ${replicaId} is here`);
    if (!runner.over) return refuse("SHARD_BUSY", `${replicaId} has not ended`);
    await this.#ports.state.markGeneration(replicaId, { generation, over: true });
    await this.#drop(runner);
    this.#ports.onChange();
    return { kind: "done" };
  }

  /** Null when there is no such replica. */
  lines(replicaId: string, count: number): string[] | null {
    return this.#runners.get(replicaId)?.lastLines(count) ?? null;
  }

  /** The cards were read: what waits for room, or for cards to be free, may go on. */
  cardsRead(): void {
    if ([...this.#runners.values()].some((runner) => runner.busy)) this.#wake();
  }

  /** From now on no engine is started. */
  close(): void {
    this.#closed = true;
  }

  /** Weights that a start waits for may have come. */
  weightsChanged(): void {
    this.#wake();
  }

  async stopAll(): Promise<void> {
    await Promise.all([...this.#runners.values()].map((runner) => runner.askStop(runner.record.start.stopGraceMs)));
  }

  get allOver(): boolean {
    return [...this.#runners.values()].every((runner) => runner.over);
  }

  /** Looks at all engines until it is aborted: often while one is starting or ending, and when something has happened. */
  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      this.#woken = false;
      await this.look();
      if (this.#woken) continue;
      const busy = [...this.#runners.values()].some((runner) => runner.busy);
      const pause = new AbortController();
      this.#wakeUp = () => pause.abort();
      const either = AbortSignal.any([signal, pause.signal]);
      await this.#ports.clock.sleep(busy ? BUSY_EVERY_MS : CALM_EVERY_MS, either).catch(() => {});
    }
  }

  #wake(): void {
    this.#woken = true;
    this.#wakeUp?.();
  }

  /** One look at a time. */
  look(): Promise<void> {
    this.#looking = this.#looking.then(() => this.#lookOnce());
    return this.#looking;
  }

  async #lookOnce(): Promise<void> {
    const live = [...this.#runners.values()].filter((runner) => !runner.over);
    if (live.length === 0) return;
    const table = await this.#ports.processes.list();
    let changed = false;
    for (const runner of live) {
      try {
        changed = (await runner.look(table, this.#neighbours(runner))) || changed;
      } catch (error) {
        // A full disk, say: this engine is looked at again, the others go on.
        const replica = runner.record.start.replicaId;
        this.#ports.log.error("engine.look_failed", { replica, message: messageOf(error) });
      }
    }
    for (const runner of live) {
      const since = runner.waitsForCards;
      if (since !== null) this.#ports.gpus.wanted(since);
    }
    if (changed) this.#ports.onChange();
  }

  #neighbours(runner: ShardRunner): Neighbours {
    const others = [...this.#runners.values()].filter(
      (other) => other !== runner && !other.over && other.record.spawned,
    );
    const reservedMib = new Map<string, number>();
    for (const { record } of others) {
      for (const uuid of record.start.gpuUuids)
        reservedMib.set(uuid, (reservedMib.get(uuid) ?? 0) + record.start.gpuMemoryMib);
    }
    return { reservedMib, shared: new Set(reservedMib.keys()) };
  }

  /** `plan` is null for a record that has ended. */
  #runnerOf(record: ShardRecord, plan: LaunchPlan | null, found: "new" | "adopted"): ShardRunner {
    const launch = plan?.kind === "launch" ? plan : null;
    return new ShardRunner(this.#runnerPorts, record, launch, (weights) => this.#plan(record, weights), found);
  }

  /** `fetched`: where the cache has the weights. Before that is known, the source stands for them: it is checked like a path. */
  #plan({ start, port, fileName }: Pick<ShardRecord, "start" | "port" | "fileName">, fetched?: string): LaunchPlan {
    const { host, gpus, programs, commands, state, weightsDir } = this.#ports;
    const cards = gpus.snapshot().gpus;
    const source = parseSource(start.profile.source, weightsDir);
    return planLaunch({
      start,
      host,
      port,
      weights: source.kind === "path" ? source.path : source.kind === "none" ? null : (fetched ?? start.profile.source),
      gpuMemoryMib: start.gpuUuids.map((uuid) => cards.find((card) => card.uuid === uuid)?.memoryMib ?? null),
      program: programs[start.profile.engine] ?? [],
      commands,
      keyFile: keyFileIn(join(state.folder, "engines", fileName)),
    });
  }

  #takePort(): Promise<number | null> {
    const taken = [...this.#runners.values()].filter((runner) => !runner.over).map((runner) => runner.record.port);
    return this.#freePorts.take(this.#ports.host, new Set(taken.filter((port) => port !== null)));
  }

  async #drop(runner: ShardRunner): Promise<void> {
    const { record } = runner;
    this.#runners.delete(record.start.replicaId);
    runner.letGo();
    await this.#ports.state.dropShard(record);
    const log = join(this.#ports.state.folder, "logs", `${record.fileName}.log`);
    await rm(log, { force: true });
    await rm(`${log}.1`, { force: true });
  }
}
