import type { ChildProcess } from "node:child_process";
import type { Death } from "../../decide/agent/judge-death.ts";
import { findTree, type ProcessEntry, type ProcessId } from "../../decide/agent/process-tree.ts";
import type { ControlGroup } from "../system/control-group.ts";
import type { LinuxProcesses } from "../system/linux-processes.ts";
import type { MemoryDeaths } from "../system/memory-deaths.ts";

/** Members that are remembered after they have ended; an engine with more has leaked them. */
const EVER_MAX = 4_096;

export interface ProcessPorts {
  readonly processes: LinuxProcesses;
  readonly memoryDeaths: MemoryDeaths;
  /** This agent and what is above it. */
  readonly exempt: ReadonlySet<number>;
}

/** All processes of one engine: found anew at each look, signalled only after their start time was compared. */
export class EngineProcess {
  readonly #ports: ProcessPorts;
  readonly #proof: string;
  readonly #group: ControlGroup | null;
  readonly #main: ProcessId | null;
  readonly #killsBefore: number | null;
  readonly #ever = new Set<number>();
  #members: readonly ProcessEntry[] = [];
  #mainAlive: boolean;
  #exit: { readonly code: number | null; readonly signal: string | null } | null = null;

  constructor(ports: ProcessPorts, proof: string, main: ProcessId | null, group: ControlGroup | null) {
    this.#ports = ports;
    this.#proof = proof;
    this.#main = main;
    this.#group = group;
    this.#mainAlive = main !== null;
    this.#killsBefore = ports.memoryDeaths.count();
    if (main !== null) this.#ever.add(main.pid);
  }

  /** Its exit is then told by the system, at once and with its code. */
  watch(child: ChildProcess, onExit: () => void): void {
    child.once("exit", (code, signal) => {
      this.#exit = { code, signal };
      onExit();
    });
  }

  get main(): ProcessId | null {
    return this.#main;
  }
  get state(): "alive" | "gone" {
    return this.#mainAlive && this.#exit === null ? "alive" : "gone";
  }
  get memberCount(): number {
    return this.#members.length;
  }
  get pids(): ReadonlySet<number> {
    return this.#ever;
  }

  look(processes: readonly ProcessEntry[]): void {
    const tree = findTree(processes, {
      proof: this.#proof,
      main: this.#main,
      before: this.#members,
      inGroup: this.#group?.members() ?? new Set(),
      exempt: this.#ports.exempt,
    });
    this.#members = tree.members;
    this.#mainAlive = tree.main === "alive";
    for (const { pid } of tree.members) if (this.#ever.size < EVER_MAX) this.#ever.add(pid);
  }

  memoryMib(): number | null {
    const figures = this.#members.map(({ pid }) => this.#ports.processes.memoryMib(pid)).filter((mib) => mib !== null);
    return figures.length === 0 ? null : Math.round(figures.reduce((sum, mib) => sum + mib, 0));
  }

  death(served: boolean, lastLines: readonly string[]): Death {
    return {
      exitCode: this.#exit?.code ?? null,
      signal: this.#exit?.signal ?? null,
      served,
      outOfMemory: this.#ports.memoryDeaths.explain(this.#killsBefore, this.#ever, this.#group),
      lastLines,
    };
  }

  /** The first process while it lives, so that it can end its children in its own way; else all that is left. */
  term(): void {
    if (this.state === "alive" && this.#main !== null) this.#ports.processes.signal(this.#main, "SIGTERM");
    else for (const member of this.#members) this.#ports.processes.signal(member, "SIGTERM");
  }

  kill(): void {
    for (const member of this.#members) this.#ports.processes.signal(member, "SIGKILL");
    if (this.#main !== null) this.#ports.processes.signal(this.#main, "SIGKILL");
  }

  close(): void {
    this.#group?.remove();
  }
}
