import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";
import type { OverflowStateView, SpendView } from "../../src/contract/overflow-view.ts";
import type { SimEngine } from "../../src/sim-engine/sim-engine.ts";
import { findingTemplate } from "../../src/testing/cloud/cloud-setups.ts";
import type { FakeCloud } from "../../src/testing/cloud/fake-cloud.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { anEngine } from "./support/an-engine.ts";
import type { JobView } from "../../src/contract/job-view.ts";
import { startCall, type CallAnswer } from "./support/calls.ts";
import { chat, PAID, withChatOverflow } from "./support/chat-overflow.ts";
import { aChat, accepted, ask, ended, jobOf } from "./support/jobs.ts";
import { admin, moneyOptions, withMoneyGateway, type MoneySetup } from "./support/money-world.ts";
import { aCloud, ENV, signalPages, type SignalPages } from "./support/overflow-world.ts";
import type { TestGateway } from "./support/test-gateway.ts";

// Tiers that say no: to the account, for a moment, or though they have taken the work; and approvals of what is over.

let engine: SimEngine;
let cloud: FakeCloud;
let pages: SignalPages;
before(async () => {
  engine = await anEngine();
});
beforeEach(() => engine.resetLedger());
after(() => engine.close());

async function withGateway(setup: MoneySetup, run: (gateway: TestGateway) => Promise<void>): Promise<void> {
  cloud = await aCloud();
  pages = await signalPages();
  pages.taken = true;
  await withMoneyGateway({ engine, cloud, pages }, setup, run);
}
const lacksOf = async (gateway: TestGateway): Promise<unknown> => {
  const done = await ended(gateway, (await accepted(gateway, { body: aChat() })).id);
  return [done.state, done.overflow?.tier ?? done.overflow?.missing[0]?.lacks];
};
const tierOf = async (gateway: TestGateway): Promise<OverflowStateView["tiers"][number] | undefined> =>
  (await admin<OverflowStateView>(gateway, "GET", "/overflow/u", undefined, gateway.keys.operator)).json.tiers[0];

for (const [submit, says] of [
  ["noMoney", /402/],
  ["badKey", /401/],
] as const)
  test(`a tier that refuses the account (${submit}) is asked once, is out with its words, and comes back by an operator or a changed configuration [80.O5 50.V4 50.V5]`, async () => {
    await withGateway({}, async (gateway) => {
      cloud.script({ do: { submit } });
      assert.deepEqual(await lacksOf(gateway), ["completed", ["tier_refused"]]);
      for (let n = 0; n < 3; n += 1) assert.deepEqual(await lacksOf(gateway), ["completed", ["halted"]]);
      assert.equal(cloud.ledger().submits, 1);
      const shown = await tierOf(gateway);
      assert.deepEqual(shown?.missing, ["halted"]);
      assert.match(shown?.halted?.why ?? "", says);
      assert.ok((shown?.halted?.until ?? "") > (shown?.halted?.at ?? "z"));
      const health = (await gateway.health()) as unknown as { overflow: OverflowStateView[] };
      assert.match(health.overflow[0]?.tiers[0]?.halted?.why ?? "", says);
      const spend = await admin<SpendView>(gateway, "GET", "/admin/overflow/spend");
      assert.match(spend.json.tiers[0]?.halted?.why ?? "", says);
      assert.deepEqual([spend.json.open, spend.json.tiers[0]?.reserved_today], [[], 0]);

      // Still refused: an operator's word is one more call.
      assert.equal((await admin(gateway, "POST", "/admin/overflow/tiers/cloud/resume")).status, 200);
      assert.deepEqual(await lacksOf(gateway), ["completed", ["tier_refused"]]);
      assert.deepEqual(await lacksOf(gateway), ["completed", ["halted"]]);
      assert.equal(cloud.ledger().submits, 2);

      cloud.clearScript();
      const changed = moneyOptions({ engine, cloud, pages }, { tier: { max_in_flight: 15 } });
      gateway.gateway.applyConfig(gateway.configOf(changed));
      assert.deepEqual(await lacksOf(gateway), ["completed", "cloud"]);
      assert.equal((await tierOf(gateway))?.halted, null);
    });
  });

for (const [name, sim] of [
  ["says 402", { status: 402 }],
  ["says 401", { status: 401 }],
] as const)
  test(`a chat that finds out that a tier ${name} is the last one there: the others go on here and nobody asks again [80.O5 50.V7]`, async () => {
    const there = await anEngine({ models: ["big"] });
    try {
      await withChatOverflow({ here: engine, there: there.url, tier: PAID }, async (gateway) => {
        const first = startCall(gateway, { body: chat(sim) });
        const state = await eventually(
          "the tier to be out",
          () => admin<OverflowStateView>(gateway, "GET", "/overflow/u", undefined, gateway.keys.operator),
          ({ json }) => json.tiers[0]?.halted !== null,
        );
        assert.match(state.json.tiers[0]?.halted?.why ?? "", /the tier answered 40[12]/);
        const second = startCall(gateway, { body: chat() });
        await eventually(
          "both to wait here",
          async () => (await gateway.health()).upstreams[0]?.queue.waiting.interactive ?? 0,
          (count) => count === 3,
        );
        assert.equal(there.ledger().entries.length, 1);
        first.leave();
        second.leave();
      });
    } finally {
      await there.close();
    }
  });

test("a paid chat that no tier may take is on record with what each lacks, and others like it within a minute are no further record [80.O3 50.V7]", async () => {
  const there = await anEngine({ models: ["big"] });
  try {
    await withChatOverflow({ here: engine, there: there.url, tier: { ...PAID, approved: false } }, async (gateway) => {
      const calls = Array.from({ length: 3 }, () => startCall(gateway, { body: chat() }));
      await eventually(
        "all to wait here",
        async () => (await gateway.health()).upstreams[0]?.queue.waiting.interactive ?? 0,
        (count) => count === 4,
      );
      const records = await eventually(
        "a record",
        async () => (await gateway.audit()).records.filter(({ outcome }) => outcome === "money_refused"),
        ({ length }) => length > 0,
      );
      assert.deepEqual(
        records.map(({ keyId, upstream, overflow }) => [keyId, upstream, overflow]),
        [["outside", "u", "site: 0.00, site: not_approved"]],
      );
      assert.equal(there.ledger().entries.length, 0);
      for (const each of calls) each.leave();
    });
  } finally {
    await there.close();
  }
});

test("a job that has ended is not approved: the refusal has a code, and there is no approval [80.O3]", async () => {
  await withGateway({ tier: { approval: "per_job" } }, async (gateway) => {
    const job = await accepted(gateway, { body: aChat() });
    assert.equal((await ended(gateway, job.id)).state, "completed");
    const ask = { job: job.id, tier: "cloud", max_price: 0.5 };
    const answer = await admin<{ error: { code: string } }>(gateway, "POST", "/admin/overflow/approvals", ask);
    assert.deepEqual([answer.status, answer.json.error.code], [409, "JOB_OVER"]);
    const { json } = await admin<{ data: unknown[] }>(gateway, "GET", "/admin/overflow/approvals");
    assert.deepEqual(json.data, []);
  });
});

test("an approver reads a job that waits for an approval, without its owner's address, and no other job [60.K2 80.O3]", async () => {
  const setup = {
    tier: { approval: "per_job" },
    section: { hold_s: 600 },
    file: { jobs: { callback_allow: ["http://127.0.0.1:9"], callback_secret_env: "CALLBACK_SECRET" } },
    env: { ...ENV, CALLBACK_SECRET: "a-secret-of-the-test-0123456789abcdef" },
  };
  await withGateway(setup, async (gateway) => {
    const look = async (id: string, rest = ""): Promise<CallAnswer> =>
      ask(gateway, `/${id}${rest}`, { key: gateway.keys.approver });
    const job = await accepted(gateway, { body: aChat(), callback_url: "http://127.0.0.1:9/of?token=owners" });
    await eventually(
      "it to wait",
      () => jobOf(gateway, job.id),
      ({ overflow }) => overflow?.missing[0]?.lacks[0] === "no_job_approval",
    );
    const seen = await look(job.id);
    assert.equal(seen.status, 200, seen.text);
    const view = JSON.parse(seen.text) as JobView;
    assert.deepEqual(
      [view.id, view.overflow?.missing[0]?.tier, view.key, view.callback],
      [job.id, "cloud", "outside", null],
    );
    assert.doesNotMatch(seen.text, /owners|"hi"/);
    for (const rest of ["/result", "/events"]) assert.equal((await look(job.id, rest)).status, 403, rest);
    assert.equal((await look("")).status, 403, "the list");
    const approval = { job: job.id, tier: "cloud", max_price: 0.5 };
    assert.equal((await admin(gateway, "POST", "/admin/overflow/approvals", approval)).status, 201);
    assert.equal((await ended(gateway, job.id)).overflow?.tier, "cloud");
    assert.equal((await look(job.id)).status, 404, "one that waits for nobody's word");
  });
});

test("a cloud that takes the work and says that it is too busy is asked by the job's key, and its task is followed and paid for once [80.O2 80.O5 80.C32]", async () => {
  await withGateway({ tier: { http: findingTemplate } }, async (gateway) => {
    cloud.script({ do: { submit: "takenRateLimited" }, times: 1 });
    const done = await ended(gateway, (await accepted(gateway, { body: aChat() })).id);
    assert.deepEqual([done.state, done.overflow?.tier, done.overflow?.price_paid], ["completed", "cloud", 0.5]);
    const { submits, chargedMicros } = cloud.ledger();
    assert.deepEqual([submits, chargedMicros, engine.ledger().entries.length], [1, 500_000, 0]);
  });
});

test("a cloud that is too busy and knows nothing of the job costs nothing, and the job runs here; its money is held until that is known [80.O2 80.O5]", async () => {
  await withGateway({ tier: { http: findingTemplate } }, async (gateway) => {
    cloud.script({ do: { submit: "rateLimited" }, times: 1 });
    const job = await accepted(gateway, { body: aChat() });
    await eventually(
      "the cloud to have said so",
      () => cloud.ledger().submits,
      (count) => count === 1,
    );
    const held = await admin<SpendView>(gateway, "GET", "/admin/overflow/spend");
    assert.deepEqual([held.json.open[0]?.state, held.json.tiers[0]?.reserved_today], ["begun", 0.5]);
    assert.equal((await jobOf(gateway, job.id)).state, "running");
    const done = await ended(gateway, job.id);
    assert.deepEqual([done.state, engine.ledger().entries.length], ["completed", 1]);
    const { json } = await admin<SpendView>(gateway, "GET", "/admin/overflow/spend");
    assert.deepEqual([json.open, json.tiers[0]?.reserved_today, json.tiers[0]?.spent_today], [[], 0, 0]);
  });
});
