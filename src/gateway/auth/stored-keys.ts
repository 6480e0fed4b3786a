import { chmodSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { newKeyRequest } from "../../contract/admin-keys.ts";
import type { NewKeyRequest } from "../../contract/admin-keys.ts";
import { newKey } from "../../contract/key-hash.ts";
import { resolveKey } from "../../contract/resolve-config.ts";
import type { ApiKey } from "../../contract/gateway-config.ts";
import { asEpoch } from "../../kernel/clock.ts";
import type { EpochMs } from "../../kernel/clock.ts";
import { inTransaction } from "../../kernel/embedded-db.ts";
import { messageOf, YardmasterError } from "../../kernel/errors.ts";
import type { Secret } from "../../kernel/secret.ts";
import { makeFolderSync } from "../../kernel/make-folder.ts";

/**
 * Keys made while running, in `keys.db` of the data folder. Only hashes are kept. Calls block for a moment and are made
 * by administrators, never on the way of a request: the key ring holds what requests are checked against.
 *
 * Invariants:
 *   S1. An id has at most one key without an end; a rotated one may live on beside it until its overlap is over.
 *   S2. A revoked key is gone from the file when `revoke` returns.
 *   S3. A file that can't be used throws KEY_STORE_UNAVAILABLE, and is opened anew by the next call.
 */
export interface StoredKey {
  readonly key: ApiKey;
  readonly createdAt: EpochMs;
}

export interface IssuedStoredKey {
  /** To be shown once; null: its hash was given. */
  readonly secret: Secret | null;
  readonly hash: string;
  /** Until when the key that it replaces is valid; null if there is none. */
  readonly oldValidUntil: EpochMs | null;
}

const SCHEMA = `
  CREATE TABLE IF NOT EXISTS stored_keys (
    hash TEXT PRIMARY KEY,
    id TEXT NOT NULL,
    -- The key's settings as in the configuration file, without the hash.
    settings TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    -- End of a rotated key's overlap; an expiry of the key's own is in the settings.
    ends_at INTEGER
  ) STRICT;
  CREATE INDEX IF NOT EXISTS stored_keys_id ON stored_keys (id);
`;

export class StoredKeys {
  readonly #dataDir: string;
  #db: DatabaseSync | null = null;

  constructor(dataDir: string) {
    this.#dataDir = dataDir;
  }

  /** Keys that are valid now or have an own expiry date. A row that can't be read is left out: it lets nobody in. */
  list(now: EpochMs): StoredKey[] {
    const rows = this.#use((db) =>
      db
        .prepare(
          "SELECT hash, settings, created_at, ends_at FROM stored_keys WHERE ends_at IS NULL OR ends_at > ? ORDER BY id, created_at",
        )
        .all(now),
    );
    return rows.flatMap((row) => {
      const settings = readSettings(row["settings"]);
      const { hash, created_at: createdAt, ends_at: endsAt } = row;
      if (settings === undefined || typeof hash !== "string" || typeof createdAt !== "number") return [];
      const key = resolveKey({ ...settings, hash: `sha256:${hash}` });
      const ends = typeof endsAt === "number" ? asEpoch(Math.min(endsAt, key.expiresAt ?? endsAt)) : key.expiresAt;
      return [{ key: { ...key, expiresAt: ends }, createdAt: asEpoch(createdAt) }];
    });
  }

  /** Undefined when there is a key with this id. */
  create(settings: NewKeyRequest, now: EpochMs, hash?: string): IssuedStoredKey | undefined {
    return this.#transaction((db) => {
      forgetEnded(db, now);
      if (settingsOf(db, settings.id) !== undefined) return undefined;
      return insert(db, { id: settings.id, settings: JSON.stringify(settings), now, hash }, null);
    });
  }

  /** Whether there was such a key. Ends rotated ones of the same id as well. */
  revoke(id: string): boolean {
    return this.#use((db) => db.prepare("DELETE FROM stored_keys WHERE id = ?").run(id).changes > 0);
  }

  /** A new key with the same settings; the old one ends after `overlapMs`. Undefined when there is no such key. */
  rotate(id: string, overlapMs: number, now: EpochMs, hash?: string): IssuedStoredKey | undefined {
    return this.#transaction((db) => {
      forgetEnded(db, now);
      const settings = settingsOf(db, id);
      if (settings === undefined) return undefined;
      const endsAt = asEpoch(Math.round(now + overlapMs));
      // A key still in an earlier overlap ends with this one, if not before.
      db.prepare("UPDATE stored_keys SET ends_at = min(coalesce(ends_at, ?), ?) WHERE id = ?").run(endsAt, endsAt, id);
      forgetEnded(db, now);
      return insert(db, { id, settings, now, hash }, overlapMs > 0 ? endsAt : null);
    });
  }

  close(): void {
    this.#db?.close();
    this.#db = null;
  }

  #transaction<T>(work: (db: DatabaseSync) => T): T {
    return this.#use((db) => inTransaction(db, () => work(db)));
  }

  #use<T>(work: (db: DatabaseSync) => T): T {
    try {
      return work((this.#db ??= openFile(this.#dataDir)));
    } catch (error) {
      this.close();
      throw new YardmasterError("KEY_STORE_UNAVAILABLE", `the store of the keys can't be used: ${messageOf(error)}`, {
        cause: error,
      });
    }
  }
}

/** Makes the folder and the file where they are missing; both are for the owner only. */
function openFile(dataDir: string): DatabaseSync {
  makeFolderSync(dataDir);
  const path = join(dataDir, "keys.db");
  const db = new DatabaseSync(path, { timeout: 2000 });
  try {
    chmodSync(path, 0o600);
    db.exec("PRAGMA synchronous = FULL;");
    db.exec(SCHEMA);
    return db;
  } catch (error) {
    db.close();
    throw error;
  }
}

function settingsOf(db: DatabaseSync, id: string): string | undefined {
  const row = db.prepare("SELECT settings FROM stored_keys WHERE id = ? AND ends_at IS NULL").get(id);
  return typeof row?.["settings"] === "string" ? row["settings"] : undefined;
}

interface NewRow {
  readonly id: string;
  readonly settings: string;
  readonly now: EpochMs;
  /** Hexadecimal; absent: a key is made. */
  readonly hash: string | undefined;
}

function insert(db: DatabaseSync, { id, settings, now, hash }: NewRow, oldValidUntil: EpochMs | null): IssuedStoredKey {
  const made = hash === undefined ? newKey() : { hash, key: null };
  db.prepare("INSERT INTO stored_keys (hash, id, settings, created_at, ends_at) VALUES (?, ?, ?, ?, NULL)").run(
    made.hash,
    id,
    settings,
    now,
  );
  return { secret: made.key, hash: made.hash, oldValidUntil };
}

const forgetEnded = (db: DatabaseSync, now: EpochMs): unknown =>
  db.prepare("DELETE FROM stored_keys WHERE ends_at IS NOT NULL AND ends_at <= ?").run(now);

function readSettings(text: unknown): NewKeyRequest | undefined {
  if (typeof text !== "string") return undefined;
  try {
    return newKeyRequest.safeParse(JSON.parse(text)).data;
  } catch {
    return undefined;
  }
}
