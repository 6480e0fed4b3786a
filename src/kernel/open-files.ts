import { readFileSync } from "node:fs";

/** How many files, sockets included, this process may have open at once; undefined where the system does not say. */
export function openFilesMax(): number | undefined {
  try {
    const found = /^Max open files +(\d+)/m.exec(readFileSync("/proc/self/limits", "utf8"));
    return found === null ? undefined : Number(found[1]);
  } catch {
    return undefined;
  }
}
