import { GPUS_MAX } from "../../contract/agent-link.ts";
import type { GpuReport } from "../../contract/fleet.ts";
import { gpuClass } from "./gpu-class.ts";
import type { ComputeApp, GpuRow } from "./nvidia-csv.ts";

/** A card that was seen since the machine started; it is reported until then, whatever becomes of it. */
export interface KnownGpu {
  readonly uuid: string;
  readonly index: number;
  readonly name: string;
  readonly memoryMib: number | null;
}

export interface GpuReading {
  readonly rows: readonly GpuRow[];
  /** Null when the tool could not tell which processes use the cards. */
  readonly apps: readonly ComputeApp[] | null;
  /** By uuid, what a card says of its own health; null where nothing speaks against it. */
  readonly sickness: ReadonlyMap<string, string | null>;
}

/** What this agent's own engines are, so that the rest is foreign. */
export interface OwnUse {
  readonly pids: ReadonlySet<number>;
  /** Cards on which an own engine runs, or may still hold memory. */
  readonly uuids: ReadonlySet<string>;
}

/** Driver and display take this much of a card without any process; more than it without a name is somebody's. */
const UNNAMED_MIB_MAX = 1_024;

/** Cards by uuid, with those that are named by their index alone put in their place. */
function identify(rows: readonly GpuRow[], known: readonly KnownGpu[]): Map<string, GpuRow> {
  const cards = new Map<string, GpuRow>();
  for (const row of rows) {
    const uuid = row.uuid ?? known.find((card) => card.index === row.index)?.uuid;
    if (uuid !== undefined && !cards.has(uuid)) cards.set(uuid, row);
  }
  return cards;
}

/** The cards that are known after this reading: those before it, as they show themselves now, and new ones. */
export function rememberGpus(known: readonly KnownGpu[], rows: readonly GpuRow[]): KnownGpu[] {
  const all = new Map(known.map((card) => [card.uuid, card]));
  for (const [uuid, row] of identify(rows, known)) {
    const before = all.get(uuid);
    const index = row.index ?? before?.index;
    if (index === undefined) continue;
    const name = row.name ?? before?.name ?? "";
    all.set(uuid, { uuid, index, name, memoryMib: row.memoryMib ?? before?.memoryMib ?? null });
  }
  const sorted = [...all.values()].toSorted((a, b) => a.index - b.index || (a.uuid < b.uuid ? -1 : 1));
  if (sorted.length <= GPUS_MAX) return sorted;
  // A report has room for so many: those that are there go before those that were.
  const present = new Set(rows.map(({ uuid }) => uuid));
  const kept = new Set([...sorted.filter((card) => present.has(card.uuid)), ...sorted].slice(0, GPUS_MAX));
  return sorted.filter((card) => kept.has(card));
}

/** One report for each known card. A card that has vanished, or fails, is sick; its figures are unknown, not 0. */
export function reportGpus(reading: GpuReading, known: readonly KnownGpu[], own: OwnUse): GpuReport[] {
  const cards = identify(reading.rows, known);
  return known.map((card) => {
    const row = cards.get(card.uuid);
    const base = { uuid: card.uuid, index: card.index, name: card.name, class: gpuClass(card.name) };
    if (row === undefined) {
      return { ...base, ...NO_FIGURES, memoryMib: card.memoryMib, health: "sick", healthWhy: "the card has vanished" };
    }
    const words = row.fault ?? reading.sickness.get(card.uuid) ?? null;
    const why = words === null ? null : words.slice(0, WHY_CHARS_MAX);
    return {
      ...base,
      memoryMib: card.memoryMib,
      usedMib: row.usedMib,
      foreignMib: foreignMemory(card.uuid, row.usedMib, reading.apps, own),
      utilization: row.utilization,
      temperatureC: row.temperatureC,
      health: why === null ? "ok" : "sick",
      healthWhy: why,
    };
  });
}

/** Tools can say more of a card than anybody reads, and than a report may hold. */
const WHY_CHARS_MAX = 300;
const NO_FIGURES = { usedMib: null, foreignMib: null, utilization: null, temperatureC: null } as const;

/** Every known card as it is when the tool does not answer: there, and nothing known of it. */
export function unknownGpus(known: readonly KnownGpu[], why: string): GpuReport[] {
  return known.map((card) => ({
    uuid: card.uuid,
    index: card.index,
    name: card.name,
    class: gpuClass(card.name),
    ...NO_FIGURES,
    memoryMib: card.memoryMib,
    health: "unknown",
    healthWhy: why.slice(0, WHY_CHARS_MAX),
  }));
}

/** Null when it can't be told from what own engines use. */
function foreignMemory(
  uuid: string,
  usedMib: number | null,
  apps: readonly ComputeApp[] | null,
  own: OwnUse,
): number | null {
  if (apps === null) return own.uuids.has(uuid) ? null : unnamed(usedMib);
  const here = apps.filter((app) => app.gpuUuid === uuid);
  const foreign = sum(here.filter((app) => !own.pids.has(app.pid)));
  const mine = sum(here.filter((app) => own.pids.has(app.pid)));
  if (foreign === null || mine === null) return null;
  // In a container the processes of others, and one's own, may be missing from the list.
  if (own.uuids.has(uuid) && mine === 0) return foreign;
  return usedMib === null ? foreign : foreign + (unnamed(usedMib - mine - foreign) ?? 0);
}

const unnamed = (mib: number | null): number | null => (mib === null ? null : mib > UNNAMED_MIB_MAX ? mib : 0);

function sum(apps: readonly ComputeApp[]): number | null {
  return apps.reduce<number | null>(
    (total, app) => (total === null || app.usedMib === null ? null : total + app.usedMib),
    0,
  );
}

/** Foreign processes on a card, largest first, in words. */
export function describeForeign(uuid: string, apps: readonly ComputeApp[] | null, own: OwnUse): string | null {
  const [first] = (apps ?? [])
    .filter((app) => app.gpuUuid === uuid && !own.pids.has(app.pid))
    .toSorted((a, b) => (b.usedMib ?? 0) - (a.usedMib ?? 0));
  if (first === undefined) return null;
  const much = first.usedMib === null ? "an unknown amount" : `${first.usedMib} MiB`;
  return `blocked by PID ${first.pid} (${first.name || "unnamed"}), which holds ${much} of ${uuid}`;
}
