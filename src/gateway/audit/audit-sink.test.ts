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
import { type AuditSink, openSqliteAudit, type SqliteAuditOptions } from "./audit-sink.ts";

const root = mkdtempSync(join(tmpdir(), "yardmaster-audit-"));
after(() => rmSync(root, { recursive: true, force: true }));
let files = 0;
const newPath = (): string => join(root, `case-${++files}`, "audit.sqlite");

const open = (path: string, over: Partial<SqliteAuditOptions> = {}): Promise<AuditSink> =>
  openSqliteAudit({ path, max: 100_000, clock: systemClock, log: silentLogger, ...over });

const ids = (page: AuditPage): string[] => page.records.map((record) => record.requestId);
const seqs = (page: AuditPage): number[] => page.records.map((record) => record.seq);

function recordMany(sink: AuditSink, from: number, to: number): void {
  for (let i = from; i <= to; i += 1) sink.record(anAuditEvent({ requestId: `req-${i}`, time: 1_767_225_600_000 + i }));
}

async function readAll(path: string): Promise<AuditPage> {
  const sink = await open(path);
  const page = await sink.query({ limit: 100_000 });
  await sink.close();
  return page;
}

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

test("an event is read back with every fact it was recorded with, numbered from one [10.O1]", async () => {
  const sink = await open(newPath());
  const event = anAuditEvent({
    model: 'a"b\\c\n\u{1f600}',
    errorCode: "UPSTREAM_ERROR",
    outcome: "upstream_failed",
    overflow: "cloud",
    shed: true,
    cachedTokens: 3,
  });
  sink.record(event);
  const page = await sink.query({ limit: 10 });
  assert.deepEqual(page, { records: [{ ...event, seq: 1 }], lastSeq: 1, gaps: [], dropped: 0 });
  await sink.close();
});

test("a thousand events recorded just before the stop are all stored [10.O1]", async () => {
  const path = newPath();
  const sink = await open(path);
  recordMany(sink, 1, 1_000);
  await sink.close();
  assert.deepEqual(sink.stats(), { recorded: 1_000, dropped: 0, pending: 0 });
  const page = await readAll(path);
  assert.equal(page.records.length, 1_000);
  assert.equal(new Set(ids(page)).size, 1_000);
  assert.deepEqual(page.gaps, []);
});

test("numbers go on by one over a clean restart", async () => {
  const path = newPath();
  for (const [from, to] of [
    [1, 3],
    [4, 5],
  ] as const) {
    const sink = await open(path);
    recordMany(sink, from, to);
    await sink.close();
  }
  const page = await readAll(path);
  assert.deepEqual(seqs(page), [1, 2, 3, 4, 5]);
  assert.deepEqual(page.gaps, []);
});

test("queries narrow by every field and give the newest events, oldest first", async () => {
  const sink = await open(newPath());
  sink.record(anAuditEvent({ requestId: "a", keyId: "k1", model: "m1", upstream: "u1", time: 1_000 }));
  sink.record(
    anAuditEvent({ requestId: "b", keyId: "k2", model: "m1", upstream: "u2", time: 2_000, outcome: "refused" }),
  );
  sink.record(anAuditEvent({ requestId: "c", keyId: null, model: "m2", upstream: "u1", time: 3_000 }));
  const rows = [
    { query: { keyId: "k1" }, expect: ["a"] },
    { query: { model: "m1" }, expect: ["a", "b"] },
    { query: { upstream: "u1" }, expect: ["a", "c"] },
    { query: { outcome: "refused" }, expect: ["b"] },
    { query: { requestId: "c" }, expect: ["c"] },
    { query: { sinceMs: 2_000 }, expect: ["b", "c"] },
    { query: { untilMs: 2_000 }, expect: ["a"] },
    { query: { afterSeq: 1 }, expect: ["b", "c"] },
    { query: { afterSeq: 0, limit: 2 }, expect: ["a", "b"] },
    { query: { limit: 2 }, expect: ["b", "c"] },
    { query: { model: "m1", keyId: "none" }, expect: [] },
  ];
  for (const { query, expect } of rows)
    assert.deepEqual(ids(await sink.query({ limit: 10, ...query })), expect, JSON.stringify(query));
  await sink.close();
});

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

test("beyond its bound the spool drops and counts, and readers see the gap in numbers and by a marker [80.G18]", async () => {
  const path = newPath();
  const clock = new VirtualClock(); // No batch leaves before the clock moves.
  const sink = await open(path, { clock, limits: { eventsMax: 100, bytesMax: 1_000_000 } });
  recordMany(sink, 1, 150);
  assert.deepEqual(sink.stats(), { recorded: 150, dropped: 50, pending: 100 });
  await sink.query({ limit: 1 });
  recordMany(sink, 151, 160);
  const page = await sink.query({ limit: 1_000 });
  assert.deepEqual(seqs(page).slice(98, 102), [99, 100, 151, 152]);
  assert.equal(page.dropped, 50);
  assert.deepEqual(
    page.gaps.map(({ afterSeq, missing, why }) => ({ afterSeq, missing, why })),
    [{ afterSeq: 100, missing: 50, why: "dropped" }],
  );
  await sink.close();
});

test("the spool is bounded by bytes too [80.G18]", async () => {
  const sink = await open(newPath(), {
    clock: new VirtualClock(),
    limits: { eventsMax: 1_000_000, bytesMax: 64 * 1024 },
  });
  for (let i = 0; i < 1_000; i += 1) sink.record(anAuditEvent({ model: "x".repeat(5_000) }));
  const { dropped, pending } = sink.stats();
  assert.ok(pending > 0 && pending * 10_000 <= 64 * 1024, `${pending} held`);
  assert.equal(dropped + pending, 1_000);
  await sink.close();
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
    import { openSqliteAudit } from ${JSON.stringify(new URL("./audit-sink.ts", import.meta.url).href)};
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

test("two gateways on one file give each number once", async () => {
  const path = newPath();
  const [a, b] = [await open(path), await open(path)];
  for (let round = 0; round < 5; round += 1) {
    recordMany(a, round * 10 + 1, round * 10 + 10);
    recordMany(b, 1_000 + round * 10, 1_000 + round * 10 + 9);
    await Promise.all([a.query({ limit: 1 }), b.query({ limit: 1 })]);
  }
  await Promise.all([a.close(), b.close()]);
  const page = await readAll(path);
  assert.deepEqual(
    seqs(page),
    Array.from({ length: 100 }, (_, i) => i + 1),
  );
  assert.equal(new Set(ids(page)).size, 100);
  assert.deepEqual(page.gaps, []);
});

test("an audit that was never used starts no thread and makes no file", async () => {
  const path = newPath();
  const sink = await open(path, { clock: new VirtualClock() });
  await sink.close();
  assert.throws(() => new DatabaseSync(path, { readOnly: true }));
  sink.record(anAuditEvent());
  assert.deepEqual(sink.stats(), { recorded: 1, dropped: 1, pending: 0 });
});
