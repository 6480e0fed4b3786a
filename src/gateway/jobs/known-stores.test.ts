import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { KnownStores } from "./known-stores.ts";

test("a life of the store is known where the data folder can't be written, and kept when it can again [20.J4]", async () => {
  const parent = await mkdtemp(join(tmpdir(), "known-stores-"));
  try {
    const dataDir = join(parent, "data");
    await writeFile(dataDir, "no folder");
    const id = `job_0123abcd_${"A".repeat(22)}`;
    const later = { epoch: "89abcdef", kind: "redis" } as const;
    const known = new KnownStores(dataDir);
    known.note({ epoch: "0123abcd", kind: "redis" });
    assert.equal(known.explain(id, later), "lost");
    assert.equal(new KnownStores(dataDir).explain(id, later), "unknown");
    await rm(dataDir);
    known.note({ epoch: "0123abcd", kind: "redis" });
    assert.equal(new KnownStores(dataDir).explain(id, later), "lost");
  } finally {
    await rm(parent, { recursive: true, force: true });
  }
});
