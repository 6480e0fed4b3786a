import { open, readFile, rename, rm } from "node:fs/promises";
import { dirname } from "node:path";
import { hasSystemCode } from "./errors.ts";

const OWNER_ONLY = 0o600;

/** Whole or not at all, and on the disk when it resolves: a name that changes hands, then the folder's own entry. */
export async function writeDurably(path: string, text: string): Promise<void> {
  const draft = `${path}.new`;
  await using file = await open(draft, "w", OWNER_ONLY);
  await file.writeFile(text);
  await file.sync();
  await rename(draft, path);
  await syncFolder(dirname(path));
}

export async function removeDurably(path: string): Promise<void> {
  await rm(path, { force: true });
  await syncFolder(dirname(path));
}

/** Names that were given in the folder, or taken away, are so on the disk when it resolves. */
export async function syncFolder(path: string): Promise<void> {
  await using folder = await open(path, "r");
  await folder.sync();
}

/** Null when there is none. */
export async function readIfThere(path: string): Promise<string | null> {
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    if (hasSystemCode(error, "ENOENT")) return null;
    throw error;
  }
}
