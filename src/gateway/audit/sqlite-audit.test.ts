import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { after, test } from "node:test";
import type { AuditPage } from "../../contract/audit-event.ts";
import { systemClock } from "../../kernel/clock.ts";
import { type LogFields, type Logger, silentLogger } from "../../kernel/log.ts";
import { anAuditEvent } from "../../testing/an-audit-event.ts";
import { VirtualClock } from "../../testing/virtual-clock.ts";
import { auditSuite, recordMany, seqs } from "./audit-sink.conformance.ts";
import type { AuditSink } from "./audit-sink.ts";
import { openSqliteAudit, type SqliteAuditOptions } from "./sqlite-audit.ts";

const root = mkdtempSync(join(tmpdir(), "yardmaster-audit-"));
after(() => rmSync(root, { recursive: true, force: true }));
let files = 0;
const newPath = (): string => join(root, `case-${++files}`, "audit.sqlite");

const open = (path: string, over: Partial<SqliteAuditOptions> = {}): Promise<AuditSink> =>
  openSqliteAudit({ path, max: 100_000, clock: systemClock, log: silentLogger, ...over });

async function readAll(path: string): Promise<AuditPage> {
  const sink = await open(path);
  const page = await sink.query({ limit: 100_000 });
  await sink.close();
  return page;
}

auditSuite("in SQLite", () => {
  const path = newPath();
  return Promise.resolve({ open: (over = {}) => open(path, over), close: () => Promise.resolve() });
});

/** A logger that remembers, and tells when a line of an op is written. */
function rememberingLog(): Logger & {
  readonly lines: { op: string; fields: LogFields }[];
  seen(op: string): Promise<void>;
} {
  const lines: { op: string; fields: LogFields }[] = [];
  const waiters: { op: string; resolve: () => void }[] = [];
  const add = (op: string, fields: LogFields = {}): void => {
    lines.push({ op, fields });
    for (const waiter of waiters) if (waiter.op === op) waiter.resolve();
  };
  const seen = (op: string): Promise<void> =>
    lines.some((line) => line.op === op) ? Promise.resolve() : new Promise((resolve) => waiters.push({ op, resolve }));
  return { lines, seen, debug: add, info: add, warn: add, error: add };
}

test("no more than the configured number of events is readable, and the file is trimmed to about as many [10.O1]", async () => {
  const path = newPath();
  const sink = await open(path, { max: 200 });
  for (let round = 0; round < 20; round += 1) {
    recordMany(sink, round * 50 + 1, round * 50 + 50);
    await sink.query({ limit: 1 });
  }
  const page = await sink.query({ limit: 10_000 });
  assert.deepEqual(
    seqs(page),
    Array.from({ length: 200 }, (_, i) => 801 + i),
  );
  assert.deepEqual(seqs(await sink.query({ limit: 2, afterSeq: 0 })), [801, 802]);
  await sink.close();
  const db = new DatabaseSync(path, { readOnly: true });
  const stored = db.prepare("SELECT count(*) AS n FROM audit").get()?.["n"] as number;
  assert.ok(stored >= 200 && stored <= 260, `${stored} rows`);
  db.close();
});

test("the view of the database shows one row per event to any SQLite tool", async () => {
  const path = newPath();
  const sink = await open(path);
  recordMany(sink, 1, 3);
  await sink.close();
  const db = new DatabaseSync(path, { readOnly: true });
  const rows = db
    .prepare("SELECT seq, request_id, key_id, total_ms FROM audit ORDER BY seq")
    .all()
    .map((row) => ({ ...row }));
  assert.deepEqual(rows[2], { seq: 3, request_id: "req-3", key_id: "team-a", total_ms: 80 });
  db.close();
});

test("a locked database delays no caller: events wait and are stored when the lock is gone [10.O1]", async () => {
  const path = newPath();
  const first = await open(path);
  recordMany(first, 1, 1);
  await first.close();
  const locker = new DatabaseSync(path);
  locker.exec("BEGIN IMMEDIATE");
  const log = rememberingLog();
  const sink = await open(path, { log });
  recordMany(sink, 2, 700);
  await log.seen("audit.unavailable");
  assert.deepEqual(sink.stats(), { recorded: 699, dropped: 0, pending: 699 });
  locker.exec("COMMIT");
  locker.close();
  await log.seen("audit.recovered");
  await sink.close();
  assert.equal(sink.stats().dropped, 0);
  assert.deepEqual(
    seqs(await readAll(path)),
    Array.from({ length: 700 }, (_, i) => i + 1),
  );
});

for (const [name, spoil] of [
  ["a damaged file", (path: string) => writeFileSync(path, "this is no database ".repeat(500))],
  ["a folder in the place of the file", (path: string) => mkdirSync(path)],
  ["another program's database", (path: string) => new DatabaseSync(path).exec("CREATE TABLE theirs (x)")],
] as const) {
  test(`${name} costs a warning and a counted loss, never a throw, and is left as it is`, async () => {
    const path = newPath();
    mkdirSync(join(path, ".."), { recursive: true });
    spoil(path);
    const log = rememberingLog();
    const sink = await open(path, { log });
    recordMany(sink, 1, 10);
    await log.seen("audit.unavailable");
    await assert.rejects(sink.query({ limit: 1 }), { code: "INTERNAL" });
    await sink.close();
    assert.deepEqual(sink.stats(), { recorded: 10, dropped: 10, pending: 0 });
    assert.equal(log.lines.filter((line) => line.op === "audit.unavailable").length, 1);
    assert.equal(log.lines.at(-1)?.op, "audit.lost");
    if (name.startsWith("another"))
      assert.deepEqual(
        new DatabaseSync(path)
          .prepare("SELECT name FROM sqlite_schema")
          .all()
          .map((row) => row["name"]),
        ["theirs"],
      );
  });
}

test("a process killed at once loses at most what was in memory, and readers see a run that did not close", async () => {
  const path = newPath();
  const script = `
    import { openSqliteAudit } from ${JSON.stringify(new URL("./sqlite-audit.ts", import.meta.url).href)};
    import { anAuditEvent } from ${JSON.stringify(new URL("../../testing/an-audit-event.ts", import.meta.url).href)};
    import { systemClock } from ${JSON.stringify(new URL("../../kernel/clock.ts", import.meta.url).href)};
    import { silentLogger } from ${JSON.stringify(new URL("../../kernel/log.ts", import.meta.url).href)};
    const sink = await openSqliteAudit({ path: ${JSON.stringify(path)}, max: 1000, clock: systemClock, log: silentLogger });
    for (let i = 1; i <= 20; i += 1) sink.record(anAuditEvent({ requestId: "req-" + i }));
    await sink.query({ limit: 1 });
    for (let i = 21; i <= 30; i += 1) sink.record(anAuditEvent({ requestId: "req-" + i }));
    process.kill(process.pid, "SIGKILL");`;
  const child = spawn(process.execPath, ["--input-type=module", "-e", script], { stdio: "inherit" });
  const signal = await new Promise((resolve) => child.on("exit", (_code, by) => resolve(by)));
  assert.equal(signal, "SIGKILL");
  const page = await readAll(path);
  assert.ok(page.records.length >= 20 && page.records.length <= 30);
  assert.deepEqual(
    seqs(page),
    page.records.map((_, i) => i + 1),
  );
  assert.deepEqual(
    page.gaps.map(({ afterSeq, missing, why }) => ({ afterSeq, missing, why })),
    [{ afterSeq: page.records.length, missing: null, why: "run_not_closed" }],
  );
});

test("an audit that was never used starts no thread and makes no file", async () => {
  const path = newPath();
  const sink = await open(path, { clock: new VirtualClock() });
  await sink.close();
  assert.throws(() => new DatabaseSync(path, { readOnly: true }));
  sink.record(anAuditEvent());
  assert.deepEqual(sink.stats(), { recorded: 1, dropped: 1, pending: 0 });
});
