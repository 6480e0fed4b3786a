import { mkdirSync, statSync } from "node:fs";
import { mkdir, stat } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import { hasSystemCode } from "./errors.ts";

// Node's own `recursive` tries for ever where a folder can't be made though the one above it is there, and the system calls that ENOENT,
// as it does below /proc. So each folder on the way is made by itself.

/** Makes the folder and those above it, as far as they are not there. */
export function makeFolderSync(path: string, mode = 0o700): void {
  for (const folder of downTo(path)) {
    try {
      mkdirSync(folder, { mode });
    } catch (error) {
      // Not only EEXIST: a folder that is there in a place that can't be written is refused with other codes.
      if (statSync(folder, { throwIfNoEntry: false })?.isDirectory() === true) continue;
      if (!isInTheWay(error, folder, path)) throw error;
    }
  }
}

/** The same without waiting for a slow disk. */
export async function makeFolder(path: string, mode = 0o700): Promise<void> {
  for (const folder of downTo(path)) {
    try {
      await mkdir(folder, { mode });
    } catch (error) {
      const found = await stat(folder).catch(() => null);
      if (found?.isDirectory() === true) continue;
      if (!isInTheWay(error, folder, path)) throw error;
    }
  }
}

/** A file in the way to the folder: the next one is refused with the code that says so (ENOTDIR). */
const isInTheWay = (error: unknown, folder: string, path: string): boolean =>
  hasSystemCode(error, "EEXIST") && folder !== resolve(path);

/** The folders from the uppermost to `path` itself. */
function downTo(path: string): readonly string[] {
  const folders = [resolve(path)];
  for (;;) {
    const [first = ""] = folders;
    const above = dirname(first);
    if (above === first) return folders;
    folders.unshift(above);
  }
}
