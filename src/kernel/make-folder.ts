import { mkdirSync, statSync } from "node:fs";
import { mkdir, stat } from "node:fs/promises";
import { dirname } from "node:path";
import { hasSystemCode } from "./errors.ts";

// Node's own `recursive` tries for ever where a folder can't be made though the one above it is there, and the system calls that ENOENT,
// as it does below /proc. Here each folder is tried twice at most. Those above it are looked at only where it lacks them: a program that
// may see no more than its own folder is not stopped by theirs.

/** Makes the folder and those above it, as far as they are not there. */
export function makeFolderSync(path: string, mode = 0o700): void {
  const failure = tryFolderSync(path, mode);
  if (failure === null) return;
  if (!lacksAbove(failure, path)) throw failure;
  makeFolderSync(dirname(path), mode);
  const again = tryFolderSync(path, mode);
  if (again !== null) throw again;
}

/** The same without waiting for a slow disk. */
export async function makeFolder(path: string, mode = 0o700): Promise<void> {
  const failure = await tryFolder(path, mode);
  if (failure === null) return;
  if (!lacksAbove(failure, path)) throw failure;
  await makeFolder(dirname(path), mode);
  const again = await tryFolder(path, mode);
  if (again !== null) throw again;
}

const lacksAbove = (error: Error, path: string): boolean => hasSystemCode(error, "ENOENT") && dirname(path) !== path;

/** Null: it is there. Not only EEXIST: a folder that is there in a place that can't be written is refused with other codes. */
function tryFolderSync(path: string, mode: number): Error | null {
  try {
    mkdirSync(path, { mode });
    return null;
  } catch (error) {
    return isFolderSync(path) ? null : (error as Error);
  }
}

async function tryFolder(path: string, mode: number): Promise<Error | null> {
  try {
    await mkdir(path, { mode });
    return null;
  } catch (error) {
    const found = await stat(path).catch(() => null);
    return found?.isDirectory() === true ? null : (error as Error);
  }
}

function isFolderSync(path: string): boolean {
  try {
    return statSync(path).isDirectory();
  } catch {
    return false;
  }
}
