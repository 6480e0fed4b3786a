import type { ComputeApp, GpuRow } from "./nvidia-csv.ts";

/** `amd-smi … --json`, whose shape moves between releases: every value may be a number, `{value, unit}`, "N/A" or missing. */

type Json = Readonly<Record<string, unknown>>;

const GPUS_MAX = 64;
const TO_MIB: Readonly<Record<string, number>> = { MB: 1, MIB: 1, GB: 1024, GIB: 1024, KB: 1 / 1024, B: 1 / 1_048_576 };

const isObject = (value: unknown): value is Json =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** The list in a page, with or without a wrapper, behind whatever warnings stand before it. */
function readList(page: string, wrapper: string): Json[] {
  const start = page.search(/^[[{]/m);
  if (start < 0) return [];
  let raw: unknown;
  try {
    raw = JSON.parse(page.slice(start));
  } catch {
    return [];
  }
  const list = isObject(raw) ? raw[wrapper] : raw;
  return Array.isArray(list) ? list.filter(isObject).slice(0, GPUS_MAX) : [];
}

function at(object: unknown, ...path: readonly string[]): unknown {
  return path.reduce((value, key) => (isObject(value) ? value[key] : undefined), object);
}

function figure(value: unknown): number | null {
  const bare = isObject(value) ? value["value"] : value;
  return typeof bare === "number" && Number.isFinite(bare) && bare >= 0 ? bare : null;
}

function mib(value: unknown, bareUnit: "MB" | "B" = "MB"): number | null {
  const amount = figure(value);
  const unit = isObject(value) && typeof value["unit"] === "string" ? value["unit"].toUpperCase() : bareUnit;
  const factor = TO_MIB[unit];
  return amount === null || factor === undefined ? null : Math.round(amount * factor);
}

const textAt = (object: unknown, ...path: readonly string[]): string | null => {
  const value = at(object, ...path);
  return typeof value === "string" && value !== "" && value !== "N/A" ? value.slice(0, 128) : null;
};

/** One row for each card of `list`, with what `static` and `metric` say of it. */
export function parseAmdGpus(pages: {
  readonly list: string;
  readonly static: string;
  readonly metric: string;
}): GpuRow[] {
  const byIndex = (page: string): Map<number, Json> =>
    new Map(
      readList(page, "gpu_data").flatMap((entry) => {
        const index = figure(entry["gpu"]);
        return index === null ? [] : [[index, entry] as const];
      }),
    );
  const statics = byIndex(pages.static);
  const metrics = byIndex(pages.metric);
  return [...byIndex(pages.list)].map(([index, entry]) => {
    const metric = metrics.get(index);
    const share = figure(at(metric, "usage", "gfx_activity"));
    return {
      index,
      uuid: textAt(entry, "uuid"),
      name: textAt(statics.get(index), "asic", "market_name"),
      memoryMib: mib(at(statics.get(index), "vram", "size")) ?? mib(at(metric, "mem_usage", "total_vram")),
      usedMib: mib(at(metric, "mem_usage", "used_vram")),
      utilization: share === null || share > 100 ? null : share / 100,
      temperatureC: figure(at(metric, "temperature", "hotspot")) ?? figure(at(metric, "temperature", "edge")),
      fault: null,
    };
  });
}

/** Processes of `process --json`, by the index of their card. */
export function parseAmdProcesses(page: string, uuids: ReadonlyMap<number, string>): ComputeApp[] {
  return readList(page, "gpu_data").flatMap((entry) => {
    const uuid = uuids.get(figure(entry["gpu"]) ?? -1);
    const list = entry["process_list"];
    if (uuid === undefined || !Array.isArray(list)) return [];
    return list.flatMap((item: unknown) => {
      const info = at(item, "process_info");
      const pid = figure(at(info, "pid"));
      if (pid === null || !Number.isInteger(pid) || pid === 0) return [];
      const usedMib = mib(at(info, "mem_usage"), "B") ?? mib(at(info, "memory_usage", "vram_mem"), "B");
      return [{ gpuUuid: uuid, pid, usedMib, name: textAt(info, "name") ?? "" }];
    });
  });
}
