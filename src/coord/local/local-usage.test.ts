import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { systemClock } from "../../kernel/clock.ts";
import { patientClock } from "../../testing/patient-clock.ts";
import { aUsageRow, readAll, today, usageStoreSuite } from "../usage/usage-store.conformance.ts";
import { USAGE_BOUNDS, type UsageStore } from "../usage/usage-store.ts";
import { LocalUsage } from "./local-usage.ts";
import { UsageTables } from "./usage-tables.ts";

let folder: string;
let files = 0;

before(async () => {
  folder = await mkdtemp(join(tmpdir(), "yardmaster-usage-"));
});
after(() => rm(folder, { recursive: true, force: true }));

const KEEP_DAYS = 100;
const newPath = (): string => join(folder, `${(files += 1)}.db`);

/** The tables without their thread. */
function direct(tables: UsageTables): UsageStore {
  return {
    kind: "local",
    id: () => Promise.resolve("tables"),
    add: (gateway, flush) => {
      tables.add(gateway, flush, systemClock.wall());
      return Promise.resolve({ kind: "done" });
    },
    read: (ask, after) => Promise.resolve(tables.read(ask, after)),
    close: () => Promise.resolve(tables.close()),
  };
}

usageStoreSuite("in tables", {
  open: (bounds = USAGE_BOUNDS) => Promise.resolve(direct(new UsageTables(newPath(), KEEP_DAYS, bounds))),
});

test("what was used is known after a restart, and so is what was told [60.K4]", async (t) => {
  const path = newPath();
  const first = new LocalUsage(path, KEEP_DAYS, patientClock);
  t.after(() => first.close());
  assert.equal((await first.add("a", { seq: 1, rows: [aUsageRow()] })).kind, "done");
  await first.close();
  const second = new LocalUsage(path, KEEP_DAYS, patientClock);
  t.after(() => second.close());
  assert.equal((await second.add("a", { seq: 1, rows: [aUsageRow()] })).kind, "done");
  assert.equal((await second.add("b", { seq: 1, rows: [aUsageRow()] })).kind, "done");
  assert.deepEqual(await readAll(second), [aUsageRow({ counts: { prompt: 2 } })]);
});

test("days whose time is over are dropped from the file, with their sums", () => {
  const tables = new UsageTables(newPath(), KEEP_DAYS, USAGE_BOUNDS);
  const now = systemClock.wall();
  tables.add("a", { seq: 1, rows: [aUsageRow()] }, now);
  tables.add("a", { seq: 2, rows: [] }, now + (KEEP_DAYS + 1) * 86_400_000);
  const ask = { fromDay: 0, toDay: today() + 1_000, keyId: null };
  assert.deepEqual(tables.read(ask, null), { rows: [], next: null });
  tables.close();
});

test("a file that is another's is refused, and what could not be written is not said to be", async (t) => {
  const path = newPath();
  await writeFile(path, "no database at all, and long enough to be told from one by anybody who looks");
  const store = new LocalUsage(path, KEEP_DAYS, patientClock);
  t.after(() => store.close());
  assert.equal((await store.add("a", { seq: 1, rows: [aUsageRow()] })).kind, "unknown");
  await assert.rejects(readAll(store));
});
