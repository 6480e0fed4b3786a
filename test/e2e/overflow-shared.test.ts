import assert from "node:assert/strict";
import { after, afterEach, before, beforeEach, test } from "node:test";
import type { Redis } from "ioredis";
import type { ApprovalView, SpendView } from "../../src/contract/overflow-view.ts";
import { systemClock } from "../../src/kernel/clock.ts";
import type { SimEngine } from "../../src/sim-engine/sim-engine.ts";
import type { FakeCloud } from "../../src/testing/cloud/fake-cloud.ts";
import { OwnRedis } from "../../src/testing/servers/redis-server.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { anEngine } from "./support/an-engine.ts";
import { call, startCall } from "./support/calls.ts";
import { aChat, accepted, ended, jobOf } from "./support/jobs.ts";
import {
  aCloud,
  aTier,
  ENV,
  OUTSIDE_KEY,
  outsideKey,
  signalPages,
  type SignalPages,
} from "./support/overflow-world.ts";
import { crowdingOf } from "./support/run-queue.ts";
import { adminOf, seasonStore } from "./support/shared-world.ts";
import { startTestGateway, type TestGateway } from "./support/test-gateway.ts";

// Three gateways that share one ledger in Redis. What was asked of the paid place is told by its own account.

let engine: SimEngine;
let redis: OwnRedis;
let admin: Redis;
let cloud: FakeCloud;
let pages: SignalPages;
let gateways: TestGateway[] = [];
before(async () => {
  engine = await anEngine({ slots: 64 });
});
beforeEach(async () => {
  engine.resetLedger();
  redis = await OwnRedis.start();
  admin = adminOf(redis);
  await seasonStore(admin);
  cloud = await aCloud();
  pages = await signalPages();
  pages.taken = true;
});
afterEach(async () => {
  await Promise.all(gateways.map((gateway) => gateway.stop()));
  gateways = [];
  admin.disconnect();
  await cloud.close();
  await pages[Symbol.asyncDispose]();
  await redis[Symbol.asyncDispose]();
});
after(() => engine.close());

const SIGNING = { SIGNING: "CANARY-signing-secret-0123456789abcdef" };

async function start(tier: Record<string, unknown>, section: Record<string, unknown> = {}): Promise<TestGateway> {
  const gateway = await startTestGateway({
    upstreams: [{ id: "u", models: ["m"], engine: "vllm", slots: 32, endpoints: [{ url: engine.url }] }],
    keys: [outsideKey],
    env: { ...ENV, ...SIGNING },
    file: {
      coordination: "redis",
      redis_url: redis.url,
      coordination_timeout_ms: 2_000,
      signing_key_envs: ["SIGNING"],
      overflow: [
        {
          upstream: "u",
          signals: [{ kind: "semaphore", url: `${pages.url}/status`, busy_field: "guard.busy" }],
          hold_s: 0,
          tiers: [aTier(cloud, tier)],
          ...section,
        },
      ],
    },
  });
  const asked = { ...gateway, keys: { ...gateway.keys, client: OUTSIDE_KEY } };
  gateways.push(asked);
  return asked;
}

async function ask<T>(gateway: TestGateway, method: string, path: string, body?: unknown): Promise<T> {
  const answer = await fetch(gateway.url + path, {
    method,
    headers: { authorization: `Bearer ${gateway.keys.approver}`, "content-type": "application/json" },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  assert.ok(answer.ok, `${path}: ${answer.status}`);
  return (await answer.json()) as T;
}

const JOBS = 1_000;
const CAP = 100;
test("a thousand jobs at three gateways for a budget of a hundred make exactly a hundred calls by the cloud's own account, and each ends once [80.D39 80.O1 80.I5 80.C30]", async () => {
  const tier = { budget: { per_day: CAP / 2, per_month: 1_000 }, max_in_flight: 200 };
  const each = [await start(tier), await start(tier), await start(tier)];
  const ids: string[] = [];
  for (let from = 0; from < JOBS; from += 50) {
    const some = Array.from({ length: 50 }, (_, index) =>
      accepted(each[(from + index) % 3] as TestGateway, { body: aChat() }),
    );
    for (const { id } of await Promise.all(some)) ids.push(id);
    const { tiers } = await ask<SpendView>(each[0] as TestGateway, "GET", "/admin/overflow/spend");
    assert.ok((tiers[0]?.spent_today ?? 0) + (tiers[0]?.reserved_today ?? 0) <= CAP / 2);
  }
  const states = new Map<string, number>();
  for (const id of ids) {
    const { state, overflow } = await ended(each[0] as TestGateway, id);
    const what = `${state} ${overflow?.decision}`;
    states.set(what, (states.get(what) ?? 0) + 1);
  }
  assert.deepEqual(Object.fromEntries(states), { "completed tier": CAP, "completed local": JOBS - CAP });
  const { submits, chargedMicros, tasks } = cloud.ledger();
  assert.deepEqual([submits, chargedMicros], [CAP, CAP * 500_000]);
  assert.equal(new Set(tasks.map(({ idempotencyKey }) => idempotencyKey)).size, CAP);
  assert.equal(engine.ledger().entries.length, JOBS - CAP);
  const { tiers } = await ask<SpendView>(each[2] as TestGateway, "GET", "/admin/overflow/spend");
  assert.deepEqual([tiers[0]?.spent_today, tiers[0]?.reserved_today], [CAP / 2, 0]);
});

test("the switch at one gateway stops every other within a second, and stays through restarts of all of them [80.O7]", async () => {
  const each = [await start({}, { hold_s: 600 }), await start({}, { hold_s: 600 }), await start({}, { hold_s: 600 })];
  const [one, two, three] = each as [TestGateway, TestGateway, TestGateway];
  await ended(two, (await accepted(two, { body: aChat() })).id);
  assert.equal(cloud.ledger().submits, 1);
  const crowding = crowdingOf(process.pid);
  const from = systemClock.mono();
  await ask(one, "POST", "/admin/overflow/stop", { why: "odd" });
  const stoppedAfterMs = systemClock.mono() - from;
  assert.ok(stoppedAfterMs <= 1_000 * crowding(), `${Math.round(stoppedAfterMs)} ms`);
  // From here on no call begins anywhere: the switch is read in the step that lets one begin.
  const jobs = await Promise.all(each.map((gateway) => accepted(gateway, { body: aChat() })));
  for (const { id } of jobs)
    await eventually(
      "the job to be told",
      () => jobOf(two, id),
      ({ overflow }) => overflow?.missing[0]?.lacks[0] === "stopped",
    );
  await Promise.all(each.map((gateway) => gateway.stop()));
  gateways = [];
  const again = await start({}, { hold_s: 600 });
  const { stopped } = await ask<SpendView>(again, "GET", "/admin/overflow/spend");
  assert.equal(stopped?.why, "odd");
  assert.equal(cloud.ledger().submits, 1);
  await ask(again, "POST", "/admin/overflow/go", {});
  for (const { id } of jobs) assert.equal((await ended(again, id)).overflow?.tier, "cloud");
  assert.equal(cloud.ledger().submits, 4);
  void three;
});

test("an approval that somebody writes into the shared store is none: the job is refused by name, and that is on record [80.C31 80.O3]", async () => {
  const one = await start({ approval: "per_job" }, { hold_s: 600 });
  const two = await start({ approval: "per_job" }, { hold_s: 600 });
  const path = "/admin/overflow/approvals";
  const approve = (job: string, maxPrice: number): Promise<ApprovalView> =>
    ask(one, "POST", path, { job, tier: "cloud", max_price: maxPrice });
  const lacks = (id: string, lack: string): Promise<unknown> =>
    eventually(
      `the job to lack ${lack}`,
      () => jobOf(two, id),
      ({ overflow }) => overflow?.missing[0]?.lacks[0] === lack,
    );
  const [raised, made] = await Promise.all([accepted(one, { body: aChat() }), accepted(two, { body: aChat() })]);
  await approve(raised.id, 0.01);
  await lacks(raised.id, "approval_below_price");
  const [key] = await keysOf(`approval/cloud/${raised.id}`);
  const text = (await admin.get(key ?? "")) ?? "";
  const stored = JSON.parse(text) as Record<string, unknown>;
  await admin.set(key ?? "", JSON.stringify({ ...stored, maxMicros: 900_000 }));
  const forged = { ...stored, subject: made.id, maxMicros: 900_000 };
  await admin.set((key ?? "").replace(raised.id, made.id), JSON.stringify(forged));
  await Promise.all([lacks(raised.id, "approval_forged"), lacks(made.id, "approval_forged")]);
  assert.equal(cloud.ledger().submits, 0);
  const listed = await ask<{ data: ApprovalView[] }>(two, "GET", path);
  assert.deepEqual(
    listed.data.map(({ job, state }) => [job, state]),
    [[raised.id, "forged"]],
  );
  await eventually(
    "the refusal to be on record",
    () => one.audit(`?outcome=money_refused&request_id=${raised.id}`),
    ({ records }) => records.some(({ overflow }) => overflow?.includes("approval_forged") === true),
  );
  // A true one, given at one gateway, counts at the other.
  await approve(made.id, 0.5);
  const done = await ended(two, made.id);
  assert.deepEqual([done.overflow?.tier, cloud.ledger().submits], ["cloud", 1]);
});

const keysOf = (name: string): Promise<string[]> => admin.keys(`*${name}*`);

test("two hundred chats at once at three gateways, half of which leave in the middle, never cost more than the cap of ten [80.I5 80.C30 50.V7]", async () => {
  const site = await anEngine({ models: ["big"], slots: 64 });
  const tier = {
    id: "site",
    provider: "openai",
    base_url: site.url,
    key_env: undefined,
    http: undefined,
    model: "big",
    budget: { per_day: 5, per_month: 5 },
    max_in_flight: 100,
  };
  try {
    const each = [await start(tier), await start(tier), await start(tier)];
    const calls = Array.from({ length: 200 }, (_, index) =>
      startCall(each[index % 3] as TestGateway, {
        body: { ...aChat({ tokens: 20, delayBetweenMs: 20 }), max_tokens: 20, stream: true },
        class: "interactive",
      }),
    );
    for (const [index, live] of calls.entries())
      if (index % 2 === 0)
        void live.headed().then(
          () => live.leave(),
          () => {},
        );
    await Promise.all(calls.filter((_, index) => index % 2 === 1).map(({ answer }) => answer));
    assert.equal(site.ledger().entries.length, 10);
    const spend = await eventually(
      "the money to be settled",
      () => ask<SpendView>(each[0] as TestGateway, "GET", "/admin/overflow/spend"),
      ({ open }) => open.length === 0,
    );
    assert.deepEqual([spend.tiers[0]?.spent_today, spend.tiers[0]?.reserved_today], [5, 0]);
    const late = await call(each[1] as TestGateway, { body: { ...aChat(), max_tokens: 20 }, class: "interactive" });
    assert.deepEqual([late.status, late.headers["x-yardmaster-upstream"]], [200, "u"]);
  } finally {
    await site.close();
  }
});
