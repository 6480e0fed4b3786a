import { Client } from "pg";
import { startPostgres } from "./postgres-server.ts";
import type { TestServer } from "./server-process.ts";

/** One server, and an empty database of its own for each test. */
export interface PostgresDatabases extends AsyncDisposable {
  readonly server: TestServer;
  /** URL of a new, empty database. */
  create(): Promise<string>;
  /** Keeps the database as it is now under another name; whoever is connected to it has to connect again. */
  copy(url: string, name: string): Promise<void>;
  /** Puts the copy in the place of the database, as a backup is put back. */
  restore(url: string, name: string): Promise<void>;
  /** Runs one statement as the owner, for what a fault does. */
  run(url: string, text: string): Promise<readonly Record<string, unknown>[]>;
}

export async function startPostgresDatabases(extraArgs: readonly string[] = []): Promise<PostgresDatabases> {
  const server = await startPostgres(extraArgs);
  const prefix = `ym_test_${process.pid}_`;
  const made: string[] = [];
  const run = async (url: string, text: string): Promise<readonly Record<string, unknown>[]> => {
    const client = new Client({ connectionString: url });
    await client.connect();
    try {
      return (await client.query<Record<string, unknown>>(text)).rows;
    } finally {
      await client.end();
    }
  };
  const nameIn = (url: string): string => new URL(url).pathname.slice(1);
  return {
    server,
    run,
    copy: async (url, name) => {
      const copied = `${nameIn(url)}_${name}`;
      made.push(copied);
      const allow = (yes: boolean): Promise<unknown> =>
        run(server.url, `ALTER DATABASE ${nameIn(url)} ALLOW_CONNECTIONS ${yes}`);
      await allow(false);
      await run(server.url, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '${nameIn(url)}'`);
      await run(server.url, `CREATE DATABASE ${copied} TEMPLATE ${nameIn(url)}`);
      await allow(true);
    },
    restore: async (url, name) => {
      await run(server.url, `DROP DATABASE ${nameIn(url)} WITH (FORCE)`);
      await run(server.url, `ALTER DATABASE ${nameIn(url)}_${name} RENAME TO ${nameIn(url)}`);
    },
    create: async () => {
      const name = `${prefix}${made.length}`;
      made.push(name);
      await run(server.url, `CREATE DATABASE ${name}`);
      const url = new URL(server.url);
      url.pathname = `/${name}`;
      return url.href;
    },
    [Symbol.asyncDispose]: async () => {
      // A server that is not the test's own is left as it was.
      for (const name of made) await run(server.url, `DROP DATABASE IF EXISTS ${name} WITH (FORCE)`);
      await server.close();
    },
  };
}
