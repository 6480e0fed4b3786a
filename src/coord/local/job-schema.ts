import type { DatabaseSync, StatementSync } from "node:sqlite";
import type { EmbeddedFormat } from "../../kernel/embedded-db.ts";

const SCHEMA = `
  CREATE TABLE store (one INTEGER PRIMARY KEY CHECK (one = 1), epoch TEXT NOT NULL);
  CREATE TABLE jobs (
    record TEXT NOT NULL, seq INTEGER NOT NULL UNIQUE, key_id TEXT NOT NULL, class TEXT NOT NULL, lane TEXT NOT NULL,
    state TEXT NOT NULL, place REAL NOT NULL, ready_at INTEGER NOT NULL, lease_at INTEGER, due_at INTEGER,
    expires_at INTEGER, callback_at INTEGER, scope TEXT UNIQUE, bytes INTEGER NOT NULL, id TEXT PRIMARY KEY
  );
  CREATE INDEX jobs_ready ON jobs (class, lane, place) WHERE state = 'queued';
  CREATE INDEX jobs_lease ON jobs (lease_at) WHERE lease_at IS NOT NULL;
  CREATE INDEX jobs_due ON jobs (due_at) WHERE due_at IS NOT NULL;
  CREATE INDEX jobs_expiry ON jobs (expires_at) WHERE expires_at IS NOT NULL;
  CREATE INDEX jobs_callback ON jobs (callback_at) WHERE callback_at IS NOT NULL;
  CREATE INDEX jobs_open ON jobs (state, class) WHERE state IN ('queued', 'running');
  CREATE INDEX jobs_key ON jobs (key_id, seq);
  CREATE TABLE totals (one INTEGER PRIMARY KEY CHECK (one = 1), kept INTEGER NOT NULL, bytes INTEGER NOT NULL);
  INSERT INTO totals VALUES (1, 0, 0);
  CREATE TRIGGER jobs_in AFTER INSERT ON jobs BEGIN UPDATE totals SET kept = kept + 1, bytes = bytes + new.bytes; END;
  CREATE TRIGGER jobs_out AFTER DELETE ON jobs BEGIN UPDATE totals SET kept = kept - 1, bytes = bytes - old.bytes; END;
  CREATE TRIGGER jobs_grow AFTER UPDATE OF bytes ON jobs BEGIN UPDATE totals SET bytes = bytes + new.bytes - old.bytes; END;
  CREATE TABLE blobs (job_id TEXT NOT NULL, name TEXT NOT NULL, bytes BLOB NOT NULL, PRIMARY KEY (job_id, name));
  CREATE TABLE parts (job_id TEXT NOT NULL, part_index INTEGER NOT NULL, part TEXT NOT NULL, bytes BLOB, PRIMARY KEY (job_id, part_index));
  CREATE TABLE fronts (class TEXT PRIMARY KEY, place REAL NOT NULL);
  CREATE TABLE turns (class TEXT NOT NULL, key_id TEXT NOT NULL, last REAL NOT NULL, PRIMARY KEY (class, key_id));
`;

/** `epoch`: names the life of a store that is made now. */
export const jobFormat = (epoch: string): EmbeddedFormat => ({
  // "YJOB"
  applicationId: 0x594a4f42,
  version: 1,
  schema: `${SCHEMA} INSERT INTO store VALUES (1, '${epoch}');`,
  refusal: "the file is no job database",
  synchronous: "FULL",
});

const COLUMNS = "record, seq, key_id, class, lane, state, place, ready_at, lease_at, due_at, expires_at, callback_at";

export function prepareJobStatements(db: DatabaseSync): Readonly<Record<StatementName, StatementSync>> & {
  readonly forget: readonly StatementSync[];
} {
  const statements = Object.fromEntries(
    Object.entries(STATEMENTS).map(([name, sql]) => [name, db.prepare(sql)]),
  ) as Record<StatementName, StatementSync>;
  const forget = [
    "DELETE FROM blobs WHERE job_id = ?",
    "DELETE FROM parts WHERE job_id = ?",
    "DELETE FROM jobs WHERE id = ?",
  ].map((sql) => db.prepare(sql));
  return { ...statements, forget };
}

const STATEMENTS = {
  epoch: "SELECT epoch FROM store",
  load: "SELECT record FROM jobs WHERE id = ?",
  byScope: "SELECT record FROM jobs WHERE scope = ?",
  dropScope: "UPDATE jobs SET scope = NULL WHERE id = ?",
  lastSeq: "SELECT max(seq) AS seq FROM jobs",
  insert: `INSERT INTO jobs (${COLUMNS}, scope, bytes, id) VALUES (${"?, ".repeat(14)}?)`,
  update: `UPDATE jobs SET (${COLUMNS}) = (${"?, ".repeat(11)}?) WHERE id = ?`,
  addBytes: "UPDATE jobs SET bytes = bytes + ? WHERE id = ?",
  totals: "SELECT kept, bytes FROM totals",
  list: `SELECT record FROM jobs WHERE seq < ?1 AND (?2 IS NULL OR key_id = ?2) AND (?3 IS NULL OR state = ?3)
    ORDER BY seq DESC LIMIT ?4`,
  ready: `SELECT record FROM jobs WHERE state = 'queued' AND class = ?1
    AND lane IN (SELECT value FROM json_each(?2)) AND ready_at <= ?3 ORDER BY place, seq LIMIT ?4`,
  readyFromEnd: `SELECT record FROM jobs WHERE state = 'queued' AND class = ?1
    AND lane IN (SELECT value FROM json_each(?2)) AND ready_at <= ?3 ORDER BY place DESC, seq DESC LIMIT ?4`,
  waiting: `SELECT count(*) AS n FROM jobs WHERE state = 'queued' AND class IN (SELECT value FROM json_each(?1))
    AND lane IN (SELECT value FROM json_each(?2)) AND ready_at <= ?3`,
  claimed: "SELECT record FROM jobs WHERE lease_at IS NOT NULL",
  due: `SELECT record FROM jobs WHERE lease_at <= ? UNION ALL SELECT record FROM jobs WHERE due_at <= ?
    UNION ALL SELECT record FROM jobs WHERE expires_at <= ? LIMIT ?`,
  callbacks: "SELECT record FROM jobs WHERE callback_at <= ? ORDER BY callback_at LIMIT ?",
  callbackCount: "SELECT count(*) AS n FROM jobs WHERE callback_at IS NOT NULL",
  byClass: "SELECT class, count(*) AS n FROM jobs WHERE state = ? GROUP BY class",
  putBlob: "INSERT OR REPLACE INTO blobs VALUES (?, ?, ?)",
  blob: "SELECT bytes FROM blobs WHERE job_id = ? AND name = ?",
  putPart: "INSERT OR REPLACE INTO parts VALUES (?, ?, ?, ?)",
  parts: "SELECT part FROM parts WHERE job_id = ? ORDER BY part_index",
  partBytes: "SELECT bytes FROM parts WHERE job_id = ? AND part_index = ?",
  partsDone: "SELECT count(*) AS n FROM parts WHERE job_id = ?",
  front: "SELECT place FROM fronts WHERE class = ?",
  moveFront: `INSERT INTO fronts VALUES (?1, ?2) ON CONFLICT (class) DO UPDATE SET place = max(place, excluded.place)`,
  turn: "SELECT last FROM turns WHERE class = ? AND key_id = ?",
  setTurn: "INSERT INTO turns VALUES (?, ?, ?) ON CONFLICT (class, key_id) DO UPDATE SET last = excluded.last",
  dropTurns:
    "DELETE FROM turns WHERE last <= (SELECT coalesce(max(place), 0) FROM fronts WHERE fronts.class = turns.class)",
} as const;

type StatementName = keyof typeof STATEMENTS;
