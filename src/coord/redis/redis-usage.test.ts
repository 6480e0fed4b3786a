import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Redis } from "ioredis";
import { openRedisLink } from "../../testing/redis-links.ts";
import { OwnRedis } from "../../testing/servers/redis-server.ts";
import { aUsageRow, readAll, today, usageStoreSuite } from "../usage/usage-store.conformance.ts";
import type { RedisLink } from "./redis-link.ts";
import { RedisUsage } from "./redis-usage.ts";

const KEEP_DAYS = 100;
let server: OwnRedis;
let admin: Redis;
let link: RedisLink;

before(async () => {
  server = await OwnRedis.start();
  admin = new Redis(server.url);
  link = await openRedisLink(server.url, "t", 5_000);
});

after(async () => {
  link.close();
  admin.disconnect();
  await server.close();
});

usageStoreSuite("in Redis", {
  open: async (bounds) => {
    await admin.flushall();
    return new RedisUsage(link, KEEP_DAYS, bounds);
  },
});

test("every key of usage ends with its day's time, and all lie on one node of a cluster [60.K4]", async () => {
  await admin.flushall();
  const store = new RedisUsage(link, KEEP_DAYS);
  await store.add("a", { seq: 1, rows: [aUsageRow()] });
  const keys = (await admin.keys("*")).toSorted();
  const day = today();
  assert.deepEqual(keys, [`{t:usage}:keys:${day}`, `{t:usage}:sums:${day}:k`, "{t:usage}:told:a"]);
  const end = (day + 1 + KEEP_DAYS) * 86_400_000;
  for (const key of keys.slice(0, 2)) assert.equal(await admin.pexpiretime(key), end);
  assert.ok((await admin.pttl("{t:usage}:told:a")) > 30 * 86_400_000);
});

test("the place has one name for all gateways that count there, and an emptied one is another place [60.K4]", async () => {
  await admin.flushall();
  const [one, two] = [new RedisUsage(link, KEEP_DAYS), new RedisUsage(link, KEEP_DAYS)];
  const ids = await Promise.all([one.id(), two.id(), one.id()]);
  assert.deepEqual(new Set(ids).size, 1);
  await admin.flushall();
  assert.notEqual(await two.id(), ids[0]);
});

test("fields that nobody of us wrote are passed over", async () => {
  await admin.flushall();
  const store = new RedisUsage(link, KEEP_DAYS);
  await store.add("a", { seq: 1, rows: [aUsageRow()] });
  await admin.hset(`{t:usage}:sums:${today()}:k`, { nonsense: "x", "prompt n": "many", " ": "1" });
  assert.deepEqual(await readAll(store), [aUsageRow()]);
});
