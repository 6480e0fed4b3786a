import { DatabaseError, Pool, type PoolClient, types } from "pg";
import type { Secret } from "../../kernel/secret.ts";
import {
  type SqlDriver,
  type SqlRow,
  type Statement,
  type Step,
  StoreFault,
  type TransactionOutcome,
} from "./sql-driver.ts";

/**
 * Invariants:
 *   P1. Whatever the server does, a call ends: a connection is waited for 500 ms, a statement runs 2 s on the server, and half a
 *       second later its connection is given up here too.
 *   P2. A connection on which anything went wrong is destroyed, never used again.
 *   P3. A transaction whose COMMIT was sent and not answered is told as unknown; before that nothing was applied.
 *   P4. A connection that died unnoticed in the pool costs no caller anything: where nothing can have been done on it, or what
 *       was asked is safe to repeat, the next one is taken.
 *   P5. The urgent connection is nobody else's, so that a renewal of the lease waits for no other query.
 */
const POOL_WAIT_MS = 500;
const STATEMENT_MS = 2_000;
const ANSWER_MS = 2_500;
const CONNECTIONS_MAX = 4;
/** A process that is frozen inside a transaction must not hold its locks, and with them the lease, against the others. */
const IDLE_IN_TRANSACTION_MS = 2_000;

const INT8 = 20;
// Epochs, revisions and milliseconds are far below 2^53.
const NUMBERS = {
  getTypeParser: (oid: number, format: "text" | "binary" = "text") =>
    oid === INT8 ? Number : types.getTypeParser(oid, format),
};

export function openPostgres(url: Secret): PostgresDriver {
  const options = {
    connectionString: url.reveal(),
    application_name: "yardmaster control",
    connectionTimeoutMillis: POOL_WAIT_MS,
    statement_timeout: STATEMENT_MS,
    query_timeout: ANSWER_MS,
    idle_in_transaction_session_timeout: IDLE_IN_TRANSACTION_MS,
    keepAlive: true,
    types: NUMBERS,
    allowExitOnIdle: true,
  };
  const pools = [new Pool({ ...options, max: CONNECTIONS_MAX }), new Pool({ ...options, max: 1 })] as const;
  // An idle connection that breaks is no event: the next caller gets another one.
  for (const pool of pools) pool.on("error", () => {});
  return new PostgresDriver(...pools);
}

export class PostgresDriver implements SqlDriver {
  readonly dialect = "postgres";
  readonly #main: Pool;
  readonly #urgent: Pool;

  constructor(main: Pool, urgent: Pool) {
    this.#main = main;
    this.#urgent = urgent;
  }

  query(statement: Statement): Promise<readonly SqlRow[]> {
    return onLiveClient(this.#main, (client) => runAlone(client, statement));
  }

  transaction(steps: readonly Step[]): Promise<TransactionOutcome> {
    return onLiveClient(this.#main, (client) => transact(client, steps));
  }

  urgent(statement: Statement): Promise<readonly SqlRow[]> {
    return onLiveClient(this.#urgent, (client) => runAlone(client, statement));
  }

  async close(): Promise<void> {
    await Promise.all([this.#main.end(), this.#urgent.end()]);
  }
}

/** Thrown by what may be done again on another connection. */
class DeadConnection extends Error {
  readonly fault: StoreFault;

  constructor(fault: StoreFault) {
    super(fault.message);
    this.fault = fault;
  }
}

async function onLiveClient<T>(pool: Pool, act: (client: PoolClient) => Promise<T>): Promise<T> {
  for (let tries = 0; ; tries += 1) {
    try {
      return await withClient(pool, act);
    } catch (error) {
      if (!(error instanceof DeadConnection)) throw error;
      // As many as the pool may hold can be dead at once.
      if (tries === CONNECTIONS_MAX) throw error.fault;
    }
  }
}

async function withClient<T>(pool: Pool, act: (client: PoolClient) => Promise<T>): Promise<T> {
  let client: PoolClient;
  try {
    client = await pool.connect();
  } catch (error) {
    throw faultOf(error, "no");
  }
  // Between two statements nobody else listens, and a connection may break at any time.
  const onError = (): void => {};
  client.on("error", onError);
  let broken = true;
  try {
    const result = await act(client);
    broken = false;
    return result;
  } finally {
    client.off("error", onError);
    client.release(broken);
  }
}

async function rowsOf(client: PoolClient, { text, values }: Statement): Promise<readonly SqlRow[]> {
  return (await client.query<Record<string, string | number | null>>(text, [...values])).rows;
}

async function runAlone(client: PoolClient, statement: Statement): Promise<readonly SqlRow[]> {
  try {
    return await rowsOf(client, statement);
  } catch (error) {
    // Alone, a statement commits itself: without the server's own word nobody knows.
    const told = error instanceof DatabaseError && error.severity !== "FATAL";
    const fault = faultOf(error, told ? "no" : "unknown");
    throw isDead(error) ? new DeadConnection(fault) : fault;
  }
}

async function transact(client: PoolClient, steps: readonly Step[]): Promise<TransactionOutcome> {
  const rows: (readonly SqlRow[])[] = [];
  try {
    await client.query("BEGIN");
  } catch (error) {
    throw isDead(error) ? new DeadConnection(faultOf(error, "no")) : faultOf(error, "no");
  }
  try {
    for (const [index, step] of steps.entries()) {
      const found = await rowsOf(client, step);
      if (step.guard === true && found.length === 0) {
        await client.query("ROLLBACK");
        return { kind: "refused", step: index };
      }
      rows.push(found);
    }
  } catch (error) {
    throw faultOf(error, "no");
  }
  try {
    await client.query("COMMIT");
    return { kind: "committed", rows };
  } catch (error) {
    throw faultOf(error, "unknown");
  }
}

/** unique_violation, serialization_failure, deadlock_detected, and what two that create the same table at once get. */
const CONFLICTS: readonly string[] = ["23505", "40001", "40P01", "42P07", "42710"];

function faultOf(error: unknown, applied: "no" | "unknown"): StoreFault {
  const conflict = error instanceof DatabaseError && CONFLICTS.includes(error.code ?? "");
  return new StoreFault(messageOf(error), { applied, conflict, cause: error });
}

/** FATAL speaks of the connection. A server that was too slow is not asked again at once. */
const isDead = (error: unknown): boolean =>
  error instanceof DatabaseError
    ? error.severity === "FATAL"
    : !(error instanceof Error && /timeout/i.test(error.message));

/** A server's own words, or how the connection failed; never the address, which may hold a password. */
function messageOf(error: unknown): string {
  if (error instanceof AggregateError) return error.errors.map(messageOf).join("; ");
  return error instanceof Error && error.message !== ""
    ? `PostgreSQL: ${error.message}`
    : "PostgreSQL: the connection failed";
}
