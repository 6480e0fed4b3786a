import assert from "node:assert/strict";
import { test } from "node:test";
import { CREDIT_MAX_MS, DEBT_MAX_MS, FIRST_TURN_MS, ShareAccount } from "./share-account.ts";

function anAccount(share: number, slots: number): ShareAccount {
  const account = new ShareAccount();
  account.setShare(share, slots);
  return account;
}

test("a class goes first only after its share has earned one request's slot time", () => {
  const account = anAccount(0.05, 16); // 0.8 slots
  account.pass(1_000, true, true, 0);
  assert.equal(account.goesFirst(0, 1_000), false);
  account.pass(250, true, true, 0);
  assert.equal(account.goesFirst(0, 1_000), true);
});

test("long requests and an unknown length need no more credit than ten seconds of the share", () => {
  for (const holdMs of [600_000, undefined]) {
    const account = anAccount(0.05, 1);
    account.pass(FIRST_TURN_MS - 1, true, true, 0);
    assert.equal(account.goesFirst(0, holdMs), false);
    account.pass(1, true, true, 0);
    assert.equal(account.goesFirst(0, holdMs), true);
  }
});

test("a long request is paid for by a pause of its length over the share", () => {
  const account = anAccount(0.1, 1);
  account.pass(FIRST_TURN_MS, true, true, 0);
  account.pass(100_000, true, true, 1); // Spends 100 s of slot time, earns 10 s.
  account.pass(899_000, true, true, 0);
  assert.equal(account.goesFirst(0, 600_000), false);
  account.pass(1_001, true, true, 0);
  assert.equal(account.goesFirst(0, 600_000), true);
});

test("a share of zero never goes first", () => {
  const account = anAccount(0, 16);
  account.pass(1e9, true, true, 0);
  assert.equal(account.goesFirst(0, 1), false);
});

test("going first never holds more slots than the share rounded up", () => {
  const account = anAccount(0.05, 50); // 2.5 slots
  account.pass(CREDIT_MAX_MS, true, true, 0);
  assert.equal(account.goesFirst(2, 1_000), true);
  assert.equal(account.goesFirst(3, 1_000), false);
});

test("credit and debt are bounded, and fade when nobody of a higher class waits", () => {
  const rich = anAccount(0.1, 1);
  rich.pass(1e12, true, true, 0);
  rich.pass(CREDIT_MAX_MS, true, false, 0);
  assert.equal(rich.goesFirst(0, 1), false, "a claim is gone after as long as it took to earn");

  const poor = anAccount(0.1, 1);
  poor.pass(1e12, true, true, 1);
  poor.pass(DEBT_MAX_MS / 0.1, true, false, 0);
  poor.pass(FIRST_TURN_MS + 1, true, true, 0);
  assert.equal(poor.goesFirst(0, undefined), true, "a debt is gone after as long as it takes to pay");
});

test("slots held beyond the share's width while nobody of a higher class waited leave no debt", () => {
  const account = anAccount(0.05, 16);
  account.pass(10_000, true, true, 8); // Charged for one of the eight.
  account.pass(2_500 + 1_250, true, true, 0);
  assert.equal(account.goesFirst(0, 1_000), true);
});
