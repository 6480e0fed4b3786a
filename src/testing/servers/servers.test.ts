import assert from "node:assert/strict";
import { test } from "node:test";
import { Redis } from "ioredis";
import { Client } from "pg";
import { startPostgres } from "./postgres-server.ts";
import { startRedis } from "./redis-server.ts";

test("a real Redis starts, keeps a value, and is gone after close", async () => {
  const server = await startRedis();
  const redis = new Redis(server.url, { lazyConnect: true, retryStrategy: () => null });
  await redis.connect();
  await redis.set("yardmaster:test", "held");
  assert.equal(await redis.get("yardmaster:test"), "held");
  await redis.del("yardmaster:test");
  redis.disconnect();
  await server.close();
  if (process.env["YARDMASTER_TEST_REDIS_URL"] !== undefined) return; // Someone else's server goes on.
  const late = new Redis(server.url, { lazyConnect: true, retryStrategy: () => null });
  late.on("error", () => {});
  await assert.rejects(late.connect());
});

test("a real PostgreSQL starts, answers a query, and is gone after close", async () => {
  const server = await startPostgres();
  const client = new Client({ connectionString: server.url });
  await client.connect();
  const { rows } = await client.query<{ sum: number }>("select 2 + 3 as sum");
  assert.deepEqual(rows, [{ sum: 5 }]);
  await client.end();
  await server.close();
  if (process.env["YARDMASTER_TEST_POSTGRES_URL"] !== undefined) return;
  await assert.rejects(new Client({ connectionString: server.url }).connect());
});
