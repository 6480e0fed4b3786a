import assert from "node:assert/strict";
import { after, test } from "node:test";
import { openRedisLink } from "../../testing/redis-links.ts";
import { OwnRedis, startRedis } from "../../testing/servers/redis-server.ts";
import { FILE_LIMITS, fileStoreSuite } from "../files/file-store.conformance.ts";
import type { FileLimits, FileStore } from "../files/file-store.ts";
import { RedisFileStore } from "./redis-file-store.ts";
import type { RedisLink } from "./redis-link.ts";

const server = await startRedis();
const links: RedisLink[] = [];
after(async () => {
  for (const link of links) link.close();
  await server.close();
});

let prefixes = 0;

async function open(url: string, keyPrefix: string, limits: Partial<FileLimits> = {}): Promise<FileStore> {
  const [link, bytesLink] = await Promise.all([
    openRedisLink(url, keyPrefix, 2_000),
    openRedisLink(url, keyPrefix, 2_000),
  ]);
  links.push(link, bytesLink);
  return new RedisFileStore({ link, bytesLink, limits: { ...FILE_LIMITS, ...limits } });
}

fileStoreSuite("a real Redis", () => {
  const keyPrefix = `f${process.pid}-${(prefixes += 1)}`;
  return Promise.resolve({ open: (limits) => open(server.url, keyPrefix, limits) });
});

test("every key of a file lives for a time, and one that has gone by itself is no longer counted [20.J7 20.S7]", async () => {
  await using own = await OwnRedis.start();
  const store = await open(own.url, "p");
  const link = links.at(-1) as RedisLink;
  const place = { kind: "batch", keyId: "k", shown: true, open: true, expiresAt: (await store.now()) - 1 } as const;
  await store.create("batch_a", "a", place);
  await store.putPiece("batch_a", "x.0", Buffer.from("bytes"), true);
  const command = async (name: string, args: readonly string[]): Promise<unknown> => {
    const outcome = await link.command(name, args);
    return outcome.kind === "reply" ? outcome.reply : outcome;
  };
  for (const key of (await command("KEYS", ["*:files}:*"])) as string[])
    assert.ok(Number(await command("PTTL", [key])) > 0, key);
  await command("DEL", ["{p:files}:doc:batch_a", "{p:files}:bytes:batch_a"]);
  await store.sweep();
  assert.deepEqual(await store.totals(), { docs: 0, bytes: 0 });
  assert.deepEqual(await store.open(10), []);
  await store.close();
});
