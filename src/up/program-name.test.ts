import assert from "node:assert/strict";
import { mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { programName } from "./program-name.ts";

test("what is printed to be typed is how this program is called from that folder: in a clone, beside a package, on the path, or by its own place [80.D40]", async () => {
  const top = await mkdtemp(join(tmpdir(), "program-name-"));
  try {
    const folders = ["clone/bin", "home/node_modules/.bin", "home/node_modules/yardmaster/bin", "usr/bin", "else"];
    for (const folder of folders) await mkdir(join(top, folder), { recursive: true });
    const cloned = join(top, "clone/bin/yardmaster");
    const installed = join(top, "home/node_modules/yardmaster/bin/yardmaster");
    for (const file of [cloned, installed]) await writeFile(file, "");
    const linked = join(top, "home/node_modules/.bin/yardmaster");
    await symlink(installed, linked);
    await symlink(cloned, join(top, "usr/bin/yardmaster"));
    const path = [join(top, "home/node_modules/.bin"), "", join(top, "usr/bin")].join(":");
    const named = (program: string, folder: string): string =>
      programName({ program, folder: join(top, folder), path });
    assert.equal(named(cloned, "clone"), "bin/yardmaster");
    assert.equal(named(cloned, "else"), "yardmaster");
    assert.equal(named(installed, "home"), "npx yardmaster");
    assert.equal(named(installed, "else"), installed, "a folder that npm alone has on the path is no help");
    assert.equal(programName({ program: cloned, folder: join(top, "else"), path: undefined }), cloned);
  } finally {
    await rm(top, { recursive: true });
  }
});
