/**
 * What `nvidia-smi --format=csv,noheader,nounits` prints, read without trust: drivers differ, a sick card puts words where
 * numbers belong, and one card's trouble must not cost the others. A text in brackets is unknown, never 0.
 */

/** Names may hold a comma, so the name comes last. */
export const GPU_CORE_FIELDS = [
  "index",
  "uuid",
  "memory.total",
  "memory.used",
  "utilization.gpu",
  "temperature.gpu",
  "name",
] as const;

/** Fields that not every driver knows; each is dropped for good once the driver refuses it. */
export const GPU_OPTIONAL_FIELDS = ["remapped_rows.failure", "gpu_recovery_action"] as const;

export const COMPUTE_APP_FIELDS = ["gpu_uuid", "pid", "used_gpu_memory", "process_name"] as const;

export interface GpuRow {
  /** Null when the tool shows words in its place. */
  readonly index: number | null;
  readonly uuid: string | null;
  readonly name: string | null;
  readonly memoryMib: number | null;
  readonly usedMib: number | null;
  /** 0 to 1. */
  readonly utilization: number | null;
  readonly temperatureC: number | null;
  /** The words of a failing card, such as `[GPU is lost]`. */
  readonly fault: string | null;
}

export interface ComputeApp {
  readonly gpuUuid: string;
  readonly pid: number;
  readonly usedMib: number | null;
  readonly name: string;
}

const UUID = /^(?:GPU|MIG)-[A-Za-z0-9/-]{1,120}$/;
const NUMBER = /^-?\d{1,12}(?:\.\d{1,6})?$/;
/** Words of a card that fails, among those of a figure that is only not to be had. */
const FAILING = /lost|requires? reset|unknown error|ERR!|fallen off|inaccessible/i;
const ROWS_MAX = 1_024;

/** The tool puts a blank behind each of its commas: one without is a part of a cell, and would move the figures behind it. */
const cellsOf = (line: string): string[] =>
  line.split(/^[^,]*, /.test(line) ? /, |,$/ : ",").map((cell) => cell.trim());
const linesOf = (text: string): string[] =>
  text
    .split(/\r?\n/, ROWS_MAX)
    .map((line) => line.trim())
    .filter((line) => line !== "");

/** A figure of at least 0; null for everything else. */
function figure(cell: string | undefined): number | null {
  if (cell === undefined || !NUMBER.test(cell)) return null;
  const value = Number(cell);
  return value >= 0 ? value : null;
}

const wholeFigure = (cell: string | undefined): number | null => {
  const value = figure(cell);
  return value !== null && Number.isInteger(value) ? value : null;
};

/**
 * Rows of GPU_CORE_FIELDS. Lines that are no row (a sentence about a lost card, a warning) are passed over, whatever the exit
 * code was: the rows of the other cards stand.
 */
export function parseGpuRows(stdout: string): GpuRow[] {
  return linesOf(stdout).flatMap((line) => {
    const cells = cellsOf(line);
    const [index, uuid, total, used, utilization, temperature, ...name] = cells;
    const known = { index: wholeFigure(index), uuid: uuid !== undefined && UUID.test(uuid) ? uuid : null };
    if (name.length === 0 || (known.index === null && known.uuid === null)) return [];
    const fault = cells.find((cell) => FAILING.test(cell)) ?? null;
    const share = figure(utilization);
    const title = name.join(", ");
    return [
      {
        ...known,
        name: title.startsWith("[") || title === "" || FAILING.test(title) ? null : title.slice(0, 128),
        memoryMib: figure(total) === 0 ? null : figure(total),
        // A card that waits for a reset may report 0 used, and would look free.
        usedMib: fault === null ? figure(used) : null,
        utilization: share === null || share > 100 || fault !== null ? null : share / 100,
        temperatureC: figure(temperature),
        fault,
      },
    ];
  });
}

/** Rows of `uuid` and the given optional fields: what each card says of its own health, null where nothing speaks against it. */
export function parseOptionalRows(stdout: string, fields: readonly string[]): Map<string, string | null> {
  const found = new Map<string, string | null>();
  for (const line of linesOf(stdout)) {
    const [uuid, ...cells] = cellsOf(line);
    if (uuid === undefined || !UUID.test(uuid) || cells.length !== fields.length) continue;
    found.set(uuid, fields.map((field, at) => sickness(field, cells[at] ?? "")).find((why) => why !== null) ?? null);
  }
  return found;
}

function sickness(field: string, cell: string): string | null {
  if (cell === "" || cell.startsWith("[")) return FAILING.test(cell) ? cell : null;
  if (field === "remapped_rows.failure") return /^(yes|1)$/i.test(cell) ? "a memory row can't be remapped" : null;
  if (field === "gpu_recovery_action") return /^none$/i.test(cell) ? null : `the driver asks for: ${cell.slice(0, 64)}`;
  return null;
}

/** The field that an older driver refuses; the whole query fails with it, and says so on standard output. */
export function refusedField(output: string): string | null {
  return /field\s+"([a-z0-9_.]{1,80})"\s+is not a valid field/i.exec(output)?.[1] ?? null;
}

/** Rows of COMPUTE_APP_FIELDS. Nothing at all means that no process uses a card. */
export function parseComputeApps(stdout: string): ComputeApp[] {
  return linesOf(stdout).flatMap((line) => {
    const [uuid, pid, used, ...name] = cellsOf(line);
    const id = wholeFigure(pid);
    if (uuid === undefined || !UUID.test(uuid) || id === null || id === 0 || name.length === 0) return [];
    return [{ gpuUuid: uuid, pid: id, usedMib: figure(used), name: name.join(", ").slice(0, 256) }];
  });
}

/** UUIDs of `nvidia-smi -L`; it may still list a card that is lost. MIG parts are passed over. */
export function parseGpuList(
  stdout: string,
): { readonly index: number; readonly uuid: string; readonly name: string }[] {
  return linesOf(stdout).flatMap((line) => {
    const match = /^GPU (\d{1,4}): (.{1,128}?) \(UUID: (GPU-[A-Za-z0-9-]{1,120})\)/.exec(line);
    return match === null ? [] : [{ index: Number(match[1]), uuid: match[3] ?? "", name: match[2] ?? "" }];
  });
}

/** The NVLink domain of `nvidia-smi -q -x`, the same on every node of one; null where there is none. */
export function parseNvlinkDomain(xml: string): string | null {
  const cluster = /<clusterUuid>\s*([0-9a-fA-F-]{8,64})\s*<\/clusterUuid>/i.exec(xml)?.[1];
  const clique = /<cliqueId>\s*(\d{1,10})\s*<\/cliqueId>/i.exec(xml)?.[1];
  if (cluster === undefined || /^[0-]+$/.test(cluster)) return null;
  return `nvlink-${cluster.toLowerCase()}-${clique ?? "0"}`;
}
