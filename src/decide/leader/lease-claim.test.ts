import assert from "node:assert/strict";
import { test } from "node:test";
import { asMono } from "../../kernel/clock.ts";
import { mayAct, newClaim, stepClaim, wakeAt } from "./lease-claim.ts";
import type { ClaimEffect, ClaimEvent, LeaseClaim } from "./lease-claim.ts";

const SETTINGS = { leaseMs: 10_000, renewMs: 2_000, blindMsMax: 10_000 };

/** A claim driven by hand: what it did is in `effects` since the last `take`. */
class Driven {
  claim: LeaseClaim;
  #effects: ClaimEffect[] = [];

  constructor(self = "me") {
    this.claim = newClaim(self, asMono(0));
  }

  at(ms: number, event: ClaimEvent): this {
    const step = stepClaim(this.claim, event, asMono(ms), SETTINGS);
    this.claim = step.claim;
    this.#effects.push(...step.effects);
    return this;
  }

  /** Asks at this time and is answered with this epoch 10 ms later. */
  leads(ms: number, epoch: number): this {
    this.at(ms, { kind: "tick" }).at(ms + 10, { kind: "held", epoch, priorEpoch: epoch - 1 });
    this.take();
    return this;
  }

  take(): readonly ClaimEffect[] {
    const taken = this.#effects;
    this.#effects = [];
    return taken;
  }

  mayAct(ms: number): boolean {
    return mayAct(this.claim, asMono(ms), SETTINGS);
  }
}

test("a standby leads when the store says yes, and not before [40.L1]", () => {
  const driven = new Driven().at(0, { kind: "tick" });
  assert.deepEqual(driven.take(), [{ kind: "ask", floor: 0 }]);
  assert.equal(driven.mayAct(5), false);
  driven.at(10, { kind: "held", epoch: 7, priorEpoch: 6 });
  assert.deepEqual(driven.take(), [{ kind: "lead", epoch: 7, raisedAbove: null }]);
  assert.equal(driven.mayAct(11), true);
});

test("one request is under way at a time, and the next follows the answer after the interval", () => {
  const driven = new Driven().at(0, { kind: "tick" }).at(500, { kind: "tick" }).at(4_000, { kind: "tick" });
  assert.deepEqual(driven.take(), [{ kind: "ask", floor: 0 }]);
  driven.at(4_100, { kind: "refused", by: { holder: "other", epoch: 3 } });
  assert.equal(wakeAt(driven.claim, SETTINGS), 6_100);
  driven.at(6_000, { kind: "tick" });
  assert.deepEqual(driven.take(), []);
  driven.at(6_100, { kind: "tick" });
  assert.deepEqual(driven.take(), [{ kind: "ask", floor: 0 }]);
});

test("a store that can't be reached ends no claim before the blind limit, and gives nobody one [40.L3]", () => {
  const leader = new Driven().leads(0, 1);
  leader.at(2_000, { kind: "tick" }).at(2_500, { kind: "unreachable" });
  leader.at(4_500, { kind: "tick" }).at(5_000, { kind: "unreachable" });
  assert.equal(leader.mayAct(9_999), true);
  assert.equal(leader.claim.unreachableSince, 2_000);
  assert.deepEqual(
    leader.take().filter(({ kind }) => kind !== "ask"),
    [],
  );
  leader.at(10_000, { kind: "tick" });
  assert.deepEqual(leader.take()[0], { kind: "standDown", epoch: 1, why: "blind" });
  assert.equal(leader.mayAct(10_000), false);

  const standby = new Driven();
  for (let ms = 0; ms < 60_000; ms += 2_000) standby.at(ms, { kind: "tick" }).at(ms + 500, { kind: "unreachable" });
  assert.ok(standby.take().every(({ kind }) => kind === "ask"));
});

test("a leader that the store answers again begins a new term under a higher epoch, also where the answer was for the last one [40.L2 80.C1]", () => {
  const driven = new Driven().leads(0, 4);
  driven.at(12_000, { kind: "tick" });
  assert.deepEqual(driven.take(), [
    { kind: "standDown", epoch: 4, why: "blind" },
    { kind: "ask", floor: 4 },
  ]);
  driven.at(12_020, { kind: "held", epoch: 5, priorEpoch: 4 });
  assert.deepEqual(driven.take(), [{ kind: "lead", epoch: 5, raisedAbove: null }]);

  const renewing = new Driven().leads(0, 4).at(9_990, { kind: "tick" }).at(10_010, { kind: "tick" });
  renewing.take();
  renewing.at(10_020, { kind: "held", epoch: 4, priorEpoch: 3 });
  assert.deepEqual(renewing.take(), [{ kind: "ask", floor: 4 }]);
});

test("a store that has lost no more than the own last term is gone on with, above that; one that has lost more is an old one [80.P3 80.P7]", () => {
  for (const [toldOf, epoch, raisedAbove] of [
    [2, 5, null],
    [8, 9, 8],
  ] as const) {
    const driven = new Driven().leads(0, 4).at(12_000, { kind: "tick" });
    driven.at(12_010, { kind: "reported", term: { holder: "other", epoch: toldOf } });
    driven.at(12_020, { kind: "unreachable" }).at(14_020, { kind: "tick" });
    driven.take();
    driven.at(14_030, { kind: "held", epoch, priorEpoch: 3 });
    assert.deepEqual(driven.take(), [{ kind: "lead", epoch, raisedAbove }]);
  }
});

test("a leader that was frozen past its claim may not act when it wakes, whatever wakes it first [40.L2]", () => {
  for (const event of [
    { kind: "tick" },
    { kind: "held", epoch: 1, priorEpoch: 0 },
    { kind: "unreachable" },
    { kind: "reported", term: { holder: "other", epoch: 1 } },
  ] satisfies ClaimEvent[]) {
    const driven = new Driven().leads(0, 1).at(2_000, { kind: "tick" });
    driven.take();
    assert.equal(driven.mayAct(40_000), false, "before anything is told to it");
    driven.at(40_000, event);
    assert.deepEqual(driven.take()[0], { kind: "standDown", epoch: 1, why: "blind" }, event.kind);
    assert.equal(driven.claim.role, "standby");
    assert.equal(driven.mayAct(40_000), false);
  }
});

test("an answer that took longer than the claim lasts makes no leader", () => {
  const driven = new Driven().at(0, { kind: "tick" }).at(10_000, { kind: "held", epoch: 1, priorEpoch: 0 });
  assert.deepEqual(driven.take(), [
    { kind: "ask", floor: 0 },
    { kind: "ask", floor: 0 },
  ]);
  assert.equal(driven.claim.role, "standby");
});

test("a claim counts from the sending of the request, not from its answer", () => {
  const driven = new Driven().at(0, { kind: "tick" }).at(3_000, { kind: "held", epoch: 1, priorEpoch: 0 });
  assert.equal(driven.mayAct(9_999), true);
  assert.equal(driven.mayAct(10_000), false);
  assert.equal(wakeAt(driven.claim, SETTINGS), 3_000);
});

test("who is told that another leads stands down and knows whom to name [40.L2]", () => {
  const driven = new Driven().leads(0, 1).at(2_000, { kind: "tick" });
  driven.take();
  driven.at(2_100, { kind: "refused", by: { holder: "other", epoch: 2 } });
  assert.deepEqual(driven.take(), [{ kind: "standDown", epoch: 1, why: "taken" }]);
  assert.deepEqual(driven.claim.leader, { holder: "other", epoch: 2 });
});

test("a refused write ends the claim at once and asks anew; an older term's refusal ends nothing", () => {
  const driven = new Driven().leads(0, 3).at(1_000, { kind: "fenced", epoch: 2 });
  assert.deepEqual(driven.take(), []);
  driven.at(1_100, { kind: "fenced", epoch: 3 });
  assert.deepEqual(driven.take(), [
    { kind: "standDown", epoch: 3, why: "fenced" },
    { kind: "ask", floor: 3 },
  ]);
});

test("an epoch that an agent tells of, higher or of another holder, ends the claim until the store gives one above it [80.P3 80.P7]", () => {
  const driven = new Driven().leads(0, 3);
  driven.at(100, { kind: "reported", term: { holder: "other", epoch: 2 } });
  driven.at(100, { kind: "reported", term: { holder: "me", epoch: 900 } });
  assert.deepEqual(driven.take(), [], "a lower one, or the own one, changes nothing");
  driven.at(200, { kind: "reported", term: { holder: "other", epoch: 3 } });
  assert.deepEqual(driven.take(), [
    { kind: "standDown", epoch: 3, why: "overtaken" },
    { kind: "ask", floor: 3 },
  ]);
  driven.at(250, { kind: "reported", term: { holder: "third", epoch: 8 } });
  driven.at(300, { kind: "held", epoch: 4, priorEpoch: 3 });
  assert.deepEqual(driven.take(), [{ kind: "ask", floor: 8 }], "an answer that is not above it is not enough");
  driven.at(350, { kind: "held", epoch: 9, priorEpoch: 3 });
  assert.deepEqual(driven.take(), [{ kind: "lead", epoch: 9, raisedAbove: 8 }]);
});

test("a number that the store gave out again, one term behind, shows an old store as well [80.P7]", () => {
  const driven = new Driven().leads(0, 2);
  driven.at(100, { kind: "reported", term: { holder: "before", epoch: 2 } });
  driven.take();
  driven.at(110, { kind: "held", epoch: 3, priorEpoch: 2 });
  assert.deepEqual(driven.take(), [{ kind: "lead", epoch: 3, raisedAbove: 2 }]);
  // The everyday case: another one led meanwhile, and the store knows it.
  const other = new Driven().leads(0, 2);
  other.at(100, { kind: "reported", term: { holder: "other", epoch: 3 } });
  other.at(110, { kind: "refused", by: { holder: "other", epoch: 3 } });
  other.at(20_000, { kind: "tick" });
  other.take();
  other.at(20_010, { kind: "held", epoch: 4, priorEpoch: 3 });
  assert.deepEqual(other.take(), [{ kind: "lead", epoch: 4, raisedAbove: null }]);
});

test("an agent that tells of an absurd epoch is not believed", () => {
  const driven = new Driven().leads(0, 3);
  for (const epoch of [Number.MAX_SAFE_INTEGER, Number.NaN, Number.POSITIVE_INFINITY])
    driven.at(100, { kind: "reported", term: { holder: "other", epoch } });
  assert.deepEqual(driven.take(), []);
  assert.equal(driven.claim.floor, 0);
});

test("a clean stop hands the lease over, and nothing brings the claim back [40.L5]", () => {
  const driven = new Driven().leads(0, 3).at(500, { kind: "stop" });
  assert.deepEqual(driven.take(), [
    { kind: "standDown", epoch: 3, why: "stopped" },
    { kind: "release", epoch: 3 },
  ]);
  driven.at(600, { kind: "held", epoch: 3, priorEpoch: 2 }).at(5_000, { kind: "tick" });
  assert.deepEqual(driven.take(), []);
  assert.equal(wakeAt(driven.claim, SETTINGS), null);
});

test("a standby that stops has nothing to hand over", () => {
  assert.deepEqual(new Driven().at(0, { kind: "stop" }).take(), []);
});
