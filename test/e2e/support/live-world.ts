import { readdirSync, readFileSync } from "node:fs";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { stringify } from "yaml";
import { shardRecord, type ShardRecord } from "../../../src/agent/state/shard-record.ts";
import type { AgentSection } from "../../../src/contract/agent-schema.ts";
import type { NodeAnswer, ReplicaAnswer } from "../../../src/contract/control-api.ts";
import type { StoredEvent } from "../../../src/contract/control-event.ts";
import type { ControlSection } from "../../../src/contract/control-schema.ts";
import { eventually } from "../../../src/testing/wait-for.ts";
import { applyCatalog, tokenFor } from "./fake-fleet.ts";
import { runProgram, type RunningProgram } from "./program.ts";
import { engineBlock, PORTS } from "./test-agent.ts";
import { startTestControl, type TestControl } from "./test-control.ts";

/** Simulated engines start in a second or two; several at once on a busy machine take longer. */
export const START_MS = 60_000;

/** The product's own times, scaled down: a test sees a node lost within seconds. */
export const QUICK = {
  unreachable_after_s: 1.5,
  lost_after_s: 4,
  settle_s: 4,
  stop_grace_s: 2,
  drain_grace_s: 1,
} as const satisfies Partial<ControlSection>;

/** One catalog entry of a simulated model. */
export const simModel = (name: string, more: Record<string, unknown> = {}): Record<string, unknown> => ({
  name,
  slots_per_replica: 4,
  profiles: [{ engine: "sim", cpu: { cores: 0.01, memory_gb: 0.001 } }],
  ...more,
});

/** An agent that is a process of its own, with engines that are processes of their own. */
export class LiveAgent {
  readonly name: string;
  readonly folder: string;
  readonly #section: Partial<AgentSection>;
  readonly #token: string;
  #program: RunningProgram | null = null;
  #log = "";

  constructor(name: string, folder: string, token: string, section: Partial<AgentSection>) {
    this.name = name;
    this.folder = folder;
    this.#token = token;
    this.#section = section;
  }

  /** What all its processes have told so far. */
  get log(): string {
    return this.#log + (this.#program?.err ?? "");
  }

  async start(): Promise<void> {
    await mkdir(this.folder, { recursive: true });
    const config = join(this.folder, "yardmaster.yaml");
    await writeFile(config, stringify({ data_dir: join(this.folder, "data"), agent: this.#section }), { mode: 0o600 });
    this.#program = runProgram(["agent", "--config", config, "--log-format", "json", "--log-level", "debug"], {
      cwd: this.folder,
      env: { YARDMASTER_TOKEN: this.#token, HOME: this.folder },
    });
    await this.#program.said(/^yardmaster agent ready /m);
  }

  /** Its engines run on. */
  async kill(signal: "SIGKILL" | "SIGTERM" = "SIGKILL"): Promise<void> {
    const program = this.#program;
    if (program === null) return;
    program.kill(signal);
    await program.end();
    this.#log += program.err;
    this.#program = null;
  }

  pause(): void {
    this.#program?.kill("SIGSTOP");
  }

  resume(): void {
    this.#program?.kill("SIGCONT");
  }

  /** As when its machine loses power. */
  async powerOff(): Promise<void> {
    await this.kill();
    for (const pid of this.engines().values()) endGroup(pid);
  }

  /** Records of what it was told to start and has not been told to forget. */
  records(): readonly ShardRecord[] {
    const shards = join(this.folder, "data/agent/shards");
    let names: readonly string[];
    try {
      names = readdirSync(shards).filter((name) => name.endsWith(".json"));
    } catch {
      return [];
    }
    return names.flatMap((name) => {
      try {
        return [shardRecord.parse(JSON.parse(readFileSync(join(shards, name), "utf8")))];
      } catch {
        return []; // Forgotten, or being written, since the folder was read.
      }
    });
  }

  /** Processes of engines that have not ended, by replica. */
  engines(): ReadonlyMap<string, number> {
    return new Map(
      this.records().flatMap(({ start, main, ended }) =>
        main === null || ended !== null ? [] : [[start.replicaId, main.pid] as const],
      ),
    );
  }

  /** Epochs that it obeyed, in order. */
  epochs(): readonly number[] {
    return [...this.log.matchAll(/"op":"lead\.followed"[^\n]*"epoch":(\d+)/g)].map(([, epoch]) => Number(epoch));
  }

  async end(): Promise<void> {
    await this.kill();
    for (const pid of this.engines().values()) endGroup(pid);
  }
}

function endGroup(pid: number): void {
  try {
    process.kill(-pid, "SIGKILL");
  } catch {
    // It had ended by itself.
  }
}

/** Control planes in this process, agents and engines as processes. */
export class LiveWorld implements AsyncDisposable {
  readonly folder: string;
  readonly agents: LiveAgent[] = [];
  control!: TestControl;
  readonly #section: Partial<ControlSection>;

  static async start(section: Partial<ControlSection> = QUICK): Promise<LiveWorld> {
    const world = new LiveWorld(await mkdtemp(join(tmpdir(), "yardmaster-live-")), section);
    await world.startControl();
    return world;
  }

  private constructor(folder: string, section: Partial<ControlSection>) {
    this.folder = folder;
    this.#section = section;
  }

  get dataDir(): string {
    return join(this.folder, "control");
  }

  /** Under the address that it had before, if it had one. */
  async startControl(): Promise<void> {
    const before: TestControl | undefined = this.control;
    this.control = await startTestControl({
      dataDir: this.dataDir,
      control: this.#section,
      ...(before === undefined ? {} : { listen: new URL(before.url).host }),
    });
    await eventually(
      "the lead",
      () => this.control.plane.leading,
      (leading) => leading,
    );
  }

  async stopControl(): Promise<void> {
    await this.control[Symbol.asyncDispose]();
  }

  /** Enrolled by a token, and started. */
  async addAgent(name: string, over: Partial<AgentSection> = {}): Promise<LiveAgent> {
    const folder = join(this.folder, name);
    const first = engineBlock();
    const agent = new LiveAgent(name, folder, await tokenFor(this.control, name), {
      name,
      control: [this.control.url.replace("http", "ws")],
      weights_dir: join(folder, "weights"),
      engine_ports: `${first}-${first + PORTS - 1}`,
      nvidia_smi: "/nowhere/nvidia-smi",
      ...over,
    });
    this.agents.push(agent);
    await agent.start();
    await this.untilNodes(`${name} is ready`, (nodes) =>
      nodes.some((node) => node.name === name && node.state === "ready"),
    );
    return agent;
  }

  apply(...models: readonly Record<string, unknown>[]): Promise<void> {
    return applyCatalog(this.control, models);
  }

  async replicas(): Promise<readonly ReplicaAnswer[]> {
    return (await this.control.ask<{ replicas: ReplicaAnswer[] }>("GET", "/v1/replicas")).body.replicas;
  }

  async nodes(): Promise<readonly NodeAnswer[]> {
    return (await this.control.ask<{ nodes: NodeAnswer[] }>("GET", "/v1/nodes")).body.nodes;
  }

  async events(kind: string): Promise<readonly StoredEvent[]> {
    return (await this.control.ask<{ events: StoredEvent[] }>("GET", `/v1/events?limit=1000&kind=${kind}`)).body.events;
  }

  untilReplicas(
    what: string,
    accept: (replicas: readonly ReplicaAnswer[]) => boolean,
    ms = START_MS,
  ): Promise<readonly ReplicaAnswer[]> {
    return eventually(what, () => this.replicas(), accept, ms);
  }

  untilNodes(
    what: string,
    accept: (nodes: readonly NodeAnswer[]) => boolean,
    ms = START_MS,
  ): Promise<readonly NodeAnswer[]> {
    return eventually(what, () => this.nodes(), accept, ms);
  }

  /** Processes of all engines that run, by replica. */
  engines(): ReadonlyMap<string, number> {
    return new Map(this.agents.flatMap((agent) => [...agent.engines()]));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stopControl();
    for (const agent of this.agents) await agent.end();
    await rm(this.folder, { recursive: true, force: true, maxRetries: 5 });
  }
}

export const allReady = (replicas: readonly ReplicaAnswer[], count: number): boolean =>
  replicas.length === count && replicas.every(({ state }) => state === "ready");
