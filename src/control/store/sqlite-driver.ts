import type { Worker } from "node:worker_threads";
import type { Clock, Timer } from "../../kernel/clock.ts";
import { messageOf, YardmasterError } from "../../kernel/errors.ts";
import { startThread } from "../../kernel/start-thread.ts";
import {
  type SqlDriver,
  type SqlRow,
  type Statement,
  type Step,
  StoreFault,
  type TransactionOutcome,
} from "./sql-driver.ts";
import { backupOf, markerOf } from "./sqlite-file.ts";
import type { SqliteReply, SqliteRequest, SqliteWorkerData } from "./sqlite-messages.ts";

export interface SqliteOptions {
  readonly path: string;
  readonly clock: Clock;
  /** How long a statement waits for another process's lock. */
  readonly busyMs?: number;
}

/** Given to a thread beyond the wait for a lock. */
const ANSWER_EXTRA_MS = 2_000;
const BUSY_MS = 5_000;
const OPEN_MS_MAX = 30_000;
const BACKUP_MS_MAX = 60_000;
/** Requests that wait for a thread; beyond it they fail at once. */
const WAITING_MAX = 1_000;

type Body<T> = T extends { readonly id: number } ? Omit<T, "id"> : never;
type Answer = Exclude<SqliteReply, { kind: "opened" | "refused" }>;

interface Waiting {
  readonly resolve: (reply: Answer) => void;
  readonly reject: (error: Error) => void;
  readonly timer: Timer;
}

/** One thread with one connection. */
class Connection {
  readonly #worker: Worker;
  readonly #clock: Clock;
  readonly #waiting = new Map<number, Waiting>();
  #ids = 0;
  #over: string | undefined;

  private constructor(worker: Worker, clock: Clock) {
    this.#worker = worker;
    this.#clock = clock;
    worker.on("message", (reply: Answer) => this.#settle(reply.id, (waiting) => waiting.resolve(reply)));
    worker.on("error", (error) => this.#end(messageOf(error)));
    worker.on("exit", () => this.#end("the database thread ended"));
    worker.unref();
  }

  static async open(data: SqliteWorkerData, clock: Clock): Promise<Connection> {
    const worker = startThread("sqlite-worker", import.meta.url, { name: "store", workerData: data });
    const reply = await new Promise<SqliteReply>((resolve, reject) => {
      const over = new StoreFault(`${data.path}: not open within ${OPEN_MS_MAX} ms`, { applied: "no" });
      const timer = clock.after(OPEN_MS_MAX, () => reject(over));
      worker.once("message", resolve).once("error", reject);
      worker.once("message", () => timer.cancel());
    });
    if (reply.kind === "opened") return new Connection(worker, clock);
    await worker.terminate();
    throw new YardmasterError(
      "STORE_REFUSED",
      reply.kind === "refused" ? reply.why : "the database thread is confused",
    );
  }

  ask(request: Body<SqliteRequest>, limitMs: number): Promise<Answer> {
    if (this.#over !== undefined) return Promise.reject(new StoreFault(this.#over, { applied: "no" }));
    if (this.#waiting.size >= WAITING_MAX)
      return Promise.reject(new StoreFault(`${WAITING_MAX} requests wait for the database already`, { applied: "no" }));
    const id = ++this.#ids;
    return new Promise((resolve, reject) => {
      const timer = this.#clock.after(limitMs, () =>
        this.#settle(id, (waiting) =>
          waiting.reject(new StoreFault(`the database gave no answer within ${limitMs} ms`, { applied: "unknown" })),
        ),
      );
      this.#waiting.set(id, { resolve, reject, timer });
      this.#worker.ref(); // Who asks waits for the answer.
      this.#worker.postMessage({ ...request, id });
    });
  }

  async close(): Promise<void> {
    if (this.#over === undefined) await this.ask({ kind: "close" }, BUSY_MS).catch(() => {});
    this.#over ??= "the store is closed";
    await this.#worker.terminate();
  }

  #settle(id: number, act: (waiting: Waiting) => void): void {
    const waiting = this.#waiting.get(id);
    if (waiting === undefined) return;
    this.#waiting.delete(id);
    waiting.timer.cancel();
    if (this.#waiting.size === 0) this.#worker.unref();
    act(waiting);
  }

  #end(why: string): void {
    this.#over ??= why;
    for (const id of [...this.#waiting.keys()])
      this.#settle(id, (waiting) => waiting.reject(new StoreFault(why, { applied: "unknown" })));
  }
}

/** The embedded database. Checks the whole file first; throws STORE_REFUSED, in words, when it can't be used. */
export async function openSqlite(options: SqliteOptions): Promise<SqliteDriver> {
  const { path, clock, busyMs = BUSY_MS } = options;
  const main = await Connection.open({ path, check: true, busyMs }, clock);
  try {
    return new SqliteDriver(path, main, await Connection.open({ path, check: false, busyMs }, clock), busyMs);
  } catch (error) {
    await main.close();
    throw error;
  }
}

export class SqliteDriver implements SqlDriver {
  readonly dialect = "sqlite";
  readonly #path: string;
  readonly #main: Connection;
  readonly #second: Connection;
  readonly #limitMs: number;

  constructor(path: string, main: Connection, second: Connection, busyMs: number) {
    this.#path = path;
    this.#main = main;
    this.#second = second;
    this.#limitMs = busyMs + ANSWER_EXTRA_MS;
  }

  query(statement: Statement): Promise<readonly SqlRow[]> {
    return this.#query(this.#main, statement);
  }

  urgent(statement: Statement): Promise<readonly SqlRow[]> {
    return this.#query(this.#second, statement);
  }

  async transaction(steps: readonly Step[]): Promise<TransactionOutcome> {
    const reply = await this.#main.ask({ kind: "transaction", steps }, this.#limitMs);
    if (reply.kind === "outcome") return reply.outcome;
    // Inside the process a failure is told exactly: what failed was rolled back.
    throw faultOf(reply, "no");
  }

  /** A consistent copy beside the file, for `restoreCommand`. */
  async backup(): Promise<void> {
    const reply = await this.#main.ask({ kind: "backup", path: backupOf(this.#path) }, BACKUP_MS_MAX);
    if (reply.kind === "failed") throw new StoreFault(`the backup failed: ${reply.why}`, { applied: "no" });
  }

  /** From now on a database that has lost what was told as done is known by its marker. */
  async keepMark(clusterId: string): Promise<void> {
    const reply = await this.#main.ask({ kind: "mark", clusterId }, this.#limitMs);
    if (reply.kind === "failed")
      throw new StoreFault(`${markerOf(this.#path)} can't be kept: ${reply.why}`, { applied: "no" });
  }

  async close(): Promise<void> {
    // One after the other: the last to close merges the side file, and of two that close at once neither may be the last.
    await this.#second.close();
    await this.#main.close();
  }

  async #query(connection: Connection, statement: Statement): Promise<readonly SqlRow[]> {
    const reply = await connection.ask({ kind: "query", statement }, this.#limitMs);
    if (reply.kind === "rows") return reply.rows;
    throw faultOf(reply, "no");
  }
}

const faultOf = (reply: Answer, applied: "no" | "unknown"): StoreFault =>
  reply.kind === "failed"
    ? new StoreFault(reply.why, { applied, conflict: reply.conflict })
    : new StoreFault("the database thread is confused", { applied: "unknown" });
