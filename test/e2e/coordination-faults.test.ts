import assert from "node:assert/strict";
import { test } from "node:test";
import { systemClock } from "../../src/kernel/clock.ts";
import { FaultProxy } from "../../src/testing/fault-proxy.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { aTask, call, startCall, type CallAnswer, type LiveCall } from "./support/calls.ts";
import { peakOf } from "./support/ledger-check.ts";
import { seasonStore, withSharedWorld, type SharedWorld } from "./support/shared-world.ts";
import type { TestGateway } from "./support/test-gateway.ts";

// Redis in every bad state, seen from clients and from the engine's ledger. Times are the gateway's own
// (`x-yardmaster-queue-ms`); `npm run bench` gives the figures, here a busy machine must not look like a fault.
// Half of the shortest time that a call would wait if Redis were waited for.
const WAITED_MS_MAX = 1_500;

const never = new AbortController().signal;
const short = aTask({ tokens: 2, delayBetweenMs: 5 });

/** Where Redis is frozen or slow, that is soon seen; and a busy machine is not yet either. */
const DEADLINE_MS = 500;
const hasty = { coordination_timeout_ms: DEADLINE_MS };

/** Calls at a steady pace over all gateways until stopped; each must end well. */
class Load {
  readonly answers: Promise<CallAnswer>[] = [];
  readonly #off = new AbortController();
  readonly #done: Promise<void>;

  constructor(gateways: readonly TestGateway[], everyMs: number, body = short) {
    this.#done = this.#run(gateways, everyMs, body);
  }

  async #run(gateways: readonly TestGateway[], everyMs: number, body: typeof short): Promise<void> {
    for (let i = 0; !this.#off.signal.aborted; i += 1) {
      const gateway = gateways[i % gateways.length];
      if (gateway !== undefined) this.answers.push(call(gateway, { body }));
      await systemClock.sleep(everyMs, never);
    }
  }

  /** All answers, which must be good ones. */
  async stop(): Promise<readonly CallAnswer[]> {
    this.#off.abort();
    await this.#done;
    const answers = await Promise.all(this.answers);
    const bad = answers.filter(({ status, whole }) => status !== 200 || !whole);
    assert.deepEqual(
      bad.map(({ status, text }) => [status, text]),
      [],
    );
    return answers;
  }
}

const queueMs = (answers: readonly CallAnswer[]): number[] => answers.map((answer) => answer.queueMs ?? Number.NaN);

async function trueCount({ engine, leases }: SharedWorld): Promise<void> {
  await eventually(
    "Redis to count what runs",
    async () => [await leases(), engine.ledger().concurrentNow],
    ([counted, running]) => counted === running,
    20_000,
  );
}

const linkLines = (gateway: TestGateway): string[] =>
  gateway.logLines
    .filter((line) => line.includes("coordination.link"))
    .map((line) => /state"?[=:]"?(\w+)/.exec(line)?.[1] ?? "");

test("Redis is frozen under load: no call fails, none waits longer than the deadline, and after it the count is true [20.S6 80.R1 80.R2 80.I8]", async () => {
  await withSharedWorld({ slots: 64, gateways: 2, file: hasty }, async (world) => {
    const { gateways, redis, all, engine } = world;
    const load = new Load(gateways, 20);
    await systemClock.sleep(500, never);
    redis.pause();
    await all("failed_open");
    await systemClock.sleep(3_000, never);
    redis.resume();
    await all("shared");
    const queued = queueMs(await load.stop());
    assert.ok(Math.max(...queued) <= WAITED_MS_MAX, `${Math.max(...queued)} ms`);
    // Those that began before each gateway knew, and no others.
    const held = queued.filter((ms) => ms > DEADLINE_MS / 2).length;
    assert.ok(held < queued.length / 2, `${held} of ${queued.length} waited`);
    assert.ok(peakOf(engine.ledger().entries) <= 64);
    await trueCount(world);
    for (const gateway of gateways)
      await eventually(
        "one line each way",
        () => linkLines(gateway).join(),
        (lines) => lines === "open,closed",
      );
  });
});

test("streams that run while Redis is frozen and thawed are counted again, and nothing is counted that does not run [80.R2 80.C10]", async () => {
  await withSharedWorld({ slots: 8, gateways: 2, file: hasty }, async (world) => {
    const { gateways, redis, all } = world;
    const streams = gateways.flatMap((gateway) =>
      Array.from({ length: 2 }, () => startCall(gateway, { body: aTask({ tokens: 100_000, delayBetweenMs: 50 }) })),
    );
    await Promise.all(streams.map((one) => one.received("data:")));
    assert.equal(await world.leases(), 4);
    redis.pause();
    const during = gateways.map((gateway) =>
      startCall(gateway, { body: aTask({ tokens: 100_000, delayBetweenMs: 50 }) }),
    );
    await Promise.all(during.map((one) => one.received("data:")));
    await all("failed_open");
    redis.resume();
    await all("shared");
    await eventually("six leases", world.leases, (count) => count === 6);
    for (const one of [...streams, ...during]) one.leave();
    await eventually("no lease", world.leases, (count) => count === 0);
  });
});

test("three gateways that lose Redis in the middle of a crowd keep to six slots together, each to its share [20.S6 80.I3 80.C10]", async () => {
  await withSharedWorld({ slots: 6, gateways: 3 }, async ({ gateways, redis, engine, all }) => {
    const task = aTask({ tokens: 20, delayBetweenMs: 10 });
    const crowd: LiveCall[] = gateways.flatMap((gateway) =>
      Array.from({ length: 60 }, () => startCall(gateway, { body: task, patienceMs: 120_000 })),
    );
    assert.ok(await engine.waitFor((ledger) => ledger.finished >= 12, 60_000));
    await redis.kill();
    await all("failed_open");
    const answers = await Promise.all(crowd.map(({ answer }) => answer));
    assert.ok(answers.every(({ status, whole }) => status === 200 && whole));
    const { entries } = engine.ledger();
    assert.equal(entries.length, 180);
    assert.ok(peakOf(entries) <= 7, `${peakOf(entries)} at the engine, 1.25 times the slots at most`);
    for (const gateway of gateways) assert.deepEqual(linkLines(gateway), ["open"]);
  });
});

test("Redis dies and comes back with its data: the gateways come back within seconds [80.R3]", async () => {
  await withSharedWorld({ slots: 8, gateways: 2, redisArgs: ["--appendonly", "yes"] }, async (world) => {
    const { gateways, redis, all, engine } = world;
    const load = new Load(gateways, 25);
    await systemClock.sleep(300, never);
    await redis.kill();
    await all("failed_open");
    await redis.again();
    const from = systemClock.mono();
    await all("shared");
    const tookMs = systemClock.mono() - from;
    assert.ok(tookMs < 4_000, `${tookMs} ms`);
    await load.stop();
    assert.ok(peakOf(engine.ledger().entries) <= 8);
    await trueCount(world);
  });
});

test("Redis comes back empty with all slots taken: what runs is told first, and the engine never sees more than the slots [80.R4]", async () => {
  await withSharedWorld({ slots: 6, gateways: 3, file: { lease_ttl_s: 6 } }, async (world) => {
    const { gateways, redis, all, engine } = world;
    const streams = gateways.flatMap((gateway) =>
      Array.from({ length: 2 }, () =>
        startCall(gateway, { body: aTask({ tokens: 200, delayBetweenMs: 25 }, {}, "old") }),
      ),
    );
    await Promise.all(streams.map((one) => one.received("data:")));
    const crowd = gateways.flatMap((gateway) =>
      Array.from({ length: 6 }, () =>
        startCall(gateway, { body: aTask({ tokens: 4, delayBetweenMs: 10 }, {}, "new") }),
      ),
    );
    await redis.kill();
    await redis.again();
    await all("shared");
    const { entries } = engine.ledger();
    assert.equal(peakOf(entries), 6);
    await eventually("what runs is counted", world.leases, (count) => count === 6);
    const answers = await Promise.all([...streams, ...crowd].map(({ answer }) => answer));
    assert.ok(answers.every(({ status }) => status === 200));
    assert.equal(peakOf(engine.ledger().entries), 6);
    await eventually("no lease", world.leases, (count) => count === 0);
    const told = gateways.filter(({ logLines }) =>
      logLines.some((line) => line.includes("coordination.store_emptied")),
    );
    assert.equal(told.length, 3);
    assert.equal(await gateways[0]?.metric("yardmaster_coordination_store_emptied_total"), 1);
  });
});

test("a Redis that is slower than the deadline is not waited for, and is used again when it is fast [80.R5 20.S6]", async () => {
  let proxy: FaultProxy | undefined;
  const redisUrl = async ({ port }: { port: number }): Promise<string> => {
    proxy = await FaultProxy.start({ clock: systemClock, target: { port } });
    return `redis://127.0.0.1:${proxy.port}/0`;
  };
  await withSharedWorld({ slots: 64, gateways: 1, file: hasty, redisUrl }, async ({ gateways, all }) => {
    await all("shared");
    const load = new Load(gateways, 20);
    await systemClock.sleep(300, never);
    proxy?.add("downstream", { kind: "latency", latencyMs: 2 * DEADLINE_MS });
    await all("failed_open");
    await systemClock.sleep(3_000, never);
    proxy?.clear();
    await all("shared");
    const queued = queueMs(await load.stop());
    assert.ok(Math.max(...queued) <= WAITED_MS_MAX, `${Math.max(...queued)} ms`);
    assert.ok(queued.filter((ms) => ms > DEADLINE_MS / 2).length < queued.length / 2);
  });
  await proxy?.down();
});

test("a full Redis: calls go on by the gateway's share, what ends is given back all the same, and room brings sharing back [80.R6 80.C8]", async () => {
  await withSharedWorld({ slots: 4, gateways: 2 }, async (world) => {
    const { gateways, admin, all, engine } = world;
    const streams = gateways.map((gateway) =>
      startCall(gateway, { body: aTask({ tokens: 100_000, delayBetweenMs: 50 }) }),
    );
    await Promise.all(streams.map((one) => one.received("data:")));
    assert.equal(await world.leases(), 2);
    await admin.config("SET", "maxmemory", "1");
    const answers = await Promise.all(gateways.flatMap((gateway) => [call(gateway), call(gateway)]));
    assert.ok(answers.every(({ status }) => status === 200));
    await all("failed_open");
    for (const one of streams) one.leave();
    await eventually("the leases to be given back", world.leases, (count) => count === 0);
    await admin.config("SET", "maxmemory", "0");
    await all("shared");
    assert.ok(peakOf(engine.ledger().entries) <= 5);
    for (const gateway of gateways) assert.equal((await call(gateway)).status, 200);
    await eventually("no lease", world.leases, (count) => count === 0);
  });
});

test("scripts forgotten, connections killed, a replica, garbage for keys: calls go on [80.R10]", async () => {
  await withSharedWorld({ slots: 8, gateways: 2 }, async (world) => {
    const { gateways, admin, all, engine } = world;
    const load = new Load(gateways, 15);
    for (let round = 0; round < 3; round += 1) {
      await systemClock.sleep(200, never);
      await admin.script("FLUSH");
      await systemClock.sleep(200, never);
      await admin.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes");
      await admin.call("CLIENT", "KILL", "TYPE", "pubsub", "SKIPME", "yes");
    }
    await admin.replicaof("127.0.0.1", "1");
    await all("failed_open");
    await admin.replicaof("NO", "ONE");
    await all("shared");
    await admin.set("{yardmaster:u}:leases", "not a sorted set");
    await all("failed_open");
    await admin.del("{yardmaster:u}:leases");
    await all("shared");
    await load.stop();
    assert.ok(peakOf(engine.ledger().entries) <= 10);
    await trueCount(world);
  });
});

test("a gateway that starts while Redis is away serves, says so, and shares when it comes [20.S6 80.C13]", async () => {
  let proxy: FaultProxy | undefined;
  const redisUrl = async ({ port }: { port: number }): Promise<string> => {
    proxy = await FaultProxy.start({ clock: systemClock, target: { port } });
    await proxy.down();
    return `redis://127.0.0.1:${proxy.port}/0`;
  };
  await withSharedWorld({ slots: 4, gateways: 1, redisUrl }, async ({ gateways, all, admin }) => {
    const [gateway] = gateways;
    assert.ok(gateway !== undefined);
    assert.equal((await call(gateway)).status, 200);
    const health = await gateway.health();
    assert.equal(health.coordination.state, "failed_open");
    assert.equal(await gateway.metric("yardmaster_coordination_up"), 0);
    assert.equal(await gateway.metric('yardmaster_failed_open{upstream="u"}'), 1);
    assert.equal((await fetch(`${gateway.url}/readyz`)).status, 200, "it can serve, so it is ready");
    await seasonStore(admin);
    await proxy?.up();
    await all("shared");
    assert.equal(await gateway.metric("yardmaster_coordination_up"), 1);
    assert.equal((await call(gateway)).status, 200);
  });
  await proxy?.down();
});
