import assert from "node:assert/strict";
import { test } from "node:test";
import type { SimEngine } from "../../src/sim-engine/sim-engine.ts";
import { OwnRedis } from "../../src/testing/servers/redis-server.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { anEngine } from "./support/an-engine.ts";
import { aTask, call, errorCodeOf, startCall, type CallAnswer } from "./support/calls.ts";
import { adminOf, seasonStore, shareFile, sharedUpstream } from "./support/shared-world.ts";
import { startTestGateway, type TestGateway } from "./support/test-gateway.ts";
import { rowsOf } from "./support/usage.ts";

// A thousand requests of one key on three gateways, for a limit worth a hundred: the engine's own account says how many it was asked.

const KEY = "CANARY-racing-0123456789abcdef0123456789abcdef";
const RACERS = 1_000;
/** At once: each is a connection of its own, and all ends of it are in this process. */
const ABREAST = 200;

interface Fleet {
  readonly redis: OwnRedis;
  readonly engine: SimEngine;
  readonly gateways: readonly TestGateway[];
}

async function withFleet(
  limits: Record<string, unknown>,
  run: (fleet: Fleet) => Promise<void>,
  upstream: Record<string, unknown> = {},
): Promise<void> {
  const redis = await OwnRedis.start();
  const admin = adminOf(redis);
  const engine = await anEngine({ slots: 1_024, prefillTps: 0, decodeTps: 2_000 });
  const gateways: TestGateway[] = [];
  // This process is busy with a thousand calls: that must not look like a Redis that is away.
  const file = shareFile(redis.url);
  try {
    await seasonStore(admin);
    for (let i = 0; i < 3; i += 1)
      gateways.push(
        await startTestGateway({
          upstreams: [sharedUpstream(engine.url, 512, upstream)],
          file,
          keys: [{ id: "racing", key: KEY, limits }],
        }),
      );
    for (const gateway of gateways)
      await eventually(
        "three share",
        () => gateway.health(),
        ({ coordination }) => (coordination as { gateways: number | null }).gateways === 3,
        30_000,
      );
    await run({ redis, engine, gateways });
  } finally {
    redis.resume();
    await Promise.all(gateways.map((gateway) => gateway.stop()));
    await engine.close();
    admin.disconnect();
    await redis.close();
  }
}

const TOKENS = 10;
const body = aTask({ tokens: TOKENS }, { stream: false, max_tokens: TOKENS });

/** Evenly over the gateways. */
async function race(gateways: readonly TestGateway[], racers = RACERS): Promise<readonly CallAnswer[]> {
  const answers: CallAnswer[] = [];
  let left = racers;
  const runner = async (lane: number): Promise<void> => {
    for (let turn = lane; left > 0; turn += 1) {
      left -= 1;
      answers.push(await call(gateways[turn % gateways.length]!, { body, key: KEY }));
    }
  };
  await Promise.all(Array.from({ length: Math.min(ABREAST, racers) }, (_, lane) => runner(lane)));
  return answers;
}

const refusals = (answers: readonly CallAnswer[]): ReadonlySet<string | undefined> =>
  new Set(answers.filter(({ status }) => status !== 200).map(({ text }) => errorCodeOf(text)));

test("a thousand requests race on three gateways for a hundred in the minute: the engine is asked exactly a hundred times [60.K3]", async () => {
  await withFleet({ requests_per_minute: 100 }, async ({ engine, gateways }) => {
    const answers = await race(gateways);
    assert.equal(answers.filter(({ status }) => status === 200).length, 100);
    assert.deepEqual([engine.ledger().opened, engine.ledger().finished], [100, 100]);
    assert.deepEqual(refusals(answers), new Set(["RATE_LIMITED"]));
  });
});

test("of a thousand requests on three gateways the engine never sees more at once than the key may have in flight [60.K3]", async () => {
  await withFleet({ max_in_flight: 12 }, async ({ engine, gateways }) => {
    const answers = await race(gateways);
    const { opened, concurrentPeak } = engine.ledger();
    assert.ok(concurrentPeak <= 12, `${concurrentPeak} at once`);
    assert.ok(opened >= 12, `${opened}`);
    assert.deepEqual(refusals(answers), new Set(["RATE_LIMITED"]));
  });
});

test("a thousand requests race on three gateways for the money of a hundred: none of it is spent twice, and all of it can be [60.K3 60.K4]", async () => {
  // A token costs a thousandth; of each call the prompt's estimate is reserved too, and given back.
  const price = { input_per_1m: 0, output_per_1m: 1_000 };
  const cap = (100 * TOKENS) / 1_000;
  await withFleet(
    { cost_per_day: cap },
    async ({ engine, gateways }) => {
      const answers = await race(gateways);
      const { entries, finished } = engine.ledger();
      const made = entries.reduce((sum, { tokens }) => sum + tokens, 0);
      assert.equal(finished, 100);
      assert.equal(made / 1_000, cap, "what was reserved is what it came to");
      assert.deepEqual(refusals(answers), new Set(["KEY_QUOTA_SPENT"]));
      const row = (await Promise.all(gateways.map((gateway) => rowsOf(gateway)))).at(-1)?.get("racing m");
      assert.deepEqual([row?.cost, row?.completion_tokens], [{ USD: cap }, made]);
    },
    { price },
  );
});

test("tokens of a day are never passed, and what was reserved and not used lets others in [60.K3]", async () => {
  const limit = 6_000;
  await withFleet({ tokens_per_day: limit }, async ({ gateways }) => {
    const answers = [...(await race(gateways))];
    // What was reserved at the end of the race is given back: one after another fits until none does.
    do answers.push(...(await race(gateways, 1)));
    while (answers.at(-1)?.status === 200);
    const used = answers
      .filter(({ status }) => status === 200)
      .map(({ text }) => (JSON.parse(text) as { usage: { total_tokens: number } }).usage.total_tokens);
    const sum = used.reduce((all, each) => all + each, 0);
    assert.ok(sum <= limit, `${sum} used of ${limit}`);
    // One request more would not have fitted.
    const reserved = Math.ceil(Buffer.byteLength(JSON.stringify(body)) / 4) + TOKENS;
    assert.ok(sum + reserved > limit, `${sum} used of ${limit}`);
    assert.deepEqual(refusals(answers), new Set(["KEY_QUOTA_SPENT"]));
  });
});

test("one gateway has used the whole minute, and Redis stands still: of a thousand no more than the limit again gets in, and nothing when it is back [60.K3]", async () => {
  await withFleet({ requests_per_minute: 99 }, async ({ redis, engine, gateways }) => {
    const [first] = gateways;
    assert.equal((await race([first!], 99)).filter(({ status }) => status === 200).length, 99);
    redis.pause();
    const away = await race(gateways);
    const more = away.filter(({ status }) => status === 200).length;
    // The others let in their thirds; the first knows what it has let in itself.
    assert.equal(more, 66);
    assert.equal(engine.ledger().opened, 99 + more);
    assert.ok(engine.ledger().opened <= 2 * 99, "the documented slack");
    redis.resume();
    for (const gateway of gateways)
      await eventually(
        "it shares again",
        () => gateway.health(),
        ({ coordination }) => (coordination as { state: string }).state === "shared",
        30_000,
      );
    await eventually(
      "what was let in meanwhile is told",
      async () => (await race(gateways, 3)).map(({ status }) => status),
      (statuses) => statuses.every((status) => status === 429),
      20_000,
    );
    const opened = engine.ledger().opened;
    assert.equal((await race(gateways, 60)).filter(({ status }) => status === 200).length, 0);
    assert.ok(opened - (99 + more) <= 3 && engine.ledger().opened === opened);
  });
});

test("on three gateways what clients left is settled: nothing stays in flight, and never less is counted than the engine made [60.K3]", async () => {
  const limit = 1_000_000;
  await withFleet({ tokens_per_day: limit, max_in_flight: 20 }, async ({ engine, gateways }) => {
    // None comes to its end before its client has left, however slow the machine is.
    const leaving = aTask({ tokens: 2_000, delayBetweenMs: 20 }, { stream: true, max_tokens: 2_000 });
    const leave = async (turn: number): Promise<void> => {
      const live = startCall(gateways[turn % 3]!, { body: leaving, key: KEY });
      await live.received("data:");
      live.leave();
    };
    for (let round = 0; round < 3; round += 1) {
      await Promise.all(Array.from({ length: 20 }, (_, turn) => leave(turn)));
      assert.ok(await engine.waitFor(({ concurrentNow }) => concurrentNow === 0, 60_000));
      await eventually(
        "the places are free again",
        async () => (await race(gateways, 1))[0]?.status,
        (status) => status === 200,
        20_000,
      );
    }
    const [last] = await race([gateways[1]!], 1);
    const counted = limit - Number(last?.headers["x-ratelimit-remaining-tokens"]);
    const { entries, aborted } = engine.ledger();
    const made = entries.reduce((sum, { tokens }) => sum + tokens, 0);
    assert.equal(aborted, 60);
    assert.ok(counted >= made, `${counted} counted, ${made} made`);
    const reserved = Math.ceil(Buffer.byteLength(JSON.stringify(leaving)) / 4) + 2_000;
    assert.ok(counted <= 61 * reserved + 10_000, `${counted} counted`);
  });
});
