import { closeSync, openSync, renameSync, rmSync } from "node:fs";
import { DatabaseSync, type StatementSync } from "node:sqlite";
import { parentPort, workerData } from "node:worker_threads";
import { assertNever } from "../../kernel/assert-never.ts";
import { messageOf } from "../../kernel/errors.ts";
import { COMMITS, MarkWriter, readMark } from "./commit-mark.ts";
import { markCopy } from "./mark-copy.ts";
import type { SqlRow, Statement, Step, TransactionOutcome } from "./sql-driver.ts";
import { markerOf, openSqliteFile, sqliteCode } from "./sqlite-file.ts";
import type { SqliteReply, SqliteRequest, SqliteWorkerData } from "./sqlite-messages.ts";

/** A thread that owns one connection to the database file: a lock or a slow disk blocks it and nothing else. */
const port = parentPort;
if (port === null) throw new Error("sqlite-worker runs as a worker thread only");
const data = workerData as SqliteWorkerData;

const SQLITE_CONSTRAINT = 19;
const PREPARED_MAX = 64;
const prepared = new Map<string, StatementSync>();
let mark: MarkWriter | undefined;

function prepare(db: DatabaseSync, text: string): StatementSync {
  let statement = prepared.get(text);
  if (statement !== undefined) return statement;
  statement = db.prepare(text);
  if (prepared.size >= PREPARED_MAX) prepared.clear();
  prepared.set(text, statement);
  return statement;
}

function run(db: DatabaseSync, { text, values }: Statement): SqlRow[] {
  // A named parameter that the text does not use is an error, as it would be in PostgreSQL.
  const named = Object.fromEntries(values.map((value, index) => [`$${index + 1}`, value]));
  return prepare(db, text).all(named) as SqlRow[];
}

function transaction(db: DatabaseSync, steps: readonly Step[]): TransactionOutcome {
  db.exec("BEGIN IMMEDIATE");
  try {
    const rows: SqlRow[][] = [];
    for (const [index, step] of steps.entries()) {
      const found = run(db, step);
      if (step.guard === true && found.length === 0) {
        db.exec("ROLLBACK");
        return { kind: "refused", step: index };
      }
      rows.push(found);
    }
    const commits = mark === undefined ? 0 : countCommit(db);
    db.exec("COMMIT");
    mark?.note(commits);
    return { kind: "committed", rows };
  } catch (error) {
    if (db.isTransaction) db.exec("ROLLBACK");
    throw error;
  }
}

function countCommit(db: DatabaseSync): number {
  const text = "UPDATE ym_counters SET value = value + 1 WHERE name = $1 RETURNING value";
  return Number(run(db, { text, values: [COMMITS] })[0]?.["value"]);
}

function beginMark(db: DatabaseSync, path: string, clusterId: string): void {
  const known = readMark(path)?.commits;
  const text = "SELECT value FROM ym_counters WHERE name = $1";
  const counted = Number(run(db, { text, values: [COMMITS] })[0]?.["value"] ?? 0);
  // It was counted before, and what was told as done is not known: it came here without its marker.
  if (known === undefined && counted > 0) markCopy(db);
  db.prepare(
    "INSERT INTO ym_counters (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = max(value, $2)",
  ).run({ $1: COMMITS, $2: known ?? 0 });
  const commits = countCommit(db);
  // Into the file itself: what is lost with the side file from now on is told by the count.
  db.prepare("PRAGMA wal_checkpoint(TRUNCATE)").all();
  mark = new MarkWriter(path, { clusterId, commits });
}

function backup(db: DatabaseSync, path: string): void {
  const fresh = `${path}.new`;
  rmSync(fresh, { force: true });
  // It holds what the database holds.
  closeSync(openSync(fresh, "wx", 0o600));
  db.prepare("VACUUM INTO $1").run({ $1: fresh });
  const copy = new DatabaseSync(fresh);
  try {
    markCopy(copy);
  } finally {
    copy.close();
  }
  renameSync(fresh, path);
}

function handle(db: DatabaseSync, request: SqliteRequest): SqliteReply {
  const { id } = request;
  try {
    switch (request.kind) {
      case "query":
        return { kind: "rows", id, rows: run(db, request.statement) };
      case "transaction":
        return { kind: "outcome", id, outcome: transaction(db, request.steps) };
      case "backup":
        backup(db, request.path);
        return { kind: "done", id };
      case "mark":
        beginMark(db, markerOf(data.path), request.clusterId);
        return { kind: "done", id };
      case "close":
        mark?.close();
        prepared.clear();
        db.close();
        return { kind: "done", id };
      default:
        return assertNever(request, "database request");
    }
  } catch (error) {
    return { kind: "failed", id, why: messageOf(error), conflict: sqliteCode(error) === SQLITE_CONSTRAINT };
  }
}

function serve(reply: (message: SqliteReply) => void): void {
  let db: DatabaseSync;
  try {
    db = openSqliteFile(data.path, { check: data.check, busyMs: data.busyMs });
  } catch (error) {
    return reply({ kind: "refused", why: messageOf(error) });
  }
  reply({ kind: "opened" });
  port?.on("message", (request: SqliteRequest) => {
    reply(handle(db, request));
    if (request.kind === "close") port?.close();
  });
}

serve((message) => port.postMessage(message));
