import { z } from "zod";
import type { FetchedSource } from "./source.ts";

/**
 * What an agent has put into its cache, kept beside its state and never in the cache itself. Nothing is used or removed there
 * that is not in such a record.
 *
 * Invariants:
 *   O1. A record is on the disk before the first thing of it is made in the cache.
 *   O2. `complete` is written only when every file was checked and is on the disk; the rename to the final name comes after.
 *   O3. A file is told by device and number, not by its name: a name is given to other files by anybody who may write there.
 */
const inCache = z.object({ path: z.string(), dev: z.string(), ino: z.string() });

const heldFile = z.object({
  /** Below the source's folder. */
  path: z.string(),
  bytes: z.number().nullable(),
  /** What the content is to be, where it is known before. */
  sha256: z.string().nullable(),
  /** Of the answer that the bytes are from. */
  etag: z.string().nullable(),
  /** How long that answer said the file is. */
  told: z.number().nullable().default(null),
  /** Bytes that were seen on the disk, whatever a crash of the machine left of the others. */
  synced: z.number(),
  dev: z.string().nullable(),
  ino: z.string().nullable(),
  /** When it was made, where the disk keeps that: a number alone is given out again. */
  bornNs: z.string().nullable().default(null),
  /** What the content is, once the file is whole. */
  digest: z.string().nullable(),
  mtimeNs: z.string().nullable(),
});
export type HeldFile = z.output<typeof heldFile>;

/** The form of a name in the cache. */
const CACHE_NAME = /^[0-9a-f]{64}$/;
export const isCacheName = (name: string): boolean => CACHE_NAME.test(name);

export const holdingRecord = z.object({
  name: z.string().regex(CACHE_NAME),
  source: z.string(),
  status: z.enum(["fetching", "complete"]),
  /** Part of the folder's name while it is fetched: one that nobody else can have made. */
  nonce: z.string().regex(/^[0-9a-f]{16}$/),
  /** The machine's run in which the bytes were written. */
  bootId: z.string(),
  /** What the source's revision was when it was fetched. */
  revision: z.string().nullable(),
  /** What an engine is given, below the source's folder; empty: the folder itself. */
  entry: z.string(),
  /** The source's own folder is "". */
  folders: z.array(inCache),
  files: z.array(heldFile),
});
export type HoldingRecord = z.output<typeof holdingRecord>;

/** The form of a name in the cache of what was set aside. */
const DAMAGED_NAME = /^[0-9a-f]{64}\.[0-9a-f]{16}\.damaged$/;
export const isDamagedName = (name: string): boolean => DAMAGED_NAME.test(name);

/** Of what was set aside: the files that this node made, as they were then. */
export const damagedRecord = holdingRecord.extend({ name: z.string().regex(DAMAGED_NAME) });

/** Where weights go that are not what was fetched any more. */
export const damagedName = ({ name, nonce }: Pick<HoldingRecord, "name" | "nonce">): string =>
  `${name}.${nonce}.damaged`;

/** Its folder in the cache while it is fetched. */
export const stagingName = ({ name, nonce }: Pick<HoldingRecord, "name" | "nonce">): string => `${name}.${nonce}.part`;

export const newHolding = (name: string, source: string, nonce: string, bootId: string): HoldingRecord => ({
  name,
  source,
  status: "fetching",
  nonce,
  bootId,
  revision: null,
  entry: "",
  folders: [],
  files: [],
});

/** How many bytes of the record are there, or were when it was written. */
export const bytesOf = ({ files }: HoldingRecord): number =>
  files.reduce((sum, file) => sum + (file.digest === null ? file.synced : (file.bytes ?? 0)), 0);

/** Where the files of a listing lie below the source's folder, and what an engine is given. */
export interface Layout {
  readonly base: string;
  readonly entry: string;
  /** Small files that the layout needs besides. */
  readonly notes: readonly { readonly path: string; readonly text: string }[];
}

/** A hub's repository lies as the hub's own tools lay it, so that whoever reads such a folder can read this one. */
export function layoutOf(source: FetchedSource, revision: string | null): Layout {
  switch (source.kind) {
    case "web":
      return { base: "", entry: source.file, notes: [] };
    case "s3": {
      const file = source.key.split("/").at(-1) ?? "";
      return { base: "", entry: file, notes: [] };
    }
    case "hub": {
      const folder = `models--${source.repo.replaceAll("/", "--")}`;
      const commit = revision ?? source.revision;
      const base = `${folder}/snapshots/${commit}/`;
      const isNamed = source.revision !== commit;
      return {
        base,
        entry: source.file === null ? base.slice(0, -1) : `${base}${source.file}`,
        notes: isNamed ? [{ path: `${folder}/refs/${source.revision}`, text: commit }] : [],
      };
    }
  }
}

export interface SeenFile {
  readonly dev: string;
  readonly ino: string;
  readonly bytes: number;
  readonly mtimeNs: string;
  readonly bornNs: string | null;
}

/**
 * What of a holding's folder is to be set aside as the node's own: files that it made and that others have written to since, by device,
 * number and time of making. One that was put in the place of another is whoever's put it there.
 */
export function damagedFiles(files: readonly HeldFile[], seen: readonly (SeenFile | null)[]): readonly HeldFile[] {
  return files.flatMap((file, at) => {
    const now = seen[at] ?? null;
    const isOurs =
      now !== null &&
      file.bornNs !== null &&
      now.bornNs === file.bornNs &&
      now.dev === file.dev &&
      now.ino === file.ino;
    return isOurs ? [{ ...file, bytes: now.bytes, mtimeNs: now.mtimeNs, sha256: null, digest: "" }] : [];
  });
}

/** Whether a file of a complete holding may be used as it lies there. `look`: its content is to be read first. */
export function judgeHeldFile(file: HeldFile, seen: SeenFile | null): "same" | "look" | { readonly wrong: string } {
  if (seen === null) return { wrong: `${file.path} is gone` };
  if (seen.bytes !== file.bytes) return { wrong: `${file.path} has ${seen.bytes} bytes, not ${file.bytes}` };
  const isSame = seen.dev === file.dev && seen.ino === file.ino && seen.mtimeNs === file.mtimeNs;
  return isSame ? "same" : "look";
}

export type RemovalVerdict =
  | { readonly kind: "remove"; readonly record: HoldingRecord }
  | { readonly kind: "refused"; readonly why: string };

/** The node's own word on what it is asked to remove, whatever the control plane has checked before. */
export function judgeRemoval(
  name: string,
  record: HoldingRecord | undefined,
  use: { readonly heldBy: readonly string[]; readonly fetching: boolean },
): RemovalVerdict {
  const refused = (why: string): RemovalVerdict => ({ kind: "refused", why });
  if (!isCacheName(name) && !isDamagedName(name)) return refused("the name is none that this node gives to weights");
  if (record === undefined) return refused("this node has put nothing of that name into its cache");
  if (use.heldBy.length > 0) return refused(`in use by ${use.heldBy.slice(0, 5).join(", ")}`);
  return use.fetching ? refused("it is being fetched") : { kind: "remove", record };
}
