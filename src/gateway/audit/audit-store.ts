import type { DatabaseSync, StatementSync } from "node:sqlite";
import {
  AUDIT_FIELDS,
  type AuditGap,
  type AuditPage,
  type AuditQuery,
  type AuditRecord,
} from "../../contract/audit-event.ts";
import { type EmbeddedFormat, inTransaction, openEmbedded } from "../../kernel/embedded-db.ts";
import { type AuditRow, recordOf, rowMatches } from "./audit-row.ts";

/**
 * The embedded audit database. Synchronous: only the audit worker's thread may use it.
 *
 * Invariants:
 *   S1. One batch is one transaction. Its sequence numbers follow the highest one given before, whichever process gave it.
 *   S2. A batch that is written again (its answer was lost) changes nothing: a run's last ordinal is stored with the batch.
 *   S3. Ordinals that a run skips become sequence numbers that no event has, and a row in `gaps`.
 *   S4. At most `max` events are readable; at most one batch and `max / 50` more are on disk.
 */
export interface AuditBatch {
  readonly runId: string;
  /** Position of the batch's first event among all events of the run, lost ones too. Starts at 1. */
  readonly firstOrdinal: number;
  readonly count: number;
  /** JSON array of rows. */
  readonly rows: string;
  readonly timeMin: number;
  readonly timeMax: number;
}

export interface AuditStore {
  write(batch: AuditBatch, now: number): void;
  query(query: AuditQuery): Omit<AuditPage, "dropped">;
  /** Marks the run as closed, with all events up to `lastOrdinal` either written or known as lost. */
  close(lastOrdinal: number, now: number): void;
  /** Closes the file and nothing else: the run stays open. For errors. */
  abandon(): void;
}

const RUNS_KEPT = 100;

const VIEW_COLUMNS = AUDIT_FIELDS.map((field, i) => {
  const name = field.replace(/[A-Z]/g, (char) => `_${char.toLowerCase()}`);
  return `json_extract(r.value, '$[${i}]') AS "${name}"`;
}).join(", ");

const SCHEMA = `
  CREATE TABLE batches (
    first_seq INTEGER PRIMARY KEY, count INTEGER NOT NULL, time_min REAL NOT NULL, time_max REAL NOT NULL, rows TEXT NOT NULL
  );
  CREATE TABLE gaps (after_seq INTEGER NOT NULL, missing INTEGER NOT NULL, noted REAL NOT NULL);
  CREATE TABLE runs (
    id TEXT PRIMARY KEY, started REAL NOT NULL, closed REAL, last_seq INTEGER NOT NULL, last_ordinal INTEGER NOT NULL
  );
  CREATE TABLE state (id INTEGER PRIMARY KEY CHECK (id = 1), last_seq INTEGER NOT NULL);
  INSERT INTO state VALUES (1, 0);
  CREATE VIEW audit AS SELECT b.first_seq + r.key AS seq, ${VIEW_COLUMNS} FROM batches b, json_each(b.rows) r;
`;

const FORMAT: EmbeddedFormat = {
  // "YARD"
  applicationId: 0x59415244,
  version: 1,
  schema: SCHEMA,
  refusal: "the file is no audit database",
  synchronous: "NORMAL",
};

interface Statements {
  readonly insert: StatementSync;
  readonly gap: StatementSync;
  readonly lastSeq: StatementSync;
  readonly setLastSeq: StatementSync;
  readonly run: StatementSync;
  readonly setRun: StatementSync;
  readonly newest: StatementSync;
  readonly oldest: StatementSync;
}

const prepareAll = (db: DatabaseSync): Statements => ({
  insert: db.prepare("INSERT INTO batches VALUES (?, ?, ?, ?, ?)"),
  gap: db.prepare("INSERT INTO gaps VALUES (?, ?, ?)"),
  lastSeq: db.prepare("SELECT last_seq FROM state"),
  setLastSeq: db.prepare("UPDATE state SET last_seq = ?"),
  run: db.prepare("SELECT last_ordinal FROM runs WHERE id = ?"),
  setRun: db.prepare("UPDATE runs SET last_seq = ?, last_ordinal = ?, closed = ? WHERE id = ?"),
  newest: db.prepare("SELECT * FROM batches WHERE time_max >= ? AND time_min < ? ORDER BY first_seq DESC"),
  oldest: db.prepare(
    "SELECT * FROM batches WHERE first_seq + count - 1 > ? AND time_max >= ? AND time_min < ? ORDER BY first_seq",
  ),
});

/** @throws when the file can't be opened, is locked for longer than a second, is damaged, or is not ours. */
export function openAuditStore(path: string, max: number, runId: string, now: number): AuditStore {
  return openEmbedded(path, FORMAT, (db) => {
    db.prepare("INSERT OR IGNORE INTO runs SELECT ?, ?, NULL, last_seq, 0 FROM state").run(runId, now);
    db.prepare("DELETE FROM runs WHERE rowid NOT IN (SELECT rowid FROM runs ORDER BY rowid DESC LIMIT ?)").run(
      RUNS_KEPT,
    );
    return new SqliteAuditStore(db, max, runId);
  });
}

class SqliteAuditStore implements AuditStore {
  readonly #db: DatabaseSync;
  readonly #max: number;
  readonly #slack: number;
  readonly #runId: string;
  readonly #sql: Statements;
  #stored: number;

  constructor(db: DatabaseSync, max: number, runId: string) {
    this.#db = db;
    this.#max = max;
    this.#slack = Math.max(1, Math.floor(max / 50));
    this.#runId = runId;
    this.#sql = prepareAll(db);
    this.#stored = this.#countStored();
  }

  write(batch: AuditBatch, now: number): void {
    inTransaction(this.#db, () => {
      const done = this.#lastOrdinal();
      if (batch.firstOrdinal <= done) return; // S2
      const seq = this.#skipTo(batch.firstOrdinal - 1, done, now);
      const last = seq + batch.count;
      this.#sql.insert.run(seq + 1, batch.count, batch.timeMin, batch.timeMax, batch.rows);
      this.#sql.setLastSeq.run(last);
      this.#sql.setRun.run(last, batch.firstOrdinal + batch.count - 1, null, this.#runId);
      this.#stored += batch.count;
    });
    if (this.#stored >= this.#max + this.#slack) this.#trim();
  }

  query(query: AuditQuery): Omit<AuditPage, "dropped"> {
    // Read first: another gateway may write meanwhile, and a reader must not skip what it wrote.
    const lastSeq = this.#sql.lastSeq.get()?.["last_seq"] as number;
    const since = query.sinceMs ?? -Infinity;
    const until = query.untilMs ?? Infinity;
    const floor = this.#readableFrom();
    const ascending = query.afterSeq !== undefined;
    const found: AuditRecord[] = [];
    const after = Math.max(query.afterSeq ?? 0, floor - 1);
    const batches = ascending ? this.#sql.oldest.iterate(after, since, until) : this.#sql.newest.iterate(since, until);
    for (const batch of batches) {
      const first = batch["first_seq"] as number;
      if (!ascending && first + (batch["count"] as number) <= floor) break;
      const rows = JSON.parse(batch["rows"] as string) as AuditRow[];
      const from = Math.max(0, after + 1 - first);
      for (let k = from; k < rows.length && found.length < query.limit; k += 1) {
        const i = ascending ? k : rows.length - 1 - (k - from);
        const row = rows[i] as AuditRow;
        if (rowMatches(row, query)) found.push(recordOf(first + i, row));
      }
      if (found.length >= query.limit) break;
    }
    return { records: ascending ? found : found.reverse(), lastSeq, gaps: this.#gaps(query.afterSeq ?? floor - 1) };
  }

  close(lastOrdinal: number, now: number): void {
    inTransaction(this.#db, () => {
      const seq = this.#skipTo(lastOrdinal, this.#lastOrdinal(), now);
      this.#sql.setRun.run(seq, lastOrdinal, now, this.#runId);
    });
    this.#db.close();
  }

  abandon(): void {
    this.#db.close();
  }

  /** Gives the lost ordinals between `done` and `ordinal` their sequence numbers (S3). Returns the last number given. */
  #skipTo(ordinal: number, done: number, now: number): number {
    const last = this.#sql.lastSeq.get()?.["last_seq"] as number;
    const missing = ordinal - done;
    if (missing <= 0) return last;
    this.#sql.gap.run(last, missing, now);
    this.#sql.setLastSeq.run(last + missing);
    return last + missing;
  }

  #lastOrdinal(): number {
    return this.#sql.run.get(this.#runId)?.["last_ordinal"] as number;
  }

  #gaps(from: number): AuditGap[] {
    const runs = this.#db.prepare(
      `SELECT after_seq, missing, 'dropped' AS why, noted AS time FROM gaps WHERE after_seq >= ?1
       UNION ALL SELECT last_seq, NULL, 'run_not_closed', started FROM runs WHERE closed IS NULL AND id <> ?2 AND last_seq >= ?1
       ORDER BY 1`,
    );
    return runs.all(from, this.#runId).map((row) => ({
      afterSeq: row["after_seq"] as number,
      missing: row["missing"] as number | null,
      why: row["why"] as AuditGap["why"],
      time: row["time"] as number,
    }));
  }

  #countStored(): number {
    return this.#db.prepare("SELECT coalesce(sum(count), 0) AS n FROM batches").get()?.["n"] as number;
  }

  /** The lowest sequence number among the newest `max` events (S4). */
  #readableFrom(): number {
    let left = this.#max;
    for (const row of this.#db.prepare("SELECT first_seq, count FROM batches ORDER BY first_seq DESC").iterate()) {
      const count = row["count"] as number;
      if (count >= left) return (row["first_seq"] as number) + count - left;
      left -= count;
    }
    return 1;
  }

  #trim(): void {
    inTransaction(this.#db, () => {
      const floor = this.#readableFrom();
      this.#db.prepare("DELETE FROM batches WHERE first_seq + count <= ?").run(floor);
      this.#db.prepare("DELETE FROM gaps WHERE after_seq < ?").run(floor - 1);
    });
    this.#stored = this.#countStored(); // Another gateway may write into the same file.
  }
}
