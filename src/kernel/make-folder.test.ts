import assert from "node:assert/strict";
import { mkdtemp, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { hasSystemCode } from "./errors.ts";
import { makeFolder, makeFolderSync } from "./make-folder.ts";

const WAYS = [
  ["at once", async (path: string, mode?: number) => makeFolderSync(path, mode)],
  ["in turns", makeFolder],
] as const;

for (const [name, make] of WAYS) {
  test(`a folder is made with those above it, for its owner alone, and one that is there is left as it is, ${name} [80.G19]`, async () => {
    const top = await mkdtemp(join(tmpdir(), "make-folder-"));
    try {
      await make(join(top, "a/b/c"));
      for (const part of ["a", "a/b", "a/b/c"]) assert.equal((await stat(join(top, part))).mode & 0o777, 0o700, part);
      await make(join(top, "a/b"), 0o777);
      assert.equal((await stat(join(top, "a/b"))).mode & 0o777, 0o700);
    } finally {
      await rm(top, { recursive: true });
    }
  });

  test(`a folder that can't be made is an error and no endless try, ${name} [80.G19]`, async () => {
    const top = await mkdtemp(join(tmpdir(), "make-folder-"));
    try {
      await writeFile(join(top, "file"), "");
      await assert.rejects(make(join(top, "file")), (error) => hasSystemCode(error, "EEXIST"));
      await assert.rejects(make(join(top, "file/below")), (error) => hasSystemCode(error, "ENOTDIR"));
      if (process.platform === "linux")
        await assert.rejects(make("/proc/none/data"), (error) => hasSystemCode(error, "ENOENT"));
    } finally {
      await rm(top, { recursive: true });
    }
  });
}
