import assert from "node:assert/strict";
import { test } from "node:test";
import { ctlUsage } from "../../src/cli/ctl-usage.ts";
import type { SpendView } from "../../src/contract/overflow-view.ts";
import type { UsageRowView } from "../../src/contract/usage-view.ts";
import { systemClock } from "../../src/kernel/clock.ts";
import type { SimEngine } from "../../src/sim-engine/sim-engine.ts";
import { captureIo } from "../../src/testing/capture-io.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { anEngine } from "./support/an-engine.ts";
import { aTask, call, startCall } from "./support/calls.ts";
import { aChat, accepted, ended } from "./support/jobs.ts";
import { aCloud, aTier, ENV, OUTSIDE_KEY, outsideKey, signalPages } from "./support/overflow-world.ts";
import { OPERATOR_KEY, programFolder, reach, runProgram } from "./support/program.ts";
import { startTestGateway, type TestGateway } from "./support/test-gateway.ts";
import { rowsOf, usageOf } from "./support/usage.ts";

// What keys have used, held against the engine's own account of it.

const OTHER_KEY = "CANARY-other-0123456789abcdef0123456789abcdef";
/** A name that a spreadsheet would run and a browser show. */
const HOSTILE = '=cmd|"/c calc"!A1<img src=x onerror=alert(1)>';
const PRICE = { input_per_1m: 3, output_per_1m: 15, cached_per_1m: 1, currency: "EUR" };

async function withGateway(
  run: (gateway: TestGateway, engine: SimEngine) => Promise<void>,
  upstream: Record<string, unknown> = {},
): Promise<void> {
  const engine = await anEngine({ models: ["m", HOSTILE], slots: 16, prefillTps: 100_000, decodeTps: 2_000 });
  const common = { engine: "vllm", slots: 16, endpoints: [{ url: engine.url }] };
  const gateway = await startTestGateway({
    upstreams: [
      { id: "u", models: ["m"], price: PRICE, ...common, ...upstream },
      { id: "odd", models: [HOSTILE], ...common },
    ],
    keys: [{ id: "other", key: OTHER_KEY }],
  });
  try {
    await run(gateway, engine);
  } finally {
    await gateway.stop();
    await engine.close();
  }
}

/** Long enough for the engine's prefix cache. */
const messages = [{ role: "user", content: "Count the wagons on every track. ".repeat(20) }];

const ask = (stream: boolean, tokens: number): Readonly<Record<string, unknown>> =>
  aTask({ tokens }, { stream, messages, ...(stream && { stream_options: { include_usage: true } }) });

test("usage is what the engine says that it did: requests, tokens, slot time, and money by the price [60.K4]", async () => {
  await withGateway(async (gateway, engine) => {
    const begun = systemClock.mono();
    assert.equal((await call(gateway, { body: ask(true, 1) })).status, 200);
    const answers = await Promise.all(
      Array.from({ length: 12 }, (_, i) =>
        call(gateway, { body: ask(i % 2 === 0, 5 + i), key: i < 8 ? gateway.keys.client : OTHER_KEY }),
      ),
    );
    assert.deepEqual(new Set(answers.map(({ status }) => status)), new Set([200]));
    await call(gateway, { body: aTask({}, { model: "none" }) });
    const rows = await rowsOf(gateway);
    const spent = systemClock.mono() - begun;
    const entries = engine.ledger().entries;
    const [mine, others] = [rows.get("test-client m"), rows.get("other m")];
    assert.ok(mine !== undefined && others !== undefined);
    assert.deepEqual([mine.outcomes, others.outcomes], [{ ok: 9 }, { ok: 4 }]);
    assert.deepEqual(rows.get("test-client null")?.outcomes, { refused: 1 });
    const made = entries.reduce((sum, { tokens }) => sum + tokens, 0);
    assert.equal((mine.completion_tokens ?? 0) + (others.completion_tokens ?? 0), made);
    assert.equal(mine.tokens_unknown, 0);
    const { prompt_tokens: prompt, completion_tokens: completion, cached_tokens: cached } = mine;
    assert.ok(prompt !== null && completion !== null && cached !== null && cached > 0, "the sim has a prefix cache");
    const cost = ((prompt - cached) * 3 + cached * 1 + completion * 15) / 1e6;
    // Each request is rounded up to a millionth.
    assert.ok(mine.cost["EUR"]! >= cost - 1e-9 && mine.cost["EUR"]! <= cost + 9e-6, `${mine.cost["EUR"]} ${cost}`);
    const inSlots = entries.reduce((sum, { slotMs, slotFreeMs }) => sum + (slotFreeMs ?? 0) - (slotMs ?? 0), 0) / 1_000;
    const held = mine.gpu_seconds + others.gpu_seconds;
    assert.ok(held >= inSlots - 0.01 && held <= (13 * spent) / 1_000, `${held} s held, ${inSlots} s in the engine`);
  });
});

test("a slot that lingers for an engine that works on is held time of its key [60.K4]", async () => {
  const engine = await anEngine({ dialect: "llama.cpp", slots: 1, decodeTps: 50 });
  const gateway = await startTestGateway({
    upstreams: [{ id: "u", models: ["m"], engine: "llama.cpp", slots: 1, endpoints: [{ url: engine.url }] }],
  });
  try {
    const left = startCall(gateway, { body: aTask({ tokens: 50 }, { stream: false }) });
    assert.ok(await engine.waitFor((ledger) => ledger.inSlotNow === 1, 60_000));
    left.leave();
    const row = await eventually(
      "the slot is free",
      async () => (await rowsOf(gateway)).get("test-client m"),
      (found) => (found?.gpu_seconds ?? 0) > 0,
    );
    assert.deepEqual(row?.outcomes, { client_aborted: 1 });
    assert.ok((row?.gpu_seconds ?? 0) >= 0.9, `${row?.gpu_seconds} s of the second that the engine worked`);
    assert.deepEqual([row?.completion_tokens, row?.tokens_unknown], [null, 1]);
  } finally {
    await gateway.stop();
    await engine.close();
  }
});

test("answers from memory are counted apart, and hold no slot [60.K4]", async () => {
  await withGateway(
    async (gateway, engine) => {
      const body = aTask({}, { stream: false, temperature: 0, max_tokens: 3 });
      const keyed = (): ReturnType<typeof call> =>
        call(gateway, { body: ask(false, 4), headers: { "idempotency-key": "once" } });
      for (let i = 0; i < 3; i += 1) assert.equal((await call(gateway, { body })).status, 200);
      const before = (await rowsOf(gateway)).get("test-client m");
      for (let i = 0; i < 3; i += 1) assert.equal((await keyed()).status, 200);
      const row = (await rowsOf(gateway)).get("test-client m");
      assert.deepEqual([row?.requests, row?.outcomes, row?.cache_hits, row?.replays], [6, { ok: 2 }, 2, 2]);
      assert.equal(engine.ledger().opened, 2);
      assert.equal(
        row?.completion_tokens,
        engine.ledger().entries.reduce((sum, { tokens }) => sum + tokens, 0),
      );
      assert.ok(before !== undefined && before.gpu_seconds > 0);
    },
    { cache: { ttl_s: 60 } },
  );
});

test("a client's key sees its own usage alone, an operator's all, and no other role any [60.K4]", async () => {
  await withGateway(async (gateway) => {
    await call(gateway, { body: ask(false, 2) });
    await call(gateway, { body: ask(false, 2), key: OTHER_KEY });
    const keysIn = async (key: string, query = ""): Promise<unknown[]> =>
      (await usageOf(gateway, `?group=key${query}`, key)).rows.map((row) => row.key);
    assert.deepEqual(await keysIn(gateway.keys.operator), ["other", "test-client"]);
    assert.deepEqual(await keysIn(gateway.keys.admin, "&key_id=other"), ["other"]);
    assert.deepEqual(await keysIn(OTHER_KEY), ["other"]);
    assert.deepEqual(await keysIn(OTHER_KEY, "&key_id=other"), ["other"]);
    await assert.rejects(keysIn(OTHER_KEY, "&key_id=test-client"), /403 .*FORBIDDEN/);
    for (const role of ["metrics", "agent", "approver"] as const)
      await assert.rejects(keysIn(gateway.keys[role]), /403 .*FORBIDDEN/);
    await assert.rejects(usageOf(gateway, "?from=never"), /400 .*BAD_REQUEST/);
  });
});

test("usage as CSV gives a spreadsheet no formula, and pages fit together [60.K4]", async () => {
  await withGateway(async (gateway) => {
    for (const model of ["m", HOSTILE]) await call(gateway, { body: aTask({ tokens: 2 }, { stream: false, model }) });
    const lines: string[] = [];
    let cursor: string | null = null;
    for (let pages = 0; pages < 5; pages += 1) {
      const more: string = cursor === null ? "" : `&cursor=${encodeURIComponent(cursor)}`;
      const answer: Response = await fetch(`${gateway.url}/usage?format=csv&group=key,model&limit=1${more}`, {
        headers: { authorization: `Bearer ${gateway.keys.operator}` },
      });
      assert.match(answer.headers.get("content-type") ?? "", /^text\/csv/);
      const [head = "", ...rest] = (await answer.text()).trimEnd().split("\r\n");
      assert.match(head, /^key,model,requests,ok,.*,gpu_seconds,cost_EUR$/);
      lines.push(...rest);
      cursor = answer.headers.get("x-yardmaster-next-cursor");
      if (cursor === null) break;
    }
    assert.equal(lines.length, 2);
    assert.match(lines[0] ?? "", /^test-client,"'=cmd\|""\/c calc""!A1<img src=x onerror=alert\(1\)>",1,1,/);
    assert.match(lines[1] ?? "", /^test-client,m,1,1,/);
  });
});

test("ctl usage shows the same as a table, as JSON and as CSV [60.K4]", async () => {
  await withGateway(async (gateway) => {
    for (const model of ["m", HOSTILE]) await call(gateway, { body: aTask({ tokens: 2 }, { stream: false, model }) });
    const run = async (...args: string[]): Promise<{ code: number; out: string }> => {
      const { io, output } = captureIo({ YARDMASTER_URL: gateway.url, YARDMASTER_KEY: gateway.keys.operator });
      return { code: await ctlUsage.run(args, io), out: output().out };
    };
    const table = await run("--by", "model");
    assert.equal(table.code, 0);
    assert.match(table.out, /^MODEL +REQUESTS +FAILED +REPEATED +PROMPT +ANSWER +CACHED +GPU S +EUR\n/);
    assert.match(table.out, /\nm +1 +0 +0 +\d+ +2 /);
    assert.match(table.out, /\ntotal +2 +0 +0 +\d+ +4 /);
    const json = JSON.parse((await run("--by", "key", "--model", "m", "-o", "json")).out) as {
      rows: UsageRowView[];
    };
    assert.deepEqual(
      json.rows.map(({ key, requests }) => [key, requests]),
      [["test-client", 1]],
    );
    assert.match((await run("-o", "csv", "--key", "test-client")).out, /\r\n\d{4}-\d\d-\d\d,test-client,"'=cmd/);
    await assert.rejects(run("--by", "owner"), { code: "USAGE" });
    await assert.rejects(run("--from", "today"), { code: "USAGE" });
  });
});

test("what a cloud was paid is in the usage of the job's key, in its currency, as in the ledger [60.K4]", async () => {
  const engine = await anEngine();
  const cloud = await aCloud();
  await using pages = await signalPages();
  pages.taken = true;
  const overflow = {
    upstream: "u",
    signals: [{ kind: "semaphore", url: `${pages.url}/status`, busy_field: "guard.busy" }],
    signal_memory_ms: 0,
    hold_s: 0,
    tiers: [aTier(cloud)],
  };
  const gateway = await startTestGateway({
    upstreams: [
      {
        id: "u",
        models: ["m"],
        engine: "vllm",
        slots: 4,
        endpoints: [{ url: engine.url }],
        price: { ...PRICE, currency: "USD" },
      },
    ],
    keys: [outsideKey],
    env: ENV,
    file: { overflow: [overflow] },
  });
  try {
    const at = { ...gateway, keys: { ...gateway.keys, client: OUTSIDE_KEY } };
    for (let i = 0; i < 3; i += 1) {
      const job = await accepted(at, { body: aChat() });
      assert.equal((await ended(at, job.id)).state, "completed");
    }
    assert.equal(cloud.ledger().submits, 3);
    const row = (await rowsOf(gateway)).get("outside m");
    assert.deepEqual(row?.cost, { EUR: 1.5 });
    assert.deepEqual([row?.requests, row?.gpu_seconds], [0, 0]);
    const spend = await fetch(`${gateway.url}/admin/overflow/spend`, {
      headers: { authorization: `Bearer ${gateway.keys.approver}` },
    });
    assert.equal(((await spend.json()) as SpendView).tiers[0]?.spent_this_month, 1.5);
    pages.taken = false;
    const here = await accepted(at, { body: aChat() });
    assert.equal((await ended(at, here.id)).state, "completed");
    const after = (await rowsOf(gateway)).get("outside m");
    assert.deepEqual([after?.outcomes, after?.cost["EUR"]], [{ ok: 1 }, 1.5]);
    assert.ok((after?.cost["USD"] ?? 0) > 0);
  } finally {
    await gateway.stop();
    await cloud.close();
    await engine.close();
  }
});

test("usage outlives kill -9, but for its last second, and nothing is counted twice [60.K4]", async () => {
  const engine = await anEngine();
  await using folder = await programFolder({
    upstreams: [{ id: "u", models: ["m"], engine: "vllm", slots: 64, endpoints: [{ url: engine.url }] }],
  });
  const at = (port: number): Parameters<typeof usageOf>[0] => reach(port) as Parameters<typeof usageOf>[0];
  const send = async (port: number, requests: number): Promise<void> => {
    for (let left = requests; left > 0; left -= 1)
      assert.equal((await call(reach(port), { body: ask(false, 2) })).status, 200);
  };
  try {
    await using first = runProgram(["gateway", "--config", folder.config]);
    const port = await first.ready();
    await send(port, 20);
    // Whoever looks has what there is written first.
    assert.equal((await usageOf(at(port), "", OPERATOR_KEY)).total.requests, 20);
    await send(port, 5);
    first.kill("SIGKILL");
    await first.end();
    await using second = runProgram(["gateway", "--config", folder.config]);
    const next = await second.ready();
    const { total } = await usageOf(at(next), "", OPERATOR_KEY);
    assert.ok(total.requests >= 20 && total.requests <= 25, String(total.requests));
    assert.equal(total.completion_tokens, 2 * total.requests);
    await send(next, 3);
    second.kill("SIGTERM");
    await second.end();
    await using third = runProgram(["gateway", "--config", folder.config]);
    const last = await usageOf(at(await third.ready()), "", OPERATOR_KEY);
    assert.equal(last.total.requests, total.requests + 3, "a stop loses nothing");
  } finally {
    await engine.close();
  }
});
