import { closeSync, constants, openSync, readFileSync, readSync } from "node:fs";
import { parseKernelKill, parseOomKills, type Death } from "../../decide/agent/judge-death.ts";
import type { ControlGroup } from "./control-group.ts";

/** What the system tells of engines that ended for want of memory: the kernel's log where it may be read, and counts. */
export interface MemoryDeaths {
  /** To be taken before the start, and again after the end. */
  count(): number | null;
  /** `since`: the count before the start. `pids`: every process that the engine ever had. */
  explain(since: number | null, pids: ReadonlySet<number>, group: ControlGroup | null): Death["outOfMemory"];
}

const RECORDS_MAX = 20_000;
const RECORD_BYTES_MAX = 8_192;

export const systemMemoryDeaths: MemoryDeaths = {
  count: machineCount,
  explain(since, pids, group) {
    const inGroup = group?.oomKills() ?? 0;
    if (inGroup > 0) return { kind: "thisEngine", record: `its control group counts ${inGroup} kills` };
    const now = machineCount();
    if (now === null || since === null || now <= since) return { kind: "none" };
    const record = kernelKills().findLast((kill) => pids.has(kill.pid));
    return record === undefined ? { kind: "machine" } : { kind: "thisEngine", record: record.text };
  },
};

function machineCount(): number | null {
  try {
    return parseOomKills(readFileSync("/proc/vmstat", "latin1"));
  } catch {
    return null;
  }
}

/** Records since the machine's start, as far as the kernel kept them. One read gives one record. */
function kernelKills(): { readonly pid: number; readonly text: string }[] {
  const found: { readonly pid: number; readonly text: string }[] = [];
  const buffer = Buffer.alloc(RECORD_BYTES_MAX);
  let file: number;
  try {
    file = openSync("/dev/kmsg", constants.O_RDONLY | constants.O_NONBLOCK);
  } catch {
    return found; // Not everybody may read it.
  }
  try {
    for (let i = 0; i < RECORDS_MAX; i += 1) {
      const bytes = readSync(file, buffer);
      if (bytes === 0) break;
      const kill = parseKernelKill(buffer.toString("latin1", 0, bytes));
      if (kill !== null) found.push(kill);
    }
  } catch {
    // The end: there is nothing more to read now.
  } finally {
    closeSync(file);
  }
  return found;
}
