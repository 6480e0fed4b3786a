import { readdirSync, readFileSync, rmdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseOomKills } from "../../decide/agent/judge-death.ts";
import { makeFolderSync } from "../../kernel/make-folder.ts";

/**
 * A control group (version 2) for one engine, where this process may make one: no child can leave it, whatever it does to its
 * session and environment. Where none can be made, the other marks have to do.
 */
export class ControlGroup {
  readonly #path: string;

  private constructor(path: string) {
    this.#path = path;
  }

  /** Makes it, or finds the one that an earlier agent made. Null where groups can't be made. */
  static at(parent: string | null, name: string): ControlGroup | null {
    if (parent === null) return null;
    const path = join(parent, `yardmaster-${name}`);
    try {
      makeFolderSync(path, 0o777);
      readFileSync(join(path, "cgroup.procs"));
      return new ControlGroup(path);
    } catch {
      return null;
    }
  }

  /** Takes away what earlier agents could not: only empty groups go. */
  static sweep(parent: string | null, agentId: string): void {
    if (parent === null) return;
    try {
      for (const name of readdirSync(parent))
        if (name.startsWith(`yardmaster-${agentId}-`)) new ControlGroup(join(parent, name)).remove();
    } catch {
      // It can't be listed: an empty group costs nothing.
    }
  }

  add(pid: number): void {
    try {
      writeFileSync(join(this.#path, "cgroup.procs"), String(pid));
    } catch {
      // It has ended already, or the group may not be entered: the other marks hold.
    }
  }

  members(): ReadonlySet<number> {
    try {
      const text = readFileSync(join(this.#path, "cgroup.procs"), "utf8");
      return new Set(
        text
          .split("\n")
          .filter((line) => line !== "")
          .map(Number),
      );
    } catch {
      return new Set();
    }
  }

  /** Kills for want of memory in this group; null where it does not count memory. */
  oomKills(): number | null {
    try {
      return parseOomKills(readFileSync(join(this.#path, "memory.events"), "utf8"));
    } catch {
      return null;
    }
  }

  /** Only an empty group goes. */
  remove(): void {
    try {
      rmdirSync(this.#path);
    } catch {
      // A zombie is in it still; an empty group costs nothing.
    }
  }
}

/** The folder of this process's own group in the version-2 tree; null where there is none. */
export function ownGroupFolder(): string | null {
  try {
    const mount = readFileSync("/proc/self/mounts", "utf8")
      .split("\n")
      .map((line) => line.split(" "))
      .find((fields) => fields[2] === "cgroup2")?.[1];
    const own = /^0::(\/.*)$/m.exec(readFileSync("/proc/self/cgroup", "utf8"))?.[1];
    return mount === undefined || own === undefined ? null : join(mount, own);
  } catch {
    return null;
  }
}
