import type { DatabaseSync } from "node:sqlite";
import { type EmbeddedFormat, inTransaction, openEmbedded } from "../../kernel/embedded-db.ts";
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
const FORGOTTEN_AT_ONCE = 100;
const FORMAT: EmbeddedFormat = {
  // "YLED"
  applicationId: 0x594c4544,
  version: 1,
  schema: `
    CREATE TABLE docs (name TEXT PRIMARY KEY, kind TEXT NOT NULL, text TEXT NOT NULL, open INTEGER NOT NULL, at INTEGER NOT NULL);
    CREATE INDEX by_open ON docs (kind, at) WHERE open = 1;
    CREATE INDEX by_age ON docs (at) WHERE open = 0;
  `,
  refusal: "the file is no ledger",
  synchronous: "FULL",
};

const prepareStatements = (db: DatabaseSync) => ({
  db,
  get: db.prepare("SELECT text FROM docs WHERE name = ?"),
  put: db.prepare(
    "INSERT INTO docs VALUES (?, ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET text = excluded.text, open = excluded.open, at = CASE WHEN docs.open = 1 AND excluded.open = 1 THEN docs.at ELSE excluded.at END",
  ),
  list: db.prepare("SELECT name, text FROM docs WHERE kind = ? AND open = 1 ORDER BY at, name LIMIT ?"),
  count: db.prepare("SELECT count(*) AS n FROM docs WHERE kind = ? AND open = 1 AND name <> ?"),
  forget: db.prepare(
    `DELETE FROM docs WHERE name IN (SELECT name FROM docs WHERE open = 0 AND at < ? LIMIT ${FORGOTTEN_AT_ONCE})`,
  ),
});

export class DocTables {
  readonly #sql: ReturnType<typeof prepareStatements>;

  /** @throws when the file can't be opened, is locked for longer than a second, is damaged, or is not ours. */
  constructor(path: string) {
    this.#sql = openEmbedded(path, FORMAT, prepareStatements);
  }

  load(names: readonly string[]): Doc[] {
    return inTransaction(this.#sql.db, () => names.map((name) => this.#read(name)));
  }

  commit({ from, writes }: DocCommit, now: number): CommitOutcome {
    return inTransaction(this.#sql.db, () => {
      if (from.some(([name, doc]) => this.#read(name) !== doc)) return "changed";
      const isFull = ({ name, open }: DocCommit["writes"][number]): boolean =>
        open && (this.#sql.count.get(kindOf(name), name)?.["n"] as number) >= OPEN_DOCS_MAX;
      if (writes.some(isFull)) return "full";
      for (const { name, text, open } of writes) this.#sql.put.run(name, kindOf(name), text, Number(open), now);
      this.#sql.forget.run(now - CLOSED_KEPT_MS);
      return "done";
    });
  }

  open(kind: string): [string, string][] {
    return this.#sql.list.all(kind, OPEN_DOCS_MAX).map((row) => [row["name"] as string, row["text"] as string]);
  }

  close(): void {
    this.#sql.db.close();
  }

  #read(name: string): Doc {
    return (this.#sql.get.get(name)?.["text"] as string | undefined) ?? null;
  }
}
