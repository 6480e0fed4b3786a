import { createHash, randomBytes } from "node:crypto";
import type { DatabaseSync } from "node:sqlite";
import { CHAIN_PAGE_LINES_MAX, type ChainEntry, type ChainPage } from "../contract/audit-chain.ts";
import {
  linkEntry,
  NO_HASH,
  readLink,
  sealLine,
  type ChainEnd,
  type ChainMaker,
  type MacCheck,
} from "../decide/audit/chain-lines.ts";
import { type EmbeddedFormat, inTransaction, openEmbedded } from "../kernel/embedded-db.ts";
import { isSame, macOf, type PurposeKey } from "../kernel/signer.ts";

/**
 * The file of the chain. Synchronous: only the thread of `chain-worker.ts` may use it.
 *
 * Invariants:
 *   H1. Lines are added and never changed: the file itself refuses anything else, but for the oldest beyond `ENTRIES_MAX`.
 *   H2. A line is made from the last one in the transaction that writes it, whichever process wrote that.
 *   H3. Nothing is added behind an end that is not as it was left: then the file was changed by somebody else.
 *   H4. A batch that is written again, since its answer was lost, changes nothing.
 */
const ENTRIES_MAX = 2_000_000;
const TRIMMED_AT_ONCE = 10_000;
const RUNS_KEPT = 100;
const CHAIN_ID_BYTES = 8;

const FORMAT: EmbeddedFormat = {
  // "YCHN"
  applicationId: 0x5943484e,
  version: 1,
  schema: `
    CREATE TABLE chain (seq INTEGER PRIMARY KEY, line TEXT NOT NULL);
    CREATE TABLE head (id INTEGER PRIMARY KEY CHECK (id = 1), seq INTEGER NOT NULL, hash TEXT NOT NULL);
    CREATE TABLE runs (run TEXT PRIMARY KEY, ordinal INTEGER NOT NULL);
    CREATE TRIGGER chain_keeps BEFORE UPDATE ON chain BEGIN SELECT raise(ABORT, 'an entry of the chain is never changed'); END;
    CREATE TRIGGER chain_holds BEFORE DELETE ON chain WHEN OLD.seq > (SELECT seq FROM head) - ${ENTRIES_MAX}
      BEGIN SELECT raise(ABORT, 'an entry of the chain is never taken out'); END;
  `,
  refusal: "the file is no chain of an audit",
  synchronous: "FULL",
};

const statements = (db: DatabaseSync) => ({
  db,
  last: db.prepare("SELECT seq, line FROM chain ORDER BY seq DESC LIMIT 1"),
  first: db.prepare("SELECT min(seq) AS seq FROM chain"),
  head: db.prepare("SELECT seq, hash FROM head"),
  setHead: db.prepare(
    "INSERT INTO head VALUES (1, ?, ?) ON CONFLICT (id) DO UPDATE SET seq = excluded.seq, hash = excluded.hash",
  ),
  add: db.prepare("INSERT INTO chain VALUES (?, ?)"),
  page: db.prepare("SELECT seq, line FROM chain WHERE seq > ? ORDER BY seq LIMIT ?"),
  trim: db.prepare("DELETE FROM chain WHERE seq <= ?"),
  run: db.prepare("SELECT ordinal FROM runs WHERE run = ?"),
  setRun: db.prepare("INSERT INTO runs VALUES (?, ?) ON CONFLICT (run) DO UPDATE SET ordinal = excluded.ordinal"),
  forgetRuns: db.prepare("DELETE FROM runs WHERE rowid NOT IN (SELECT rowid FROM runs ORDER BY rowid DESC LIMIT ?)"),
});

export class ChainTables {
  readonly #sql: ReturnType<typeof statements>;
  readonly #maker: ChainMaker;
  readonly #macIs: MacCheck;
  #trimAt = 0;

  /** The first key signs. @throws when the file can't be opened, is locked for longer than a second, is damaged, or is not ours. */
  constructor(path: string, keys: readonly PurposeKey[]) {
    const [signing] = keys;
    if (signing === undefined) throw new Error("there is no key to sign the chain with");
    this.#maker = { keyId: signing.id, hash: sha256, mac: (text) => macOf(signing.hex, text) };
    this.#macIs = checkWith(keys);
    this.#sql = openEmbedded(path, FORMAT, statements);
  }

  append(run: string, firstOrdinal: number, entries: readonly ChainEntry[]): void {
    const { db, run: runOf, add, setHead, setRun, forgetRuns } = this.#sql;
    inTransaction(db, () => {
      const done = (runOf.get(run)?.["ordinal"] as number | undefined) ?? 0;
      if (firstOrdinal <= done) return; // H4
      let end = this.#end();
      for (const entry of entries) {
        const link = linkEntry(entry, end, this.#maker);
        add.run(link.seq, link.line);
        end = link;
      }
      setHead.run(end.seq, end.hash);
      setRun.run(run, firstOrdinal + entries.length - 1);
      if (done === 0) forgetRuns.run(RUNS_KEPT);
      this.#trim(end.seq);
    });
  }

  /** `first`: the number that the reader has begun with, for the seal. */
  page(after: number, limit: number, first: number, now: number): ChainPage {
    const { db, page } = this.#sql;
    return inTransaction(db, () => {
      const end = this.#end();
      const rows = page.all(after, Math.min(limit, CHAIN_PAGE_LINES_MAX));
      const last = (rows.at(-1)?.["seq"] as number | undefined) ?? null;
      const isEnd = (last ?? after) >= end.seq;
      return {
        lines: rows.map((row) => row["line"] as string),
        last,
        seal: isEnd ? sealLine(first, end, now, this.#maker) : null,
      };
    });
  }

  /** The first number that is there; older ones may have been trimmed. */
  first(): number {
    return (this.#sql.first.get()?.["seq"] as number | null | undefined) ?? 1;
  }

  close(): void {
    this.#sql.db.close();
  }

  /** H3 */
  #end(): ChainEnd {
    const row = this.#sql.last.get();
    const head = this.#sql.head.get();
    if (row === undefined && head === undefined)
      return { chain: randomBytes(CHAIN_ID_BYTES).toString("hex"), seq: 0, hash: NO_HASH };
    const link = row === undefined ? null : readLink(row["line"] as string, sha256, this.#macIs);
    if (link === null || link.seq !== row?.["seq"] || link.seq !== head?.["seq"] || link.hash !== head["hash"])
      throw new Error(
        "the end of the audit's chain is not as it was left, or its signing key is another one: look into it, then move the file away",
      );
    return link;
  }

  #trim(last: number): void {
    if (last < this.#trimAt) return;
    this.#trimAt = Math.max(last, ENTRIES_MAX) + TRIMMED_AT_ONCE;
    if (last > ENTRIES_MAX) this.#sql.trim.run(last - ENTRIES_MAX);
  }
}

export const sha256 = (text: string): string => createHash("sha256").update(text).digest("hex");

export const checkWith =
  (keys: readonly PurposeKey[]): MacCheck =>
  (keyId, text, mac) => {
    const key = keys.find(({ id }) => id === keyId);
    return key === undefined ? null : isSame(macOf(key.hex, text), mac);
  };
