import type { DatabaseSync, StatementSync } from "node:sqlite";
import { type EmbeddedFormat, inTransaction, openEmbedded } from "../../kernel/embedded-db.ts";
import type {
  CreateOutcome,
  DocPlace,
  FileLimits,
  FileListQuery,
  FileTotals,
  OpenDoc,
  PieceOutcome,
  StoredDoc,
} from "../files/file-store.ts";
import { DiskRoom } from "./disk-room.ts";

const FORMAT: EmbeddedFormat = {
  // "YFIL"
  applicationId: 0x5946494c,
  version: 1,
  schema: `
    CREATE TABLE docs (
      seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, kind TEXT NOT NULL, key_id TEXT NOT NULL, shown INTEGER NOT NULL,
      open INTEGER NOT NULL, expires_at INTEGER NOT NULL, version INTEGER NOT NULL, bytes INTEGER NOT NULL, text TEXT NOT NULL
    );
    CREATE INDEX docs_of_key ON docs (kind, key_id, seq) WHERE shown = 1;
    CREATE INDEX docs_shown ON docs (kind, seq) WHERE shown = 1;
    CREATE INDEX docs_open ON docs (seq) WHERE open = 1;
    CREATE INDEX docs_expiry ON docs (expires_at);
    CREATE TABLE pieces (doc_id TEXT NOT NULL, name TEXT NOT NULL, bytes BLOB NOT NULL, UNIQUE (doc_id, name));
    CREATE TABLE totals (key_id TEXT PRIMARY KEY, docs INTEGER NOT NULL, bytes INTEGER NOT NULL);
    CREATE TRIGGER docs_in AFTER INSERT ON docs BEGIN
      INSERT INTO totals VALUES (new.key_id, 1, 0) ON CONFLICT DO UPDATE SET docs = docs + 1;
    END;
    CREATE TRIGGER docs_out AFTER DELETE ON docs BEGIN
      UPDATE totals SET docs = docs - 1, bytes = bytes - old.bytes WHERE key_id = old.key_id;
      DELETE FROM totals WHERE key_id = old.key_id AND docs = 0;
      DELETE FROM pieces WHERE doc_id = old.id;
    END;
    CREATE TRIGGER docs_grow AFTER UPDATE OF bytes ON docs BEGIN
      UPDATE totals SET bytes = bytes + new.bytes - old.bytes WHERE key_id = new.key_id;
    END;
  `,
  refusal: "the file holds no files of clients",
  synchronous: "FULL",
};

const STATEMENTS = {
  insert: `INSERT INTO docs (id, kind, key_id, shown, open, expires_at, version, bytes, text) VALUES (?, ?, ?, ?, ?, ?, 1, 0, ?)`,
  read: "SELECT id, text, version, seq FROM docs WHERE id = ?",
  write: `UPDATE docs SET text = ?, shown = ?, open = ?, expires_at = ?, version = version + 1 WHERE id = ? AND version = ?`,
  forget: "DELETE FROM docs WHERE id = ? AND version = ?",
  list: "SELECT id, text, version, seq FROM docs WHERE kind = ?1 AND shown = 1 AND (?2 IS NULL OR key_id = ?2)",
  open: "SELECT id, key_id AS keyId FROM docs WHERE open = 1 ORDER BY seq LIMIT ?",
  openOfKey: "SELECT count(*) AS n FROM docs WHERE open = 1 AND key_id = ?",
  ofKey: "SELECT bytes FROM totals WHERE key_id = ?",
  totals: "SELECT coalesce(sum(docs), 0) AS docs, coalesce(sum(bytes), 0) AS bytes FROM totals",
  owner: "SELECT key_id FROM docs WHERE id = ?",
  piece: "SELECT bytes FROM pieces WHERE doc_id = ? AND name = ?",
  pieceBytes: "SELECT length(bytes) AS n FROM pieces WHERE doc_id = ? AND name = ?",
  putPiece: "INSERT OR REPLACE INTO pieces VALUES (?, ?, ?)",
  dropPiece: "DELETE FROM pieces WHERE doc_id = ? AND name = ?",
  grow: "UPDATE docs SET bytes = bytes + ? WHERE id = ?",
  expired: "DELETE FROM docs WHERE id IN (SELECT id FROM docs WHERE expires_at <= ? LIMIT ?)",
} as const;

/** Forgotten in one step, since the pieces of each go with it. */
const EXPIRED_MAX = 8;

/**
 * The embedded database of files and batches. Synchronous: only the thread of `file-worker.ts` may use it.
 *
 * Invariants:
 *   T1. A document is synced before the call returns, and with it the pieces that were kept before: they are earlier in the same log.
 *   T2. A document takes its pieces with it, in the same transaction.
 *   T3. What is removed has its room also on a full disk: the next one to come takes it.
 */
export class FileTables {
  readonly #db: DatabaseSync;
  readonly #limits: FileLimits;
  readonly #room: DiskRoom;
  readonly #sql: Readonly<Record<keyof typeof STATEMENTS, StatementSync>>;
  readonly #lists = new Map<string, StatementSync>();
  #synced: boolean | undefined;

  constructor(path: string, limits: FileLimits) {
    this.#limits = limits;
    this.#room = new DiskRoom(path);
    // The files beside it that a database needs while it is open have to fit as well.
    const opened = this.#room.with(() =>
      openEmbedded(path, FORMAT, (db) => ({
        db,
        sql: Object.fromEntries(Object.entries(STATEMENTS).map(([name, sql]) => [name, db.prepare(sql)])) as Record<
          keyof typeof STATEMENTS,
          StatementSync
        >,
      })),
    );
    this.#db = opened.db;
    this.#sql = opened.sql;
    this.#room.fill();
  }

  create(id: string, text: string, place: DocPlace): CreateOutcome {
    return this.#transaction(true, () => {
      if (this.read(id) !== undefined) return "created";
      const { docs } = this.totals();
      if (docs >= this.#limits.docsMax) return "docs";
      if (place.open && (this.#sql.openOfKey.get(place.keyId)?.["n"] as number) >= this.#limits.keyOpenMax)
        return "open";
      const { kind, keyId, shown, open, expiresAt } = place;
      this.#sql.insert.run(id, kind, keyId, Number(shown), Number(open), expiresAt, text);
      return "created";
    });
  }

  read(id: string): StoredDoc | undefined {
    return this.#sql.read.get(id) as StoredDoc | undefined;
  }

  write(id: string, version: number, text: string, { shown, open, expiresAt }: DocPlace): boolean {
    return this.#transaction(
      true,
      () => this.#sql.write.run(text, Number(shown), Number(open), expiresAt, id, version).changes === 1,
    );
  }

  forget(id: string, version: number): boolean {
    return this.#remove(true, () => Number(this.#sql.forget.run(id, version).changes) > 0);
  }

  list({ kind, keyId, limit, after, oldestFirst }: FileListQuery): StoredDoc[] {
    const [beyond, order, end] = oldestFirst ? [">", "ASC", -1] : ["<", "DESC", Number.MAX_SAFE_INTEGER];
    let sql = this.#lists.get(order);
    if (sql === undefined) {
      sql = this.#db.prepare(`${STATEMENTS.list} AND seq ${beyond} ?3 ORDER BY seq ${order} LIMIT ?4`);
      this.#lists.set(order, sql);
    }
    return sql.all(kind, keyId, after ?? end, limit) as unknown as StoredDoc[];
  }

  open(limit: number): OpenDoc[] {
    return this.#sql.open.all(limit) as unknown as OpenDoc[];
  }

  putPiece(id: string, name: string, bytes: Uint8Array, bounded: boolean): PieceOutcome {
    return this.#transaction(false, () => {
      const keyId = this.#sql.owner.get(id)?.["key_id"] as string | undefined;
      if (keyId === undefined) return "unknown";
      const before = (this.#sql.pieceBytes.get(id, name)?.["n"] as number | undefined) ?? 0;
      const more = bytes.length - before;
      if (bounded) {
        const ofKey = (this.#sql.ofKey.get(keyId)?.["bytes"] as number | undefined) ?? 0;
        if (ofKey + more > this.#limits.keyBytesMax || this.totals().bytes + more > this.#limits.bytesMax)
          return "bytes";
      }
      this.#sql.putPiece.run(id, name, bytes);
      this.#sql.grow.run(more, id);
      return "kept";
    });
  }

  piece(id: string, name: string): Uint8Array | undefined {
    return this.#sql.piece.get(id, name)?.["bytes"] as Uint8Array | undefined;
  }

  dropPieces(id: string, names: readonly string[]): void {
    this.#remove(false, () => {
      for (const name of names) {
        const bytes = this.#sql.pieceBytes.get(id, name)?.["n"] as number | undefined;
        if (bytes === undefined) continue;
        this.#sql.dropPiece.run(id, name);
        this.#sql.grow.run(-bytes, id);
      }
    });
  }

  sweep(now: number): void {
    this.#remove(false, () => this.#sql.expired.run(now, EXPIRED_MAX));
  }

  totals(): FileTotals {
    return this.#sql.totals.get() as unknown as FileTotals;
  }

  close(): void {
    this.#db.close();
  }

  #remove<T>(synced: boolean, body: () => T): T {
    const value = this.#room.with(() => this.#transaction(synced, body));
    this.#room.fill();
    return value;
  }

  #transaction<T>(synced: boolean, body: () => T): T {
    if (this.#synced !== synced) this.#db.exec(`PRAGMA synchronous = ${synced ? "FULL" : "NORMAL"}`);
    this.#synced = synced;
    return inTransaction(this.#db, body);
  }
}
