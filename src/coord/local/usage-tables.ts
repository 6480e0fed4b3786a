import type { DatabaseSync } from "node:sqlite";
import { OTHERS, type UsageFlush, type UsageRow } from "../../decide/usage/usage-book.ts";
import { dayOf } from "../../decide/limits/windows.ts";
import { type EmbeddedFormat, inTransaction, openEmbedded } from "../../kernel/embedded-db.ts";
import {
  TOLD_KEPT_MS,
  type UsageAsk,
  type UsageBounds,
  type UsagePiece,
  type UsagePlaceRead,
} from "../usage/usage-store.ts";

/**
 * The embedded file of what was used. Synchronous: only the thread of `usage-worker.ts` may use it. coord/redis/add-usage.lua does the
 * same to hashes in Redis: the two change together, and one suite of tests runs against both.
 *
 * Invariants:
 *   T1. A flush is added whole, once for its gateway and number.
 *   T2. No day has more keys, and no key of a day more models, than the bounds and one that stands for the others.
 */
const FORMAT: EmbeddedFormat = {
  // "YUSE"
  applicationId: 0x59555345,
  version: 1,
  schema: `
    CREATE TABLE rows (id INTEGER PRIMARY KEY, day INTEGER NOT NULL, key TEXT NOT NULL, model TEXT NOT NULL, UNIQUE (day, key, model));
    CREATE TABLE counts (row INTEGER NOT NULL, name TEXT NOT NULL, value INTEGER NOT NULL, PRIMARY KEY (row, name)) WITHOUT ROWID;
    CREATE TABLE told (gateway TEXT PRIMARY KEY, seq INTEGER NOT NULL, at INTEGER NOT NULL);
  `,
  refusal: "the file is no record of usage",
  synchronous: "NORMAL",
};

/** Rows of one piece of an answer. */
const PIECE_ROWS = 1_000;

const prepareStatements = (db: DatabaseSync) => ({
  db,
  told: db.prepare("SELECT seq FROM told WHERE gateway = ?"),
  tell: db.prepare(
    "INSERT INTO told VALUES (?, ?, ?) ON CONFLICT (gateway) DO UPDATE SET seq = excluded.seq, at = excluded.at",
  ),
  find: db.prepare("SELECT id FROM rows WHERE day = ? AND key = ? AND model = ?"),
  begin: db.prepare("INSERT INTO rows (day, key, model) VALUES (?, ?, ?) RETURNING id"),
  keys: db.prepare("SELECT DISTINCT key FROM rows WHERE day = ?"),
  models: db.prepare("SELECT count(*) AS n FROM rows WHERE day = ? AND key = ?"),
  add: db.prepare(
    "INSERT INTO counts VALUES (?, ?, ?) ON CONFLICT (row, name) DO UPDATE SET value = value + excluded.value",
  ),
  list: db.prepare(
    `SELECT r.day, r.key, r.model, c.name, c.value FROM (
       SELECT * FROM rows WHERE day BETWEEN ?1 AND ?2 AND (?3 IS NULL OR key = ?3) AND (day, key, model) > (?4, ?5, ?6)
       ORDER BY day, key, model LIMIT ${PIECE_ROWS}
     ) r LEFT JOIN counts c ON c.row = r.id ORDER BY r.day, r.key, r.model`,
  ),
  dropCounts: db.prepare("DELETE FROM counts WHERE row IN (SELECT id FROM rows WHERE day < ?)"),
  dropRows: db.prepare("DELETE FROM rows WHERE day < ?"),
  dropTold: db.prepare("DELETE FROM told WHERE at < ?"),
});

export class UsageTables {
  readonly #sql: ReturnType<typeof prepareStatements>;
  readonly #keepDays: number;
  readonly #bounds: UsageBounds;
  /** Of the day that was written last. */
  #keys: { readonly day: number; readonly ids: Set<string> } | null = null;
  #droppedOn = -1;

  /** @throws when the file can't be opened, is locked for longer than a second, is damaged, or is not ours. */
  constructor(path: string, keepDays: number, bounds: UsageBounds) {
    this.#sql = openEmbedded(path, FORMAT, prepareStatements);
    this.#keepDays = keepDays;
    this.#bounds = bounds;
  }

  /** `now`: epoch milliseconds. */
  add(gateway: string, { seq, rows }: UsageFlush, now: number): void {
    try {
      inTransaction(this.#sql.db, () => {
        if (((this.#sql.told.get(gateway)?.["seq"] as number | undefined) ?? 0) >= seq) return;
        this.#sql.tell.run(gateway, seq, Math.floor(now));
        this.#dropOld(now);
        for (const row of rows) this.#addRow(row);
      });
    } catch (error) {
      this.#keys = null; // What it says may have been taken back.
      throw error;
    }
  }

  read({ fromDay, toDay, keyId }: UsageAsk, after: UsagePlaceRead | null): UsagePiece {
    const { day, keyId: key, model } = after ?? { day: -1, keyId: "", model: "" };
    const rows: (UsageRow & { readonly counts: Record<string, number> })[] = [];
    for (const found of this.#sql.list.iterate(fromDay, toDay, keyId, day, key, model)) {
      const place = { day: found["day"] as number, keyId: found["key"] as string, model: found["model"] as string };
      let row = rows.at(-1);
      if (row === undefined || row.day !== place.day || row.keyId !== place.keyId || row.model !== place.model)
        rows.push((row = { ...place, counts: {} }));
      if (found["name"] !== null) row.counts[found["name"] as string] = found["value"] as number;
    }
    const last = rows.length < PIECE_ROWS ? undefined : rows.at(-1);
    return { rows, next: last === undefined ? null : { day: last.day, keyId: last.keyId, model: last.model } };
  }

  close(): void {
    this.#sql.db.close();
  }

  #addRow({ day, keyId, model, counts }: UsageRow): void {
    const id = this.#rowFor(day, this.#keyFor(day, keyId), model);
    for (const [name, value] of Object.entries(counts)) this.#sql.add.run(id, name, value);
  }

  #keyFor(day: number, keyId: string): string {
    if (this.#keys?.day !== day)
      this.#keys = { day, ids: new Set(this.#sql.keys.all(day).map((row) => row["key"] as string)) };
    const { ids } = this.#keys;
    const kept = ids.has(keyId) || ids.size < this.#bounds.keysPerDay ? keyId : OTHERS;
    ids.add(kept);
    return kept;
  }

  #rowFor(day: number, keyId: string, model: string): number {
    const known = this.#find(day, keyId, model);
    if (known !== undefined) return known;
    const models = this.#sql.models.get(day, keyId)?.["n"] as number;
    const kept = models < this.#bounds.modelsPerKey ? model : OTHERS;
    return this.#find(day, keyId, kept) ?? (this.#sql.begin.get(day, keyId, kept)?.["id"] as number);
  }

  #find(day: number, keyId: string, model: string): number | undefined {
    return this.#sql.find.get(day, keyId, model)?.["id"] as number | undefined;
  }

  #dropOld(now: number): void {
    const today = dayOf(now);
    if (today === this.#droppedOn) return;
    this.#sql.dropCounts.run(today - this.#keepDays);
    this.#sql.dropRows.run(today - this.#keepDays);
    this.#sql.dropTold.run(Math.floor(now) - TOLD_KEPT_MS);
    this.#droppedOn = today;
  }
}
