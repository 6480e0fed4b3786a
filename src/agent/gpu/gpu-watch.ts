import type { GpuReport, NodeReport } from "../../contract/fleet.ts";
import type { Clock, MonoMs } from "../../kernel/clock.ts";
import {
  describeForeign,
  rememberGpus,
  reportGpus,
  unknownGpus,
  type KnownGpu,
  type OwnUse,
} from "../../decide/agent/gpu-inventory.ts";
import type { ComputeApp } from "../../decide/agent/nvidia-csv.ts";
import type { GpuTool } from "./gpu-tool.ts";

/**
 * Reads the node's cards again and again, in its own time: a slow or hanging tool delays no heartbeat, and what is older than
 * `STALE_MS` is reported as unknown.
 *
 * Invariants:
 *   W1. One reading at a time.
 *   W2. A card that was seen once is reported for as long as the machine runs.
 */
export const GPU_EVERY_MS = 2_000;
export const STALE_MS = 15_000;
const FABRIC_EVERY_MS = 600_000;

export interface GpuSnapshot {
  readonly gpus: readonly GpuReport[];
  readonly discovery: NodeReport["gpuDiscovery"];
  readonly why: string | null;
  /** Null when the processes on the cards are not known. */
  readonly apps: readonly ComputeApp[] | null;
  /** When the reading was begun; null before the first. */
  readonly begunAt: MonoMs | null;
}

export interface GpuWatchPorts {
  readonly clock: Clock;
  /** In the order in which they are asked; the first that is there is taken. */
  readonly tools: readonly GpuTool[];
  readonly own: () => OwnUse;
  readonly known: readonly KnownGpu[];
  readonly keepKnown: (known: readonly KnownGpu[]) => void;
  readonly onReading: () => void;
}

export class GpuWatch {
  readonly #ports: GpuWatchPorts;
  #known: readonly KnownGpu[];
  #tool: GpuTool | null = null;
  #latest: GpuSnapshot;
  #reading: Promise<void> | null = null;
  #fabric: string | null = null;
  #fabricAt: MonoMs | null = null;
  #hurry: (() => void) | null = null;
  #own: OwnUse = { pids: new Set(), uuids: new Set() };

  constructor(ports: GpuWatchPorts) {
    this.#ports = ports;
    this.#known = ports.known;
    const why = "the cards have not been read yet";
    this.#latest = {
      gpus: unknownGpus(ports.known, why),
      discovery: ports.tools.length === 0 ? "none" : "failed",
      why: ports.tools.length === 0 ? null : why,
      apps: null,
      begunAt: null,
    };
  }

  /** Found by itself; null where there is none. */
  get fabric(): string | null {
    return this.#fabric;
  }

  snapshot(): GpuSnapshot {
    const { begunAt, discovery } = this.#latest;
    if (begunAt === null || discovery === "none" || this.#ports.clock.mono() - begunAt < STALE_MS) return this.#latest;
    const seconds = Math.round((this.#ports.clock.mono() - begunAt) / 1_000);
    return this.#failed(this.#latest.why ?? `the cards were read last ${seconds} s ago`, begunAt);
  }

  /** Who else holds memory on a card, in words; null where nobody is known to. */
  foreignOn(uuid: string): string | null {
    return describeForeign(uuid, this.snapshot().apps, this.#own);
  }

  /** Reads once, or waits for the reading that is being made; rejects never. */
  readOnce(): Promise<void> {
    this.#reading ??= this.#read().finally(() => (this.#reading = null));
    return this.#reading;
  }

  async #read(): Promise<void> {
    const begunAt = this.#ports.clock.mono();
    const own = this.#ports.own();
    const tools = this.#tool === null ? this.#ports.tools : [this.#tool];
    for (const tool of tools) {
      const outcome = await tool.read(this.#known);
      if (outcome.kind === "missing") continue;
      this.#tool = tool;
      this.#own = own;
      if (outcome.kind === "failed") this.#latest = this.#failed(outcome.why, begunAt);
      else {
        this.#remember(rememberGpus(this.#known, outcome.reading.rows));
        const gpus = reportGpus(outcome.reading, this.#known, own);
        this.#latest = { gpus, discovery: tool.name, why: null, apps: outcome.reading.apps, begunAt };
        await this.#readFabric(tool, begunAt);
      }
      this.#ports.onReading();
      return;
    }
    // A tool that was there and has gone takes no card with it.
    this.#latest =
      this.#tool === null && this.#known.length === 0
        ? { gpus: [], discovery: "none", why: null, apps: null, begunAt }
        : this.#failed(`${this.#tool?.name ?? "the tool"} is not there any more`, begunAt);
    this.#ports.onReading();
  }

  /** Somebody waits for a reading that is begun after `since`: the pause before the next one is cut short. */
  wanted(since: number): void {
    if ((this.#latest.begunAt ?? 0) < since) this.#hurry?.();
  }

  /** Ends by abort. */
  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const soon = new AbortController();
      this.#hurry = () => soon.abort();
      await this.#ports.clock.sleep(GPU_EVERY_MS, AbortSignal.any([signal, soon.signal])).catch(() => {});
      this.#hurry = null;
      if (!signal.aborted) await this.readOnce();
    }
  }

  #failed(why: string, begunAt: MonoMs): GpuSnapshot {
    return { gpus: unknownGpus(this.#known, why), discovery: "failed", why, apps: null, begunAt };
  }

  #remember(known: readonly KnownGpu[]): void {
    const changed = JSON.stringify(known) !== JSON.stringify(this.#known);
    this.#known = known;
    if (changed) this.#ports.keepKnown(known);
  }

  async #readFabric(tool: GpuTool, now: MonoMs): Promise<void> {
    if (this.#known.length === 0 || (this.#fabricAt !== null && now - this.#fabricAt < FABRIC_EVERY_MS)) return;
    this.#fabricAt = now;
    this.#fabric = (await tool.fabric()) ?? this.#fabric;
  }
}
