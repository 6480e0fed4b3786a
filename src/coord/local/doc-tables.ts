import { chmodSync, closeSync, mkdirSync, openSync } from "node:fs";
import { dirname } from "node:path";
import { DatabaseSync, type StatementSync } from "node:sqlite";
import {
  CLOSED_KEPT_MS,
  kindOf,
  OPEN_DOCS_MAX,
  type CommitOutcome,
  type Doc,
  type DocCommit,
} from "../overflow/doc-store.ts";

/**
 * The embedded file of the ledger. Synchronous: only the thread of `doc-worker.ts` may use it. One call is one transaction, and what
 * was written is on the disk when it returns: money that was reserved must not come back by a loss of power.
 */
const LOCK_WAIT_MS = 1_000;
const FORGOTTEN_AT_ONCE = 100;
/** "YLED": a file that another program made is refused instead of written to. */
const APPLICATION_ID = 0x594c4544;
const SCHEMA_VERSION = 1;
const SCHEMA = `
  CREATE TABLE docs (name TEXT PRIMARY KEY, kind TEXT NOT NULL, text TEXT NOT NULL, open INTEGER NOT NULL, at INTEGER NOT NULL);
  CREATE INDEX by_open ON docs (kind, at) WHERE open = 1;
  CREATE INDEX by_age ON docs (at) WHERE open = 0;
  PRAGMA user_version = ${SCHEMA_VERSION};
  PRAGMA application_id = ${APPLICATION_ID};
`;

export class DocTables {
  readonly #db: DatabaseSync;
  readonly #get: StatementSync;
  readonly #put: StatementSync;
  readonly #list: StatementSync;
  readonly #count: StatementSync;
  readonly #forget: StatementSync;

  /** @throws when the file can't be opened, is locked for longer than a second, is damaged, or is not ours. */
  constructor(path: string) {
    mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
    // SQLite gives its side files the mode of the main one.
    closeSync(openSync(path, "a", 0o600));
    chmodSync(path, 0o600);
    const db = new DatabaseSync(path, { timeout: LOCK_WAIT_MS });
    try {
      prepareSchema(db);
      this.#get = db.prepare("SELECT text FROM docs WHERE name = ?");
      this.#put = db.prepare(
        "INSERT INTO docs VALUES (?, ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET text = excluded.text, open = excluded.open, at = CASE WHEN docs.open = 1 AND excluded.open = 1 THEN docs.at ELSE excluded.at END",
      );
      this.#list = db.prepare("SELECT name, text FROM docs WHERE kind = ? AND open = 1 ORDER BY at, name LIMIT ?");
      this.#count = db.prepare("SELECT count(*) AS n FROM docs WHERE kind = ? AND open = 1 AND name <> ?");
      this.#forget = db.prepare(
        `DELETE FROM docs WHERE name IN (SELECT name FROM docs WHERE open = 0 AND at < ? LIMIT ${FORGOTTEN_AT_ONCE})`,
      );
    } catch (error) {
      db.close();
      throw error;
    }
    this.#db = db;
  }

  load(names: readonly string[]): Doc[] {
    return this.#transaction(() => names.map((name) => this.#read(name)));
  }

  commit({ from, writes }: DocCommit, now: number): CommitOutcome {
    return this.#transaction(() => {
      if (from.some(([name, doc]) => this.#read(name) !== doc)) return "changed";
      const isFull = ({ name, open }: DocCommit["writes"][number]): boolean =>
        open && (this.#count.get(kindOf(name), name)?.["n"] as number) >= OPEN_DOCS_MAX;
      if (writes.some(isFull)) return "full";
      for (const { name, text, open } of writes) this.#put.run(name, kindOf(name), text, Number(open), now);
      this.#forget.run(now - CLOSED_KEPT_MS);
      return "done";
    });
  }

  open(kind: string): [string, string][] {
    return this.#list.all(kind, OPEN_DOCS_MAX).map((row) => [row["name"] as string, row["text"] as string]);
  }

  close(): void {
    this.#db.close();
  }

  #read(name: string): Doc {
    return (this.#get.get(name)?.["text"] as string | undefined) ?? null;
  }

  #transaction<T>(body: () => T): T {
    this.#db.exec("BEGIN IMMEDIATE");
    try {
      const value = body();
      this.#db.exec("COMMIT");
      return value;
    } catch (error) {
      if (this.#db.isTransaction) this.#db.exec("ROLLBACK");
      throw error;
    }
  }
}

function prepareSchema(db: DatabaseSync): void {
  const pragma = (name: string): unknown => Object.values(db.prepare(`PRAGMA ${name}`).get() ?? {})[0];
  const version = pragma("user_version");
  db.exec("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL");
  if (version === 0 && db.prepare("SELECT count(*) AS n FROM sqlite_schema").get()?.["n"] === 0)
    db.exec(`BEGIN IMMEDIATE; ${SCHEMA} COMMIT;`);
  else if (pragma("application_id") !== APPLICATION_ID || version !== SCHEMA_VERSION)
    throw new Error("the file is no ledger of this version; move it away or set another data_dir");
}
