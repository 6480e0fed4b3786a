import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { describe, test } from "node:test";
import type { Approval, ReserveAsk } from "../../decide/overflow/ledger-book.ts";
import { systemClock } from "../../kernel/clock.ts";
import { systemRandom } from "../../kernel/random.ts";
import { Secret } from "../../kernel/secret.ts";
import { Signer } from "../../kernel/signer.ts";
import type { DocStore } from "./doc-store.ts";
import { Ledger, type LedgerMemory } from "./ledger.ts";

/** A place for the ledger; each call of `open` is another gateway's, or the same one's after a restart. */
export interface DocsUnderTest {
  open(): Promise<DocStore>;
}

export const anAsk = (job: string, change: Partial<ReserveAsk> = {}): ReserveAsk => ({
  id: `t:${job}`,
  tier: "t",
  subject: job,
  micros: 1_000_000,
  currency: "EUR",
  budget: { dayMicros: 100_000_000, monthMicros: 1_000_000_000 },
  approval: null,
  ttlMs: 60_000,
  ...change,
});

export function aMemory(): LedgerMemory {
  let known: string | null = null;
  return { read: () => known, write: (epoch) => void (known = epoch) };
}

const SECRET = new Secret("a-secret-of-the-test-0123456789abcdef");
const EVERYDAY = { newEpoch: randomUUID, clock: systemClock, random: systemRandom };
export const aLedger = async (
  under: DocsUnderTest,
  memory = aMemory(),
  secret = SECRET,
  onStanding: (why: string | null) => void = () => {},
): Promise<Ledger> =>
  new Ledger({
    onStanding,
    store: await under.open(),
    memory,
    ...EVERYDAY,
    signer: () => Promise.resolve(new Signer([secret])),
  });
const THING = { hash: "h", provider: "http https://cloud" };
const GIVEN = { ...THING, tier: "t", subject: "j", maxMicros: 1_000_000, currency: "EUR", by: "boss" };

type Signed = Approval & { readonly signature: { readonly key: string; readonly mac: string } };
const EDITS: readonly ((signed: Signed) => object)[] = [
  ({ signature: _none, ...approval }) => approval,
  (signed) => ({ ...signed, maxMicros: 2_000_000 }),
  (signed) => ({ ...signed, expiresAt: signed.expiresAt + 1 }),
  (signed) => ({ ...signed, by: "another" }),
  (signed) => ({ ...signed, signature: { ...signed.signature, mac: "0".repeat(64) } }),
  (signed) => ({ ...signed, signature: "none" }),
  () => [],
  () => ({ tier: 1, subject: {}, at: "x", expiresAt: 1e300, signature: null }),
];

/** The same assertions for every place that the ledger may lie in. `shared`: several gateways at once. */
export function ledgerSuite(name: string, shared: boolean, fresh: () => Promise<DocsUnderTest>): void {
  describe(`the ledger in ${name}`, () => {
    raceSuite(shared, fresh);
    keepingSuite(fresh);
  });
}

function raceSuite(shared: boolean, fresh: () => Promise<DocsUnderTest>): void {
  test("1,000 jobs race for a budget of 100: exactly 100 may call, whoever asks [80.O1 80.C30 80.I5 80.D39]", async () => {
    const under = await fresh();
    const ledgers = [await aLedger(under)];
    if (shared) ledgers.push(await aLedger(under), await aLedger(under));
    const calls = await Promise.all(
      Array.from({ length: 1_000 }, async (_, index) => {
        const ledger = ledgers[index % ledgers.length] as Ledger;
        const ask = anAsk(`job${index}`);
        const reserved = await ledger.reserve(ask);
        if (reserved.kind === "refused") {
          assert.equal(reserved.lack, "budget_day", reserved.why);
          return 0;
        }
        return (await ledger.begin(ask)).kind === "done" ? 1 : 0;
      }),
    );
    assert.equal(
      calls.reduce<number>((sum, each) => sum + each, 0),
      100,
    );
    const [spend] = (await ledgers[0]?.spend([{ tier: "t" }])) ?? [];
    assert.deepEqual(spend?.today, { spent: 0, reserved: 100_000_000 });
    for (const ledger of ledgers) await ledger.close();
  });

  test("one job asked for by many at once is begun once [80.O2]", async () => {
    const under = await fresh();
    const ledgers = shared ? [await aLedger(under), await aLedger(under)] : [await aLedger(under)];
    await ledgers[0]?.reserve(anAsk("job"));
    const begun = await Promise.all(
      Array.from({ length: 20 }, (_, index) => (ledgers[index % ledgers.length] as Ledger).begin(anAsk("job"))),
    );
    assert.equal(begun.filter(({ kind }) => kind === "done").length, 1);
    for (const ledger of ledgers) await ledger.close();
  });
}

function keepingSuite(fresh: () => Promise<DocsUnderTest>): void {
  test("what is settled is told once, with whose it was, however often and wherever it is settled again [60.K4]", async () => {
    const under = await fresh();
    const told: unknown[] = [];
    const onSettled: NonNullable<ConstructorParameters<typeof Ledger>[0]["onSettled"]> = ({ payer, chargedMicros }) =>
      void told.push([payer, chargedMicros]);
    const memory = aMemory();
    const signer = (): Promise<Signer> => Promise.resolve(new Signer([SECRET]));
    const first = new Ledger({ ...EVERYDAY, store: await under.open(), memory, onSettled, signer });
    const payer = { keyId: "k", model: "m", upstream: "u" };
    const [paid, free] = [anAsk("paid", { payer }), anAsk("free", { payer })];
    for (const ask of [paid, free]) {
      await first.reserve(ask);
      await first.begin(ask);
    }
    await first.settle(paid, 600_000);
    await first.settle(paid, 600_000);
    await first.giveBack(free, "nothing was charged");
    await first.close();
    const second = new Ledger({ ...EVERYDAY, store: await under.open(), memory, onSettled, signer });
    await second.settle(paid, 600_000);
    await second.close();
    assert.deepEqual(told, [[payer, 600_000]]);
  });

  test("what was spent and held, approvals and the switch are there after a restart [80.O2 80.O7 80.C32]", async () => {
    const under = await fresh();
    const first = await aLedger(under);
    const [paid, held] = [anAsk("paid"), anAsk("held")];
    await first.reserve(paid);
    await first.begin(paid);
    await first.settle(paid, 700_000);
    await first.reserve(held);
    await first.begin(held);
    await first.outcomeUnknown(held, "the answer was lost");
    assert.equal((await first.approve(GIVEN, 60_000))?.state, "open");
    await first.setSwitch({ by: "boss", why: "looks odd" });
    await first.close();
    const second = await aLedger(under);
    assert.deepEqual((await second.spend([{ tier: "t" }]))[0]?.today, { spent: 700_000, reserved: 1_000_000 });
    assert.deepEqual(
      (await second.reservations()).map(({ subject, state }) => [subject, state]),
      [["held", "unknown"]],
    );
    assert.deepEqual(
      (await second.approvals()).map(({ subject, by }) => [subject, by]),
      [["j", "boss"]],
    );
    assert.equal((await second.spendSwitch()).stopped?.why, "looks odd");
    const refused = await second.reserve(anAsk("more"));
    assert.equal(refused.kind === "refused" && refused.lack, "stopped");
    await second.setSwitch(null);
    assert.equal((await second.reserve(anAsk("more"))).kind, "done");
    const again = await second.reserve(paid);
    assert.equal(again.kind === "refused" && again.lack, "already_charged");
    await second.close();
  });

  test("the switch stops a call that is reserved already, and a halted account goes on when told so [80.O7 80.O5]", async () => {
    const ledger = await aLedger(await fresh());
    await ledger.reserve(anAsk("a"));
    await ledger.setSwitch({ by: "boss", why: "" });
    const begun = await ledger.begin(anAsk("a"));
    assert.equal(begun.kind === "refused" && begun.lack, "stopped");
    await ledger.setSwitch(null);
    await ledger.begin(anAsk("a"));
    await ledger.settle(anAsk("a"), 1_000_001);
    const halted = await ledger.reserve(anAsk("b"));
    assert.equal(halted.kind === "refused" && halted.lack, "halted");
    assert.equal(await ledger.resume("t"), true);
    assert.equal(await ledger.resume("t"), false);
    assert.equal((await ledger.reserve(anAsk("b"))).kind, "done");
    await ledger.close();
  });

  test("what was reserved and not used comes back by itself, and asking costs nothing [80.O2]", async () => {
    const ledger = await aLedger(await fresh());
    await ledger.reserve(anAsk("a", { ttlMs: 0 }));
    assert.equal(await ledger.peek(anAsk("b", { micros: 100_000_000 })), "budget_day");
    await ledger.sweep();
    assert.deepEqual((await ledger.spend([{ tier: "t" }]))[0]?.today, { spent: 0, reserved: 0 });
    assert.equal(await ledger.peek(anAsk("b", { micros: 100_000_000 })), null);
    assert.deepEqual(await ledger.reservations(), []);
    await ledger.close();
  });

  test("an approval is one for a job and tier: used it stays used, revoked it counts no more [80.O3]", async () => {
    const ledger = await aLedger(await fresh());
    const given = GIVEN;
    const asked = anAsk("j", { approval: { ...THING, requester: "c", twoPerson: true } });
    assert.equal((await ledger.reserve(asked)).kind, "refused");
    await ledger.approve(given, 60_000);
    assert.equal((await ledger.revoke("t", "j"))?.state, "revoked");
    assert.equal((await ledger.reserve(asked)).kind, "refused");
    await ledger.approve(given, 60_000);
    assert.equal((await ledger.reserve(asked)).kind, "done");
    assert.equal((await ledger.begin(asked, THING)).kind, "done");
    assert.equal(await ledger.approve(given, 60_000), null);
    assert.equal(await ledger.revoke("t", "j"), null);
    await ledger.close();
  });

  test("an approval that was made or changed in the store itself is none: forged, dearer, later, used once more [80.C31 80.O3]", async () => {
    const asked = anAsk("j", { approval: { ...THING, requester: "c", twoPerson: true } });
    for (const edit of EDITS) {
      const under = await fresh();
      const store = await under.open();
      const ledger = await aLedger(under);
      await ledger.approve(GIVEN, 60_000);
      const name = "approval/t/j";
      const [doc = null] = (await store.load([name])).docs;
      const text = JSON.stringify(edit(JSON.parse(doc ?? "") as Signed));
      assert.equal(await store.commit({ from: [[name, doc]], writes: [{ name, text, open: true }] }), "done");
      const refused = await ledger.reserve(asked);
      assert.equal(refused.kind === "refused" && refused.lack, "approval_forged", text);
      assert.deepEqual(
        (await ledger.approvals()).map(({ state }) => state),
        ["forged"],
      );
      // Who may approve does so over it.
      assert.equal((await ledger.approve(GIVEN, 60_000))?.state, "open");
      assert.equal((await ledger.reserve(asked)).kind, "done");
      await ledger.close();
      await store.close();
    }
  });

  test("a used approval that is written back as it was before serves no second call of a job that was charged [80.C31 80.O3]", async () => {
    const under = await fresh();
    const store = await under.open();
    const ledger = await aLedger(under);
    const asked = anAsk("j", { approval: { ...THING, requester: "c", twoPerson: true } });
    await ledger.approve(GIVEN, 60_000);
    const name = "approval/t/j";
    const [before = null] = (await store.load([name])).docs;
    await ledger.reserve(asked);
    await ledger.begin(asked, THING);
    await ledger.settle(asked, 1);
    const [used = null] = (await store.load([name])).docs;
    await store.commit({ from: [[name, used]], writes: [{ name, text: before ?? "", open: true }] });
    const refused = await ledger.reserve(asked);
    assert.equal(refused.kind === "refused" && refused.lack, "already_charged");
    await ledger.close();
    await store.close();
  });

  test("approvals whose time is over are listed no more, revoked ones too, so that they don't fill the store", async () => {
    const ledger = await aLedger(await fresh());
    for (const subject of ["open", "revoked"]) await ledger.approve({ ...GIVEN, subject }, 0);
    await ledger.revoke("t", "revoked");
    await ledger.approve({ ...GIVEN, subject: "living" }, 60_000);
    await ledger.sweep();
    assert.deepEqual(
      (await ledger.approvals()).map(({ subject }) => subject),
      ["living"],
    );
    await ledger.close();
  });

  test("a gateway with another signing secret takes no approval of the others for true [80.C31]", async () => {
    const under = await fresh();
    const first = await aLedger(under);
    await first.approve(GIVEN, 60_000);
    await first.close();
    const other = await aLedger(under, aMemory(), new Secret("another-secret-0123456789abcdef0123456789"));
    const refused = await other.reserve(anAsk("j", { approval: { ...THING, requester: "c", twoPerson: true } }));
    assert.equal(refused.kind === "refused" && refused.lack, "approval_forged");
    await other.close();
  });

  test("a ledger that was emptied, or is another one, spends nothing until an operator accepts it, and says why, once [80.O6]", async () => {
    const memory = aMemory();
    const first = await aLedger(await fresh(), memory);
    assert.equal((await first.reserve(anAsk("a"))).kind, "done");
    await first.close();
    const told: (string | null)[] = [];
    const second = await aLedger(await fresh(), memory, SECRET, (why) => told.push(why));
    const refused = await second.reserve(anAsk("b"));
    assert.equal(refused.kind === "refused" && refused.lack, "ledger_away");
    assert.equal(await second.peek(anAsk("b")), "ledger_away");
    const why = await second.whyRefused();
    assert.match(why ?? "", /spend accept/);
    assert.deepEqual(told, [why]);
    await second.acceptEmptied();
    assert.equal((await second.reserve(anAsk("b"))).kind, "done");
    assert.equal(await second.whyRefused(), null);
    assert.deepEqual(told, [why, null]);
    await second.close();
  });
}
