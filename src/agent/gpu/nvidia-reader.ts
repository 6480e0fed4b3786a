import type { GpuReading, KnownGpu } from "../../decide/agent/gpu-inventory.ts";
import {
  COMPUTE_APP_FIELDS,
  GPU_CORE_FIELDS,
  GPU_OPTIONAL_FIELDS,
  parseComputeApps,
  parseGpuList,
  parseGpuRows,
  parseNvlinkDomain,
  parseOptionalRows,
  refusedField,
  type GpuRow,
} from "../../decide/agent/nvidia-csv.ts";
import type { GpuToolReading } from "./gpu-tool.ts";
import { describeFailure, type ToolOutcome, type ToolRunner } from "./tool-runner.ts";

/** A healthy call takes well under a second; one that wakes the driver up may take several. */
const CALL_MS_MAX = 10_000;
const ONE_CARD_MS_MAX = 4_000;
const FORMAT = "--format=csv,noheader,nounits";
const CARDS_MAX = 64;

/** Asks `nvidia-smi`, and makes the best of it when one card, or one field, spoils the answer. */
export class NvidiaReader {
  readonly name = "nvidia-smi";
  readonly #program: string;
  readonly #runner: ToolRunner;
  /** Those that this driver knows. */
  #optional: readonly string[] = GPU_OPTIONAL_FIELDS;

  constructor(program: string, runner: ToolRunner) {
    this.#program = program;
    this.#runner = runner;
  }

  async read(known: readonly KnownGpu[]): Promise<GpuToolReading> {
    const core = await this.#query(GPU_CORE_FIELDS, CALL_MS_MAX);
    if (core.kind === "missing") return { kind: "missing" };
    if (core.kind !== "ended") return { kind: "failed", why: `nvidia-smi ${describeFailure(core)}` };
    let rows = parseGpuRows(core.stdout);
    if (core.code !== 0) rows = await this.#addSurvivors(rows, known);
    // All cards at once do not vanish: the answer is wrong, or the driver is being changed.
    const empty = rows.length === 0 && (known.length > 0 || core.code !== 0);
    if (empty && !(known.length === 0 && /No devices were found/i.test(core.stdout + core.stderr))) {
      const said = (core.stdout.trim() || core.stderr.trim()).split("\n", 1)[0] ?? "";
      return { kind: "failed", why: `nvidia-smi shows no card (code ${core.code}): ${said.slice(0, 200)}` };
    }
    const reading: GpuReading = { rows, apps: await this.#apps(), sickness: await this.#sickness(rows) };
    return { kind: "read", reading };
  }

  /** One lost card can make the whole query fail: the others are asked for one by one. */
  async #addSurvivors(rows: readonly GpuRow[], known: readonly KnownGpu[]): Promise<GpuRow[]> {
    const listed = known.length > 0 ? known : await this.#list();
    const missing = listed.filter((card) => !rows.some((row) => row.uuid === card.uuid)).slice(0, CARDS_MAX);
    const found = [...rows];
    for (const { uuid } of missing) {
      const one = await this.#run([`--query-gpu=${GPU_CORE_FIELDS.join(",")}`, FORMAT, "-i", uuid], ONE_CARD_MS_MAX);
      if (one.kind === "stuck" || one.kind === "timeout") break;
      if (one.kind === "ended") found.push(...parseGpuRows(one.stdout).filter((row) => row.uuid === uuid));
    }
    return found;
  }

  async #list(): Promise<readonly { readonly uuid: string }[]> {
    const list = await this.#run(["-L"], CALL_MS_MAX);
    return list.kind === "ended" ? parseGpuList(list.stdout) : [];
  }

  async #apps(): Promise<GpuReading["apps"]> {
    const apps = await this.#run([`--query-compute-apps=${COMPUTE_APP_FIELDS.join(",")}`, FORMAT], CALL_MS_MAX);
    return apps.kind === "ended" && apps.code === 0 ? parseComputeApps(apps.stdout) : null;
  }

  /** A field that the driver refuses spoils the whole query; it is left out from then on. */
  async #sickness(rows: readonly GpuRow[]): Promise<GpuReading["sickness"]> {
    while (this.#optional.length > 0 && rows.length > 0) {
      const answer = await this.#query(["uuid", ...this.#optional], CALL_MS_MAX);
      if (answer.kind !== "ended") break;
      if (answer.code === 0) return parseOptionalRows(answer.stdout, this.#optional);
      const refused = refusedField(answer.stdout + answer.stderr);
      if (refused === null || !this.#optional.includes(refused)) break;
      this.#optional = this.#optional.filter((field) => field !== refused);
    }
    return new Map();
  }

  /** The NVLink domain; null where there is none, or it can't be told. */
  async fabric(): Promise<string | null> {
    const page = await this.#run(["-q", "-x"], CALL_MS_MAX);
    return page.kind === "ended" ? parseNvlinkDomain(page.stdout) : null;
  }

  #query(fields: readonly string[], timeoutMs: number): Promise<ToolOutcome> {
    return this.#run([`--query-gpu=${fields.join(",")}`, FORMAT], timeoutMs);
  }

  #run(args: readonly string[], timeoutMs: number): Promise<ToolOutcome> {
    return this.#runner.run(this.#program, args, timeoutMs);
  }
}
