import assert from "node:assert/strict";
import { type BigIntStats, existsSync, lstatSync, readdirSync, readFileSync } from "node:fs";
import {
  type FileHandle,
  link,
  lstat,
  mkdir,
  mkdtemp,
  open,
  rename,
  rm,
  symlink,
  unlink,
  writeFile,
} from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { test } from "node:test";
import { type HoldingRecord, newHolding } from "../../decide/weights/holding.ts";
import { type Random, seededRandom } from "../../kernel/random.ts";
import { rounds } from "../../testing/rounds.ts";
import { removeOwned } from "./remove-owned.ts";

const NAME = "ab".repeat(32);
/** In memory, where there is such a place: thousands of trees are made. */
const PLACE = existsSync("/dev/shm") ? "/dev/shm" : tmpdir();
const FOLDERS = ["", "snap", "snap/one", "deep/er/est"];

/** What a person has, and what must be the same afterwards: content by inode. */
type Things = ReadonlyMap<string, string>;

interface Tree {
  readonly root: string;
  readonly cache: string;
  readonly user: string;
  readonly record: HoldingRecord;
}

const pick = <T>(random: Random, from: readonly T[]): T => from[Math.floor(random.next() * from.length)] as T;
const identity = (seen: BigIntStats): { dev: string; ino: string } => ({
  dev: String(seen.dev),
  ino: String(seen.ino),
});

/** A folder of weights as an agent leaves it, with its record, and beside the cache a folder with files of the same names. */
async function aTree(random: Random): Promise<Tree> {
  const root = await mkdtemp(join(PLACE, "yardmaster-trap-"));
  const [cache, user] = [join(root, "cache"), join(root, "user")];
  const folders = new Set([""]);
  const files: HoldingRecord["files"] = [];
  const count = 1 + Math.floor(random.next() * 5);
  for (let at = 0; at < count; at += 1) {
    const folder = pick(random, FOLDERS);
    const path = join(folder, `f${at}.bin`);
    for (let up = folder; up !== "" && up !== "."; up = dirname(up)) folders.add(up);
    for (const top of [join(cache, NAME), user]) await mkdir(join(top, folder), { recursive: true });
    await writeFile(join(user, path), `mine ${at}`);
    const text = random.next() < 0.3 ? "same in two models" : "w".repeat(1 + Math.floor(random.next() * 50));
    await writeFile(join(cache, NAME, path), text);
    const seen = await lstat(join(cache, NAME, path), { bigint: true });
    const bytes = text.length;
    files.push({
      path,
      bytes,
      sha256: null,
      etag: null,
      told: null,
      bornNs: null,
      synced: bytes,
      ...identity(seen),
      digest: "d",
      mtimeNs: String(seen.mtimeNs),
    });
  }
  const known: HoldingRecord["folders"] = [];
  for (const path of folders) known.push({ path, ...identity(await lstat(join(cache, NAME, path), { bigint: true })) });
  const record = {
    ...newHolding(NAME, "s", "0".repeat(16), "boot"),
    status: "complete" as const,
    folders: known,
    files,
  };
  return { root, cache, user, record };
}

/** Content by inode, everywhere below a folder. */
function thingsIn(root: string): Things {
  const found = new Map<string, string>();
  for (const entry of readdirSync(root, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue;
    const path = join(entry.parentPath, entry.name);
    found.set(String(lstatSync(path, { bigint: true }).ino), readFileSync(path, "utf8"));
  }
  return found;
}

type Trap = (tree: Tree, random: Random) => Promise<void>;
const fileOf = ({ record }: Tree, random: Random): string => pick(random, record.files).path;
const folderOf = ({ record }: Tree, random: Random): string => pick(random, record.folders).path;
const inCache = ({ cache }: Tree, path: string): string => join(cache, NAME, path);

/** A place of the tree gives way to something else; what was there is kept aside. */
async function replace(tree: Tree, path: string, by: (place: string) => Promise<void>): Promise<void> {
  const place = inCache(tree, path);
  await rename(place, join(tree.root, `aside-${Math.floor(Number(process.hrtime.bigint() % 1_000_000_000n))}`));
  await by(place);
}

const TRAPS: Readonly<Record<string, Trap>> = {
  "a file becomes a link to a user's": (tree, random) => {
    const path = fileOf(tree, random);
    return replace(tree, path, (place) => symlink(join(tree.user, path), place));
  },
  "a file becomes another name of a user's": (tree, random) => {
    const path = fileOf(tree, random);
    return replace(tree, path, (place) => link(join(tree.user, path), place));
  },
  "a file becomes another file": (tree, random) =>
    replace(tree, fileOf(tree, random), (place) => writeFile(place, "put here by a person")),
  "a file is written to": async (tree, random) => writeFile(inCache(tree, fileOf(tree, random)), "changed by a person"),
  "a file becomes a folder with files": (tree, random) =>
    replace(tree, fileOf(tree, random), async (place) => {
      await mkdir(place);
      await writeFile(join(place, "x"), "in a folder");
    }),
  "a folder becomes a link to a user's": (tree, random) => {
    const path = folderOf(tree, random);
    return replace(tree, path, (place) => symlink(join(tree.user, path), place));
  },
  "a folder becomes a copy of a user's": (tree, random) =>
    replace(tree, folderOf(tree, random), async (place) => {
      await mkdir(place);
      await writeFile(join(place, "f0.bin"), "copied by a person");
    }),
  "a file has a second name at a user's": async (tree, random) =>
    link(inCache(tree, fileOf(tree, random)), join(tree.user, "kept-by-name")),
  "a foreign file lies beside": async (tree, random) =>
    writeFile(join(inCache(tree, folderOf(tree, random)), "notes.txt"), "foreign"),
  "a file is gone": (tree, random) => replace(tree, fileOf(tree, random), async () => {}),
  nothing: async () => {},
};

/** What is the user's: all but the files of the record that are still where they were and as they were. */
function ownBytes({ cache, record }: Tree): { readonly foreign: Things; readonly bytes: number } {
  const foreign = new Map(thingsIn(dirname(cache)));
  let bytes = 0;
  for (const file of record.files) {
    let seen: BigIntStats;
    try {
      if (!parentsAre(record, cache, file.path)) continue;
      seen = lstatSync(join(cache, NAME, file.path), { bigint: true });
    } catch {
      continue;
    }
    const isOwn = seen.isFile() && String(seen.ino) === file.ino && String(seen.mtimeNs) === file.mtimeNs;
    if (!isOwn) continue;
    if (seen.nlink === 1n) {
      foreign.delete(String(seen.ino));
      bytes += Number(seen.size);
    }
  }
  return { foreign, bytes };
}

const parentsAre = (record: HoldingRecord, cache: string, path: string): boolean =>
  record.folders
    .filter((folder) => folder.path === "" || path.startsWith(`${folder.path}/`))
    .every(({ path: folder, ino }) => {
      const seen = lstatSync(join(cache, NAME, folder), { bigint: true });
      return seen.isDirectory() && String(seen.ino) === ino;
    });

function assertKept(before: Things, after: Things, what: string): void {
  for (const [ino, text] of before) assert.equal(after.get(ino), text, what);
}

test("whatever traps a tree has, no file that is not the node's own goes, and as many bytes are freed as were reckoned [80.A16 40.W3]", async () => {
  const trees = rounds(1_000, 10_000);
  for (let seed = 1; seed <= trees; seed += 1) {
    const random = seededRandom(seed);
    const tree = await aTree(random);
    const traps = [pick(random, Object.keys(TRAPS)), pick(random, Object.keys(TRAPS))];
    // The second may find nothing left to spoil.
    for (const trap of traps) await TRAPS[trap]?.(tree, random).catch(() => {});
    const { foreign, bytes } = ownBytes(tree);
    const removal = await removeOwned(tree.cache, NAME, tree.record);
    const what = `seed ${seed}: ${traps.join(", then ")}; kept ${JSON.stringify(removal.kept)}`;
    assertKept(foreign, thingsIn(tree.root), what);
    assert.equal(removal.freedBytes, bytes, what);
    if (traps.every((trap) => trap === "nothing")) assert.deepEqual(readdirSync(tree.cache), [".yardmaster-trash"]);
    await rm(tree.root, { recursive: true });
  }
});

test("a folder or file that is swapped between the check and the removal takes nothing of a user with it [80.A16 40.W3 80.C42]", async () => {
  const trees = rounds(500, 5_000);
  let swaps = 0;
  for (let seed = 1; seed <= trees; seed += 1) {
    const random = seededRandom(seed);
    const tree = await aTree(random);
    const mine = thingsIn(tree.user);
    let isOver = false;
    // It goes through folders that it holds open itself, lest it walk through its own links and lose the user's files.
    const held = new Map<string, FileHandle>([["", await open(tree.cache)]]);
    for (const { path } of tree.record.folders) held.set(join(NAME, path), await open(inCache(tree, path)));
    const places = [...tree.record.files, ...tree.record.folders].map(({ path }) => join(NAME, path));
    const swapper = async (): Promise<void> => {
      for (let round = 0; !isOver && round < 200; round += 1) {
        const path = pick(random, places);
        const parent = held.get(path === NAME ? "" : dirname(path));
        const place = `/proc/self/fd/${parent?.fd}/${basename(path)}`;
        const aside = join(tree.root, `aside-${round}`);
        try {
          await rename(place, aside);
          await symlink(join(tree.user, path.slice(NAME.length)), place);
          swaps += 1;
          await unlink(place);
          await rename(aside, place);
        } catch {
          // It has been removed meanwhile.
        }
      }
    };
    const swapping = swapper();
    const removal = await removeOwned(tree.cache, NAME, tree.record);
    isOver = true;
    await swapping;
    for (const handle of held.values()) await handle.close();
    assertKept(mine, thingsIn(tree.user), `seed ${seed}: kept ${JSON.stringify(removal.kept)}`);
    await rm(tree.root, { recursive: true });
  }
  assert.ok(swaps > trees, `${swaps} swaps`);
});

test("a record that names places outside its folder removes nothing there [80.A16 40.W3 80.C42]", async () => {
  const tree = await aTree(seededRandom(1));
  const [file] = tree.record.files;
  assert.ok(file !== undefined);
  const mine = thingsIn(tree.user);
  const seen = await lstat(join(tree.user, file.path), { bigint: true });
  const forged = ["../../user/", "../../../", "/", "./../../user/"].map((lead) => ({
    ...file,
    path: `${lead}${file.path}`,
    ...identity(seen),
    mtimeNs: String(seen.mtimeNs),
    bytes: Number(seen.size),
  }));
  const outside = { path: "..", ...identity(await lstat(tree.cache, { bigint: true })) };
  const record = {
    ...tree.record,
    files: [...forged, { ...file, path: ".." }],
    folders: [...tree.record.folders, outside],
  };
  const { freedBytes } = await removeOwned(tree.cache, NAME, record);
  assert.equal(freedBytes, 0);
  assertKept(mine, thingsIn(tree.user), "forged paths");
  await rm(tree.root, { recursive: true });
});
