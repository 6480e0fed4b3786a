import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { systemClock } from "../../kernel/clock.ts";
import { linkPorts, openRedisLink } from "../../testing/redis-links.ts";
import { OwnRedis } from "../../testing/servers/redis-server.ts";
import { eventually } from "../../testing/wait-for.ts";
import { CONFORMANCE_BYTES_MAX, replyStoreSuite } from "../reply-store.conformance.ts";
import { RedisReplies } from "./redis-replies.ts";
import { RedisSubscriber } from "./subscriber.ts";

let server: OwnRedis;
before(async () => {
  server = await OwnRedis.start();
});
after(() => server.close());

let worlds = 0;
const newPrefix = (): string => `t${++worlds}`;

/** A store as one gateway has it. The time of a step is for a loaded machine. */
async function openStore(keyPrefix: string, url = server.url, timeoutMs = 3_000) {
  const link = await openRedisLink(url, keyPrefix, timeoutMs);
  const subscriber = new RedisSubscriber(link, linkPorts());
  const store = new RedisReplies({
    link,
    subscriber,
    clock: systemClock,
    purpose: "replies",
    bytesMax: CONFORMANCE_BYTES_MAX,
  });
  await eventually(
    "the store to listen",
    () => link.command("PUBSUB", ["NUMSUB", `{${keyPrefix}:replies}:ended`]),
    (said) => said.kind === "reply" && Number((said.reply as readonly unknown[])[1]) > 0,
  );
  const close = async (): Promise<void> => {
    await store.close();
    subscriber.close();
    link.close();
  };
  return { link, store, close, [Symbol.asyncDispose]: close };
}

const never = new AbortController().signal;
replyStoreSuite("in Redis", async () => {
  const prefix = newPrefix();
  const [one, other] = await Promise.all([openStore(prefix), openStore(prefix)]);
  return {
    one: one.store,
    other: other.store,
    // The server's own time is what is asked about, and it can't be moved.
    pass: (ms) => systemClock.sleep(ms, never),
    close: async () => {
      await Promise.all([one.close(), other.close()]);
    },
  };
});

const claim = (key: string, owner: string) => ({ key, lane: "", owner });
const aReply = (bytes: number) =>
  ({ kind: "answer", status: 200, headers: [], body: Buffer.alloc(bytes, 120) }) as const;

test("every key of the store is under its prefix in one hash tag, and ends by itself [80.I9]", async () => {
  const prefix = newPrefix();
  await using opened = await openStore(prefix);
  const { store, link } = opened;
  for (let i = 0; i < 20; i += 1) {
    await store.begin(claim(`k${i}`, "a"), "f", 60_000);
    if (i % 2 === 0) await store.finish(claim(`k${i}`, "a"), "f", aReply(100), 60_000);
  }
  const scanned = await link.command("SCAN", ["0", "COUNT", "10000", "MATCH", `*${prefix}*`]);
  assert.equal(scanned.kind, "reply");
  const keys = (scanned.kind === "reply" ? (scanned.reply as [string, string[]])[1] : []) as string[];
  assert.equal(keys.length, 22);
  for (const key of keys) {
    assert.ok(key.startsWith(`{${prefix}:replies}:`), key);
    const ttl = await link.command("PTTL", [key]);
    assert.ok(ttl.kind === "reply" && Number(ttl.reply) > 0 && Number(ttl.reply) <= 60_000, key);
  }
});

test("a server without memory refuses questions and answers, and takes claims back [80.R6]", async () => {
  await using full = await OwnRedis.start();
  await using opened = await openStore("full", full.url);
  const { store, link } = opened;
  await store.begin(claim("k", "a"), "f", 60_000);
  assert.equal((await link.command("CONFIG", ["SET", "maxmemory", "100kb"])).kind, "reply");
  await assert.rejects(store.finish(claim("k", "a"), "f", aReply(1_000), 60_000));
  await assert.rejects(store.begin(claim("l", "a"), "f", 60_000));
  assert.deepEqual(await store.renew([claim("k", "a")], 60_000), [true]);
  await store.drop(claim("k", "a"));
  assert.deepEqual(await store.renew([claim("k", "a")], 60_000), [false]);
});

test("a question that is read after its asker gave up leaves no claim behind [20.I1]", async () => {
  await using slow = await OwnRedis.start();
  await using opened = await openStore("slow", slow.url, 300);
  const { store } = opened;
  await eventually(
    "a first answer",
    () => store.begin(claim("first", "a"), "f", 60_000).catch(() => null),
    (said) => said !== null,
  );
  slow.pause();
  await assert.rejects(store.begin(claim("late", "a"), "f", 60_000));
  await systemClock.sleep(300, never);
  slow.resume();
  await eventually(
    "the next caller to get the claim",
    () => store.begin(claim("late", "b"), "f", 60_000).catch(() => null),
    (said) => said?.kind === "taken",
  );
});

test("a server that forgot everything is a store without answers, and what was running can't be kept under a claim that is gone", async () => {
  await using forgetful = await OwnRedis.start();
  await using opened = await openStore("forgetful", forgetful.url);
  const { store, link } = opened;
  await store.begin(claim("k", "a"), "f", 60_000);
  await store.begin(claim("done", "a"), "f", 60_000);
  await store.finish(claim("done", "a"), "f", aReply(10), 60_000);
  assert.equal((await link.command("FLUSHALL", [])).kind, "reply");
  assert.equal(await store.finish(claim("k", "a"), "f", aReply(10), 60_000), "lost");
  assert.equal((await store.begin(claim("done", "b"), "f", 60_000)).kind, "taken");
  assert.equal(await store.finish(claim("done", "b"), "f", aReply(10), 60_000), "kept");
});
