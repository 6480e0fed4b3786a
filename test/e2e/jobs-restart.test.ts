import assert from "node:assert/strict";
import { mkdir, rename, rmdir } from "node:fs/promises";
import { join } from "node:path";
import { after, before, beforeEach, test } from "node:test";
import { Redis } from "ioredis";
import { systemClock } from "../../src/kernel/clock.ts";
import type { SimEngine } from "../../src/sim-engine/sim-engine.ts";
import { OwnRedis } from "../../src/testing/servers/redis-server.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { anEngine } from "./support/an-engine.ts";
import { call, errorCodeOf } from "./support/calls.ts";
import { aChat, aDataDir, accepted, ask, ended, jobOf, submit } from "./support/jobs.ts";
import { entriesOf } from "./support/ledger-check.ts";
import { shareFile } from "./support/shared-world.ts";
import { startTestGateway, type TestGateway } from "./support/test-gateway.ts";

// Gateways that stop and start, and stores that are away, full, emptied or the other one.

let engine: SimEngine;
before(async () => {
  engine = await anEngine();
});
beforeEach(() => engine.resetLedger());
after(() => engine.close());

const NEVER = new AbortController().signal;
/** A job that nobody hands back is taken over when its claim has lapsed, after 30 s. */
const HALF_A_CLAIM_MS = 15_000;
const start = (file: Record<string, unknown>, batchMax = 8): Promise<TestGateway> =>
  startTestGateway({
    file,
    upstreams: [
      {
        id: "u",
        models: ["m"],
        engine: "vllm",
        slots: 16,
        batch_max: batchMax,
        retry: { attempts: 0 },
        endpoints: [{ url: engine.url }],
      },
    ],
  });
const running = (count: number): Promise<unknown> =>
  eventually(
    `${count} calls at the engine`,
    () => engine.ledger().concurrentNow,
    (now) => now === count,
  );

async function command(server: OwnRedis, name: string, ...args: string[]): Promise<unknown> {
  const client = new Redis(server.url, { lazyConnect: true, retryStrategy: () => null });
  await client.connect();
  try {
    return await client.call(name, args);
  } finally {
    client.disconnect();
  }
}

test("a gateway that is told to stop hands its job back at once, and another goes on with it, no attempt counted [20.J10 80.G2]", async () => {
  await using server = await OwnRedis.start();
  const first = await start(shareFile(server.url));
  const second = await start(shareFile(server.url));
  const job = await accepted(first, { body: aChat({ delayHeadMs: 1_500 }) });
  await running(1);
  const holder = (await first.health()).jobs.running === 1 ? first : second;
  const other = holder === first ? second : first;
  try {
    const startedAt = systemClock.mono();
    await holder.gateway.stop(NEVER);
    assert.ok(systemClock.mono() - startedAt < 5_000, "the stop does not wait for the job");
    await eventually(
      "the other gateway to have it",
      () => jobOf(other, job.id),
      ({ state, plan }) => state === "running" && plan.some(({ what }) => what === "handed_back"),
      HALF_A_CLAIM_MS,
    );
    const done = await ended(other, job.id);
    assert.deepEqual([done.state, done.attempts], ["completed", 1]);
    const calls = entriesOf(engine.ledger().entries, "job");
    assert.deepEqual(
      calls.map(({ end }) => end),
      ["aborted", "finished"],
    );
  } finally {
    await other.stop();
  }
});

test("a job that was running when its gateway stopped, and those behind it, are done after the next start [20.J4 20.J10]", async () => {
  await using dir = await aDataDir();
  const file = { data_dir: dir.path };
  const before = await start(file, 1);
  const jobs = [await accepted(before, { body: aChat({ delayHeadMs: 800 }) })];
  for (let i = 0; i < 5; i += 1) jobs.push(await accepted(before, { body: aChat() }));
  await running(1);
  await before.gateway.stop(NEVER);
  const later = await start(file, 1);
  try {
    for (const { id } of jobs) {
      const done = await ended(later, id);
      assert.deepEqual([done.state, done.attempts], ["completed", 1], JSON.stringify(done.plan));
    }
  } finally {
    await later.stop();
  }
});

test("parts that are done are kept over a restart, and only the others are asked for again [20.J6]", async () => {
  await using dir = await aDataDir();
  const before = await start({ data_dir: dir.path, jobs: { fanout_max: 4 } });
  const parts = Array.from({ length: 12 }, (_, i) => ({
    body: aChat({ delayHeadMs: i < 8 ? 0 : 2_500 }, `p${i}`),
  }));
  const job = await accepted(before, { parts });
  await eventually(
    "eight parts",
    () => jobOf(before, job.id),
    ({ progress }) => progress.done === 8,
  );
  await before.gateway.stop(NEVER);
  const later = await start({ data_dir: dir.path });
  try {
    assert.deepEqual((await ended(later, job.id)).progress, { done: 12, total: 12 });
    const { entries } = engine.ledger();
    for (let i = 0; i < 8; i += 1) assert.equal(entriesOf(entries, `p${i}`).length, 1, `part ${i}`);
  } finally {
    await later.stop();
  }
});

test("while Redis is away a submit is 503 at once, what runs goes on, and its result is there when Redis is back [20.J4 80.R3]", async () => {
  await using server = await OwnRedis.start();
  const deadlineMs = 500;
  const gateway = await start(shareFile(server.url, { coordination_timeout_ms: deadlineMs }));
  try {
    const job = await accepted(gateway, { body: aChat({ delayHeadMs: 1_000 }) });
    await running(1);
    server.pause();
    const times: number[] = [];
    for (let i = 0; i < 5; i += 1) {
      const answer = await submit(gateway, { body: aChat() });
      assert.deepEqual([answer.status, errorCodeOf(answer.text)], [503, "JOB_STORE_UNAVAILABLE"]);
      assert.ok(Number(answer.headers["retry-after"]) >= 1);
      times.push(answer.tookMs);
    }
    assert.ok(Math.max(...times) < 4 * deadlineMs, times.join());
    await eventually(
      "the engine's answer",
      () => engine.ledger().finished,
      (count) => count === 1,
    );
    server.resume();
    const done = await ended(gateway, job.id);
    assert.deepEqual([done.state, done.attempts], ["completed", 1]);
    assert.equal(entriesOf(engine.ledger().entries, "job").length, 1, "nothing that was refused was run later");
  } finally {
    await gateway.stop();
  }
});

test("a Redis whose memory is full accepts nothing, at once and not by half, and lets running jobs end [80.R6]", async () => {
  await using server = await OwnRedis.start();
  const deadlineMs = 5_000;
  const gateway = await start(shareFile(server.url, { coordination_timeout_ms: deadlineMs }));
  try {
    const job = await accepted(gateway, { body: aChat({ delayHeadMs: 700 }) });
    await running(1);
    await command(server, "CONFIG", "SET", "maxmemory", "1");
    const before = await command(server, "DBSIZE");
    for (let i = 0; i < 5; i += 1) {
      const answer = await submit(gateway, { body: aChat() });
      assert.deepEqual([answer.status, errorCodeOf(answer.text)], [503, "JOB_STORE_UNAVAILABLE"]);
      assert.ok(answer.tookMs < deadlineMs / 2, `${answer.tookMs} ms`);
    }
    assert.equal(await command(server, "DBSIZE"), before);
    await eventually(
      "the engine's answer",
      () => engine.ledger().finished,
      (count) => count === 1,
    );
    await command(server, "CONFIG", "SET", "maxmemory", "0");
    assert.equal((await ended(gateway, job.id)).state, "completed");
    assert.equal(entriesOf(engine.ledger().entries, "job").length, 1);
  } finally {
    await gateway.stop();
  }
});

test("a Redis that throws away what it holds gets no jobs, and the answer says what to change [80.R7]", async () => {
  await using server = await OwnRedis.start(["--maxmemory-policy", "allkeys-lru"]);
  const gateway = await start(shareFile(server.url));
  try {
    const answer = await submit(gateway, { body: aChat() });
    assert.deepEqual([answer.status, errorCodeOf(answer.text)], [503, "JOB_STORE_UNAVAILABLE"]);
    assert.match(answer.text, /maxmemory-policy noeviction/);
  } finally {
    await gateway.stop();
  }
});

test("ids of an emptied store are 410 STORE_LOST and never a silent 404; the loss is an event, and new jobs go on [20.J4]", async () => {
  await using server = await OwnRedis.start();
  const gateway = await start(shareFile(server.url));
  try {
    const lost = [];
    for (let i = 0; i < 5; i += 1) lost.push(await accepted(gateway, { body: aChat() }));
    for (const { id } of lost) await ended(gateway, id);
    await command(server, "FLUSHALL");
    for (const { id } of lost) {
      const atOnce = await ask(gateway, `/${id}`);
      assert.deepEqual([atOnce.status, errorCodeOf(atOnce.text)], [410, "STORE_LOST"]);
    }
    await eventually(
      "word of the loss",
      () => gateway.metric("yardmaster_job_store_lost_total"),
      (count) => count === 1,
    );
    await eventually(
      "a line about it",
      () => gateway.logLines.some((line) => line.includes("jobs.store_lost")),
      (is) => is,
    );
    for (const { id } of lost) {
      const answer = await ask(gateway, `/${id}`);
      assert.deepEqual([answer.status, errorCodeOf(answer.text)], [410, "STORE_LOST"]);
    }
    const fresh = await accepted(gateway, { body: aChat() });
    assert.equal((await ended(gateway, fresh.id)).state, "completed");
    const never = await ask(gateway, `/${fresh.id.slice(0, -22)}${"A".repeat(22)}`);
    assert.deepEqual([never.status, errorCodeOf(never.text)], [404, "JOB_UNKNOWN"]);
  } finally {
    await gateway.stop();
  }
});

test("a gateway that can't open its store of jobs serves calls, says 503 for jobs, and goes on with them when it can [20.J4 80.I8]", async () => {
  await using dir = await aDataDir();
  const local = { data_dir: dir.path };
  const first = await start(local);
  const job = await accepted(first, { body: aChat() });
  await ended(first, job.id);
  await first.gateway.stop(NEVER);
  const file = join(dir.path, "jobs.db");
  await rename(file, `${file}.away`);
  await mkdir(file);
  const second = await start(local);
  try {
    assert.equal((await call(second, { body: aChat() })).status, 200);
    const away = await ask(second, `/${job.id}`);
    assert.deepEqual([away.status, errorCodeOf(away.text)], [503, "JOB_STORE_UNAVAILABLE"]);
    await rmdir(file);
    await rename(`${file}.away`, file);
    await eventually(
      "the gateway to open it by itself",
      () => second.logLines.some((line) => line.includes("jobs.store") && line.includes("back")),
      (is) => is,
    );
    assert.equal((await jobOf(second, job.id)).state, "completed");
  } finally {
    await second.stop();
  }
});

test("after a change of coordination a job of the other store is reported as such, and is there again after the way back [20.J4]", async () => {
  await using server = await OwnRedis.start();
  await using dir = await aDataDir();
  const local = { data_dir: dir.path };
  const shared = shareFile(server.url, { data_dir: dir.path });
  const first = await start(local);
  const mine = await accepted(first, { body: aChat() });
  await ended(first, mine.id);
  await first.gateway.stop(NEVER);
  const second = await start(shared);
  const theirs = await accepted(second, { body: aChat() });
  await ended(second, theirs.id);
  const elsewhere = await ask(second, `/${mine.id}`);
  assert.deepEqual([elsewhere.status, errorCodeOf(elsewhere.text)], [409, "JOB_IN_OTHER_STORE"]);
  await second.gateway.stop(NEVER);
  const third = await start(local);
  try {
    assert.equal((await jobOf(third, mine.id)).state, "completed");
    assert.equal(errorCodeOf((await ask(third, `/${theirs.id}`)).text), "JOB_IN_OTHER_STORE");
  } finally {
    await third.stop();
  }
});
