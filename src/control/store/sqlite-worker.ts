import { closeSync, openSync, renameSync, rmSync } from "node:fs";
import { DatabaseSync, type StatementSync } from "node:sqlite";
import { parentPort, workerData } from "node:worker_threads";
import { assertNever } from "../../kernel/assert-never.ts";
import { messageOf } from "../../kernel/errors.ts";
import { markCopy } from "./mark-copy.ts";
import type { SqlRow, Statement, Step, TransactionOutcome } from "./sql-driver.ts";
import { openSqliteFile, sqliteCode } from "./sqlite-file.ts";
import type { SqliteReply, SqliteRequest, SqliteWorkerData } from "./sqlite-messages.ts";

/** A thread that owns one connection to the database file: a lock or a slow disk blocks it and nothing else. */
const port = parentPort;
if (port === null) throw new Error("sqlite-worker runs as a worker thread only");
const data = workerData as SqliteWorkerData;

const SQLITE_CONSTRAINT = 19;
const PREPARED_MAX = 64;
const prepared = new Map<string, StatementSync>();

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
    db.exec("COMMIT");
    return { kind: "committed", rows };
  } catch (error) {
    if (db.isTransaction) db.exec("ROLLBACK");
    throw error;
  }
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
      case "close":
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
