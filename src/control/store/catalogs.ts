import { hash, randomUUID } from "node:crypto";
import type { NewEvent } from "../../contract/control-event.ts";
import { asEpoch, isoTime } from "../../kernel/clock.ts";
import { checksum, verifyChecksum } from "./checksum.ts";
import { eventSteps } from "./events.ts";
import { type SqlDriver, type SqlRow, type Step, StoreFault } from "./sql-driver.ts";

/** Older ones are dropped. */
export const REVISIONS_KEPT = 200;
const TRIES_MAX = 4;

export interface CatalogRevision {
  readonly revision: number;
  /** ISO 8601, by the database's clock. */
  readonly at: string;
  /** Id of the key, or where the catalog came from by itself. */
  readonly author: string;
  /** "file", "api" or "rollback to N". */
  readonly origin: string;
  /** SHA-256 of the text. */
  readonly digest: string;
}

export interface StoredCatalog extends CatalogRevision {
  readonly text: string;
}

export interface NewCatalog {
  /** The revision that it follows; 0 for the first. */
  readonly base: number;
  readonly author: string;
  readonly origin: string;
  readonly text: string;
}

export type SaveOutcome =
  | { readonly kind: "saved"; readonly revision: number }
  /** Another one was saved meanwhile. */
  | { readonly kind: "changed"; readonly revision: number };

const HEAD = "revision, at_ms, author, origin, digest";
const NEWEST = "SELECT coalesce(max(revision), 0) AS revision FROM ym_catalogs";

/** The new revision and the event that tells of it, or neither. Throws StoreFault. */
export async function saveCatalog(
  driver: SqlDriver,
  fresh: NewCatalog,
  eventOf: (revision: number) => NewEvent,
): Promise<SaveOutcome> {
  const { base, author, origin, text } = fresh;
  const revision = base + 1;
  const digest = hash("sha256", text, "hex");
  const requestId = randomUUID();
  const steps: Step[] = [
    {
      text: `INSERT INTO ym_catalogs (revision, at_ms, author, origin, digest, request_id, body, sum)
        SELECT CAST($1 AS BIGINT) + 1, ym_clock.now_ms, $2, $3, $4, $5, $6, $7 FROM ym_clock, (${NEWEST}) AS newest
        WHERE newest.revision = $1 RETURNING revision`,
      values: [base, author, origin, digest, requestId, text, checksum(revision, text)],
      guard: true,
    },
    {
      text: "DELETE FROM ym_catalogs WHERE revision <= CAST($1 AS BIGINT) - CAST($2 AS BIGINT)",
      values: [revision, REVISIONS_KEPT],
    },
    ...eventSteps([eventOf(revision)]),
  ];
  for (let tries = 1; ; tries += 1) {
    try {
      if ((await driver.transaction(steps)).kind === "committed") return { kind: "saved", revision };
    } catch (error) {
      if (!(error instanceof StoreFault) || tries === TRIES_MAX) throw error;
      if (!error.conflict && error.applied === "no") throw error;
    }
    // Lost to another, or saved by an earlier try whose answer did not come.
    const [row] = await driver.query({
      text: "SELECT request_id FROM ym_catalogs WHERE revision = $1",
      values: [revision],
    });
    if (row?.["request_id"] === requestId) return { kind: "saved", revision };
    const newest = await newestRevision(driver);
    if (newest !== base) return { kind: "changed", revision: newest };
  }
}

export async function newestRevision(driver: SqlDriver): Promise<number> {
  const [row] = await driver.query({ text: NEWEST, values: [] });
  return Number(row?.["revision"] ?? 0);
}

/** Without a number the newest; undefined when there is none. Throws STORE_REFUSED when it is not what was written. */
export async function readCatalog(driver: SqlDriver, revision?: number): Promise<StoredCatalog | undefined> {
  const [row] = await driver.query(
    revision === undefined
      ? { text: `SELECT ${HEAD}, body, sum FROM ym_catalogs ORDER BY revision DESC LIMIT 1`, values: [] }
      : { text: `SELECT ${HEAD}, body, sum FROM ym_catalogs WHERE revision = $1`, values: [revision] },
  );
  if (row === undefined) return undefined;
  const head = readHead(row);
  const text = String(row["body"]);
  verifyChecksum(row["sum"], `catalog revision ${head.revision}`, head.revision, text);
  return { ...head, text };
}

/** Newest first. */
export async function readHistory(driver: SqlDriver, limit: number): Promise<CatalogRevision[]> {
  const rows = await driver.query({
    text: `SELECT ${HEAD} FROM ym_catalogs ORDER BY revision DESC LIMIT $1`,
    values: [limit],
  });
  return rows.map(readHead);
}

/** Digest of the newest text that came from a file; undefined when none did. */
export async function newestFileDigest(driver: SqlDriver): Promise<string | undefined> {
  const [row] = await driver.query({
    text: "SELECT digest FROM ym_catalogs WHERE origin = 'file' ORDER BY revision DESC LIMIT 1",
    values: [],
  });
  return row === undefined ? undefined : String(row["digest"]);
}

const readHead = (row: SqlRow): CatalogRevision => ({
  revision: Number(row["revision"]),
  at: isoTime(asEpoch(Number(row["at_ms"]))),
  author: String(row["author"]),
  origin: String(row["origin"]),
  digest: String(row["digest"]),
});
