import { readdirSync, readFileSync } from "node:fs";
import type { ProcessEntry, ProcessId } from "../../decide/agent/process-tree.ts";
import { PROOF_VARIABLE } from "../../decide/agent/launch/environment.ts";

/** The process table as Linux shows it in /proc. */

const SLICE = 100;
/** Between its making and its first instruction a process shows its parent's environment: its own is read again until then. */
const LOOKS_MAX = 5;
const MIB = 1024 * 1024;
const PAGE_BYTES = 4096;

interface Seen {
  readonly startTicks: number;
  readonly proof: string | null;
  readonly looks: number;
}

export class LinuxProcesses {
  /** What each process's environment holds; it hardly ever changes and costs the most to read. */
  #seen = new Map<number, Seen>();

  /** Every process that can be seen. Gives way to other work now and then: there may be thousands. */
  async list(): Promise<ProcessEntry[]> {
    const entries: ProcessEntry[] = [];
    const seen = new Map<number, Seen>();
    let count = 0;
    for (const name of readdirSync("/proc")) {
      const pid = Number(name);
      if (!Number.isInteger(pid)) continue;
      count += 1;
      if (count % SLICE === 0) await new Promise((resolve) => setImmediate(resolve));
      const stat = readStat(pid);
      if (stat === null) continue;
      const known = this.#lookAt(pid, stat.startTicks);
      seen.set(pid, known);
      entries.push({ pid, ...stat, proof: known.proof });
    }
    this.#seen = seen;
    return entries;
  }

  #lookAt(pid: number, startTicks: number): Seen {
    const before = this.#seen.get(pid);
    const same = before?.startTicks === startTicks ? before : undefined;
    if (same !== undefined && (same.proof !== null || same.looks >= LOOKS_MAX)) return same;
    return { startTicks, proof: readProof(pid), looks: (same?.looks ?? 0) + 1 };
  }

  /** Null when there is no such process, or it has ended and waits to be collected. */
  startTicksOf(pid: number): number | null {
    const stat = readStat(pid);
    return stat === null || stat.zombie ? null : stat.startTicks;
  }

  /** Only if the number still belongs to that process. Says whether the signal was sent. */
  signal(process_: ProcessId, name: NodeJS.Signals): boolean {
    if (this.startTicksOf(process_.pid) !== process_.startTicks) return false;
    try {
      process.kill(process_.pid, name);
      return true;
    } catch {
      return false; // Ended in between, or not ours to signal.
    }
  }

  /** Memory of its own, without what is shared; null when it can't be read. */
  memoryMib(pid: number): number | null {
    const [, resident, shared] = (readText(`/proc/${pid}/statm`) ?? "").split(" ").map(Number);
    if (resident === undefined || shared === undefined || Number.isNaN(resident - shared)) return null;
    return ((resident - shared) * PAGE_BYTES) / MIB;
  }

  /** The process itself and those above it. */
  ancestry(pid: number): number[] {
    const above: number[] = [];
    for (let next = pid; next > 0 && !above.includes(next); next = readStat(next)?.parent ?? 0) above.push(next);
    return above;
  }
}

function readText(path: string): string | null {
  try {
    return readFileSync(path, "latin1");
  } catch {
    return null; // It has ended, or belongs to somebody else.
  }
}

function readStat(pid: number): Omit<ProcessEntry, "pid" | "proof"> | null {
  return parseStat(readText(`/proc/${pid}/stat`) ?? "");
}

/** The name in brackets may hold anything, brackets too: the fields are counted from the last one. */
export function parseStat(text: string): Omit<ProcessEntry, "pid" | "proof"> | null {
  const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
  const [state, parent, , session] = fields;
  const startTicks = Number(fields[19]);
  if (state === undefined || session === undefined || Number.isNaN(startTicks)) return null;
  return { parent: Number(parent), session: Number(session), startTicks, zombie: state === "Z" || state === "X" };
}

function readProof(pid: number): string | null {
  const environment = readText(`/proc/${pid}/environ`);
  const prefix = `${PROOF_VARIABLE}=`;
  const entry = environment?.split("\0").find((variable) => variable.startsWith(prefix));
  return entry?.slice(prefix.length) ?? null;
}
