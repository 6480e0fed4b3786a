import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { writeDurably } from "../../kernel/durable-file.ts";
import { DiskReserve } from "./disk-reserve.ts";

test("on a full disk the agent's own files are written in the room that was held for them, and the room is held again when there is some [80.A15]", async () => {
  const folder = await mkdtemp(join(tmpdir(), "yardmaster-reserve-"));
  try {
    const held = join(folder, "reserve");
    const file = join(folder, "epoch.json");
    let full = false;
    // A disk on which there is room only where the reserve was.
    const reserve = new DiskReserve(held, async (path, text) => {
      if (full && existsSync(held)) throw Object.assign(new Error("no space left"), { code: "ENOSPC" });
      await writeDurably(path, text);
    });
    await reserve.fill();
    assert.ok((await readFile(held)).length >= 512 * 1024);
    full = true;
    await reserve.write(file, "one");
    assert.equal(await readFile(file, "utf8"), "one");
    full = false;
    await reserve.write(file, "two");
    assert.equal(await readFile(file, "utf8"), "two");
    assert.ok(existsSync(held));
    await assert.rejects(reserve.write(join(folder, "missing", "x"), "three"), /ENOENT/);
    assert.ok(existsSync(held), "what fails for another reason costs no reserve");
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});
