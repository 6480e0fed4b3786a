import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { REQUEST_CLASSES } from "../../contract/request-class.ts";
import { planClaims, type ClaimRoom } from "./plan-claims.ts";

const aRoom = (change: Partial<ClaimRoom> = {}): ClaimRoom => ({
  lanes: ["m:a"],
  slots: 4,
  batchMax: 3,
  away: null,
  shedsBatch: false,
  overflow: null,
  held: { interactive: 0, system: 0, batch: 0 },
  ...change,
});

test("a gateway asks for as many jobs as a class has slots, and one more [20.J6]", () => {
  assert.deepEqual(
    planClaims([aRoom()], 100, true).map(({ class: name, max }) => [name, max]),
    [
      ["interactive", 5],
      ["system", 5],
      ["batch", 4],
    ],
  );
});

test("jobs of an upstream that is away stay in the store", () => {
  assert.deepEqual(planClaims([aRoom({ away: "no endpoint" })], 100, true), []);
});

test("where batch is refused for saturated GPUs its jobs come one at a time, and only now and then; other classes come as always [20.J9]", () => {
  const room = aRoom({ shedsBatch: true });
  const asked = (mayProbe: boolean, held = room.held): unknown[] =>
    planClaims([{ ...room, held }], 100, mayProbe).map(({ class: name, max }) => [name, max]);
  const others = [
    ["interactive", 5],
    ["system", 5],
  ];
  assert.deepEqual(asked(false), others);
  assert.deepEqual(asked(true), [...others, ["batch", 1]]);
  assert.deepEqual(asked(true, { interactive: 0, system: 0, batch: 1 }), others);
});

test("where batch is refused the newest job is told first, so that one that would rather fail does not wait behind a backlog [20.J9]", () => {
  const ends = (change: Partial<ClaimRoom>): unknown[] =>
    planClaims([aRoom(change)], 100, true).map(({ class: name, fromEnd }) => [name, fromEnd === true]);
  const others = [
    ["interactive", false],
    ["system", false],
  ];
  assert.deepEqual(ends({ shedsBatch: true }), [...others, ["batch", true]]);
  assert.deepEqual(ends({}), [...others, ["batch", false]]);
});

test("jobs that could go to tiers are asked for on top, also while the upstream is away, and each place there once [50.V3]", () => {
  const asked = (change: Partial<ClaimRoom>, mayProbe = false): unknown[] =>
    planClaims([aRoom(change)], 100, mayProbe).map(({ class: name, max }) => [name, max]);
  assert.deepEqual(asked({ overflow: { spare: 2, held: false } }), [
    ["interactive", 7],
    ["system", 5],
    ["batch", 4],
  ]);
  assert.deepEqual(asked({ away: "down", overflow: { spare: 2, held: false } }), [["interactive", 2]]);
  assert.deepEqual(asked({ away: "down", overflow: { spare: 0, held: false } }), []);
});

test("jobs that are kept off a busy card come one at a time, and only now and then [50.V3]", () => {
  const room = aRoom({ overflow: { spare: 0, held: true } });
  assert.deepEqual(planClaims([room], 100, false), []);
  assert.deepEqual(
    planClaims([room], 100, true).map(({ max }) => max),
    [1, 1, 1],
  );
});

test("never more than the room for a class, nor more than the gateway may hold in all [80.I9]", () => {
  const counts = fc.nat(20);
  const room = fc.record({
    lanes: fc.constant(["m:a"]),
    slots: counts,
    batchMax: counts,
    away: fc.option(fc.constant("why"), { nil: null }),
    shedsBatch: fc.boolean(),
    overflow: fc.option(fc.record({ spare: fc.nat(5), held: fc.boolean() }), { nil: null }),
    held: fc.record({ interactive: counts, system: counts, batch: counts }),
  });
  fc.assert(
    fc.property(fc.array(room, { maxLength: 5 }), fc.nat(60), fc.boolean(), (rooms, holdMax, mayProbe) => {
      const wishes = planClaims(rooms, holdMax, mayProbe);
      const held = rooms.reduce((sum, each) => sum + each.held.interactive + each.held.system + each.held.batch, 0);
      const asked = wishes.reduce((sum, { max }) => sum + max, 0);
      assert.ok(asked <= Math.max(0, holdMax - held));
      for (const wish of wishes) assert.ok(wish.max > 0 && REQUEST_CLASSES.includes(wish.class));
      for (const name of REQUEST_CLASSES) {
        const most = rooms.reduce(
          (sum, each) =>
            sum +
            (name === "batch" ? Math.min(each.slots, each.batchMax) : each.slots) +
            1 +
            (each.overflow?.spare ?? 0),
          0,
        );
        assert.ok(wishes.filter((wish) => wish.class === name).reduce((sum, { max }) => sum + max, 0) <= most);
      }
    }),
  );
});
