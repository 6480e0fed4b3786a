import assert from "node:assert/strict";
import { execFileSync, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { chmod, chown, copyFile, cp, mkdir, mkdtemp, readFile, rm, stat, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { after, test } from "node:test";
import { controlEvent } from "../../contract/control-event.ts";
import { systemClock } from "../../kernel/clock.ts";
import { silentLogger } from "../../kernel/log.ts";
import { seededRandom } from "../../kernel/random.ts";
import { aNodeDoc, aReplicaDoc } from "../../testing/fleet-docs.ts";
import { rounds } from "../../testing/rounds.ts";
import { ordinaryUser } from "../../testing/servers/server-process.ts";
import { nextEvent } from "../../testing/wait-for.ts";
import { watchLoop } from "../../testing/watch-loop.ts";
import { ControlStore, type StoredState } from "./control-store.ts";
import { openStore } from "./open-store.ts";
import type { SqlDriver, SqlRow, Statement } from "./sql-driver.ts";
import { openSqlite } from "./sqlite-driver.ts";
import { backupOf, markerOf, openSqliteFile } from "./sqlite-file.ts";
import { lead, told } from "./suite.conformance.ts";

const folder = await mkdtemp(join(tmpdir(), "yardmaster-sqlite-"));
after(() => rm(folder, { recursive: true, force: true }));

let made = 0;
const freshDir = async (): Promise<string> => {
  const dir = join(folder, `${(made += 1)}`);
  await mkdir(dir);
  return dir;
};

const open = (dataDir: string) => openStore({ dataDir, databaseUrl: null, clock: systemClock, log: silentLogger });

/** A database with something of everything in it, closed. */
async function filled(): Promise<{
  readonly dir: string;
  readonly path: string;
  readonly state: StoredState;
  readonly catalog: string;
}> {
  const dir = await freshDir();
  const { store, close } = await open(dir);
  const term = await lead(store, "me");
  const nodes = Array.from({ length: 40 }, (_, index) => aNodeDoc(`node-${index}`, { labels: { zone: `z${index}` } }));
  const replicas = Array.from({ length: 80 }, (_, index) =>
    aReplicaDoc(`r-${index}`, { reason: "x".repeat(50 + index) }),
  );
  const writes = [
    ...nodes.map((doc) => ({ kind: "node", id: doc.id, doc }) as const),
    ...replicas.map((doc) => ({ kind: "replica", id: doc.id, doc }) as const),
  ];
  await store.commit(
    term,
    writes,
    Array.from({ length: 60 }, (_, index) => told(`event ${index}`)),
  );
  const catalog = `models: []\n# ${"c".repeat(3_000)}\n`;
  await store.saveCatalog({ base: 0, author: "ana", origin: "api", text: catalog }, () =>
    controlEvent("catalogApplied", "first"),
  );
  await store.issueToken("node-a", "ana");
  const state = await store.load();
  await close();
  return { dir, path: join(dir, "control.db"), state, catalog };
}

/** The same queries in this thread: a hundred opened files cost no hundred threads. */
function inThisThread(db: DatabaseSync): SqlDriver {
  const run = ({ text, values }: Statement): readonly SqlRow[] =>
    db
      .prepare(text)
      .all(Object.fromEntries(values.map((value, index) => [`$${index + 1}`, value]))) as unknown as SqlRow[];
  const query = (statement: Statement): Promise<readonly SqlRow[]> => Promise.resolve().then(() => run(statement));
  return {
    dialect: "sqlite",
    query,
    urgent: query,
    transaction: async (steps) => ({ kind: "committed", rows: await Promise.all(steps.map(query)) }),
    close: () => Promise.resolve(),
  };
}

/** What a start reads of a file: "refused", or the state as it is. Throws what is neither. */
async function readAsAtStart(path: string): Promise<"refused" | { state: StoredState; catalog: string | undefined }> {
  let db: DatabaseSync;
  try {
    db = openSqliteFile(path, { check: true, busyMs: 100 });
  } catch (error) {
    assert.ok(error instanceof Error && error.message.includes("nothing was changed"), String(error));
    return "refused";
  }
  try {
    const store = await ControlStore.open(inThisThread(db));
    const [state, catalog] = [await store.load(), await store.catalog()];
    return { state, catalog: catalog?.text };
  } catch (error) {
    assert.ok(error instanceof Error && "code" in error, String(error));
    return "refused";
  } finally {
    db.close();
  }
}

test("a byte that was flipped anywhere in the file is refused or harms nothing, and no file is made anew [80.P9]", async () => {
  const { path, state, catalog } = await filled();
  const bytes = await readFile(path);
  const random = seededRandom(9);
  const dir = await freshDir();
  let refused = 0;
  for (let round = 0; round < rounds(100, 1_000); round += 1) {
    const damaged = Buffer.from(bytes);
    const at = Math.floor(random.next() * damaged.length);
    damaged[at] = (damaged[at] ?? 0) ^ (1 << Math.floor(random.next() * 8));
    const copy = join(dir, `${round}.db`);
    await writeFile(copy, damaged);
    const before = (await stat(copy)).size;
    const found = await readAsAtStart(copy);
    if (found === "refused") refused += 1;
    else assert.deepEqual(found, { state, catalog }, `byte ${at}: what is acted upon is what was written`);
    assert.ok((await stat(copy)).size >= before, "nothing was cut or made anew");
    await rm(copy);
  }
  assert.ok(refused > 10, `${refused} were refused`);
});

test("a file that was cut at any length, emptied or removed is refused, never made anew [80.P9]", async () => {
  const { dir, path, state, catalog } = await filled();
  const { size } = await stat(path);
  for (const length of [0, 1, 99, 512, 4_096, Math.floor(size / 2), size - 4_096, size - 1]) {
    const copy = join(await freshDir(), "control.db");
    await copyFile(path, copy);
    await truncate(copy, length);
    const found = await readAsAtStart(copy);
    if (found !== "refused") assert.deepEqual(found, { state, catalog }, `cut at ${length}`);
    else assert.equal((await stat(copy)).size, length);
  }
  const gone = await freshDir();
  await cp(dir, gone, { recursive: true });
  await rm(join(gone, "control.db"));
  await assert.rejects(open(gone), { code: "STORE_REFUSED", message: /is gone.*cp '/ });
  assert.ok(!existsSync(join(gone, "control.db")));
});

/** What lies on the disk after a crash, with a node and a catalog that were told as done. */
async function crashed(): Promise<string> {
  const dir = await freshDir();
  const { store, close } = await open(dir);
  const term = await lead(store, "me");
  await store.commit(term, [{ kind: "node", id: "n", doc: aNodeDoc("n") }], []);
  await store.saveCatalog({ base: 0, author: "ana", origin: "api", text: "models: []\n" }, () => told("first"));
  const left = await freshDir();
  await cp(dir, left, { recursive: true });
  await close();
  return left;
}

const flipAt =
  (part: number) =>
  async (wal: string): Promise<void> => {
    const bytes = await readFile(wal);
    const at = Math.floor(bytes.length * part);
    bytes[at] = (bytes[at] ?? 0) ^ 255;
    await writeFile(wal, bytes);
  };

const SIDE_FILE_HARM: readonly { readonly name: string; readonly harm: (wal: string) => Promise<void> }[] = [
  { name: "removed", harm: (wal) => rm(wal) },
  { name: "cut in half", harm: async (wal) => truncate(wal, Math.floor((await stat(wal)).size / 2)) },
  { name: "emptied", harm: (wal) => truncate(wal, 0) },
  { name: "flipped near its beginning", harm: flipAt(0.05) },
  { name: "flipped in the middle", harm: flipAt(0.5) },
];

for (const { name, harm } of SIDE_FILE_HARM)
  test(`a side file that a crash left, ${name}, is told at the start by what is missing, and nothing is made anew [80.P9]`, async () => {
    const dir = await crashed();
    const whole = await freshDir();
    await cp(dir, whole, { recursive: true });
    const wal = join(dir, "control.db-wal");
    await harm(wal);
    const before = await Promise.all([wal, join(dir, "control.db")].map((path) => readFile(path).catch(() => null)));
    await assert.rejects(open(dir), { code: "STORE_REFUSED", message: /commits are missing.*side file.*cp '/ });
    const left = await Promise.all([wal, join(dir, "control.db")].map((path) => readFile(path).catch(() => null)));
    assert.deepEqual(left[1], before[1]);
    if (before[0] !== null) assert.deepEqual(left[0], before[0], "what may still be read out of it is left");

    const { store, close } = await open(whole);
    assert.deepEqual([(await store.load()).nodes.length, await store.catalogRevision()], [1, 1], "unhurt, it is whole");
    await close();
  });

test("a database that lost everything but its file is known by its marker [80.P9]", async () => {
  const { dir, path } = await filled();
  const empty = await freshDir();
  await (await openSqlite({ path: join(empty, "control.db"), clock: systemClock })).close();
  await copyFile(join(empty, "control.db"), path);
  await assert.rejects(open(dir), { code: "STORE_REFUSED", message: /is empty, and it was cluster/ });
  const other = await filled();
  await copyFile(other.path, path);
  await assert.rejects(open(dir), { code: "STORE_REFUSED", message: /of another cluster/ });
});

test("a database without its marker is taken for an old copy, under which nothing is stopped [80.P9]", async () => {
  const { dir, path, state } = await filled();
  await writeFile(markerOf(path), "hello\n");
  const { store, close } = await open(dir);
  assert.deepEqual(await store.load(), { ...state, cluster: { ...state.cluster, restoredAbove: 1 } });
  await close();
  // From then on it has one.
  const again = await open(dir);
  assert.equal((await again.store.load()).cluster.restoredAbove, 1);
  await again.close();
});

test("the command that a refusal names brings the last backup back [80.P9 80.P7]", async () => {
  const { dir, path, state } = await filled();
  // A second start makes its backup of what the first one wrote.
  await (await open(dir)).close();
  await truncate(path, 5_000);
  const error = await open(dir).then(
    () => assert.fail("a cut file was opened"),
    (caught: unknown) => caught as Error,
  );
  const [, command = ""] = /go back to the last backup with: (.*)$/.exec(error.message) ?? [];
  execFileSync("/bin/sh", ["-c", command]);
  assert.equal((await stat(`${path}.damaged`)).size, 5_000);
  const { store, close } = await open(dir);
  // It says of itself that it is a copy.
  assert.deepEqual(await store.load(), { ...state, cluster: { ...state.cluster, restoredAbove: 1 } });
  await close();
  assert.equal((await stat(backupOf(path))).mode & 0o077, 0);
  assert.ok(existsSync(markerOf(path)));
});

test("a file that can't be written, or is another program's, is refused at the start [80.P9]", async () => {
  const dir = await freshDir();
  const other = new DatabaseSync(join(dir, "control.db"));
  other.exec("CREATE TABLE somebody_elses (x)");
  other.close();
  await assert.rejects(open(dir), { code: "STORE_REFUSED", message: /no control plane's database/ });

  const { dir: readOnly, path } = await filled();
  const user = ordinaryUser();
  for (const file of [path, markerOf(path)]) await chmod(file, 0o444);
  await chmod(folder, 0o755);
  await chmod(readOnly, 0o555);
  if (user !== undefined) await chown(readOnly, 0, 0);
  const script = `
    const { openSqliteFile } = await import(${JSON.stringify(join(import.meta.dirname, "sqlite-file.ts"))});
    try { openSqliteFile(${JSON.stringify(path)}, { check: true, busyMs: 100 }); console.log("opened"); }
    catch (error) { console.log("refused: " + error.message); }`;
  const told = spawnSync(process.execPath, ["--input-type=module", "-e", script], {
    encoding: "utf8",
    cwd: "/",
    ...user,
  });
  await chmod(readOnly, 0o755);
  assert.match(told.stdout, /^refused: .*can't be used/, told.stderr);
});

/** Another process that holds the write lock until its input closes. */
async function lockFromOutside(path: string): Promise<{ release(): Promise<void> }> {
  const script = `
    const { DatabaseSync } = require("node:sqlite");
    const db = new DatabaseSync(${JSON.stringify(path)}, { timeout: 5000 });
    db.exec("BEGIN IMMEDIATE");
    console.log("locked");
    process.stdin.resume().on("end", () => { db.exec("ROLLBACK"); process.exit(0); });`;
  const child = spawn(process.execPath, ["-e", script], { stdio: ["pipe", "pipe", "ignore"] });
  await nextEvent(child.stdout, "data");
  return {
    release: async () => {
      child.stdin.end();
      await once(child, "exit");
    },
  };
}

test("a lock of another process is waited out, and one that stays ends in a refusal; this thread goes on all the while [80.P8]", async () => {
  const dir = await freshDir();
  const path = join(dir, "control.db");
  const busyMs = 1_500;
  const driver = await openSqlite({ path, clock: systemClock, busyMs });
  const store = await ControlStore.open(driver);
  const term = await lead(store, "me");
  const loop = watchLoop();
  const short = await lockFromOutside(path);
  const waiting = store.commit(term, [{ kind: "node", id: "n", doc: aNodeDoc("n") }], []);
  await short.release();
  assert.equal(await waiting, "ok");

  const long = await lockFromOutside(path);
  const start = systemClock.mono();
  const renewal = store.askLease({ holder: "me", leaseMs: 1_000, floor: 0, alone: false });
  const [outcome] = await Promise.all([
    store.commit(term, [{ kind: "node", id: "x", doc: aNodeDoc("x") }], []),
    assert.rejects(renewal, { code: "STORE_UNAVAILABLE" }),
  ]);
  assert.ok(systemClock.mono() - start < busyMs * 4, "a renewal waits for no commit");
  assert.equal(outcome, "unknown");
  const longest = loop.stop();
  // A busy machine holds up every thread; a wait for the lock in this one would take the whole time.
  assert.ok(longest < busyMs / 2, `this thread stood still for ${Math.round(longest)} ms`);
  assert.deepEqual(
    (await store.load()).nodes.map(({ id }) => id),
    ["n"],
  );
  await long.release();
  assert.equal(await store.commit(term, [{ kind: "node", id: "x", doc: aNodeDoc("x") }], []), "ok");
  await store.close();
});

test("one process alone leads at once; a second one on the same file waits for the lease [40.L4]", async () => {
  const dir = await freshDir();
  const first = await open(dir);
  assert.equal(first.alone, true);
  const second = await open(dir);
  assert.equal(second.alone, false);
  await second.close();
  await first.close();
  const third = await open(dir);
  assert.equal(third.alone, true);
  await third.close();
});
