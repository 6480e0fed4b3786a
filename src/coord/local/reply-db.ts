import { chmodSync, closeSync, mkdirSync, openSync } from "node:fs";
import { dirname } from "node:path";
import { DatabaseSync, type StatementSync } from "node:sqlite";

/**
 * The embedded database of kept answers. Synchronous: only the reply worker's thread may use it.
 *
 * Invariants:
 *   D1. The kept answers together take at most `bytesMax`; the oldest leave first.
 *   D2. Nothing is given out once its time has passed. Times are the wall clock's, because they outlive the process.
 */
export interface StoredRow {
  readonly fingerprint: string;
  readonly head: string;
  readonly body: Uint8Array;
  /** Epoch milliseconds. */
  readonly storedAt: number;
}

/** "YREP": a file that another program made is refused instead of written to. */
const APPLICATION_ID = 0x59524550;
const SCHEMA_VERSION = 1;
const LOCK_WAIT_MS = 1_000;
const EXPIRED_AT_ONCE = 200;

const SCHEMA = `
  CREATE TABLE replies (
    key TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, head TEXT NOT NULL, body BLOB NOT NULL,
    bytes INTEGER NOT NULL, stored REAL NOT NULL, expires REAL NOT NULL
  );
  CREATE INDEX by_stored ON replies (stored);
  CREATE INDEX by_expires ON replies (expires);
  PRAGMA user_version = ${SCHEMA_VERSION};
  PRAGMA application_id = ${APPLICATION_ID};
`;

const pragma = (db: DatabaseSync, name: string): unknown => Object.values(db.prepare(`PRAGMA ${name}`).get() ?? {})[0];

function prepareSchema(db: DatabaseSync): void {
  const version = pragma(db, "user_version");
  const tables = db.prepare("SELECT count(*) AS n FROM sqlite_schema").get()?.["n"];
  if (version === 0 && tables === 0) {
    db.exec(`PRAGMA journal_mode = WAL; BEGIN IMMEDIATE; ${SCHEMA} COMMIT;`);
  } else if (pragma(db, "application_id") !== APPLICATION_ID || version !== SCHEMA_VERSION) {
    throw new Error("the file holds no answers of this version; move it away or set another data_dir");
  }
  // NORMAL: a commit survives the end of the process; only the machine's own end may take the last commits.
  db.exec("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;");
}

export class ReplyDb {
  readonly #db: DatabaseSync;
  readonly #bytesMax: number;
  readonly #get: StatementSync;
  readonly #put: StatementSync;
  readonly #oldest: StatementSync;
  readonly #delete: StatementSync;
  readonly #total: StatementSync;
  readonly #dropExpired: StatementSync;
  #evicted = 0;

  /** @throws when the file can't be opened, is locked for longer than a second, is damaged, or is not ours. */
  constructor(path: string, bytesMax: number) {
    mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
    // SQLite gives its side files the mode of the main one.
    closeSync(openSync(path, "a", 0o600));
    chmodSync(path, 0o600);
    const db = new DatabaseSync(path, { timeout: LOCK_WAIT_MS });
    try {
      prepareSchema(db);
    } catch (err) {
      db.close();
      throw err;
    }
    this.#db = db;
    this.#bytesMax = bytesMax;
    this.#get = db.prepare("SELECT fingerprint, head, body, stored FROM replies WHERE key = ? AND expires > ?");
    this.#put = db.prepare("INSERT OR REPLACE INTO replies VALUES (?, ?, ?, ?, ?, ?, ?)");
    this.#oldest = db.prepare("SELECT key, bytes FROM replies ORDER BY stored LIMIT 64");
    this.#delete = db.prepare("DELETE FROM replies WHERE key = ?");
    this.#total = db.prepare("SELECT count(*) AS n, coalesce(sum(bytes), 0) AS bytes FROM replies");
    this.#dropExpired = db.prepare(
      `DELETE FROM replies WHERE key IN (SELECT key FROM replies WHERE expires <= ? LIMIT ${EXPIRED_AT_ONCE})`,
    );
  }

  get evicted(): number {
    return this.#evicted;
  }

  totals(): { readonly entries: number; readonly bytes: number } {
    const row = this.#total.get();
    return { entries: row?.["n"] as number, bytes: row?.["bytes"] as number };
  }

  get(key: string, now: number): StoredRow | null {
    const row = this.#get.get(key, now);
    if (row === undefined) return null;
    return {
      fingerprint: row["fingerprint"] as string,
      head: row["head"] as string,
      body: row["body"] as Uint8Array,
      storedAt: row["stored"] as number,
    };
  }

  /** False: larger than all that may be kept. */
  put(key: string, row: StoredRow, bytes: number, expiresAt: number): boolean {
    if (bytes > this.#bytesMax) return false;
    this.#db.exec("BEGIN IMMEDIATE");
    try {
      this.#dropExpired.run(row.storedAt);
      this.#delete.run(key);
      this.#makeRoom(bytes);
      this.#put.run(key, row.fingerprint, row.head, row.body, bytes, row.storedAt, expiresAt);
      this.#db.exec("COMMIT");
    } catch (err) {
      if (this.#db.isTransaction) this.#db.exec("ROLLBACK");
      throw err;
    }
    return true;
  }

  close(): void {
    this.#db.close();
  }

  #makeRoom(bytes: number): void {
    let held = this.totals().bytes;
    while (held + bytes > this.#bytesMax) {
      const rows = this.#oldest.all();
      if (rows.length === 0) return;
      for (const row of rows) {
        if (held + bytes <= this.#bytesMax) return;
        this.#delete.run(row["key"] as string);
        held -= row["bytes"] as number;
        this.#evicted += 1;
      }
    }
  }
}
