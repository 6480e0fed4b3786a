import { resolve } from "node:path";
import { CACHE_ENTRIES_MAX } from "../contract/agent-link.ts";
import type { NodeReport } from "../contract/fleet.ts";
import type { AgentSettings } from "../contract/resolve-agent.ts";
import { DEFAULT_PROGRAMS } from "../decide/agent/launch/plan-launch.ts";
import type { Clock } from "../kernel/clock.ts";
import { messageOf, YardmasterError } from "../kernel/errors.ts";
import { type LinkTls, readLinkTls } from "../link/link-tls.ts";
import type { Logger } from "../kernel/log.ts";
import type { Random } from "../kernel/random.ts";
import type { Secret } from "../kernel/secret.ts";
import { type EnginePrograms, enginesThere, findOnPath, resolvePrograms } from "./engine/engine-programs.ts";
import { Shards } from "./engine/shards.ts";
import { AmdReader } from "./gpu/amd-reader.ts";
import type { GpuTool } from "./gpu/gpu-tool.ts";
import { GpuWatch } from "./gpu/gpu-watch.ts";
import { NvidiaReader } from "./gpu/nvidia-reader.ts";
import { ToolRunner } from "./gpu/tool-runner.ts";
import { AgentLinks } from "./link/agent-links.ts";
import { CommandDesk } from "./link/command-desk.ts";
import { lockFolder } from "./state/agent-lock.ts";
import { AgentState } from "./state/agent-state.ts";
import { ownGroupFolder } from "./system/control-group.ts";
import { LinuxProcesses } from "./system/linux-processes.ts";
import { systemMemoryDeaths, type MemoryDeaths } from "./system/memory-deaths.ts";
import { readBootId, readCores, readDiskFreeMib, readMemory } from "./system/node-facts.ts";
import { WeightsCache } from "./weights/weights-cache.ts";

/**
 * One node of the cluster: knows its hardware, runs its engines, and tells every control plane about both.
 *
 * Invariants:
 *   Y1. It listens nowhere. Whoever wants something of it must have been dialled by it.
 *   Y2. What earlier agents left is taken over before the first control plane is dialled: the first report is complete.
 *   Y3. Its end is no end of the engines, unless that was asked for.
 */
const HEARTBEAT_MS = 2_000;
const FIRST_READING_MS = 3_000;
/** Changes within a moment are told together. */
const GATHER_MS = 50;
const STOP_LOOK_MS = 200;
/** Longer than any grace that a start may name is waited for nobody. */
const STOP_MS_MAX = 600_000;

export interface AgentOptions {
  readonly settings: AgentSettings;
  /** The agent's own folder. */
  readonly folder: string;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly version: string;
  readonly token: Secret | null;
  /** This program, for simulated engines. */
  readonly self: readonly string[];
  readonly memoryDeaths?: MemoryDeaths;
}

export class Agent {
  readonly #options: AgentOptions;
  readonly #state: AgentState;
  readonly #bootId: string;
  readonly #programs: EnginePrograms;
  readonly #weightsDir: string;
  readonly #weights: WeightsCache;
  readonly #gpus: GpuWatch;
  readonly #runner: ToolRunner;
  readonly #shards: Shards;
  readonly #links: AgentLinks;
  readonly #desk: CommandDesk;
  readonly #lock: AsyncDisposable;
  readonly #stop = new AbortController();
  #loops: readonly Promise<void>[] = [];
  #seq = 0;
  #beat: (() => void) | null = null;

  /** Throws CONFIG_INVALID when its folder can't be used, or the system is not Linux. */
  static async start(options: AgentOptions): Promise<Agent> {
    const processes = new LinuxProcesses();
    const startTicks = processes.startTicksOf(process.pid);
    if (startTicks === null)
      throw new YardmasterError("CONFIG_INVALID", "an agent needs Linux: there is no /proc here");
    const bootId = readBootId();
    const lock = await lockFolder(options.folder, { pid: process.pid, startTicks }, (pid) =>
      processes.startTicksOf(pid),
    );
    try {
      const state = await AgentState.load(options.folder, bootId);
      const tls = (): Promise<LinkTls> => readLinkTls(options.settings.tls, "agent");
      await tls();
      const weights = await openWeights(options, bootId, () => agent.#shards.weightsChanged());
      const agent: Agent = new Agent(options, { state, bootId, lock, processes, tls, weights });
      const firstReading = agent.#gpus.readOnce();
      await agent.#shards.adopt();
      // Engines are found at once, whatever the cards do; a tool that takes longer leaves its cards unknown for so long.
      await Promise.race([firstReading, options.clock.sleep(FIRST_READING_MS, AbortSignal.any([]))]);
      agent.#run();
      return agent;
    } catch (error) {
      await lock[Symbol.asyncDispose]();
      throw error;
    }
  }

  private constructor(
    options: AgentOptions,
    made: {
      state: AgentState;
      bootId: string;
      lock: AsyncDisposable;
      processes: LinuxProcesses;
      tls: () => Promise<LinkTls>;
      weights: WeightsCache;
    },
  ) {
    const { settings, clock, log, env } = options;
    const { state, bootId, processes } = made;
    this.#options = options;
    this.#state = state;
    this.#bootId = bootId;
    this.#programs = resolvePrograms({ ...DEFAULT_PROGRAMS, ...settings.programs, sim: options.self }, process.cwd());
    this.#weightsDir = resolve(settings.weightsDir);
    this.#weights = made.weights;
    this.#lock = made.lock;
    this.#runner = new ToolRunner(clock, toolEnv(env));
    this.#gpus = new GpuWatch({
      clock,
      tools: gpuTools(settings, env, this.#runner),
      own: () => this.#shards.own(),
      known: state.knownGpus,
      keepKnown: (known) =>
        void state.keepGpus(known).catch((error: unknown) => this.#tellFailure("gpus.keep_failed", error)),
      onReading: () => this.#shards.cardsRead(),
    });
    this.#shards = new Shards({
      clock,
      log,
      state,
      bootId,
      processes,
      memoryDeaths: options.memoryDeaths ?? systemMemoryDeaths,
      exempt: new Set(processes.ancestry(process.pid)),
      gpus: this.#gpus,
      agentEnv: env,
      host: settings.address,
      weightsDir: this.#weightsDir,
      weights: this.#weights,
      groupFolder: ownGroupFolder(),
      programs: this.#programs,
      commands: settings.commands,
      enginePorts: settings.enginePorts,
      onChange: () => this.#beat?.(),
    });
    this.#desk = new CommandDesk({ clock, log, state, shards: this.#shards, weights: this.#weights });
    this.#links = new AgentLinks({
      clock,
      random: options.random,
      log,
      state,
      configured: settings.controls,
      token: options.token,
      tls: made.tls,
      hello: (nodeId) => ({
        type: "hello",
        nodeName: settings.name,
        nodeId,
        bootId,
        agentVersion: options.version,
      }),
      onLead: (link, lead) => this.#desk.lead(link, lead),
      onCommand: (link, command, receivedAt) => this.#desk.command(link, command, receivedAt),
      onReady: () => this.#beat?.(),
    });
  }

  #run(): void {
    const { signal } = this.#stop;
    this.#links.run(signal);
    this.#loops = [this.#gpus.run(signal), this.#shards.run(signal), this.#report(signal)];
  }

  /** Tells every control plane how the node is: at the pace that they ask for, and when something has changed. */
  async #report(signal: AbortSignal): Promise<void> {
    const { clock } = this.#options;
    while (!signal.aborted) {
      const changed = new AbortController();
      this.#beat = () => changed.abort();
      const either = AbortSignal.any([signal, changed.signal]);
      await clock.sleep(this.#links.heartbeatMs ?? HEARTBEAT_MS, either).catch(() => {});
      if (changed.signal.aborted) await clock.sleep(GATHER_MS, signal).catch(() => {});
      if (signal.aborted || this.#links.heartbeatMs === null) continue;
      this.#seq += 1;
      this.#links.broadcast({ type: "report", seq: this.#seq, report: await this.#nodeReport() });
    }
  }

  async #nodeReport(): Promise<NodeReport> {
    const { settings, version, env } = this.#options;
    const { gpus, discovery, why } = this.#gpus.snapshot();
    const engines = enginesThere(this.#programs, env["PATH"] ?? "");
    const { epoch, membership } = this.#state;
    return {
      nodeId: membership?.nodeId ?? "",
      name: settings.name,
      bootId: this.#bootId,
      agentVersion: version,
      address: settings.address,
      labels: settings.labels,
      fabric: settings.fabric ?? this.#gpus.fabric,
      cores: readCores(),
      ...readMemory(),
      diskFreeMib: await readDiskFreeMib(this.#weightsDir, settings.weights.reserve),
      weights: this.#weights.held.slice(0, CACHE_ENTRIES_MAX),
      leftovers: await this.#weights.leftovers(),
      engines: settings.commands.length > 0 ? [...engines, "command"] : engines,
      commands: settings.commands,
      gpus,
      gpuDiscovery: discovery,
      gpuDiscoveryWhy: why,
      shards: this.#shards.reports(),
      highestEpoch: epoch === null ? null : { clusterId: epoch.clusterId, epoch: epoch.epoch, holder: epoch.holder },
      highestCommit: epoch?.commit ?? 0,
      proofs: { epoch: epoch?.epochProof ?? "", commit: epoch?.commitProof ?? "" },
    };
  }

  /** Leaves the engines running for the next agent, unless told to stop them; `hurry` ends the wait for them. */
  async stop(options: { readonly engines: "leave" | "stop" }, hurry: AbortSignal): Promise<void> {
    const { clock } = this.#options;
    if (options.engines === "stop") {
      this.#shards.close();
      await this.#desk.settled();
      await this.#shards.stopAll();
      const end = clock.mono() + STOP_MS_MAX;
      while (!this.#shards.allOver && !hurry.aborted && clock.mono() < end)
        await clock.sleep(STOP_LOOK_MS, hurry).catch(() => {});
    }
    this.#stop.abort(new Error("the agent stops"));
    this.#runner.close();
    await Promise.allSettled(this.#loops);
    await this.#weights.close();
    await this.#desk.settled();
    await this.#state.settled();
    await this.#links.settled();
    await this.#lock[Symbol.asyncDispose]();
  }

  #tellFailure(op: string, error: unknown): void {
    this.#options.log.error(op, { message: messageOf(error) });
  }
}

async function openWeights(options: AgentOptions, bootId: string, onChange: () => void): Promise<WeightsCache> {
  const { clock, random, log, env, folder, settings } = options;
  const { ca } = await readLinkTls({ ca: settings.weights.caFile, cert: null, key: null }, "agent.weights");
  return WeightsCache.open({
    clock,
    random,
    log,
    settings: settings.weights,
    env,
    folder: resolve(settings.weightsDir),
    stateFolder: resolve(folder, "weights"),
    bootId,
    ca,
    onChange,
  });
}

/** The tools get nothing of the agent's environment but where to find programs and the driver's libraries. */
function toolEnv(env: AgentOptions["env"]): Record<string, string> {
  const names = ["PATH", "LD_LIBRARY_PATH", "HOME"];
  const given = names.map((name) => [name, env[name]] as const).filter(([, value]) => value !== undefined);
  return { ...(Object.fromEntries(given) as Record<string, string>), LC_ALL: "C" };
}

function gpuTools(settings: AgentSettings, env: AgentOptions["env"], runner: ToolRunner): GpuTool[] {
  const path = env["PATH"] ?? "";
  const nvidia = settings.nvidiaSmi ?? findOnPath("nvidia-smi", path);
  const amd = settings.amdSmi ?? findOnPath("amd-smi", path);
  return [
    ...(nvidia === null ? [] : [new NvidiaReader(nvidia, runner)]),
    ...(amd === null ? [] : [new AmdReader(amd, runner)]),
  ];
}

/** The agent's part of a data folder. */
export const agentFolder = (dataDir: string): string => resolve(dataDir, "agent");
