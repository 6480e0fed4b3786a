import assert from "node:assert/strict";
import { test } from "node:test";
import { Redis } from "ioredis";
import { linkPorts, openRedisLink } from "../../testing/redis-links.ts";
import { OwnRedis } from "../../testing/servers/redis-server.ts";
import { within } from "../../testing/wait-for.ts";
import { RedisWatch } from "./redis-watch.ts";

test("an emptied store is noticed also by the gateway that is the first at it, as it was at the one before [80.R4]", async () => {
  await using server = await OwnRedis.start();
  const link = await openRedisLink(server.url, "t", 5_000);
  const emptied = Promise.withResolvers<void>();
  const watch = new RedisWatch(link, "alone", 15_000, { ...linkPorts(), onEmptied: () => emptied.resolve() });
  const admin = new Redis(server.url);
  try {
    await watch.open();
    await admin.flushall();
    await within("word of the loss", emptied.promise);
    assert.equal(await admin.exists("{t}:boot"), 1);
  } finally {
    admin.disconnect();
    watch.close();
    link.close();
  }
});
