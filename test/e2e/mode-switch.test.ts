import assert from "node:assert/strict";
import { test } from "node:test";
import { Redis } from "ioredis";
import { systemClock } from "../../src/kernel/clock.ts";
import { OwnRedis } from "../../src/testing/servers/redis-server.ts";
import { anEngine } from "./support/an-engine.ts";
import { aTask, call, errorCodeOf, startCall } from "./support/calls.ts";
import { aChat, accepted, ask, ended, jobOf } from "./support/jobs.ts";
import { reach } from "./support/program.ts";
import { SupervisedGateway } from "./support/supervised-gateway.ts";

// The rehearsal of moving a gateway from one mode to the other and back, with work in flight, as an operator does it: one line
// of the file, and a restart. Real processes, a real Redis.

const SWITCH_MS_MAX = 60_000;

async function withWorld(
  use: (gateway: SupervisedGateway, at: ReturnType<typeof reach>, redis: Redis) => Promise<void>,
): Promise<void> {
  await using engine = await anEngine({ slots: 16, decodeTps: 50 });
  await using server = await OwnRedis.start();
  await using gateway = await SupervisedGateway.start({
    redis_url: server.url,
    coordination_timeout_ms: 3_000,
    drain_s: 20,
    upstreams: [{ id: "u", models: ["m"], engine: "vllm", slots: 8, endpoints: [{ url: engine.url }] }],
  });
  const redis = new Redis(server.url, { retryStrategy: () => null });
  try {
    await use(gateway, reach(gateway.port), redis);
  } finally {
    redis.disconnect();
  }
}

const order = (tokens: number): Record<string, unknown> => ({
  model: "m",
  path: "/v1/chat/completions",
  body: aChat({ tokens }),
});
const MANY_TOKENS = 400; // Eight seconds.

/** Changes the mode while a person's stream is under way, which is to end well; how long it took. */
async function moveTo(
  gateway: SupervisedGateway,
  at: ReturnType<typeof reach>,
  mode: "local" | "redis",
): Promise<void> {
  const stream = startCall(at, { body: aTask({ tokens: 100 }) });
  await stream.received("data:");
  const startedAt = systemClock.mono();
  await gateway.moveTo(mode);
  assert.ok(systemClock.mono() - startedAt < SWITCH_MS_MAX);
  assert.match(gateway.out, new RegExp(`coordination=${mode} `));
  const { whole, text } = await stream.answer;
  assert.ok(whole && text.includes("[DONE]"));
  assert.equal((await call(at, { body: aTask() })).status, 200);
}

const codeFor = async (at: ReturnType<typeof reach>, id: string): Promise<string> => {
  const answer = await ask(at, `/${id}`);
  return `${answer.status} ${errorCodeOf(answer.text) ?? ""}`;
};

test("from local to redis and back with work in flight: streams end well, jobs wait where they were made and go on there, and each mode tells of the other's [20.M1]", async () => {
  await withWorld(async (gateway, at, redis) => {
    const done = await accepted(at, order(2));
    await ended(at, done.id);
    const running = await accepted(at, order(MANY_TOKENS));

    await moveTo(gateway, at, "redis");
    assert.equal(await codeFor(at, done.id), "409 JOB_IN_OTHER_STORE");
    assert.equal(await codeFor(at, running.id), "409 JOB_IN_OTHER_STORE");
    assert.equal(await codeFor(at, "job_never_given"), "404 JOB_UNKNOWN");
    const there = await accepted(at, order(2));
    assert.equal((await ended(at, there.id)).state, "completed");
    const left = await accepted(at, order(MANY_TOKENS));

    await moveTo(gateway, at, "local");
    assert.equal(await codeFor(at, there.id), "409 JOB_IN_OTHER_STORE");
    assert.equal(await codeFor(at, left.id), "409 JOB_IN_OTHER_STORE");
    assert.equal((await jobOf(at, done.id)).state, "completed");
    assert.equal((await ended(at, running.id)).state, "completed"); // Handed back at the stop, driven on from here.

    // Nobody is there to clean up: each key that jobs have left ends by itself.
    const keys = await redis.keys("*jobs*");
    assert.ok(keys.length > 0);
    for (const key of keys) assert.ok((await redis.pttl(key)) > 0, `${key} would stay for ever`);
  });
});

test("from redis to local and back: what was left unfinished in Redis is finished on return [20.M1]", async () => {
  await withWorld(async (gateway, at) => {
    await gateway.moveTo("redis");
    const running = await accepted(at, order(MANY_TOKENS));
    await moveTo(gateway, at, "local");
    assert.equal(await codeFor(at, running.id), "409 JOB_IN_OTHER_STORE");
    await moveTo(gateway, at, "redis");
    assert.equal((await ended(at, running.id)).state, "completed");
  });
});
