import type { GpuReport } from "../../contract/fleet.ts";
import type { ComputeApp } from "./nvidia-csv.ts";

/** Whether cards have room for a start, and whether an engine that has ended has given its memory back. */
export interface CardsView {
  readonly gpus: readonly GpuReport[];
  readonly apps: readonly ComputeApp[] | null;
  /** False when the cards can't be read now. */
  readonly readable: boolean;
  /** Monotonic ms at which this reading was begun. */
  readonly begunAt: number | null;
}

export interface RoomWanted {
  readonly uuids: readonly string[];
  readonly needMib: number;
  /** What other engines of this node were given on each card, measured yet or not. */
  readonly reservedMib: ReadonlyMap<string, number>;
  /** The reading must be younger than this. */
  readonly notBefore: number;
}

export function judgeRoom(
  view: CardsView,
  wanted: RoomWanted,
  foreignOn: (uuid: string) => string | null,
): "enough" | "unknown" | { readonly short: string } {
  if (wanted.uuids.length === 0) return "enough";
  if (!view.readable || view.begunAt === null || view.begunAt < wanted.notBefore) return "unknown";
  for (const uuid of wanted.uuids) {
    const gpu = view.gpus.find((card) => card.uuid === uuid);
    if (gpu === undefined) return { short: `there is no card ${uuid}` };
    if (gpu.health === "sick") return { short: `card ${uuid} is sick: ${gpu.healthWhy ?? "it does not say how"}` };
    if (gpu.health === "unknown") return "unknown";
    // A card that does not count its memory can't be judged; the engine itself will find out.
    if (gpu.memoryMib === null || gpu.usedMib === null) continue;
    const reserved = (wanted.reservedMib.get(uuid) ?? 0) + (gpu.foreignMib ?? 0);
    const freeMib = gpu.memoryMib - Math.max(gpu.usedMib, reserved);
    if (freeMib >= wanted.needMib) continue;
    const figures = `${Math.max(0, Math.round(freeMib))} MiB of ${Math.round(wanted.needMib)} MiB are free on ${uuid}`;
    const blocker = foreignOn(uuid);
    return { short: blocker === null ? figures : `${blocker}; ${figures}` };
  }
  return "enough";
}

/** Memory that nobody else accounts for, by uuid; null where it is not known. */
export function ownMemory(view: CardsView, uuids: readonly string[]): Record<string, number | null> {
  return Object.fromEntries(
    uuids.map((uuid) => {
      const gpu = view.readable ? view.gpus.find((card) => card.uuid === uuid) : undefined;
      const used = gpu?.usedMib ?? null;
      return [uuid, used === null ? null : Math.max(0, used - (gpu?.foreignMib ?? 0))];
    }),
  );
}

/** What a card may keep of an engine that has gone: contexts are torn down by the driver in its own time. */
const SLACK_MIB = 1_024;

export interface CardsHeldBy {
  readonly uuids: readonly string[];
  /** Every process that the engine ever had. */
  readonly pids: ReadonlySet<number>;
  readonly goneAt: number;
  readonly usedBeforeMib: Readonly<Record<string, number | null>>;
  /** Cards that other engines of this node use as well: their memory can't be told apart by sums. */
  readonly shared: ReadonlySet<string>;
}

export function judgeFreed(view: CardsView, held: CardsHeldBy): "free" | "unknown" | { readonly held: string } {
  if (held.uuids.length === 0) return "free";
  if (!view.readable || view.begunAt === null || view.begunAt < held.goneAt) return "unknown";
  const now = ownMemory(view, held.uuids);
  let unknown = false;
  for (const uuid of held.uuids) {
    const app = view.apps?.find((one) => one.gpuUuid === uuid && held.pids.has(one.pid));
    if (app !== undefined) return { held: `process ${app.pid} still holds memory of ${uuid}` };
    const before = held.usedBeforeMib[uuid] ?? null;
    const used = now[uuid] ?? null;
    if (used === null) unknown = true;
    else if (before !== null && !held.shared.has(uuid) && used > before + SLACK_MIB)
      return { held: `${Math.round(used - before)} MiB more than before its start are still in use on ${uuid}` };
  }
  return unknown ? "unknown" : "free";
}
