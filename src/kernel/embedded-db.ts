import { chmodSync, closeSync, openSync } from "node:fs";
import { dirname } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { makeFolderSync } from "./make-folder.ts";

/** A SQLite file of a gateway's data folder. Synchronous: for threads that nothing else waits for. */
export interface EmbeddedFormat {
  /** Marks whose file it is: one that another program made is refused instead of written to. */
  readonly applicationId: number;
  readonly version: number;
  /** Statements that make the tables. */
  readonly schema: string;
  /** The begin of what is said of another file, such as "the file is no job database". */
  readonly refusal: string;
  /** NORMAL: a commit survives the end of the process; only the machine's own end may take the last ones. FULL: that neither. */
  readonly synchronous: "NORMAL" | "FULL";
}

const LOCK_WAIT_MS = 1_000;

/**
 * `prepare` is run in the file that was opened, which is closed again when it throws.
 *
 * @throws when the file can't be opened, is locked for longer than a second, is damaged, or is not ours.
 */
export function openEmbedded<T>(path: string, format: EmbeddedFormat, prepare: (db: DatabaseSync) => T): T {
  makeFolderSync(dirname(path));
  // SQLite gives its side files the mode of the main one.
  closeSync(openSync(path, "a", 0o600));
  chmodSync(path, 0o600);
  const db = new DatabaseSync(path, { timeout: LOCK_WAIT_MS });
  try {
    prepareSchema(db, format);
    return prepare(db);
  } catch (error) {
    db.close();
    throw error;
  }
}

/** All of it, or nothing when it throws. */
export function inTransaction<T>(db: DatabaseSync, body: () => T): T {
  db.exec("BEGIN IMMEDIATE");
  try {
    const value = body();
    db.exec("COMMIT");
    return value;
  } catch (error) {
    if (db.isTransaction) db.exec("ROLLBACK");
    throw error;
  }
}

function prepareSchema(
  db: DatabaseSync,
  { applicationId, version, schema, refusal, synchronous }: EmbeddedFormat,
): void {
  const pragma = (name: string): unknown => Object.values(db.prepare(`PRAGMA ${name}`).get() ?? {})[0];
  const isFresh = (): boolean =>
    pragma("user_version") === 0 && db.prepare("SELECT count(*) AS n FROM sqlite_schema").get()?.["n"] === 0;
  if (!isFresh() && (pragma("application_id") !== applicationId || pragma("user_version") !== version))
    throw new Error(`${refusal} of this version; move it away or set another data_dir`);
  db.exec(`PRAGMA journal_mode = WAL; PRAGMA synchronous = ${synchronous};`);
  if (!isFresh()) return;
  const marks = `PRAGMA user_version = ${version}; PRAGMA application_id = ${applicationId};`;
  // Another process may make the tables at the same time.
  inTransaction(db, () => {
    if (isFresh()) db.exec(`${schema} ${marks}`);
  });
}
