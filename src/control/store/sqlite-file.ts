import { randomUUID } from "node:crypto";
import { chmodSync, closeSync, existsSync, linkSync, openSync, rmSync, statSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { hasSystemCode, messageOf } from "../../kernel/errors.ts";
import { makeFolderSync } from "../../kernel/make-folder.ts";
import { A_COPY, type CommitMark, COMMITS, MARK_TEXT, readMark } from "./commit-mark.ts";

// The control plane's database as a file.
// Invariants:
//   F1. A file under the final name has been a whole database since the moment it got the name: a new one is made under another
//       name first. So an empty, short or broken file is damage, and never taken for a fresh start.
//   F2. Beside it lies a marker from the first start on. A database that has gone is told by it, and not made anew.
//   F3. Nothing here repairs or removes a database: that is the operator's choice, and the message says how. What is wrong is found by
//       a connection that can only read, since one that writes throws a damaged side file away as it closes.
//   F4. The marker knows how many transactions were told as done (`commit-mark.ts`). A database with fewer is refused: SQLite takes a
//       lost or damaged side file for the end of what was written, and says nothing.

/** "YMCP": a file that another program made is refused instead of written to. */
const APPLICATION_ID = 0x594d4350;

export const markerOf = (path: string): string => `${path}.made`;
export const backupOf = (path: string): string => `${path}.backup`;

const quoted = (path: string): string => `'${path.replaceAll("'", "'\\''")}'`;

/** What an operator types to go back to the last backup; the damaged files are kept. */
export const restoreCommand = (path: string): string => {
  const [file, kept] = [quoted(path), quoted(`${path}.damaged`)];
  const side = ["-wal", "-shm"].map((ending) => quoted(`${path}${ending}`)).join(" ");
  return `mv -f ${file} ${kept} 2>/dev/null; rm -f ${side}; cp ${quoted(backupOf(path))} ${file}`;
};

function refusal(path: string, what: string, otherWay = ""): Error {
  const way = existsSync(backupOf(path))
    ? `go back to the last backup with: ${restoreCommand(path)}`
    : `there is no backup; to begin with an empty database, move ${path} and ${markerOf(path)} away`;
  return new Error(`${path}: ${what}; nothing was changed. ${otherWay}With the control plane stopped, ${way}`);
}

/** Throws in words when the file is damaged, gone, not ours, or can't be written. */
export function openSqliteFile(
  path: string,
  options: { readonly check: boolean; readonly busyMs: number },
): DatabaseSync {
  if (!existsSync(path)) makeFile(path);
  if (statSync(path).size === 0) throw refusal(path, "the database file is empty");
  if (options.check) checkFile(path, options.busyMs);
  let db: DatabaseSync | undefined;
  try {
    db = new DatabaseSync(path, { timeout: options.busyMs });
    // A file that can be read but not written would fail at the first renewal of the lease.
    if (options.check) db.exec("BEGIN IMMEDIATE; ROLLBACK");
    chmodSync(path, 0o600);
    // FULL: a commit that was told survives the machine's own end.
    db.exec("PRAGMA synchronous = FULL; PRAGMA foreign_keys = OFF");
    return db;
  } catch (error) {
    db?.close();
    throw describe(error, path);
  }
}

function makeFile(path: string): void {
  if (existsSync(markerOf(path))) throw refusal(path, "the database file is gone");
  makeFolderSync(dirname(path));
  const fresh = `${path}.${randomUUID()}.new`;
  closeSync(openSync(fresh, "wx", 0o600));
  const db = new DatabaseSync(fresh);
  try {
    // The mode is part of the file: connections that open it at once have nothing to switch.
    db.exec(
      `PRAGMA journal_mode = WAL; PRAGMA application_id = ${APPLICATION_ID}; CREATE TABLE ym_file (made INTEGER); DROP TABLE ym_file`,
    );
  } finally {
    db.close();
  }
  // A link, unlike a rename, takes no name that another process was faster to take: its file is the one then.
  try {
    linkSync(fresh, path);
  } catch (error) {
    if (!hasSystemCode(error, "EEXIST")) throw error;
  }
  rmSync(fresh);
  try {
    writeFileSync(markerOf(path), MARK_TEXT, { mode: 0o600, flag: "wx" });
  } catch (error) {
    if (!hasSystemCode(error, "EEXIST")) throw error;
  }
}

const pragma = (db: DatabaseSync, name: string): unknown => Object.values(db.prepare(`PRAGMA ${name}`).get() ?? {})[0];

function checkFile(path: string, busyMs: number): void {
  // Before the database: another process may commit between the two looks, and its mark must not be ahead of what is seen here.
  const mark = readMark(markerOf(path));
  let db: DatabaseSync | undefined;
  try {
    db = new DatabaseSync(path, { timeout: busyMs, readOnly: true });
    if (pragma(db, "application_id") !== APPLICATION_ID)
      throw refusal(path, "the file is no control plane's database, or its head is damaged");
    const findings = db.prepare("PRAGMA integrity_check(5)").all();
    const [first] = findings.map((row) => String(Object.values(row)[0]));
    if (first !== "ok") throw refusal(path, `the database is damaged: ${first ?? "the check told nothing"}`);
    if (mark !== undefined) compareMark(db, path, mark);
  } catch (error) {
    throw describe(error, path);
  } finally {
    db?.close();
  }
}

/** F4. */
function compareMark(db: DatabaseSync, path: string, mark: CommitMark): void {
  const tables = db.prepare("SELECT 1 FROM sqlite_master WHERE name = 'ym_meta'").get();
  const row =
    tables === undefined ? undefined : db.prepare("SELECT value FROM ym_meta WHERE name = 'cluster_id'").get();
  const lost = `was its side file ${path}-wal removed or damaged?`;
  if (row === undefined)
    throw refusal(path, `the database is empty, and it was cluster ${mark.clusterId}'s: ${lost}`, wayOn(path));
  if (row["value"] !== mark.clusterId)
    throw refusal(path, `it is the database of another cluster than ${mark.clusterId}`, wayOn(path));
  const counted = db.prepare(`SELECT value FROM ym_counters WHERE name = '${COMMITS}'`).get();
  const commits = Number(counted?.["value"] ?? 0);
  if (commits !== A_COPY && commits < mark.commits)
    throw refusal(path, `its last ${mark.commits - commits} commits are missing: ${lost}`, wayOn(path));
}

const wayOn = (path: string): string =>
  `Without ${markerOf(path)} it is taken as it stands, for an old copy under which nothing is stopped. `;

const SQLITE_CORRUPT = 11;
const SQLITE_NOTADB = 26;

/** SQLite's primary result code; undefined for an error that is not SQLite's. */
export const sqliteCode = (error: unknown): number | undefined =>
  error instanceof Error && "errcode" in error ? Number(error.errcode) & 0xff : undefined;

function describe(error: unknown, path: string): unknown {
  const code = sqliteCode(error);
  if (code === SQLITE_CORRUPT || code === SQLITE_NOTADB)
    return refusal(path, `the database is damaged: ${messageOf(error)}`);
  return code === undefined ? error : new Error(`${path}: can't be used: ${messageOf(error)}`);
}
