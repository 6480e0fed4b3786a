import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { stringify } from "yaml";
import { aGpu, fakeNvidiaSmi } from "../../../src/testing/fake-nvidia-smi.ts";
import type { Direction } from "../../../src/testing/fault-proxy.ts";
import type { EngineCensus } from "./engine-census.ts";
import type { CuttableWay } from "./own-network.ts";
import { ProgramRuns } from "./program-runs.ts";
import { engineBlock, PORTS } from "./test-agent.ts";

/** A command that an agent began to carry out, as its log tells. */
export interface Obeyed {
  readonly epoch: number;
  readonly holder: string;
  readonly seq: number;
  readonly verb: string;
}

const CARDS = 2;

/** A node: an agent as a process, with cards, a folder and engines of its own. */
export class NodeProcess implements AsyncDisposable {
  readonly name: string;
  readonly #ways: readonly CuttableWay[];
  readonly #census: EngineCensus;
  readonly #runs: ProgramRuns;

  static async make(options: {
    readonly name: string;
    /** Of the whole cluster; the node's own lies in it. */
    readonly folder: string;
    readonly controls: readonly string[];
    readonly token: string;
    readonly census: EngineCensus;
    /** To the control planes, where they can be cut. */
    readonly ways: readonly CuttableWay[];
  }): Promise<NodeProcess> {
    const { name } = options;
    const folder = join(options.folder, name);
    await mkdir(folder, { recursive: true });
    const cards = Array.from({ length: CARDS }, (_, index) => aGpu(index, { uuid: `GPU-${name}-${index}` }));
    const smi = fakeNvidiaSmi(folder, { gpus: cards });
    const first = engineBlock();
    const agent = {
      name,
      control: options.controls,
      nvidia_smi: smi.path,
      weights_dir: join(folder, "weights"),
      engine_ports: `${first}-${first + PORTS - 1}`,
    };
    const config = join(folder, "yardmaster.yaml");
    await writeFile(config, stringify({ data_dir: join(folder, "data"), agent }), { mode: 0o600 });
    return new NodeProcess(options, folder, config);
  }

  private constructor(
    made: { name: string; token: string; census: EngineCensus; ways: readonly CuttableWay[] },
    folder: string,
    config: string,
  ) {
    const { name, token, census, ways } = made;
    this.name = name;
    this.#ways = ways;
    this.#census = census;
    const env = { YARDMASTER_TOKEN: token, HOME: folder };
    this.#runs = new ProgramRuns(["agent", "--config", config], { cwd: folder, env });
  }

  get log(): string {
    return this.#runs.log;
  }

  async start(): Promise<void> {
    await this.#runs.start().said(/^yardmaster agent ready /m);
  }

  signal(name: "SIGSTOP" | "SIGCONT"): void {
    this.#runs.signal(name);
  }

  /** The agent alone: its engines run on. */
  killAgent(): Promise<void> {
    return this.#runs.kill();
  }

  /** As when the power fails: the agent, so that it starts no more, and its engines. */
  async killTree(): Promise<void> {
    await this.killAgent();
    for (const { pid } of this.#census.alive(this.name)) killIfThere(pid);
  }

  /** In the given direction nothing gets to, or from, any control plane until it is disposed. */
  cut(direction: Direction): Disposable {
    const cuts = this.#ways.map((way) => way.cut(direction));
    return { [Symbol.dispose]: () => cuts.forEach((cut) => cut[Symbol.dispose]()) };
  }

  /** In the order in which they were obeyed. */
  get obeyed(): readonly Obeyed[] {
    return linesOf<Obeyed>(this.log, "command.obeyed");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.killTree();
    for (const way of this.#ways) await way[Symbol.asyncDispose]();
  }
}

function killIfThere(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch {
    // It ended by itself in between.
  }
}

/** The lines of a log in JSON that tell of one thing. */
export const linesOf = <T>(log: string, op: string): readonly T[] =>
  log
    .split("\n")
    .filter((line) => line.includes(`"${op}"`))
    .map((line) => JSON.parse(line) as T);
