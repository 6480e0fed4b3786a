import assert from "node:assert/strict";
import { after, test } from "node:test";
import { Redis } from "ioredis";
import { OwnRedis } from "../../src/testing/servers/redis-server.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { IDEMPOTENCY_WORLD, idempotencySuite } from "./idempotent-replay.conformance.ts";
import type { CallAnswer } from "./support/calls.ts";
import { CACHE_WORLD, cacheSuite } from "./response-cache.conformance.ts";
import { chatBody, ReplayWorld, type ReplayWorldOptions } from "./support/replay-world.ts";

// The same promises on two gateways that share what they keep, and what is left of them while the server is away.

const server = await OwnRedis.start();
after(() => server.close());

let prefixes = 0;
/** Two gateways on one server; the time of a step is for a loaded machine. */
const shared = (options: ReplayWorldOptions, over: Readonly<Record<string, unknown>> = {}): Promise<ReplayWorld> =>
  ReplayWorld.open({
    ...options,
    gateways: 2,
    file: {
      ...options.file,
      coordination: "redis",
      redis_url: server.url,
      coordination_timeout_ms: 2_000,
      key_prefix: `t${++prefixes}`,
      ...over,
    },
  });

idempotencySuite("two gateways", () => shared(IDEMPOTENCY_WORLD));
cacheSuite("two gateways", () => shared(CACHE_WORLD));
cacheSuite("two gateways with a database for caches", () =>
  shared(CACHE_WORLD, { cache_redis_url: server.url.replace(/0$/, "1") }),
);

async function setMemory(url: string, bytes: string): Promise<void> {
  const client = new Redis(url);
  await client.config("SET", "maxmemory", bytes);
  client.disconnect();
}
const isProtected = (answer: CallAnswer): boolean => answer.headers["x-yardmaster-idempotency"] === undefined;
const isReplay = (answer: CallAnswer): boolean => answer.headers["idempotent-replayed"] === "true";
const CACHED = { cache: { ttl_s: 60 } };
const keyed = (key: string) => ({ body: chatBody({ temperature: 0 }), headers: { "idempotency-key": key } });

test("the way to the shared memory is open before the first call with a key needs it: that call spends no time of its own on a connection [20.I1]", async () => {
  await using own = await OwnRedis.start();
  await using caches = await OwnRedis.start();
  const connections = async ({ url }: OwnRedis): Promise<number> => {
    const client = new Redis(url);
    const found = /connected_clients:(\d+)/.exec(await client.info("clients"));
    client.disconnect();
    return Number(found?.[1]) - 1;
  };
  const world = await shared({ upstream: CACHED }, { redis_url: own.url, cache_redis_url: caches.url });
  try {
    // Of each gateway: one for the caches; and here five of its coordination, jobs, files and records, and one for the answers.
    await eventually(
      "the ways to the caches",
      () => connections(caches),
      (count) => count === 2,
    );
    await eventually(
      "all ways to Redis",
      () => connections(own),
      (count) => count === 12,
    );
  } finally {
    await world.close();
  }
});

test("while the shared memory is frozen calls go on within its deadline, say that they are not protected, and are protected again when it is back [20.I1 20.I2 80.R1]", async () => {
  await using own = await OwnRedis.start();
  const deadlineMs = 500;
  const world = await shared({ upstream: CACHED }, { redis_url: own.url, coordination_timeout_ms: deadlineMs });
  try {
    for (const i of [1, 2]) await eventually(`gateway ${i}`, () => world.call(keyed("first")), isProtected);
    own.pause();
    const frozen = await world.call(keyed("first"));
    assert.equal(frozen.status, 200);
    assert.equal(frozen.headers["x-yardmaster-idempotency"], "unprotected");
    assert.equal(frozen.headers["x-yardmaster-cache"], "unavailable");
    // Each gateway needs a few failures to stop asking; from then on nobody waits for the server.
    const took: number[] = [];
    for (let i = 0; i < 20; i += 1) {
      const answer = await world.call(keyed(`frozen-${i}`));
      assert.equal(answer.status, 200);
      assert.equal(answer.headers["x-yardmaster-idempotency"], "unprotected");
      took.push(answer.tookMs);
    }
    assert.ok(took.filter((ms) => ms > 0.9 * deadlineMs).length <= 8, `${took.map(Math.round).join(" ")} ms`);
    assert.ok((await world.metric('yardmaster_idempotency_requests_total{result="unprotected"}')) >= 21);
    own.resume();
    await eventually("the first answer again", () => world.call(keyed("first")), isReplay);
    const lines = world.gateways.flatMap(({ logLines }) => logLines.filter((line) => line.includes("replies.link")));
    assert.ok(lines.length >= 2 && lines.length <= 10, `${lines.length} lines`);
  } finally {
    await world.close();
  }
});

test("a call that begins as Redis stops answering waits for it one deadline, though it asks for its key, the cache and a slot [80.R1 80.C9]", async () => {
  await using own = await OwnRedis.start();
  const deadlineMs = 2_000;
  const world = await shared({ upstream: CACHED }, { redis_url: own.url, coordination_timeout_ms: deadlineMs });
  try {
    for (const i of [1, 2]) await eventually(`gateway ${i}`, () => world.call(keyed("first")), isProtected);
    own.pause();
    // One at each gateway, and each with a key and content of its own.
    const answers = await Promise.all(
      [1, 2].map((i) =>
        world.call({ ...keyed(`moment-${i}`), body: chatBody({ temperature: 0, user: `moment-${i}` }) }),
      ),
    );
    for (const { status, headers, tookMs } of answers) {
      assert.equal(status, 200);
      assert.equal(headers["x-yardmaster-idempotency"], "unprotected");
      assert.equal(headers["x-yardmaster-cache"], "unavailable");
      assert.ok(tookMs >= deadlineMs - 5 && tookMs < 1.6 * deadlineMs, `${tookMs} ms`);
    }
    own.resume();
  } finally {
    await world.close();
  }
});

test("of many equal requests while the shared memory is frozen each gateway lets one through, and gives its answer to the others [20.I1 20.I2 80.G16]", async () => {
  await using own = await OwnRedis.start();
  const world = await shared({ upstream: CACHED }, { redis_url: own.url, coordination_timeout_ms: 200 });
  try {
    for (const i of [1, 2]) await eventually(`gateway ${i}`, () => world.call(keyed("first")), isProtected);
    own.pause();
    for (const options of [keyed("frozen"), { body: chatBody({ temperature: 0, user: "another" }) }]) {
      const before = world.asked;
      const held: (() => void)[] = [];
      const both = Promise.withResolvers<void>();
      const numbered = world.answer;
      world.answer = (got, count) => {
        held.push(() => numbered(got, count));
        if (held.length === world.gateways.length) both.resolve();
      };
      const calls = Array.from({ length: 60 }, () => world.start(options));
      await both.promise;
      world.answer = numbered;
      for (const release of held) release();
      const answers = await Promise.all(calls.map(({ answer }) => answer));
      assert.deepEqual(new Set(answers.map(({ status }) => status)), new Set([200]));
      assert.equal(world.asked, before + 2);
      assert.equal(new Set(answers.map(({ text }) => text)).size, 2);
    }
  } finally {
    await world.close();
  }
});

test("a gateway that starts without the shared memory serves, and protects when it comes [20.I1 80.R3]", async () => {
  await using own = await OwnRedis.start();
  await own.kill();
  const world = await shared({ upstream: CACHED }, { redis_url: own.url, coordination_timeout_ms: 200 });
  try {
    const early = await world.call(keyed("early"));
    assert.equal(early.status, 200);
    assert.equal(early.headers["x-yardmaster-idempotency"], "unprotected");
    await own.again();
    await eventually("protection", () => world.call(keyed("later")), isProtected);
    await eventually("a replay at either gateway", () => world.call(keyed("later")), isReplay);
  } finally {
    await world.close();
  }
});

test("a full memory makes no call fail and leaves no claim behind [80.R6]", async () => {
  await using own = await OwnRedis.start();
  const world = await shared({}, { redis_url: own.url });
  const held = Promise.withResolvers<() => void>();
  try {
    await eventually("protection", () => world.call(keyed("first")), isProtected);
    const numbered = world.answer;
    world.answer = (got, count) => held.resolve(() => numbered(got, count));
    const running = world.start(keyed("full"));
    const release = await held.promise;
    await setMemory(own.url, "100kb");
    world.answer = numbered;
    release();
    assert.equal((await running.answer).status, 200);
    const during = await world.call(keyed("full"));
    assert.equal(during.status, 200);
    await setMemory(own.url, "0");
    await eventually("the key to be free", () => world.call(keyed("full")), isProtected);
    await eventually("its answer", () => world.call(keyed("full")), isReplay);
  } finally {
    await world.close();
  }
});

test("a cache of its own that throws answers away takes nothing from the keys' memory [20.I2 80.I9]", async () => {
  await using cacheServer = await OwnRedis.start(["--maxmemory", "6mb", "--maxmemory-policy", "allkeys-lru"]);
  const world = await shared(
    { upstream: { cache: { ttl_s: 60, max_bytes: 100_000_000 } } },
    { cache_redis_url: cacheServer.url },
  );
  try {
    const first = await world.call(keyed("kept"));
    const large = "x".repeat(300_000);
    for (let i = 0; i < 60; i += 1) {
      const answer = await world.call({ body: chatBody({ temperature: 0, user: `${i}`, metadata: { large } }) });
      assert.equal(answer.status, 200);
    }
    const again = await world.call({ ...keyed("kept"), body: chatBody({ temperature: 0 }) });
    assert.equal(again.headers["idempotent-replayed"], "true");
    assert.equal(again.text, first.text);
  } finally {
    await world.close();
  }
});
