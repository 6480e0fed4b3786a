import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import {
  periodOf,
  stepLedger,
  type Account,
  type Approval,
  type LedgerEvent,
  type LedgerView,
  type Reservation,
  type ReserveAsk,
} from "./ledger-book.ts";

const NOW = 1_790_000_000_000;
const EMPTY: LedgerView = { spend: { stopped: null }, account: null, reservation: null, approval: null };
const ask = (change: Partial<ReserveAsk> = {}): LedgerEvent => ({
  kind: "reserve",
  id: "t:job",
  tier: "t",
  subject: "job",
  micros: 40,
  currency: "EUR",
  budget: { dayMicros: 100, monthMicros: 200 },
  approval: null,
  ttlMs: 60_000,
  ...change,
});
const approval = (change: Partial<Approval> = {}): Approval => ({
  tier: "t",
  subject: "job",
  hash: "h",
  provider: "http https://cloud",
  maxMicros: 50,
  currency: "EUR",
  by: "boss",
  at: NOW,
  expiresAt: NOW + 60_000,
  state: "open",
  reservation: null,
  ...change,
});
const THING = { hash: "h", provider: "http https://cloud" };
const needs = { ...THING, requester: "client", twoPerson: true };
const BEGIN: LedgerEvent = { kind: "begin", approval: THING };

function after(view: LedgerView, event: LedgerEvent, now = NOW): LedgerView {
  const step = stepLedger(view, event, now);
  assert.equal(step.kind, "moved", JSON.stringify(step));
  return (step as Extract<typeof step, { kind: "moved" }>).view;
}
const lackOf = (view: LedgerView, event: LedgerEvent, now = NOW): unknown => {
  const step = stepLedger(view, event, now);
  return step.kind === "refused" ? step.lack : step.kind;
};
const NONE = { spent: 0, reserved: 0 };
const sumsOf = (view: LedgerView): unknown => {
  const { day, month } = periodOf(NOW);
  return [view.account?.days[day], view.account?.months[month]];
};

test("what is reserved counts at once, what was charged takes its place, and a charge is final [50.V4 80.O1 80.C30]", () => {
  const reserved = after(EMPTY, ask());
  assert.deepEqual(sumsOf(reserved), [
    { spent: 0, reserved: 40 },
    { spent: 0, reserved: 40 },
  ]);
  const settled = after(after(reserved, BEGIN), { kind: "settle", chargedMicros: 30 });
  assert.deepEqual(sumsOf(settled), [
    { spent: 30, reserved: 0 },
    { spent: 30, reserved: 0 },
  ]);
  assert.equal(lackOf(settled, { kind: "settle", chargedMicros: 30 }), "same");
  assert.equal(lackOf(settled, ask()), "already_charged");
  assert.equal(lackOf(settled, { kind: "void", why: "", expired: false }), "same");
});

test("a day and a month that are full refuse by name, and the next day has room again [50.V4]", () => {
  const full = { ...after(after(EMPTY, ask({ micros: 80 })), BEGIN), reservation: null };
  assert.equal(lackOf(full, ask({ micros: 21 })), "budget_day");
  assert.equal(lackOf(full, ask({ micros: 20 })), "moved");
  const tomorrow = NOW + 86_400_000;
  const second = { ...after(full, ask({ micros: 100 }), tomorrow), reservation: null };
  assert.equal(lackOf(second, ask({ micros: 21 }), tomorrow + 86_400_000), "budget_month");
});

test("an outcome that nobody knows keeps the money held until it is settled or given back [80.O2 80.C32]", () => {
  const begun = after(after(EMPTY, ask()), BEGIN);
  const unknown = after(begun, { kind: "unknown", why: "the answer was lost" });
  assert.deepEqual(sumsOf(unknown), sumsOf(begun));
  assert.equal(lackOf(unknown, ask()), "underway");
  assert.equal(lackOf(unknown, BEGIN), "underway");
  assert.equal(lackOf(unknown, { kind: "void", why: "", expired: true }, NOW + 1e12), "same");
  assert.equal(after(unknown, { kind: "settle", chargedMicros: 7 }).reservation?.chargedMicros, 7);
});

test("a charge that comes after somebody has said that there was none is booked all the same, once [80.O2 80.C32]", () => {
  const begun = after(after(EMPTY, ask()), BEGIN);
  const freed = after(begun, { kind: "void", why: "nothing was charged, says boss", expired: false });
  assert.deepEqual(sumsOf(freed), [NONE, NONE]);
  const late = after(freed, { kind: "settle", chargedMicros: 40 });
  const spent = { spent: 40, reserved: 0 };
  assert.deepEqual([sumsOf(late), late.reservation?.state], [[spent, spent], "settled"]);
  assert.equal(lackOf(late, { kind: "settle", chargedMicros: 40 }), "same");
  // One that never began has cost nothing, whatever is said.
  const unused = after(after(EMPTY, ask()), { kind: "void", why: "", expired: false });
  assert.equal(lackOf(unused, { kind: "settle", chargedMicros: 40 }), "same");
});

test("a reservation that did not begin runs out, and one that ran out or was given back does not begin [80.O2]", () => {
  const reserved = after(EMPTY, ask());
  assert.equal(lackOf(reserved, BEGIN, NOW + 60_000), "reservation_over");
  assert.equal(lackOf(reserved, { kind: "void", why: "", expired: true }, NOW + 59_999), "same");
  const over = after(reserved, { kind: "void", why: "", expired: true }, NOW + 60_000);
  assert.deepEqual(sumsOf(over), [
    { spent: 0, reserved: 0 },
    { spent: 0, reserved: 0 },
  ]);
  assert.equal(lackOf(over, BEGIN), "reservation_over");
  assert.equal(lackOf(over, ask()), "moved");
});

test("a call begins once [80.O2]", () => {
  const begun = after(after(EMPTY, ask()), BEGIN);
  assert.equal(lackOf(begun, BEGIN), "underway");
  assert.equal(lackOf(begun, ask()), "underway");
});

test("a charge above what was reserved is booked, and stops the account until an operator has looked [80.O5]", () => {
  const over = after(after(after(EMPTY, ask()), BEGIN), { kind: "settle", chargedMicros: 41 });
  assert.match(over.account?.halted?.why ?? "", /price has changed/);
  assert.equal(lackOf({ ...over, reservation: null }, ask({ micros: 1 })), "halted");
});

const REFUSED: LedgerEvent = {
  kind: "void",
  why: "402",
  expired: false,
  refusal: { why: "it has no money left", setup: "one", pauseMs: 3_600_000 },
};
const refusedOnce = (): LedgerView => after(after(after(EMPTY, ask({ setup: "one" })), BEGIN), REFUSED);
const others = (change: Partial<ReserveAsk>): LedgerEvent => ask({ id: "t:other", subject: "other", ...change });

test("a tier that refuses the account is out for whoever asks next, and the money of who found it out is free [80.O5 50.V4]", () => {
  const view = { ...refusedOnce(), reservation: null };
  assert.deepEqual(sumsOf(view), [NONE, NONE]);
  assert.deepEqual(view.account?.halted, {
    at: NOW,
    why: "it has no money left",
    until: NOW + 3_600_000,
    setup: "one",
  });
  assert.equal(lackOf(view, others({ setup: "one" })), "halted");
  assert.equal(lackOf(view, others({ setup: "one" }), NOW + 3_599_999), "halted");
  // What was reserved before it was found out does not begin either.
  const reserved = after(EMPTY, others({ setup: "one" }));
  assert.equal(lackOf({ ...view, reservation: reserved.reservation }, BEGIN), "halted");
});

for (const [name, setup, ms] of [
  ["its pause is over", "one", 3_600_000],
  ["its configuration has changed", "two", 1],
] as const)
  test(`it is asked again when ${name}, and the call that was reserved then begins [80.O5]`, () => {
    const view = { ...refusedOnce(), reservation: null };
    const reserved = after(view, others({ setup }), NOW + ms);
    assert.equal(reserved.account?.halted, null);
    assert.equal(lackOf(reserved, BEGIN, NOW + ms), "moved");
  });

test("a halt that an operator has to end is not taken back by one that ends by itself, and takes its place [80.O5]", () => {
  const halted = { at: 1, why: "the price has changed" };
  const begun = after(after(EMPTY, ask({ setup: "one" })), BEGIN);
  const view = { ...begun, account: { ...(begun.account as Account), halted } };
  assert.deepEqual(after(view, REFUSED).account?.halted, halted);
  const refusedThen = refusedOnce().account as Account;
  const over = after({ ...begun, account: refusedThen }, { kind: "settle", chargedMicros: 41 });
  assert.equal(over.account?.halted?.until, undefined);
  assert.match(over.account?.halted?.why ?? "", /price has changed/);
});

for (const told of [null, Number.NaN, -1, 1.5, Number.POSITIVE_INFINITY])
  test(`a charge that can't be read (${String(told)}) is taken at what was reserved [80.O5]`, () => {
    const settled = after(after(after(EMPTY, ask()), BEGIN), { kind: "settle", chargedMicros: told });
    assert.deepEqual([settled.reservation?.chargedMicros, settled.account?.halted], [40, null]);
  });

for (const micros of [Number.NaN, -1, 0.5, Number.POSITIVE_INFINITY])
  test(`a price of ${micros} reserves nothing [80.O5]`, () => assert.equal(lackOf(EMPTY, ask({ micros })), "unpriced"));

test("the switch stops what would be reserved and what would begin [80.O7]", () => {
  const stopped = { stopped: { by: "boss", at: NOW, why: "" } };
  assert.equal(lackOf({ ...EMPTY, spend: stopped }, ask()), "stopped");
  assert.equal(lackOf({ ...after(EMPTY, ask()), spend: stopped }, BEGIN), "stopped");
});

const approvals: readonly [name: string, given: Approval | null, lack: string][] = [
  ["none", null, "no_job_approval"],
  ["of another job", approval({ subject: "other" }), "no_job_approval"],
  ["for another tier", approval({ tier: "other" }), "no_job_approval"],
  ["expired", approval({ expiresAt: NOW }), "approval_expired"],
  ["revoked", approval({ state: "revoked" }), "approval_revoked"],
  ["of other content", approval({ hash: "x" }), "approval_for_other_content"],
  ["of another provider", approval({ provider: "kling https://cloud" }), "approval_for_other_provider"],
  ["forged", approval({ state: "forged" }), "approval_forged"],
  ["used before", approval({ state: "used", reservation: "t:job" }), "approval_used"],
  ["below the price", approval({ maxMicros: 39 }), "approval_below_price"],
  ["in another currency", approval({ currency: "USD" }), "approval_below_price"],
  ["by who asked", approval({ by: "client" }), "approved_by_requester"],
];
for (const [name, given, lack] of approvals)
  test(`no money without a live approval of its own: ${name} [80.O3 80.C31]`, () => {
    assert.equal(lackOf({ ...EMPTY, approval: given }, ask({ approval: needs })), lack);
  });

for (const [name, given, lack] of approvals.filter(([name]) => name !== "by who asked"))
  test(`an approval is looked at again when the call begins: ${name} [80.C31 80.O3]`, () => {
    const reserved = after({ ...EMPTY, approval: approval() }, ask({ approval: needs }));
    const { state } = given ?? { state: "held" };
    const now = given === null ? null : { ...given, reservation: "t:job", state: state === "open" ? "held" : state };
    const found = lackOf({ ...reserved, approval: now as Approval | null }, BEGIN);
    // The store finds it under the names of the job and the tier, so it is of those.
    assert.equal(found, lack === "no_job_approval" && given !== null ? "moved" : lack);
  });

test("a call whose approval was for something else than what is about to be sent does not begin [80.C31]", () => {
  const reserved = after({ ...EMPTY, approval: approval() }, ask({ approval: needs }));
  const begin = (thing: typeof THING | null): LedgerEvent => ({ kind: "begin", approval: thing });
  assert.equal(lackOf(reserved, begin({ ...THING, hash: "x" })), "approval_for_other_content");
  assert.equal(lackOf(reserved, begin({ ...THING, provider: "x" })), "approval_for_other_provider");
  assert.equal(lackOf(reserved, begin(null)), "no_job_approval");
});

test("an approval serves one call, is given back by one that never began, and counts no more once revoked [80.O3]", () => {
  const held = after({ ...EMPTY, approval: approval() }, ask({ approval: needs }));
  assert.equal(held.approval?.state, "held");
  const back = after(held, { kind: "void", why: "", expired: false });
  assert.equal(back.approval?.state, "open");
  assert.equal(
    lackOf({ ...held, approval: approval({ state: "revoked", reservation: "t:job" }) }, BEGIN),
    "approval_revoked",
  );
  assert.equal(lackOf(held, BEGIN, NOW + 59_999), "moved");
  const begun = after(held, BEGIN);
  assert.equal(begun.approval?.state, "used");
  assert.equal(after(begun, { kind: "void", why: "refused", expired: false }).approval?.state, "used");
});

interface Book {
  account: Account | null;
  readonly reservations: Map<string, Reservation>;
  readonly approvals: Map<string, Approval>;
  stopped: boolean;
}

const step = fc.record({
  what: fc.constantFrom(
    "reserve",
    "begin",
    "settle",
    "void",
    "expire",
    "unknown",
    "approve",
    "revoke",
    "switch",
    "day",
  ),
  job: fc.nat(5),
  micros: fc.nat(60),
});

test("after any interleaving: never above a cap, no begin unpaid for or unapproved, sums are those of the reservations [80.O1 80.O2 80.O3 80.C30 80.I5]", () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 120 }), (steps) => {
      const book: Book = { account: null, reservations: new Map(), approvals: new Map(), stopped: false };
      let now = NOW;
      const begun = new Map<string, number>();
      for (const { what, job, micros } of steps) {
        const subject = `j${job}`;
        const before = book.reservations.get(subject) ?? null;
        if (what === "day") now += 86_400_000 / 3;
        else if (what === "switch") book.stopped = !book.stopped;
        else if (what === "approve")
          book.approvals.set(subject, approval({ subject, at: now, expiresAt: now + 3_600_000 }));
        else if (what === "revoke") book.approvals.set(subject, approval({ subject, state: "revoked" }));
        else {
          const view: LedgerView = {
            spend: { stopped: book.stopped ? { by: "b", at: now, why: "" } : null },
            account: book.account,
            reservation: before,
            approval: book.approvals.get(subject) ?? null,
          };
          const done = stepLedger(view, eventOf(what, subject, micros), now);
          if (done.kind !== "moved") continue;
          if (what === "begin") {
            assert.equal(book.stopped, false);
            assert.deepEqual([view.approval?.state, before?.state], ["held", "reserved"]);
            assert.ok((before?.micros ?? 0) <= 50);
            begun.set(subject, (begun.get(subject) ?? 0) + 1);
            assert.ok(begun.get(subject) === 1 || before?.state === "reserved");
          }
          if (what === "reserve") assert.ok(capHolds(done.view.account, now), "above a cap");
          book.account = done.view.account;
          if (done.view.reservation !== null) book.reservations.set(subject, done.view.reservation);
          if (done.view.approval !== null) book.approvals.set(subject, done.view.approval);
        }
      }
      const held = [...book.reservations.values()].filter(({ state }) =>
        ["reserved", "begun", "unknown"].includes(state),
      );
      const reserved = Object.values(book.account?.days ?? {}).reduce((sum, day) => sum + day.reserved, 0);
      assert.equal(
        reserved,
        held.reduce((sum, each) => sum + each.micros, 0),
      );
    }),
    { numRuns: 500 },
  );
});

const capHolds = (account: Account | null, now: number): boolean => {
  const { day, month } = periodOf(now);
  const today = account?.days[day];
  const thisMonth = account?.months[month];
  return (
    (today?.spent ?? 0) + (today?.reserved ?? 0) <= 100 && (thisMonth?.spent ?? 0) + (thisMonth?.reserved ?? 0) <= 200
  );
};

function eventOf(what: string, subject: string, micros: number): LedgerEvent {
  switch (what) {
    case "reserve":
      return ask({ id: `t:${subject}`, subject, micros, approval: needs, ttlMs: 3_600_000 });
    case "begin":
      return BEGIN;
    case "settle":
      return { kind: "settle", chargedMicros: micros };
    case "unknown":
      return { kind: "unknown", why: "lost" };
    default:
      return { kind: "void", why: what, expired: what === "expire" };
  }
}
