import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { asMono } from "../../kernel/clock.ts";
import { fairShare, HoldTimes, OpenShare } from "./fair-share.ts";

const rows = [
  { name: "who holds all keeps it at first", of: { slots: 16, own: 16, others: 0, gateways: 2 }, at: 0, expect: 16 },
  { name: "and comes down to its share", of: { slots: 16, own: 16, others: 0, gateways: 2 }, at: 1, expect: 8 },
  {
    name: "who holds nothing beside it begins with nothing",
    of: { slots: 16, own: 0, others: 16, gateways: 2 },
    at: 0,
    expect: 0,
  },
  { name: "and comes up to its share", of: { slots: 16, own: 0, others: 16, gateways: 2 }, at: 1, expect: 8 },
  { name: "half way it has half of it", of: { slots: 16, own: 0, others: 16, gateways: 2 }, at: 0.5, expect: 4 },
  { name: "what was free is parted at once", of: { slots: 24, own: 8, others: 10, gateways: 3 }, at: 0, expect: 10 },
  {
    name: "as far as it could be borne if another had it",
    of: { slots: 24, own: 0, others: 0, gateways: 3 },
    at: 0,
    expect: 2,
  },
  { name: "a share is at least one slot", of: { slots: 2, own: 0, others: 2, gateways: 5 }, at: 1, expect: 1 },
  {
    name: "of others never heard of nothing but the share is known",
    of: { slots: 6, own: 0, others: null, gateways: 3 },
    at: 0,
    expect: 2,
  },
  { name: "time after the end changes nothing", of: { slots: 6, own: 6, others: 0, gateways: 3 }, at: 9, expect: 2 },
] as const;

for (const { name, of, at, expect } of rows) test(`${name} [80.C10]`, () => assert.equal(fairShare(of, at), expect));

test("at each moment the limits of all gateways sum up to no more than the slots, if each gateway may have one [80.C10 80.I3]", () => {
  const world = fc.array(fc.nat(20), { minLength: 1, maxLength: 6 }).chain((held) => {
    const sum = held.reduce((a, b) => a + b, 0);
    return fc.record({
      held: fc.constant(held),
      slots: fc.integer({ min: Math.max(sum, held.length), max: sum + 40 }),
    });
  });
  fc.assert(
    fc.property(world, fc.double({ min: 0, max: 1.5, noNaN: true }), ({ held, slots }, progress) => {
      const sum = held.reduce((a, b) => a + b, 0);
      const limits = held.map((own) => fairShare({ slots, own, others: sum - own, gateways: held.length }, progress));
      assert.ok(limits.reduce((a, b) => a + b, 0) <= slots);
      assert.ok(limits.every((limit) => limit >= 0));
    }),
  );
});

test("whatever the others took since they were last heard of, the limits sum up to no more than a quarter above the slots [80.I3 80.C10]", () => {
  const world = fc
    .array(fc.record({ own: fc.nat(20), told: fc.nat(20) }), { minLength: 2, maxLength: 6 })
    .chain((all) => {
      const sum = all.reduce((total, { own }) => total + own, 0);
      return fc.record({
        all: fc.constant(all),
        slots: fc.integer({ min: Math.max(sum, 4 * all.length), max: sum + 4 * all.length + 40 }),
      });
    });
  fc.assert(
    fc.property(world, fc.double({ min: 0, max: 1, noNaN: true }), ({ all, slots }, progress) => {
      // Each believes of the others what they held at some time, which may be anything up to what they hold now.
      const limits = all.map(({ own }, at) => {
        const others = all.reduce((sum, other, i) => sum + (i === at ? 0 : Math.min(other.own, other.told)), 0);
        return fairShare({ slots, own, others, gateways: all.length }, progress);
      });
      assert.ok(limits.reduce((a, b) => a + b, 0) <= 1.25 * slots);
    }),
  );
});

test("the ramp lasts as long as requests take: the 95th percentile of the last ones, within bounds [80.C10]", () => {
  const times = new HoldTimes();
  assert.equal(times.p95Ms(), 30_000, "before anything has ended");
  for (let i = 1; i <= 100; i += 1) times.ended(i * 1_000);
  assert.equal(times.p95Ms(), 96_000);
  for (let i = 0; i < 128; i += 1) times.ended(10);
  assert.equal(times.p95Ms(), 5_000);
  for (let i = 0; i < 128; i += 1) times.ended(1e9);
  assert.equal(times.p95Ms(), 300_000);
});

test("batch and each endpoint have shares of their own", () => {
  const open = new OpenShare({
    at: asMono(1_000),
    rampMs: 10_000,
    gateways: 2,
    all: { own: 4, others: 4 },
    batch: { own: 0, others: 4 },
    on: new Map([["e1", { own: 4, others: 4 }]]),
  });
  assert.equal(open.all(16, asMono(1_000)), 6);
  assert.deepEqual([open.batch(4, asMono(1_000)), open.batch(4, asMono(11_000))], [0, 2]);
  assert.deepEqual([open.onEndpoint("e1", 8, asMono(1_000)), open.onEndpoint("new", 8, asMono(1_000))], [4, 1]);
});
