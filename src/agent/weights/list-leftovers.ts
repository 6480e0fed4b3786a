import { lstat, readdir } from "node:fs/promises";
import { join } from "node:path";
import { CACHE_ENTRIES_MAX } from "../../contract/agent-link.ts";
import type { CacheLeftover } from "../../contract/fleet.ts";
import { bytesOf, type HoldingRecord, stagingName } from "../../decide/weights/holding.ts";
import { TRASH } from "./remove-owned.ts";

/** What lies in the cache beside whole weights: downloads that have not ended, what was set aside, and what others have put there. */
export async function listLeftovers(
  folder: string,
  records: readonly HoldingRecord[],
  damaged: readonly HoldingRecord[],
): Promise<readonly CacheLeftover[]> {
  const own = new Map(
    records.map((record) => [record.status === "complete" ? record.name : stagingName(record), record] as const),
  );
  const aside = new Map(damaged.map((record) => [record.name, record]));
  const found: CacheLeftover[] = [];
  for (const name of await readdir(folder)) {
    if (found.length >= CACHE_ENTRIES_MAX) break;
    const record = own.get(name);
    if (name === TRASH || record?.status === "complete") continue;
    const setAside = aside.get(name);
    if (record !== undefined) found.push({ name: record.name, bytes: bytesOf(record), kind: "partial" });
    else if (setAside !== undefined) found.push({ name, bytes: bytesOf(setAside), kind: "foreign", damaged: true });
    else found.push({ name: name.slice(0, 256), bytes: await fileBytes(join(folder, name)), kind: "foreign" });
  }
  return found;
}

/** What is in a folder is not counted: it may be a whole disk. */
async function fileBytes(path: string): Promise<number | null> {
  try {
    const seen = await lstat(path);
    return seen.isFile() ? seen.size : null;
  } catch {
    return null;
  }
}
