import type { DatabaseSync, StatementSync } from "node:sqlite";
import { type EmbeddedFormat, inTransaction, openEmbedded } from "../../kernel/embedded-db.ts";

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

const EXPIRED_AT_ONCE = 200;

const FORMAT: EmbeddedFormat = {
  // "YREP"
  applicationId: 0x59524550,
  version: 1,
  schema: `
    CREATE TABLE replies (
      key TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, head TEXT NOT NULL, body BLOB NOT NULL,
      bytes INTEGER NOT NULL, stored REAL NOT NULL, expires REAL NOT NULL
    );
    CREATE INDEX by_stored ON replies (stored);
    CREATE INDEX by_expires ON replies (expires);
  `,
  refusal: "the file holds no answers",
  synchronous: "NORMAL",
};

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
    const db = openEmbedded(path, FORMAT, (opened) => opened);
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
    inTransaction(this.#db, () => {
      this.#dropExpired.run(row.storedAt);
      this.#delete.run(key);
      this.#makeRoom(bytes);
      this.#put.run(key, row.fingerprint, row.head, row.body, bytes, row.storedAt, expiresAt);
    });
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
