import { hash } from "node:crypto";
import { YardmasterError } from "../../kernel/errors.ts";
import { type SqlDriver, type Step, StoreFault } from "./sql-driver.ts";

/**
 * The tables, step by step. A version that was released never changes: its text is part of its checksum, and a database that
 * was made by another text is refused. Forward only: an older program does not touch a newer database.
 */
interface Migration {
  readonly version: number;
  readonly name: string;
  readonly statements: (dialect: SqlDriver["dialect"]) => readonly string[];
}

/** The one thing that the two databases spell differently; behind the view every query reads the database's clock alike. */
const NOW_MS = {
  sqlite: "CAST(unixepoch('subsec') * 1000 AS BIGINT)",
  postgres: "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)",
} as const;

const MIGRATIONS: readonly Migration[] = [
  {
    version: 1,
    name: "tables",
    statements: (dialect) => [
      `CREATE VIEW ym_clock AS SELECT ${NOW_MS[dialect]} AS now_ms`,
      `CREATE TABLE ym_meta (name TEXT PRIMARY KEY, value TEXT NOT NULL, sum TEXT NOT NULL)`,
      `CREATE TABLE ym_lease (
        id BIGINT PRIMARY KEY, holder TEXT NOT NULL, epoch BIGINT NOT NULL, prior_epoch BIGINT NOT NULL,
        expires_ms BIGINT NOT NULL, commit_id TEXT NOT NULL
      )`,
      `CREATE TABLE ym_docs (
        kind TEXT NOT NULL, id TEXT NOT NULL, doc TEXT NOT NULL, sum TEXT NOT NULL, PRIMARY KEY (kind, id)
      )`,
      `CREATE TABLE ym_counters (name TEXT PRIMARY KEY, value BIGINT NOT NULL)`,
      `INSERT INTO ym_counters (name, value) VALUES ('events', 0)`,
      `CREATE TABLE ym_events (seq BIGINT PRIMARY KEY, at_ms BIGINT NOT NULL, event TEXT NOT NULL)`,
      `CREATE TABLE ym_catalogs (
        revision BIGINT PRIMARY KEY, at_ms BIGINT NOT NULL, author TEXT NOT NULL, origin TEXT NOT NULL, digest TEXT NOT NULL,
        request_id TEXT NOT NULL, body TEXT NOT NULL, sum TEXT NOT NULL
      )`,
      `CREATE TABLE ym_enrolments (
        hash TEXT PRIMARY KEY, node TEXT NOT NULL, node_id TEXT NOT NULL, author TEXT NOT NULL, created_ms BIGINT NOT NULL,
        expires_ms BIGINT NOT NULL, used_ms BIGINT
      )`,
      `CREATE TABLE ym_credentials (
        hash TEXT PRIMARY KEY, node TEXT NOT NULL, node_id TEXT NOT NULL, issued_ms BIGINT NOT NULL, ends_ms BIGINT NOT NULL,
        replaced_by TEXT, sum TEXT NOT NULL
      )`,
      `CREATE INDEX ym_credentials_node ON ym_credentials (node_id)`,
    ],
  },
  {
    version: 2,
    name: "gateways",
    statements: () => [
      `CREATE TABLE ym_gateways (
        hash TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, author TEXT NOT NULL, created_ms BIGINT NOT NULL, sum TEXT NOT NULL
      )`,
    ],
  },
];

const CREATE_LIST = `CREATE TABLE IF NOT EXISTS ym_versions (
  version BIGINT PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL, applied_ms BIGINT NOT NULL
)`;
/** Control planes that start at once race for each step; the one that loses finds it done. */
const TRIES_MAX = 5;

/** Throws STORE_REFUSED for a database of a newer or another program, StoreFault when it can't be reached. */
export async function migrate(driver: SqlDriver): Promise<void> {
  await retried(() => driver.transaction([{ text: CREATE_LIST, values: [] }]));
  for (const migration of MIGRATIONS) await retried(() => applyOnce(driver, migration));
  const [newest] = await driver.query({ text: "SELECT max(version) AS version FROM ym_versions", values: [] });
  const found = Number(newest?.["version"] ?? 0);
  const known = MIGRATIONS.at(-1)?.version ?? 0;
  if (found > known)
    throw new YardmasterError(
      "STORE_REFUSED",
      `the database has version ${found}, this program knows ${known}: start the newer program, or restore a backup made before it`,
    );
}

async function applyOnce(driver: SqlDriver, migration: Migration): Promise<void> {
  const { version, name } = migration;
  const statements = migration.statements(driver.dialect);
  const checksum = hash("sha256", statements.join(";\n"), "hex");
  const [done] = await driver.query({ text: "SELECT checksum FROM ym_versions WHERE version = $1", values: [version] });
  if (done !== undefined) {
    if (done["checksum"] === checksum) return;
    throw new YardmasterError(
      "STORE_REFUSED",
      `the database's version ${version} was made by another program: its tables are not the ones that this one knows`,
    );
  }
  // The record comes first: of two that do this at once, one stops at it before it makes anything.
  const record = `INSERT INTO ym_versions (version, name, checksum, applied_ms) VALUES ($1, $2, $3, ${NOW_MS[driver.dialect]})`;
  const steps: Step[] = statements.map((text) => ({ text, values: [] }));
  await driver.transaction([{ text: record, values: [version, name, checksum] }, ...steps]);
}

async function retried(act: () => Promise<unknown>): Promise<void> {
  for (let tries = 1; ; tries += 1) {
    try {
      await act();
      return;
    } catch (error) {
      if (!(error instanceof StoreFault && error.conflict) || tries === TRIES_MAX) throw error;
    }
  }
}
