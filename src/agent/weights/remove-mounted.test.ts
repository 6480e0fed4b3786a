import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, lstatSync, readdirSync, readFileSync } from "node:fs";
import { lstat, mkdir, mkdtemp, rename, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { type HoldingRecord, newHolding } from "../../decide/weights/holding.ts";
import { removeOwned } from "./remove-owned.ts";

const NAME = "cd".repeat(32);
const identity = async (path: string): Promise<{ dev: string; ino: string; mtimeNs: string }> => {
  const seen = await lstat(path, { bigint: true });
  return { dev: String(seen.dev), ino: String(seen.ino), mtimeNs: String(seen.mtimeNs) };
};

function bind(from: string, over: string): Disposable {
  execFileSync("mount", ["--bind", from, over], { stdio: "ignore" });
  return { [Symbol.dispose]: () => void execFileSync("umount", [over], { stdio: "ignore" }) };
}

interface Weights {
  readonly root: string;
  readonly cache: string;
  readonly user: string;
  readonly record: HoldingRecord;
}

/** Two files of weights in two folders, and a user's folder with the same names. */
async function someWeights(): Promise<Weights> {
  const root = await mkdtemp(join(tmpdir(), "yardmaster-mount-"));
  const [cache, user] = [join(root, "cache"), join(root, "user")];
  const top = join(cache, NAME);
  for (const folder of [join(top, "sub"), join(user, "sub")]) await mkdir(folder, { recursive: true });
  const files: HoldingRecord["files"] = [];
  for (const path of ["a.gguf", "sub/b.gguf"]) {
    await writeFile(join(top, path), "ours");
    await writeFile(join(user, path), "mine");
    const { dev, ino, mtimeNs } = await identity(join(top, path));
    files.push({
      path,
      bytes: 4,
      sha256: null,
      etag: null,
      told: null,
      bornNs: null,
      synced: 4,
      dev,
      ino,
      digest: "d",
      mtimeNs,
    });
  }
  const folders: HoldingRecord["folders"] = [];
  for (const path of ["", "sub"]) {
    const { dev, ino } = await identity(join(top, path));
    folders.push({ path, dev, ino });
  }
  const record = { ...newHolding(NAME, "s", "0".repeat(16), "boot"), status: "complete" as const, folders, files };
  return { root, cache, user, record };
}

for (const [what, place, freed] of [
  ["the folder of the weights itself", "", 0],
  ["a folder inside it", "sub", 4],
  ["one of its files", "sub/b.gguf", 4],
] as const)
  test(`a user's files that are mounted over ${what} stay, and what is beside them is removed [80.A16 40.W3]`, async () => {
    const { root, cache, user, record } = await someWeights();
    try {
      {
        using _mounted = bind(join(user, place), join(cache, NAME, place));
        const removal = await removeOwned(cache, NAME, record);
        assert.equal(removal.freedBytes, freed, JSON.stringify(removal.kept));
        assert.ok(removal.kept.length > 0);
        assert.equal(readFileSync(join(cache, NAME, place === "" ? "sub/b.gguf" : "sub/b.gguf"), "utf8"), "mine");
      }
      for (const path of ["a.gguf", "sub/b.gguf"]) assert.equal(readFileSync(join(user, path), "utf8"), "mine");
    } finally {
      await rm(root, { recursive: true });
    }
  });

test("what a killed agent left between the two steps of a removal goes with the next one, and what a person put there stays [80.A16 40.W3]", async () => {
  const { root, cache, record } = await someWeights();
  try {
    const trash = join(cache, ".yardmaster-trash");
    await mkdir(trash);
    await rename(join(cache, NAME, "sub/b.gguf"), join(trash, "0123456789abcdef"));
    await writeFile(join(trash, "fedcba9876543210"), "mine");
    const removal = await removeOwned(cache, NAME, record);
    assert.deepEqual([removal.freedBytes, removal.files, removal.kept], [8, 2, []]);
    assert.deepEqual(readdirSync(cache), [".yardmaster-trash"]);
    assert.deepEqual(readdirSync(trash), ["fedcba9876543210"]);
  } finally {
    await rm(root, { recursive: true });
  }
});

test("of two models with the same bytes each keeps its own: removing one leaves the other's file as it was [80.A16 40.W3]", async () => {
  const [first, second] = [await someWeights(), await someWeights()];
  try {
    const before = lstatSync(join(second.cache, NAME, "a.gguf"));
    assert.equal((await removeOwned(first.cache, NAME, first.record)).freedBytes, 8);
    assert.ok(!existsSync(join(first.cache, NAME)));
    // The record of one says nothing of the other's folder, though names, lengths and content are the same.
    const removal = await removeOwned(second.cache, NAME, first.record);
    assert.deepEqual([removal.freedBytes, removal.files], [0, 0]);
    const after = lstatSync(join(second.cache, NAME, "a.gguf"));
    assert.deepEqual([after.ino, after.size, after.mtimeMs], [before.ino, before.size, before.mtimeMs]);
    assert.deepEqual(readdirSync(join(second.cache, NAME)).toSorted(), ["a.gguf", "sub"]);
  } finally {
    for (const { root } of [first, second]) await rm(root, { recursive: true });
  }
});
