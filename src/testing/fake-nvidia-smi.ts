import { chmodSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";

/**
 * An `nvidia-smi` for machines without a card: an executable that answers from a file, and goes wrong in every way in which the
 * real one does. Memory is held by processes: whoever leaves a file `holders/PID` with lines `UUID MIB` holds it for as long
 * as the process lives.
 */
export interface FakeGpu {
  readonly index: number;
  readonly uuid: string;
  readonly name: string;
  readonly memoryMib: number;
  /** Without any process. */
  readonly idleMib: number;
  readonly utilization: number;
  readonly temperatureC: number;
  /** Words in place of figures, by field. */
  readonly cells?: Readonly<Record<string, string>>;
}

export interface FakeSmiState {
  readonly gpus: readonly FakeGpu[];
  /** Fields that this "driver" does not know. */
  readonly unknownFields?: readonly string[];
  /** Cards without a row when all are asked for; alone they can't be asked for either. */
  readonly lost?: readonly string[];
  /** With a lost card: no rows at all, only a sentence. */
  readonly lostSpoilsAll?: boolean;
  readonly exitCode?: number;
  readonly stderr?: string;
  /** Never answers; `deaf`: nor does it end by anything but SIGKILL. */
  readonly hang?: "hang" | "deaf";
  readonly delayMs?: number;
  /** Said in place of everything. */
  readonly garbage?: string;
  /** Processes are not shown, as in a container. */
  readonly hideProcesses?: boolean;
  readonly processMemoryUnknown?: boolean;
}

export interface FakeNvidiaSmi {
  /** The executable. */
  readonly path: string;
  /** Where processes say what they hold. */
  readonly holders: string;
  set(state: FakeSmiState): void;
  /** Calls so far, each with its arguments in a line; those that never ended, too. */
  calls(): readonly string[];
  /** The most calls that ran at once. */
  peak(): number;
  hold(pid: number, uuid: string, mib: number): void;
  drop(pid: number): void;
}

export const aGpu = (index: number, over: Partial<FakeGpu> = {}): FakeGpu => ({
  index,
  uuid: `GPU-${String(index).padStart(8, "0")}-fake`,
  name: "NVIDIA H200",
  memoryMib: 143_771,
  idleMib: 4,
  utilization: 0,
  temperatureC: 30,
  ...over,
});

const PROGRAM = join(import.meta.dirname, "fake-nvidia-smi-program.mjs");

export function fakeNvidiaSmi(folder: string, state: FakeSmiState): FakeNvidiaSmi {
  const home = join(folder, "fake-nvidia-smi");
  const holders = join(home, "holders");
  mkdirSync(holders, { recursive: true });
  mkdirSync(join(home, "running"), { recursive: true });
  const path = join(home, "nvidia-smi");
  writeFileSync(path, `#!/bin/sh\nexec "${process.execPath}" "${PROGRAM}" "${home}" "$@"\n`);
  chmodSync(path, 0o755);
  const set = (next: FakeSmiState): void => writeFileSync(join(home, "state.json"), JSON.stringify(next));
  set(state);
  writeFileSync(join(home, "calls"), "");
  writeFileSync(join(home, "peaks"), "");
  const lines = (name: string): string[] =>
    readFileSync(join(home, name), "utf8")
      .split("\n")
      .filter((line) => line !== "");
  return {
    path,
    holders,
    set,
    calls: () => lines("calls"),
    peak: () => Math.max(0, ...lines("peaks").map(Number)),
    hold: (pid, uuid, mib) => writeFileSync(join(holders, String(pid)), `${uuid} ${mib}\n`),
    drop: (pid) => rmSync(join(holders, String(pid)), { force: true }),
  };
}
