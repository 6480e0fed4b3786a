import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";
import type { SpendView, OverflowStateView } from "../../src/contract/overflow-view.ts";
import type { SimEngine } from "../../src/sim-engine/sim-engine.ts";
import { findingTemplate } from "../../src/testing/cloud/cloud-setups.ts";
import type { FakeCloud } from "../../src/testing/cloud/fake-cloud.ts";
import { OwnRedis } from "../../src/testing/servers/redis-server.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { anEngine } from "./support/an-engine.ts";
import { aChat, accepted, ended, jobOf } from "./support/jobs.ts";
import {
  admin,
  moneyOptions,
  moneySection,
  moneyUpstreams,
  withMoneyGateway,
  type MoneySetup,
} from "./support/money-world.ts";
import { aCloud, ENV, OUTSIDE_KEY, outsideKey, signalPages, type SignalPages } from "./support/overflow-world.ts";
import { programFolder, runProgram } from "./support/program.ts";
import { startTestGateway, type TestGateway, type TestGatewayOptions } from "./support/test-gateway.ts";

// What may cost money, and what may not: the cloud's own ledger says what it was asked to do.

let engine: SimEngine;
let cloud: FakeCloud;
let pages: SignalPages;
before(async () => {
  engine = await anEngine();
});
beforeEach(async () => {
  engine.resetLedger();
  cloud = await aCloud();
  pages = await signalPages();
  pages.taken = true;
});
after(() => engine.close());

const sectionOf = (setup: MoneySetup): Record<string, unknown> => moneySection({ engine, cloud, pages }, setup);
const UPSTREAMS = (): Record<string, unknown>[] => moneyUpstreams({ engine, cloud, pages });
const optionsOf = (setup: MoneySetup): TestGatewayOptions => moneyOptions({ engine, cloud, pages }, setup);
const withGateway = (setup: MoneySetup, run: (gateway: TestGateway) => Promise<void>): Promise<void> =>
  withMoneyGateway({ engine, cloud, pages }, setup, run);

const lacksOf = async (gateway: TestGateway): Promise<unknown> => {
  const job = await accepted(gateway, { body: aChat() });
  const done = await ended(gateway, job.id);
  assert.equal(done.state, "completed");
  return done.overflow?.missing[0]?.lacks;
};

const lacking: readonly [name: string, given: MoneySetup, lack: string][] = [
  ["a tier that nobody approved", { tier: { approved: false } }, "not_approved"],
  ["no key in the environment", { env: {} }, "no_key"],
  ["an API key whose data stays in the house", { key: { allow_external: false } }, "key_forbids_external"],
  ["a budget of the day below one call", { tier: { budget: { per_day: 0.49, per_month: 9 } } }, "budget_day"],
  ["a budget of the month below one call", { tier: { budget: { per_day: 9, per_month: 0.49 } } }, "budget_month"],
  ["a price above the highest", { tier: { max_price: 0.49 } }, "over_max_price"],
  ["no approval of the job's own", { tier: { approval: "per_job" } }, "no_job_approval"],
  ["no price that can be told", { tier: { price: { per_second: 1, currency: "EUR" } } }, "unpriced"],
];
for (const [name, given, lack] of lacking)
  test(`the cloud is asked nothing, and the job says why: ${name} [50.V4 80.O3]`, async () => {
    await withGateway(given, async (gateway) => {
      assert.deepEqual(await lacksOf(gateway), [lack]);
      assert.deepEqual([cloud.ledger().submits, engine.ledger().entries.length], [0, 1]);
      assert.equal(await gateway.metric(`yardmaster_overflow_refusals_total{tier="cloud",lack="${lack}"}`), 1);
    });
  });

const spoilt: readonly [name: string, spoil: (pages: SignalPages) => void][] = [
  ["slow", (each) => (each.spoilt = () => {})],
  ["500", (each) => (each.spoilt = (res) => void res.writeHead(500).end('{"guard":{"busy":true}}'))],
  ["garbage", (each) => (each.spoilt = (res) => void res.end("<html>"))],
  ["a reset", (each) => (each.spoilt = (res) => void res.socket?.resetAndDestroy())],
  ["a missing field", (each) => (each.spoilt = (res) => void res.end('{"guard":{}}'))],
  ["negative", (each) => (each.taken = -1)],
  ["a string", (each) => (each.taken = "true")],
];
for (const [name, spoil] of spoilt)
  test(`a signal that is broken (${name}) is not busy, is shown as broken, and sends nothing anywhere [50.V2]`, async () => {
    spoil(pages);
    await withGateway({ section: { signal_timeout_ms: 200 } }, async (gateway) => {
      const job = await accepted(gateway, { body: aChat() });
      const done = await ended(gateway, job.id);
      assert.deepEqual(
        [done.overflow?.decision, done.overflow?.card, done.overflow?.signals.map(({ state }) => state)],
        ["local", "free", ["broken"]],
      );
      assert.equal(cloud.ledger().submits, 0);
      const { json } = await admin<OverflowStateView>(gateway, "GET", "/overflow/u");
      assert.deepEqual(
        json.signals.map(({ state }) => state),
        ["broken"],
      );
      assert.equal(
        await gateway.metric('yardmaster_overflow_signal_broken{upstream="u",place="1",signal="semaphore"}'),
        1,
      );
    });
  });

test("an upstream that can't be reached goes to the tier, with no signal at all [50.V3]", async () => {
  const options = optionsOf({ section: { signals: [] } });
  const gateway = await startTestGateway({
    ...options,
    upstreams: [{ ...UPSTREAMS()[0], endpoints: [{ url: "http://127.0.0.1:9" }] }],
  });
  const asked = { ...gateway, keys: { ...gateway.keys, client: OUTSIDE_KEY } };
  const job = await accepted(asked, { body: aChat() });
  const done = await ended(asked, job.id);
  assert.deepEqual([done.state, done.overflow?.card, cloud.ledger().submits], ["completed", "unreachable", 1]);
  await gateway.stop();
  await cloud.close();
  await pages[Symbol.asyncDispose]();
});

test("an approval counts for one job, once, up to its price; revoked, for other content or by who asked it counts for nothing [80.O3 50.V4]", async () => {
  const given = { tier: { approval: "per_job", two_person: true }, section: { hold_s: 600 }, key: { role: "admin" } };
  await withGateway(given, async (gateway) => {
    const path = "/admin/overflow/approvals";
    const approve = (job: string, change: Record<string, unknown> = {}, key?: string): Promise<number> =>
      admin(gateway, "POST", path, { job, tier: "cloud", max_price: 0.5, ...change }, key).then(({ status }) => status);
    const lacks = (id: string, lack: string): Promise<unknown> =>
      eventually(
        `the job to lack ${lack}`,
        () => jobOf(gateway, id),
        ({ overflow }) => overflow?.missing[0]?.lacks[0] === lack,
      );
    const ids = await Promise.all(
      Array.from({ length: 5 }, async () => (await accepted(gateway, { body: aChat() })).id),
    );
    const [own = "", cheap = "", other = "", revoked = "", good = ""] = ids;
    assert.equal(await approve(own, {}, OUTSIDE_KEY), 201);
    assert.equal(await approve(cheap, { max_price: 0.49 }), 201);
    assert.equal(await approve(other, { content_hash: "0".repeat(64) }), 201);
    assert.equal(await approve(revoked, { max_price: 0.01 }), 201);
    assert.equal((await admin(gateway, "DELETE", `${path}/cloud/${revoked}`)).status, 200);
    await Promise.all([
      lacks(own, "approved_by_requester"),
      lacks(cheap, "approval_below_price"),
      lacks(other, "approval_for_other_content"),
      lacks(revoked, "approval_revoked"),
      lacks(good, "no_job_approval"),
    ]);
    assert.equal(cloud.ledger().submits, 0);
    assert.equal(await approve(good), 201);
    const done = await ended(gateway, good);
    assert.deepEqual([done.state, done.overflow?.tier, cloud.ledger().submits], ["completed", "cloud", 1]);
    assert.equal(await approve(good), 409);
    const { json } = await admin<{ error: { code: string } }>(gateway, "POST", path, {
      job: good,
      tier: "cloud",
      max_price: 1,
    });
    assert.equal(json.error.code, "JOB_OVER");
    for (const key of [gateway.keys.operator, gateway.keys.agent]) assert.equal(await approve(cheap, {}, key), 403);
    assert.equal(await approve(cheap, { tier: "other" }), 404);
    assert.equal(await approve(cheap, { max_price: -1 }), 400);
  });
});

test("the switch stops spending at once and goes on when told so; approvals and thresholds change by reload [80.O7 50.V8]", async () => {
  const given = { section: { hold_s: 600 } };
  await withGateway(given, async (gateway) => {
    assert.equal(
      (await admin(gateway, "POST", "/admin/overflow/stop", { why: "odd" }, gateway.keys.operator)).status,
      200,
    );
    const job = await accepted(gateway, { body: aChat() });
    await eventually(
      "the job to be told that spending is stopped",
      () => jobOf(gateway, job.id),
      ({ overflow }) => overflow?.missing[0]?.lacks[0] === "stopped",
    );
    const shown = await admin<SpendView>(gateway, "GET", "/admin/overflow/spend");
    assert.equal(shown.json.stopped?.why, "odd");
    assert.equal((await admin(gateway, "POST", "/admin/overflow/go", {}, gateway.keys.operator)).status, 403);
    gateway.gateway.applyConfig(gateway.configOf(optionsOf({ ...given, tier: { approved: false } })));
    assert.equal((await admin(gateway, "POST", "/admin/overflow/go", {})).status, 200);
    await eventually(
      "the new rules",
      () => jobOf(gateway, job.id),
      ({ overflow }) => overflow?.missing[0]?.lacks[0] === "not_approved",
    );
    assert.equal(cloud.ledger().submits, 0);
    gateway.gateway.applyConfig(gateway.configOf(optionsOf(given)));
    const done = await ended(gateway, job.id);
    assert.deepEqual([done.state, done.overflow?.tier, done.attempts], ["completed", "cloud", 1]);
    const spent = await admin<SpendView>(gateway, "GET", "/admin/overflow/spend");
    assert.deepEqual([spent.json.tiers[0]?.spent_today, spent.json.tiers[0]?.reserved_today], [0.5, 0]);
  });
});

test("a job that is with a tier is not disturbed by a reload that takes the approval away [50.V8]", async () => {
  cloud.script({ do: { looksUnder: 3 } });
  await withGateway({}, async (gateway) => {
    const job = await accepted(gateway, { body: aChat() });
    await cloud.until("the task to be looked at", ({ tasks }) => (tasks[0]?.looks ?? 0) > 0);
    gateway.gateway.applyConfig(gateway.configOf(optionsOf({ tier: { approved: false } })));
    const done = await ended(gateway, job.id);
    assert.deepEqual([done.state, done.overflow?.tier, cloud.ledger().submits], ["completed", "cloud", 1]);
    assert.deepEqual(await lacksOf(gateway), ["not_approved"]);
  });
});

test("a job that is with a tier is followed at its own place when a reload moves the tier, and new ones go to the new place [50.V8 50.V6]", async () => {
  cloud.script({ do: { looksUnder: 3 } });
  const other = await aCloud();
  await withGateway({}, async (gateway) => {
    const job = await accepted(gateway, { body: aChat() });
    await cloud.until("the task to be looked at", ({ tasks }) => (tasks[0]?.looks ?? 0) > 0);
    gateway.gateway.applyConfig(gateway.configOf(optionsOf({ tier: { base_url: other.url } })));
    const next = await ended(gateway, (await accepted(gateway, { body: aChat() })).id);
    const done = await ended(gateway, job.id);
    assert.deepEqual([done.state, next.state, done.overflow?.tier], ["completed", "completed", "cloud"]);
    assert.deepEqual([cloud.ledger().submits, other.ledger().submits, engine.ledger().entries.length], [1, 1, 0]);
    // Both count their tasks alike, so the other one would have handed out its own.
    assert.ok((cloud.ledger().tasks[0]?.looks ?? 0) > 3, "its own place is asked to the end");
  });
  await other.close();
});

test("a job that is with a tier waits where a restart finds the tier at another place, which is not asked for it [50.V8 50.V6 80.O2]", async () => {
  cloud.script({ do: { looksUnder: 3 } });
  const other = await aCloud();
  await using folder = await programFolder();
  const hash = (await import("node:crypto")).createHash("sha256").update(OUTSIDE_KEY).digest("hex");
  const { key: _key, ...rest } = outsideKey;
  const write = (tier: Record<string, unknown>): Promise<void> =>
    folder.write({
      auth: { keys: [{ ...rest, hash: `sha256:${hash}` }] },
      jobs: { claim_ttl_s: 2 },
      upstreams: UPSTREAMS(),
      overflow: [sectionOf({ tier })],
    });
  await write({});
  const first = runProgram(["gateway", "--config", folder.config], { env: ENV });
  const asked = async (program: typeof first): Promise<{ port: number; keys: TestGateway["keys"] }> => ({
    port: await program.ready(),
    keys: { client: OUTSIDE_KEY } as unknown as TestGateway["keys"],
  });
  const job = await accepted(await asked(first), { body: aChat() });
  await cloud.until("the task to be looked at", ({ tasks }) => (tasks[0]?.looks ?? 0) > 0);
  first.kill("SIGKILL");
  await first.end();
  await write({ base_url: other.url });
  await using second = runProgram(["gateway", "--config", folder.config], { env: ENV });
  const now = await asked(second);
  await eventually(
    "the job to wait for the place",
    () => jobOf(now, job.id),
    ({ plan }) => JSON.stringify(plan).includes("is at another place now"),
    20_000,
  );
  await write({});
  const done = await ended(now, job.id, 30_000);
  assert.deepEqual([done.state, done.attempts], ["completed", 1], JSON.stringify(done.plan));
  assert.deepEqual([cloud.ledger().submits, other.ledger().submits, engine.ledger().entries.length], [1, 0, 0]);
  await other.close();
  await cloud.close();
  await pages[Symbol.asyncDispose]();
});

test("forty jobs for a budget of ten make exactly ten calls, the others run here [80.O1 50.V4]", async () => {
  const given = { tier: { budget: { per_day: 5, per_month: 100 }, max_in_flight: 40 } };
  await withGateway(given, async (gateway) => {
    const jobs = await Promise.all(Array.from({ length: 40 }, () => accepted(gateway, { body: aChat() })));
    const done = await Promise.all(jobs.map(({ id }) => ended(gateway, id)));
    assert.ok(done.every(({ state }) => state === "completed"));
    const { submits, chargedMicros } = cloud.ledger();
    assert.deepEqual([submits, chargedMicros, engine.ledger().entries.length], [10, 5_000_000, 30]);
  });
});

test("the page decides now without side effects, health has the last look, and what is no overflow is 404 [50.V5]", async () => {
  await withGateway({}, async (gateway) => {
    const { status, json } = await admin<OverflowStateView>(
      gateway,
      "GET",
      "/overflow/u",
      undefined,
      gateway.keys.operator,
    );
    assert.deepEqual([status, json.card, json.would_go_to], [200, "loaded", "cloud"]);
    assert.equal(json.why, "guard.busy: the card holds 1 ≥ 1 job");
    assert.deepEqual(json.tiers[0]?.missing, []);
    const health = (await gateway.health()) as unknown as { overflow: OverflowStateView[] };
    assert.deepEqual([health.overflow[0]?.upstream, health.overflow[0]?.card], ["u", "loaded"]);
    assert.equal((await admin(gateway, "GET", "/overflow/none")).status, 404);
    assert.equal((await admin(gateway, "GET", "/overflow/u", undefined, OUTSIDE_KEY)).status, 403);
    const { json: spend } = await admin<SpendView>(gateway, "GET", "/admin/overflow/spend");
    assert.deepEqual([spend.open, spend.tiers[0]?.spent_today, cloud.ledger().submits], [[], 0, 0]);
  });
});

test("a gateway that is killed while a tier has its job follows the same task when it is back [80.O2 50.V6]", async () => {
  cloud.script({ do: { looksUnder: 3 } });
  await using folder = await programFolder();
  const hash = (await import("node:crypto")).createHash("sha256").update(OUTSIDE_KEY).digest("hex");
  const { key: _key, ...rest } = outsideKey;
  const keys = [{ ...rest, hash: `sha256:${hash}` }];
  const jobs = { claim_ttl_s: 2 };
  await folder.write({ auth: { keys }, jobs, upstreams: UPSTREAMS(), overflow: [sectionOf({})] });
  const first = runProgram(["gateway", "--config", folder.config], { env: ENV });
  const asked = async (program: typeof first): Promise<{ port: number; keys: TestGateway["keys"] }> => ({
    port: await program.ready(),
    keys: { client: OUTSIDE_KEY } as unknown as TestGateway["keys"],
  });
  const job = await accepted(await asked(first), { body: aChat() });
  await cloud.until("the task to be looked at", ({ tasks }) => (tasks[0]?.looks ?? 0) > 0);
  first.kill("SIGKILL");
  await first.end();
  await using second = runProgram(["gateway", "--config", folder.config], { env: ENV });
  const done = await ended(await asked(second), job.id);
  assert.deepEqual(
    [done.state, done.overflow?.tier, done.attempts],
    ["completed", "cloud", 1],
    JSON.stringify(done.plan),
  );
  const { submits, chargedMicros } = cloud.ledger();
  assert.deepEqual([submits, chargedMicros, engine.ledger().entries.length], [1, 500_000, 0]);
  await cloud.close();
  await pages[Symbol.asyncDispose]();
});

test("with Redis away nothing is sent, though the card is busy and the tier lacks nothing else [80.O6]", async () => {
  await using redis = await OwnRedis.start();
  const file = { coordination: "redis", redis_url: redis.url, coordination_timeout_ms: 500 };
  await withGateway({ file, section: { hold_s: 600 } }, async (gateway) => {
    const { json } = await admin<OverflowStateView>(gateway, "GET", "/overflow/u");
    assert.deepEqual(json.tiers[0]?.missing, []);
    redis.pause();
    const away = await admin<OverflowStateView>(gateway, "GET", "/overflow/u");
    assert.deepEqual([away.json.tiers[0]?.missing, away.json.would_go_to], [["ledger_away"], null]);
    assert.equal((await admin(gateway, "GET", "/admin/overflow/spend")).status, 503);
    redis.resume();
    assert.equal(cloud.ledger().submits, 0);
  });
});

test("a submission whose answer was lost is found by the job's key where the place can be asked, followed, and paid for once [80.O2 80.C32 50.V6]", async () => {
  cloud.script({ do: { submit: "resetAfter" }, times: 1 });
  await withGateway({ tier: { http: findingTemplate } }, async (gateway) => {
    const job = await accepted(gateway, { body: aChat() });
    const done = await ended(gateway, job.id);
    assert.deepEqual([done.state, done.overflow?.tier, done.overflow?.price_paid], ["completed", "cloud", 0.5]);
    const { submits, chargedMicros } = cloud.ledger();
    assert.deepEqual([submits, chargedMicros, engine.ledger().entries.length], [1, 500_000, 0]);
    const { json } = await admin<SpendView>(gateway, "GET", "/admin/overflow/spend");
    assert.deepEqual([json.open, json.tiers[0]?.spent_today], [[], 0.5]);
  });
});
