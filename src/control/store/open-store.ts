import { closeSync, openSync } from "node:fs";
import { dirname, join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import type { Clock, Timer } from "../../kernel/clock.ts";
import { messageOf } from "../../kernel/errors.ts";
import type { Logger } from "../../kernel/log.ts";
import type { Secret } from "../../kernel/secret.ts";
import { makeFolderSync } from "../../kernel/make-folder.ts";
import { ControlStore } from "./control-store.ts";
import { openPostgres } from "./postgres-driver.ts";
import { openSqlite, type SqliteDriver } from "./sqlite-driver.ts";

export interface OpenStoreOptions {
  readonly dataDir: string;
  /** `sqlite:PATH` or `postgres://…`; null: the embedded database in `dataDir`. */
  readonly databaseUrl: Secret | null;
  readonly clock: Clock;
  readonly log: Logger;
}

export interface OpenedStore {
  readonly store: ControlStore;
  /** No other process works on it. */
  readonly alone: boolean;
  close(): Promise<void>;
}

const BACKUP_MS = 3_600_000;

/** Throws STORE_REFUSED, in words with the way back, or STORE_UNAVAILABLE. */
export async function openStore({ dataDir, databaseUrl, clock, log }: OpenStoreOptions): Promise<OpenedStore> {
  const url = databaseUrl?.reveal();
  if (databaseUrl !== null && url !== undefined && !url.startsWith("sqlite:")) {
    const driver = openPostgres(databaseUrl);
    try {
      const store = await ControlStore.open(driver);
      return { store, alone: false, close: () => store.close() };
    } catch (error) {
      await driver.close();
      throw error;
    }
  }
  const path = url === undefined ? join(dataDir, "control.db") : url.slice("sqlite:".length);
  return openFile(path, clock, log);
}

async function openFile(path: string, clock: Clock, log: Logger): Promise<OpenedStore> {
  const driver = await openSqlite({ path, clock });
  try {
    const store = await ControlStore.open(driver);
    // Every document is read once, so that a damaged one is refused now and not when it is needed.
    await Promise.all([store.load(), store.catalog()]);
    await driver.keepMark(store.clusterId);
    const held = holdAlone(`${path}.lock`);
    const backups = new Backups(driver, clock, log);
    const close = async (): Promise<void> => {
      await backups.stop();
      held?.close();
      await store.close();
    };
    return { store, alone: held !== undefined, close };
  } catch (error) {
    await driver.close();
    throw error;
  }
}

/**
 * A lock that the system gives up with the process, however it ends. Undefined when another process has it: then the two share
 * the file, and the lease decides between them.
 */
function holdAlone(path: string): DatabaseSync | undefined {
  makeFolderSync(dirname(path));
  closeSync(openSync(path, "a", 0o600));
  const db = new DatabaseSync(path, { timeout: 0 });
  try {
    db.exec("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE; PRAGMA user_version = 1; COMMIT");
    return db;
  } catch {
    db.close();
    return undefined;
  }
}

/** A copy now, since the file was just found whole, and one each hour. */
class Backups {
  readonly #driver: SqliteDriver;
  readonly #clock: Clock;
  readonly #log: Logger;
  #timer: Timer | undefined;
  #running: Promise<void>;
  #stopped = false;

  constructor(driver: SqliteDriver, clock: Clock, log: Logger) {
    this.#driver = driver;
    this.#clock = clock;
    this.#log = log;
    this.#running = this.#run();
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    this.#timer?.cancel();
    await this.#running;
  }

  async #run(): Promise<void> {
    try {
      await this.#driver.backup();
    } catch (error) {
      this.#log.warn("store.notBackedUp", { why: messageOf(error) });
    }
    if (this.#stopped) return;
    this.#timer = this.#clock.after(BACKUP_MS, () => {
      this.#running = this.#run();
    });
  }
}
