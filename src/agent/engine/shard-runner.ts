import { join } from "node:path";
import type { FetchReport, ShardFailure, ShardReport } from "../../contract/fleet.ts";
import { weightsName } from "../../contract/resolve-catalog.ts";
import { judgeFreed, judgeRoom, ownMemory, type CardsView } from "../../decide/agent/card-memory.ts";
import { judgeDeath, refusedStart } from "../../decide/agent/judge-death.ts";
import type { Launch, LaunchPlan } from "../../decide/agent/launch/launch-plan.ts";
import type { ProcessEntry } from "../../decide/agent/process-tree.ts";
import {
  adoptedLife,
  askStop,
  isOver,
  newLife,
  reportedState,
  stepShard,
  type ShardAction,
  type ShardLife,
  type ShardSigns,
} from "../../decide/agent/shard-life.ts";
import { isCacheName } from "../../decide/weights/holding.ts";
import { type FetchedSource, parseSource, type WeightsSource } from "../../decide/weights/source.ts";
import type { Clock, MonoMs } from "../../kernel/clock.ts";
import type { Logger } from "../../kernel/log.ts";
import { Secret } from "../../kernel/secret.ts";
import type { GpuWatch } from "../gpu/gpu-watch.ts";
import type { AgentState } from "../state/agent-state.ts";
import type { ShardRecord } from "../state/shard-record.ts";
import { ControlGroup } from "../system/control-group.ts";
import { lookAtPath } from "../weights/look-at-path.ts";
import type { WeightsCache } from "../weights/weights-cache.ts";
import { EngineChecks } from "./engine-checks.ts";
import { EngineLog } from "./engine-log.ts";
import { EngineProcess, type ProcessPorts } from "./engine-process.ts";
import { keyFileIn, removeFolder, spawnEngine, writeKeyFile } from "./spawn-engine.ts";

/**
 * One engine of this node: looks at it, lets `stepShard` decide, and does that.
 *
 * Invariants:
 *   R1. The record says "spawned" before the process is made, and names it right after: an agent that ends in between finds
 *       it by its proof.
 *   R2. One look at a time (the supervisor's).
 */
const LAST_LINES = 20;
const DEATH_LINES = 400;

export interface RunnerPorts extends ProcessPorts {
  readonly clock: Clock;
  readonly log: Logger;
  readonly state: AgentState;
  readonly gpus: GpuWatch;
  readonly agentEnv: Readonly<Record<string, string | undefined>>;
  /** Where engines listen. */
  readonly host: string;
  readonly weightsDir: string;
  readonly weights: WeightsCache;
  /** Parent of the engines' control groups; null where none can be made. */
  readonly groupFolder: string | null;
  /** Something may have changed: look soon. */
  readonly wake: () => void;
}

/** What a look needs of the node's other engines. */
export interface Neighbours {
  readonly reservedMib: ReadonlyMap<string, number>;
  readonly shared: ReadonlySet<string>;
}

export class ShardRunner {
  readonly #ports: RunnerPorts;
  #launch: Launch | null;
  readonly #planWith: (weights: string) => LaunchPlan;
  readonly #log: EngineLog;
  readonly #source: WeightsSource;
  readonly #adopted: boolean;
  #record: ShardRecord;
  #life: ShardLife;
  #process: EngineProcess | null = null;
  #checks: EngineChecks | null = null;
  #weightsFound: ShardSigns["weights"] = "looking";
  #fetch: FetchReport | null = null;
  #death: ShardFailure | null = null;
  #goneAt: MonoMs | null = null;

  /**
   * `launch` is null for a record that has ended. `planWith` makes it anew for weights that were fetched, whose path is known
   * only then.
   */
  constructor(
    ports: RunnerPorts,
    record: ShardRecord,
    launch: Launch | null,
    planWith: (weights: string) => LaunchPlan,
    found: "new" | "adopted",
  ) {
    const now = ports.clock.mono();
    this.#ports = ports;
    this.#record = record;
    this.#launch = launch;
    this.#planWith = planWith;
    this.#adopted = found === "adopted";
    this.#log = new EngineLog(
      join(ports.state.folder, "logs", `${record.fileName}.log`),
      new Secret(record.start.engineKey),
    );
    this.#source = parseSource(record.start.profile.source, ports.weightsDir);
    if (record.ended === null) this.#holdWeights();
    const grace = record.stopGraceMs ?? record.start.stopGraceMs;
    const life = record.spawned ? adoptedLife(now, grace, record.served) : newLife(now, grace);
    this.#life = record.stopGraceMs === null ? life : askStop(life, grace);
    if (record.ended !== null)
      this.#life = {
        ...life,
        phase: record.ended.state,
        failure: record.ended.failure,
        blockedBy: record.ended.blockedBy,
      };
    else if (record.spawned) this.#follow(new EngineProcess(ports, record.proof, record.main, this.#group()));
  }

  get record(): ShardRecord {
    return this.#record;
  }
  get over(): boolean {
    return isOver(this.#life);
  }
  get busy(): boolean {
    return !this.over && this.#life.phase !== "ready";
  }
  get pids(): ReadonlySet<number> {
    return this.over ? new Set() : (this.#process?.pids ?? new Set());
  }
  /** Cards on which it is, or will be. */
  get cards(): readonly string[] {
    return this.over ? [] : this.#record.start.gpuUuids;
  }
  /** It waits for the cards to be read after this time; null when it does not. */
  get waitsForCards(): number | null {
    if (this.cards.length === 0) return null;
    return this.#life.phase === "waiting" ? this.#life.since : this.#life.phase === "clearing" ? this.#goneAt : null;
  }
  lastLines(count: number): string[] {
    return this.#log.last(count);
  }

  /** Of an engine that was running before this agent. */
  async resume(): Promise<void> {
    await this.#log.resume();
    await this.#log.poll();
  }

  async askStop(graceMs: number): Promise<void> {
    this.#life = askStop(this.#life, graceMs);
    if (this.#record.stopGraceMs === null && !this.over) await this.#keep({ stopGraceMs: graceMs });
    this.#ports.wake();
  }

  /** It needs its weights no more. */
  letGo(): void {
    this.#ports.weights.release(this.#record.start.replicaId);
  }

  /** Looks, decides and acts. Says whether the state that is reported has changed. */
  async look(processes: readonly ProcessEntry[], neighbours: Neighbours): Promise<boolean> {
    if (this.over) return false;
    const before = this.#life;
    const now = this.#ports.clock.mono();
    this.#process?.look(processes);
    const newLines = this.#process === null ? [] : await this.#log.poll();
    if (this.#process?.state === "alive") this.#checks?.look();
    if (this.#process?.state === "gone") await this.#noticeEnd(this.#process);
    const signs = await this.#signs(newLines, neighbours);
    const limits = { startStallMs: this.#record.start.startStallMs, markers: this.#launch?.markers ?? [] };
    const step = stepShard(this.#life, signs, limits, now);
    this.#life = step.life;
    for (const action of step.actions) await this.#act(action);
    if (this.#life.phase === "ready" && !this.#record.served) await this.#keep({ served: true });
    if (this.over) await this.#finish();
    const changed = reportedState(before) !== reportedState(this.#life) || before.blockedBy !== this.#life.blockedBy;
    if (changed) this.#tell();
    return changed;
  }

  async #noticeEnd(engine: EngineProcess): Promise<void> {
    if (this.#death === null) {
      await this.#log.finish();
      const lastLines = this.#log.last(DEATH_LINES);
      const cause = judgeDeath(engine.death(this.#life.phase === "ready", lastLines));
      this.#death = { ...cause, lastLines: lastLines.slice(-LAST_LINES) };
    }
    if (engine.memberCount > 0) this.#goneAt = null;
    else this.#goneAt ??= this.#ports.clock.mono();
  }

  async #signs(newLines: readonly string[], neighbours: Neighbours): Promise<ShardSigns> {
    const { start, usedBeforeMib } = this.#record;
    const uuids = start.gpuUuids;
    const view = this.#cardsView();
    const goneAt = this.#goneAt ?? Number.POSITIVE_INFINITY;
    const pids = this.#process?.pids ?? new Set<number>();
    return {
      weights: this.#life.phase === "fetching" ? await this.#lookForWeights() : this.#weightsFound,
      room: judgeRoom(
        view,
        {
          uuids,
          needMib: start.gpuMemoryMib,
          reservedMib: neighbours.reservedMib,
          notBefore: this.#life.since,
        },
        (uuid) => this.#ports.gpus.foreignOn(uuid),
      ),
      process: this.#process?.state ?? "notStarted",
      members: this.#process?.memberCount ?? 0,
      death: this.#death,
      newLines,
      memoryMib: this.#process === null ? null : this.#usedInAll(),
      health: this.#checks?.stage ?? "none",
      service: this.#checks?.service ?? "unknown",
      cards: judgeFreed(view, { uuids, pids, goneAt, usedBeforeMib, shared: neighbours.shared }),
      lastLines: this.#log.last(LAST_LINES),
    };
  }

  /** What it was given must not be removed while it runs, a path into the cache included. */
  #holdWeights(): void {
    const { weights, weightsDir } = this.#ports;
    const { replicaId, profile } = this.#record.start;
    const { kind } = this.#source;
    if (kind === "web" || kind === "hub" || kind === "s3")
      weights.hold(replicaId, weightsName(profile.source ?? "", this.#allowsPickle));
    if (kind !== "path" || !this.#source.path.startsWith(`${weightsDir}/`)) return;
    const [name = ""] = this.#source.path.slice(weightsDir.length + 1).split("/");
    if (isCacheName(name)) weights.hold(replicaId, name);
  }

  get #allowsPickle(): boolean {
    return this.#record.start.profile.allowPickle === true;
  }

  async #lookForWeights(): Promise<ShardSigns["weights"]> {
    const source = this.#source;
    switch (source.kind) {
      case "none":
        this.#weightsFound = "present";
        break;
      case "unavailable":
        this.#weightsFound = { missing: source.why };
        break;
      case "path":
        this.#weightsFound = await lookAtPath(source.path, this.#allowsPickle);
        break;
      default:
        this.#weightsFound = this.#lookForFetched(source);
    }
    return this.#weightsFound;
  }

  #lookForFetched(source: FetchedSource): ShardSigns["weights"] {
    const { replicaId, profile } = this.#record.start;
    const text = profile.source ?? "";
    const allowPickle = this.#allowsPickle;
    if (profile.weightsName !== weightsName(text, allowPickle))
      return { missing: "the start names other weights than those of its source" };
    const view = this.#ports.weights.want({ holder: replicaId, text, source, sha256: profile.sha256, allowPickle });
    this.#fetch = view.kind === "fetching" ? view.fetch : null;
    if (view.kind === "missing") return { missing: view.why };
    if (view.kind === "fetching") return view;
    const plan = this.#planWith(view.path);
    if (plan.kind === "refused") return { missing: plan.why };
    this.#launch = plan;
    return "present";
  }

  async #act(action: ShardAction): Promise<void> {
    if (action === "spawn") await this.#spawn();
    else if (action === "term") this.#process?.term();
    else this.#process?.kill();
  }

  async #spawn(): Promise<void> {
    const [ports, record, launch] = [this.#ports, this.#record, this.#launch];
    if (launch === null) return;
    await this.#keep({ spawned: true, usedBeforeMib: ownMemory(this.#cardsView(), record.start.gpuUuids) });
    const folder = this.#folder();
    await writeKeyFile(keyFileIn(folder), new Secret(record.start.engineKey));
    const spawned = await spawnEngine(launch, {
      agentEnv: ports.agentEnv,
      proof: record.proof,
      log: this.#log,
      folder,
    });
    if (spawned.kind === "failed") {
      this.#death = refusedStart(spawned.why);
      this.#process = new EngineProcess(ports, record.proof, null, null);
      return;
    }
    const startTicks = ports.processes.startTicksOf(spawned.pid);
    const main = startTicks === null ? null : { pid: spawned.pid, startTicks };
    const group = this.#group();
    group?.add(spawned.pid);
    const engine = new EngineProcess(ports, record.proof, main, group);
    engine.watch(spawned.child, ports.wake);
    this.#follow(engine);
    await this.#keep({ main });
  }

  #follow(engine: EngineProcess): void {
    const { start, port, served } = this.#record;
    this.#process = engine;
    if (this.#launch === null) return;
    const address = port === null ? null : { host: this.#ports.host, port, key: new Secret(start.engineKey) };
    this.#checks = new EngineChecks(this.#ports.clock, this.#launch.readiness, address, served, this.#ports.wake);
  }

  async #finish(): Promise<void> {
    const state = this.#life.phase === "stopped" ? "stopped" : "failed";
    this.#process?.close();
    this.letGo();
    const { failure, blockedBy } = this.#life;
    await this.#keep({ ended: { state, failure, blockedBy } });
    await removeFolder(this.#folder());
  }

  async #keep(over: Partial<ShardRecord>): Promise<void> {
    this.#record = { ...this.#record, ...over };
    await this.#ports.state.keepShard(this.#record);
  }

  #folder(): string {
    return join(this.#ports.state.folder, "engines", this.#record.fileName);
  }
  #group(): ControlGroup | null {
    // Another agent of this machine may run a replica of the same name.
    const { groupFolder, state } = this.#ports;
    return ControlGroup.at(groupFolder, `${state.agentId}-${this.#record.fileName}`);
  }

  #cardsView(): CardsView {
    const { gpus, apps, discovery, begunAt } = this.#ports.gpus.snapshot();
    return { gpus, apps, begunAt, readable: discovery === "nvidia-smi" || discovery === "amd-smi" };
  }

  /** Measured memory by card; null where the processes on the cards are not known. */
  #gpuUsedMib(): Record<string, number> | null {
    const { apps } = this.#cardsView();
    const { gpuUuids } = this.#record.start;
    if (apps === null || this.#process === null || gpuUuids.length === 0) return null;
    const mine = apps.filter((app) => this.#process?.pids.has(app.pid) === true);
    if (mine.length === 0 || mine.some((app) => app.usedMib === null)) return null;
    const on = (uuid: string): number =>
      mine.filter((app) => app.gpuUuid === uuid).reduce((sum, app) => sum + (app.usedMib ?? 0), 0);
    return Object.fromEntries(gpuUuids.map((uuid) => [uuid, on(uuid)]));
  }

  #usedInAll(): number | null {
    const host = this.#process?.memoryMib() ?? null;
    const cards = Object.values(this.#gpuUsedMib() ?? {});
    return host === null && cards.length === 0 ? null : (host ?? 0) + cards.reduce((sum, mib) => sum + mib, 0);
  }

  #tell(): void {
    const { start } = this.#record;
    const { failure, blockedBy } = this.#life;
    const level = failure === null ? "info" : "warn";
    this.#ports.log[level]("engine.state", {
      replica: start.replicaId,
      generation: start.generation,
      model: start.model.name,
      state: reportedState(this.#life),
      pid: this.#process?.main?.pid ?? null,
      failure: failure?.kind,
      why: failure?.message ?? blockedBy,
    });
  }

  report(): ShardReport {
    const { start, port } = this.#record;
    const running = !this.over && this.#process !== null;
    return {
      replicaId: start.replicaId,
      generation: start.generation,
      shard: start.shard.index,
      model: start.model.name,
      profileHash: start.profile.hash,
      state: reportedState(this.#life),
      since: Math.max(0, Math.round(this.#ports.clock.mono() - this.#life.since)),
      port,
      pid: running ? (this.#process?.main?.pid ?? null) : null,
      gpuUuids: start.gpuUuids,
      gpuUsedMib: running ? this.#gpuUsedMib() : null,
      hostUsedMib: running ? (this.#process?.memoryMib() ?? null) : null,
      fetch: this.#life.phase === "fetching" ? this.#fetch : null,
      failure: this.#life.failure,
      blockedBy: this.#life.blockedBy,
      adopted: this.#adopted,
    };
  }
}
