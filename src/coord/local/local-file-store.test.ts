import assert from "node:assert/strict";
import { mkdtemp, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { patientClock } from "../../testing/patient-clock.ts";
import { FILE_LIMITS, fileStoreSuite } from "../files/file-store.conformance.ts";
import { openLocalFileStore } from "./local-file-store.ts";

const folders: string[] = [];
after(() => Promise.all(folders.map((folder) => rm(folder, { recursive: true, force: true }))));

async function aPath(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "yardmaster-files-"));
  folders.push(folder);
  return join(folder, "files.db");
}

fileStoreSuite("the embedded database", async () => {
  const path = await aPath();
  return {
    open: (limits = {}) => openLocalFileStore({ path, limits: { ...FILE_LIMITS, ...limits }, clock: patientClock }),
  };
});

test("the file is its owner's alone, and another program's is left alone [20.J7]", async () => {
  const path = await aPath();
  const store = await openLocalFileStore({ path, limits: FILE_LIMITS, clock: patientClock });
  assert.equal((await stat(path)).mode & 0o777, 0o600);
  await store.close();
  await assert.rejects(store.read("file-a"), { code: "FILE_STORE_UNAVAILABLE" });
  const other = await aPath();
  await writeFile(other, "somebody's file, and no database at all; long enough to be looked at ".repeat(20));
  await assert.rejects(openLocalFileStore({ path: other, limits: FILE_LIMITS, clock: patientClock }), {
    code: "FILE_STORE_UNAVAILABLE",
  });
});
