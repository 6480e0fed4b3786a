import { randomUUID } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { statfs } from "node:fs/promises";
import { availableParallelism, freemem, totalmem } from "node:os";
import { dirname } from "node:path";
import { type DiskFigures, usableBytes } from "../../decide/weights/disk-room.ts";

const MIB = 1024 * 1024;

/** Names this run of the machine. Where the system has no name for it, each agent start is taken for a new one. */
export function readBootId(): string {
  try {
    return readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
  } catch {
    return randomUUID();
  }
}

/** Processors that this process may use, a control group's quota included. */
export function readCores(): number {
  const quota = cpuQuota(readOrNull("/sys/fs/cgroup/cpu.max") ?? "");
  return Math.min(availableParallelism(), quota ?? Number.POSITIVE_INFINITY);
}

/** Cores of a `cpu.max` line, "QUOTA PERIOD" in microseconds; null for none. */
export function cpuQuota(line: string): number | null {
  const [quota, period] = line.trim().split(" ").map(Number);
  return quota === undefined || period === undefined || !(quota > 0) || !(period > 0) ? null : quota / period;
}

/** The machine's, or what a control group leaves of it. */
export function readMemory(): { readonly memoryMib: number; readonly memoryFreeMib: number } {
  const limit = process.constrainedMemory();
  const total = limit > 0 ? Math.min(limit, totalmem()) : totalmem();
  const free = Math.min(process.availableMemory(), availableOfMachine() ?? freemem());
  return { memoryMib: Math.floor(total / MIB), memoryFreeMib: Math.floor(free / MIB) };
}

/** Caches that give way count as free. */
function availableOfMachine(): number | null {
  const match = /^MemAvailable:\s+(\d+) kB$/m.exec(readOrNull("/proc/meminfo") ?? "");
  return match === null ? null : Number(match[1]) * 1024;
}

/**
 * What downloads may fill on the disk of a folder, or of the nearest one above it that exists, without the part that is kept
 * free (`reserve`, 0 to 1); null when it can't be read.
 */
export async function readDiskFreeMib(folder: string, reserve: number): Promise<number | null> {
  let path = folder;
  while (!existsSync(path) && dirname(path) !== path) path = dirname(path);
  try {
    return Math.max(0, Math.floor(usableBytes(await readDisk(path), reserve) / MIB));
  } catch {
    return null;
  }
}

export async function readDisk(folder: string): Promise<DiskFigures> {
  const { blocks, bavail, bsize, files, ffree } = await statfs(folder);
  return { bytes: blocks * bsize, freeBytes: bavail * bsize, freeFiles: files === 0 ? null : ffree };
}

function readOrNull(path: string): string | null {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return null;
  }
}
