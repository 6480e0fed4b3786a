import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { Model } from "../../contract/catalog.ts";
import { aModel, aProfile, GIB } from "../../testing/fleet-builders.ts";
import { PassFleet } from "../../testing/pass-fleet.ts";

const SLOTS = 10;
const scaled = (min: number, max: number): Model =>
  aModel("m", {
    replicas: { min, max },
    slotsPerReplica: SLOTS,
    autoscale: { target: 0.7, upAfterMs: 30_000, downAfterMs: 600_000 },
    profiles: [aProfile("m", { gpu: { classes: ["h200"], count: 1, memoryMib: 10 * GIB }, diskMib: 1 })],
  });
const running = (min: number, max: number): PassFleet => {
  const fleet = new PassFleet([scaled(min, max)], { a: 4 });
  return fleet.until(() => fleet.ready("m").length === min);
};

/** For so long all ready replicas together have so many requests, spread evenly; null: a gateway is silent. */
function runs(fleet: PassFleet, requests: number | null, ms: number): number {
  for (let past = 0; past < ms; past += 5_000) {
    fleet.world.use.clear();
    const ready = fleet.ready("m");
    if (requests !== null)
      for (const [at, { id }] of ready.entries()) {
        const inFlight = Math.floor(requests / ready.length) + Number(at < requests % ready.length);
        fleet.world.use.set(id, { inFlight, idleMs: 0 });
      }
    fleet.step(5_000);
  }
  return fleet.ready("m").length;
}

test("above the aim for up_after_s there is one replica more, and not before; below it one goes only after down_after_s [40.P9]", () => {
  const fleet = running(1, 3);
  assert.equal(runs(fleet, 8, 30_000), 1);
  assert.equal(runs(fleet, 8, 20_000), 2);
  assert.equal(runs(fleet, 20, 60_000), 3);
  assert.equal(runs(fleet, 30, 900_000), 3, "never above max");
  assert.equal(runs(fleet, 4, 590_000), 3);
  assert.equal(runs(fleet, 4, 60_000), 2);
  assert.equal(runs(fleet, 4, 900_000), 1);
  assert.equal(runs(fleet, 0, 1_800_000), 1, "never below min");
  assert.ok(fleet.world.told.includes("modelScaled"));
});

test("a signal that is unknown, in part or for a moment, scales nothing, and the time begins anew [40.P9]", () => {
  const fleet = running(1, 3);
  assert.equal(runs(fleet, null, 900_000), 1);
  for (let round = 0; round < 20; round++) {
    runs(fleet, 9, 25_000);
    runs(fleet, null, 5_000);
  }
  assert.equal(fleet.ready("m").length, 1);
  const two = running(2, 3);
  for (let pass = 0; pass < 400; pass++) {
    two.world.use.clear();
    two.world.use.set(two.ready("m")[0]!.id, { inFlight: 10, idleMs: 0 });
    two.step(5_000);
  }
  assert.equal(two.ready("m").length, 2);
});

test("it does not take away what the rest could not carry, nor add to what is still starting [40.P9]", () => {
  const fleet = running(1, 4);
  runs(fleet, 20, 200_000);
  const count = fleet.ready("m").length;
  assert.equal(count, 3);
  assert.equal(runs(fleet, 15, 3_600_000), 3, "15 of 20 slots would be above the aim");
  fleet.fails = () => true;
  const before = fleet.world.replicas.size;
  runs(fleet, 30, 120_000);
  assert.ok(fleet.world.replicas.size <= before + 3);
  assert.equal(fleet.world.models.get("m")?.scaledTo, 4, "one at a time");
});

test("whatever the load does, the number stays within the catalog's, moves by one, and never for an unknown load [40.P9]", () => {
  const anyLoad = fc.array(fc.option(fc.nat(45), { nil: null }), { minLength: 3, maxLength: 12 });
  const property = (loads: readonly (number | null)[], min: number): void => {
    const fleet = running(min, 4);
    let before = min;
    for (const requests of loads) {
      for (let at = 0; at < 20; at++) {
        runs(fleet, requests, 5_000);
        const now = fleet.world.models.get("m")?.scaledTo ?? min;
        assert.ok(now >= min && now <= 4 && Math.abs(now - before) <= 1);
        if (requests === null) assert.equal(now, before);
        before = now;
      }
    }
  };
  fc.assert(fc.property(anyLoad, fc.integer({ min: 1, max: 2 }), property), { numRuns: 100 });
});
