import { parseAmdGpus, parseAmdProcesses } from "../../decide/agent/amd-smi.ts";
import type { GpuToolReading } from "./gpu-tool.ts";
import { describeFailure, type ToolOutcome, type ToolRunner } from "./tool-runner.ts";

const CALL_MS_MAX = 15_000;

/** Asks `amd-smi`. What cards are hardly changes, so it is asked for once and again when a card is new. */
export class AmdReader {
  readonly name = "amd-smi";
  readonly #program: string;
  readonly #runner: ToolRunner;
  #statics = "";

  constructor(program: string, runner: ToolRunner) {
    this.#program = program;
    this.#runner = runner;
  }

  async read(): Promise<GpuToolReading> {
    const list = await this.#page("list");
    if (list.kind === "missing") return { kind: "missing" };
    if (list.kind !== "ended") return { kind: "failed", why: `amd-smi ${describeFailure(list)}` };
    if (list.code !== 0) return { kind: "failed", why: `amd-smi ended with code ${list.code}` };
    const metric = textOf(await this.#page("metric"));
    let rows = parseAmdGpus({ list: list.stdout, static: this.#statics, metric });
    if (rows.some((row) => row.name === null)) {
      this.#statics = textOf(await this.#page("static"));
      rows = parseAmdGpus({ list: list.stdout, static: this.#statics, metric });
    }
    const uuids = new Map(
      rows.flatMap((row) => (row.index === null || row.uuid === null ? [] : [[row.index, row.uuid]])),
    );
    const processes = await this.#page("process");
    const apps = processes.kind === "ended" && processes.code === 0 ? parseAmdProcesses(processes.stdout, uuids) : null;
    return { kind: "read", reading: { rows, apps, sickness: new Map() } };
  }

  fabric(): Promise<null> {
    return Promise.resolve(null);
  }

  #page(name: "list" | "static" | "metric" | "process"): Promise<ToolOutcome> {
    return this.#runner.run(this.#program, [name, "--json"], CALL_MS_MAX);
  }
}

const textOf = (outcome: ToolOutcome): string => (outcome.kind === "ended" ? outcome.stdout : "");
