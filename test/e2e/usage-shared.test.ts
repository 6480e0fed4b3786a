import assert from "node:assert/strict";
import { test } from "node:test";
import type { UsageRowView } from "../../src/contract/usage-view.ts";
import { seededRandom } from "../../src/kernel/random.ts";
import type { LedgerEntry, SimEngine } from "../../src/sim-engine/sim-engine.ts";
import { OwnRedis } from "../../src/testing/servers/redis-server.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { anEngine } from "./support/an-engine.ts";
import { aTask, call, startCall } from "./support/calls.ts";
import { OPERATOR_KEY, programFolder, reach, runProgram } from "./support/program.ts";
import { adminOf, seasonStore, shareFile } from "./support/shared-world.ts";
import { startTestGateway, type TestGateway } from "./support/test-gateway.ts";
import { rowsOf, usageOf } from "./support/usage.ts";

// Usage of three gateways that share one Redis, held against the engines' own account.

const KEYS = ["a", "b", "c"].map((id) => ({ id: `key-${id}`, key: `CANARY-${id}-0123456789abcdef0123456789abcdef` }));
const MODELS = ["m", "n"];

interface Fleet {
  readonly redis: OwnRedis;
  readonly engines: readonly [good: SimEngine, bad: SimEngine];
  readonly gateways: readonly TestGateway[];
}

/** The second engine of each model spoils some calls before their first byte, so that they are tried again at the first. */
async function withFleet(run: (fleet: Fleet) => Promise<void>): Promise<void> {
  const redis = await OwnRedis.start();
  const admin = adminOf(redis);
  const timing = { models: MODELS, slots: 256, prefillTps: 100_000, decodeTps: 2_000 };
  const engines = [await anEngine(timing), await anEngine({ ...timing, seed: 2 })] as const;
  const gateways: TestGateway[] = [];
  try {
    await seasonStore(admin);
    const endpoints = engines.map(({ url }) => ({ url }));
    const upstreams = MODELS.map((model) => ({
      id: model,
      models: [model],
      engine: "vllm",
      slots: 128,
      health: "passive",
      endpoints,
    }));
    for (let i = 0; i < 3; i += 1)
      gateways.push(
        await startTestGateway({ upstreams, file: shareFile(redis.url, { coordination_timeout_ms: 500 }), keys: KEYS }),
      );
    await run({ redis, engines, gateways });
  } finally {
    redis.resume();
    await Promise.all(gateways.map((gateway) => gateway.stop()));
    for (const engine of engines) await engine.close();
    admin.disconnect();
    await redis.close();
  }
}

/** As the engines tell it: calls they finished, calls their client left, and the tokens of those that were finished. */
interface Account {
  ok: number;
  left: number;
  tokens: number;
}

function accountOf(engines: readonly SimEngine[]): ReadonlyMap<string, Account> {
  const accounts = new Map<string, Account>();
  for (const entry of engines.flatMap((engine) => engine.ledger().entries)) {
    const name = `${keyOf(entry)} ${entry.model}`;
    const account = accounts.get(name) ?? { ok: 0, left: 0, tokens: 0 };
    accounts.set(name, account);
    if (entry.end === "finished") {
      account.ok += 1;
      account.tokens += entry.tokens;
    } else if (entry.end === "aborted") account.left += 1;
  }
  return accounts;
}

/** Calls carry the id of their key as their tag. */
const keyOf = ({ tag }: LedgerEntry): string => tag;

const asAccount = (row: UsageRowView): Account => ({
  ok: row.outcomes.ok ?? 0,
  left: row.outcomes.client_aborted ?? 0,
  tokens: row.completion_tokens ?? 0,
});

/** Every sort of call, on every gateway: whole and streamed ones, such as a spoilt engine has first, such as are left. */
async function callMany({ gateways }: Fleet, count: number, random: ReturnType<typeof seededRandom>): Promise<number> {
  const pick = <T>(list: readonly T[]): T => list[Math.floor(random.next() * list.length)]!;
  let refused = 0;
  const one = async (): Promise<void> => {
    const [gateway, key, model] = [pick(gateways), pick(KEYS), pick(MODELS)];
    const stream = random.next() < 0.5;
    const leaves = random.next() < 0.2;
    const tokens = leaves ? 4_000 : 1 + Math.floor(random.next() * 20);
    const more = { model, stream, ...(stream && { stream_options: { include_usage: true } }) };
    const live = startCall(gateway, { body: aTask({ tokens }, more, key.id), key: key.key });
    if (leaves) {
      if (stream) await live.received("data:");
      else await live.sent();
      live.leave();
    }
    const { status } = await live.answer.catch(() => ({ status: 0 }));
    if (!leaves && status !== 200) refused += 1;
  };
  for (let done = 0; done < count; done += 20) await Promise.all(Array.from({ length: 20 }, one));
  return refused;
}

const settled = ({ engines, gateways }: Fleet): Promise<unknown> =>
  eventually(
    "no call runs, and no gateway has anything unwritten",
    async () => {
      const running = engines.reduce((sum, engine) => sum + engine.ledger().concurrentNow, 0);
      const unwritten = await Promise.all(
        gateways.map((gateway) =>
          usageOf(gateway).then(
            (view) => view.unwritten,
            () => 1,
          ),
        ),
      );
      return running + unwritten.reduce((sum, each) => sum + each, 0);
    },
    (left) => left === 0,
    60_000,
  );

test("what three gateways say that keys have used is what the engines did, under cancels, retries and a Redis that stands still [60.K4]", async () => {
  await withFleet(async (fleet) => {
    const { redis, engines, gateways } = fleet;
    const [, bad] = engines;
    bad.script({ match: { nth: 3, times: 1 }, do: { cutBeforeHead: true } });
    for (const nth of [7, 12, 20])
      bad.script({ match: { nth }, do: { status: 503, body: { error: { message: "overloaded" } } } });
    const random = seededRandom(Number(process.env["SIM_SEED"] ?? 1));
    assert.equal(await callMany(fleet, 100, random), 0);
    redis.pause();
    await callMany(fleet, 60, random);
    await eventually(
      "what was used waits for Redis",
      () => gateways[0]!.metric("yardmaster_usage_unwritten_rows"),
      (rows) => (rows ?? 0) > 0,
      30_000,
    );
    await assert.rejects(usageOf(gateways[0]!), /503 .*USAGE_UNAVAILABLE/);
    redis.resume();
    await eventually(
      "the gateways share again",
      async () => {
        const states = await Promise.all(
          gateways.map(async (gateway) => (await gateway.health()).coordination as { state: string }),
        );
        return states.every(({ state }) => state === "shared");
      },
      (shared) => shared,
      60_000,
    );
    await callMany(fleet, 60, random);
    await settled(fleet);
    const told = accountOf(engines);
    const rows = await rowsOf(gateways[1]!);
    const shown = new Map(
      [...rows].filter(([name]) => name.startsWith("key-")).map(([name, row]) => [name, asAccount(row)]),
    );
    assert.ok(
      [...told.values()].some(({ left }) => left > 0),
      "some calls were left",
    );
    for (const [name, account] of told) {
      const row = shown.get(name);
      assert.ok(row !== undefined, name);
      assert.deepEqual([name, row.ok, row.tokens], [name, account.ok, account.tokens]);
    }
    const total = await usageOf(gateways[2]!);
    assert.ok(total.total.tokens_unknown > 0, "what was left before its end is unknown, and said to be");
    const spoilt = bad.ledger().entries.filter(({ status, end }) => status === 503 || end === "failed");
    assert.ok(spoilt.length > 0, "some tries came to nothing, and count for nothing");
    assert.equal(total.total.outcomes.upstream_failed, undefined);
    // Every gateway says the same.
    for (const gateway of gateways) assert.deepEqual((await usageOf(gateway)).total, total.total);
  });
});

test("of three gateways one is killed: what it wrote stays, once, and no more than its last second is missing [60.K4]", async () => {
  const redis = await OwnRedis.start();
  const admin = adminOf(redis);
  const engine = await anEngine({ slots: 256 });
  const file = {
    ...shareFile(redis.url, { coordination_timeout_ms: 1_000 }),
    upstreams: [{ id: "u", models: ["m"], engine: "vllm", slots: 64, endpoints: [{ url: engine.url }] }],
  };
  try {
    await seasonStore(admin);
    await using folders = new AsyncDisposableStack();
    const ports: number[] = [];
    const programs = [];
    for (let i = 0; i < 3; i += 1) {
      const folder = folders.use(await programFolder(file));
      const program = folders.use(runProgram(["gateway", "--config", folder.config]));
      programs.push(program);
      ports.push(await program.ready());
    }
    const total = async (port: number): Promise<UsageRowView> =>
      (await usageOf(reach(port) as Parameters<typeof usageOf>[0], "", OPERATOR_KEY)).total;
    const send = async (port: number, requests: number): Promise<void> => {
      for (let left = requests; left > 0; left -= 1)
        assert.equal((await call(reach(port), { body: aTask({ tokens: 2 }, { stream: false }) })).status, 200);
    };
    for (const port of ports) await send(port, 10);
    for (const port of ports) await total(port);
    await send(ports[0]!, 5);
    programs[0]!.kill("SIGKILL");
    await programs[0]!.end();
    await send(ports[1]!, 10);
    const { requests, completion_tokens } = await total(ports[1]!);
    assert.ok(requests >= 40 && requests <= 45, String(requests));
    assert.equal(completion_tokens, 2 * requests);
    assert.equal(engine.ledger().finished, 45);
  } finally {
    await engine.close();
    admin.disconnect();
    await redis.close();
  }
});
