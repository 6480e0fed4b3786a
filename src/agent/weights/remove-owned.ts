import { randomBytes } from "node:crypto";
import { constants, type BigIntStats } from "node:fs";
import { type FileHandle, link, lstat, mkdir, open, readdir, rename, rmdir, unlink } from "node:fs/promises";
import type { HeldFile, HoldingRecord } from "../../decide/weights/holding.ts";
import { hasSystemCode, messageOf } from "../../kernel/errors.ts";
import { type Identity, identityOf, lstatIfThere } from "./seen-file.ts";

/**
 * Removes from the cache what a record says that this node has put there, and nothing else.
 *
 * Invariants:
 *   M1. Every step goes through a folder that is held open and was told by device and number: whatever is renamed, mounted or
 *       linked meanwhile, no other folder is entered.
 *   M2. A file is first moved to a place where nobody else looks, then told by device, number, length and time, then unlinked. One
 *       that is not ours after all is put back.
 *   M3. What is not in the record stays, with the folders above it.
 */
export interface Removal {
  /** Of files that no other name keeps. */
  readonly freedBytes: number;
  readonly files: number;
  /** What was left where it is, and why. */
  readonly kept: readonly string[];
  /** Files and folders of the record that may still be there, since the system did not let them be removed. */
  readonly left: number;
}

const FOLDER = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW;

/** Below a folder that is held open: the kernel looks the name up there and nowhere else. */
const under = (folder: FileHandle, name: string): string => `/proc/self/fd/${folder.fd}/${name}`;

interface Work {
  readonly record: HoldingRecord;
  readonly cache: FileHandle;
  readonly trash: FileHandle;
  readonly kept: string[];
  freedBytes: number;
  files: number;
  left: number;
}

/** In the cache, for M2. It stays, since a full disk takes no new one. */
export const TRASH = ".yardmaster-trash";

/** Throws the system's errors. */
export async function makeTrash(cacheFolder: string): Promise<void> {
  await mkdir(`${cacheFolder}/${TRASH}`, { mode: 0o700 }).catch((error: unknown) => {
    if (!hasSystemCode(error, "EEXIST")) throw error;
  });
}

/** `top` is the name of the record's folder in the cache. Throws the system's errors on the cache itself. */
export async function removeOwned(cacheFolder: string, top: string, record: HoldingRecord): Promise<Removal> {
  await makeTrash(cacheFolder);
  await using cache = await open(cacheFolder, constants.O_RDONLY | constants.O_DIRECTORY);
  await using trash = await open(under(cache, TRASH), FOLDER);
  const work: Work = { record, cache, trash, kept: [], freedBytes: 0, files: 0, left: 0 };
  await removeTree(work, top);
  await clearTrash(work);
  return { freedBytes: work.freedBytes, files: work.files, kept: work.kept, left: work.left };
}

async function removeTree(work: Work, top: string): Promise<void> {
  const { record, cache, kept } = work;
  const known = record.folders.find(({ path }) => path === "");
  const folder = await openKnown(cache, top, known);
  if (folder === "gone") return;
  if (folder === "other") {
    kept.push(`${top} is not the folder that this node made`);
    return;
  }
  {
    await using _held = folder;
    const byFolder = Map.groupBy(record.files, ({ path }) => parentOf(path));
    for (const [path, files] of byFolder) await inFolder(work, folder, path, (at) => removeFiles(work, at, files));
    const inner = record.folders.filter(({ path }) => path !== "").toSorted((a, b) => depth(b.path) - depth(a.path));
    for (const { path, dev, ino } of inner)
      await inFolder(work, folder, parentOf(path), (at) => removeFolder(work, at, path, { dev, ino }));
  }
  if (known !== undefined) await removeFolder(work, cache, top, known);
}

const parentOf = (path: string): string => path.slice(0, Math.max(0, path.lastIndexOf("/")));
const baseOf = (path: string): string => path.slice(path.lastIndexOf("/") + 1);
const depth = (path: string): number => path.split("/").length;

/** Goes down to a folder of the record, one known step after the other. */
async function inFolder(
  work: Work,
  top: FileHandle,
  path: string,
  act: (at: FileHandle) => Promise<void>,
): Promise<void> {
  if (path === "") return act(top);
  let [at, done] = [top, ""];
  const opened: FileHandle[] = [];
  try {
    for (const segment of path.split("/")) {
      done = done === "" ? segment : `${done}/${segment}`;
      const next = await openKnown(
        at,
        segment,
        work.record.folders.find((folder) => folder.path === done),
      );
      if (next === "gone") return undefined;
      if (next === "other") {
        work.kept.push(`${done} is not the folder that this node made`);
        return undefined;
      }
      opened.push(next);
      at = next;
    }
    await act(at);
  } finally {
    for (const handle of opened.toReversed()) await handle.close();
  }
  return undefined;
}

/** M1. */
async function openKnown(
  parent: FileHandle,
  name: string,
  known: Identity | undefined,
): Promise<FileHandle | "gone" | "other"> {
  let folder: FileHandle;
  try {
    folder = await open(under(parent, name), FOLDER);
  } catch (error) {
    if (hasSystemCode(error, "ENOENT")) return "gone";
    if (hasSystemCode(error, "ELOOP") || hasSystemCode(error, "ENOTDIR")) return "other";
    throw error;
  }
  const seen = await folder.stat({ bigint: true });
  if (known !== undefined && isIdentity(seen, known)) return folder;
  await folder.close();
  return "other";
}

/** A file that was never made has no identity. */
const isIdentity = (seen: BigIntStats, { dev, ino }: Pick<HeldFile, keyof Identity>): boolean => {
  const its = identityOf(seen);
  return dev === its.dev && ino === its.ino;
};

/** A number is given out again when a file is gone: for one that is whole, length and time have to fit too. */
const isOwnFile = (seen: BigIntStats, file: HeldFile): boolean =>
  seen.isFile() &&
  isIdentity(seen, file) &&
  (file.digest === null || (file.bytes === Number(seen.size) && file.mtimeNs === String(seen.mtimeNs)));

async function removeFiles(work: Work, folder: FileHandle, files: readonly HeldFile[]): Promise<void> {
  for (const file of files) {
    try {
      await removeFile(work, folder, file);
    } catch (error) {
      work.left += 1;
      work.kept.push(`${file.path}: ${messageOf(error)}`);
    }
  }
}

/** A process that was killed between the two steps of M2 has left a file of the record there, and nothing else would ever look for it. */
async function clearTrash(work: Work): Promise<void> {
  for (const name of await readdir(under(work.trash, "."))) {
    const place = under(work.trash, name);
    const seen = await lstatIfThere(place);
    if (seen === null || !work.record.files.some((file) => isOwnFile(seen, file))) continue;
    try {
      await unlink(place);
      work.files += 1;
      if (seen.nlink === 1n) work.freedBytes += Number(seen.size);
    } catch (error) {
      work.left += 1;
      work.kept.push(`${TRASH}/${name}: ${messageOf(error)}`);
    }
  }
}

/** M2. */
async function removeFile(work: Work, folder: FileHandle, file: HeldFile): Promise<void> {
  const place = under(folder, baseOf(file.path));
  const seen = await lstatIfThere(place);
  if (seen === null) return;
  if (!isOwnFile(seen, file)) {
    work.kept.push(`${file.path} is not the file that this node made`);
    return;
  }
  const moved = under(work.trash, randomBytes(8).toString("hex"));
  await rename(place, moved);
  const taken = await lstat(moved, { bigint: true });
  if (!isOwnFile(taken, file)) {
    await putBack(moved, place, taken);
    work.kept.push(`${file.path} became another file meanwhile`);
    return;
  }
  await unlink(moved);
  work.files += 1;
  if (taken.nlink === 1n) work.freedBytes += Number(taken.size);
}

/** Never over something that is there. */
async function putBack(moved: string, place: string, what: BigIntStats): Promise<void> {
  if (what.isDirectory()) return rename(moved, place);
  await link(moved, place);
  return unlink(moved);
}

async function removeFolder(work: Work, parent: FileHandle, path: string, known: Identity): Promise<void> {
  try {
    await removeKnownFolder(work, parent, path, known);
  } catch (error) {
    work.left += 1;
    work.kept.push(`${path}: ${messageOf(error)}`);
  }
}

async function removeKnownFolder(work: Work, parent: FileHandle, path: string, known: Identity): Promise<void> {
  const name = baseOf(path);
  const folder = await openKnown(parent, name, known);
  if (folder === "gone") return;
  if (folder === "other") {
    work.kept.push(`${path} is not the folder that this node made`);
    return;
  }
  const left = await readdir(under(folder, "."));
  await folder.close();
  if (left.length > 0) {
    work.kept.push(`${path} holds ${left.length} that this node did not put there`);
    return;
  }
  const moved = under(work.trash, randomBytes(8).toString("hex"));
  await rename(under(parent, name), moved);
  const taken = await lstat(moved, { bigint: true });
  try {
    if (!taken.isDirectory() || !isIdentity(taken, known)) throw new Error("became another folder meanwhile");
    await rmdir(moved);
  } catch (error) {
    const back = await putBack(moved, under(parent, name), taken).then(
      () => "",
      () => `, and lies in ${TRASH} now, since its place is taken`,
    );
    work.kept.push(`${path}: ${messageOf(error)}${back}`);
  }
}
