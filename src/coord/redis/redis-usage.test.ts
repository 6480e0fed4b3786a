import assert from "node:assert/strict";
import { test } from "node:test";
import { ownRedisLink } from "../../testing/servers/own-redis-link.ts";
import { aUsageRow, readAll, today, usageStoreSuite } from "../usage/usage-store.conformance.ts";
import { RedisUsage } from "./redis-usage.ts";

const KEEP_DAYS = 100;
const redis = ownRedisLink();

usageStoreSuite("in Redis", {
  open: async (bounds) => {
    await redis.admin.flushall();
    return new RedisUsage(redis.link, KEEP_DAYS, bounds);
  },
});

test("every key of usage ends with its day's time, and all lie on one node of a cluster [60.K4]", async () => {
  await redis.admin.flushall();
  const store = new RedisUsage(redis.link, KEEP_DAYS);
  await store.add("a", { seq: 1, rows: [aUsageRow()] });
  const keys = (await redis.admin.keys("*")).toSorted();
  const day = today();
  assert.deepEqual(keys, [`{t:usage}:keys:${day}`, `{t:usage}:sums:${day}:k`, "{t:usage}:told:a"]);
  const end = (day + 1 + KEEP_DAYS) * 86_400_000;
  for (const key of keys.slice(0, 2)) assert.equal(await redis.admin.pexpiretime(key), end);
  assert.ok((await redis.admin.pttl("{t:usage}:told:a")) > 30 * 86_400_000);
});

test("the place has one name for all gateways that count there, and an emptied one is another place [60.K4]", async () => {
  await redis.admin.flushall();
  const [one, two] = [new RedisUsage(redis.link, KEEP_DAYS), new RedisUsage(redis.link, KEEP_DAYS)];
  const ids = await Promise.all([one.id(), two.id(), one.id()]);
  assert.deepEqual(new Set(ids).size, 1);
  await redis.admin.flushall();
  assert.notEqual(await two.id(), ids[0]);
});

test("fields that nobody of us wrote are passed over", async () => {
  await redis.admin.flushall();
  const store = new RedisUsage(redis.link, KEEP_DAYS);
  await store.add("a", { seq: 1, rows: [aUsageRow()] });
  await redis.admin.hset(`{t:usage}:sums:${today()}:k`, { nonsense: "x", "prompt n": "many", " ": "1" });
  assert.deepEqual(await readAll(store), [aUsageRow()]);
});
