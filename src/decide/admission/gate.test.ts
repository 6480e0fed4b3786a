import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { REQUEST_CLASSES } from "../../contract/request-class.ts";
import { asMono } from "../../kernel/clock.ts";
import { anArrival, EndpointRoom, openRoom, someLimits } from "../../testing/admission.ts";
import { AdmissionPool } from "./admission-pool.ts";
import type { Gate } from "./gate.ts";

/** Lets so many through, for a rank and those above it. */
class CountingGate implements Gate {
  readonly rights = [0, 0, 0];

  permits(rank: 0 | 1 | 2): boolean {
    return (this.rights[rank] ?? 0) > 0;
  }
}

test("with a gate a free slot is not enough; whoever is permitted more goes at the next look, in the pool's own order [20.S1]", () => {
  const gate = new CountingGate();
  const pool = new AdmissionPool(someLimits({ slots: 4, batchMax: 4 }), openRoom, asMono(0), gate);
  const kinds = [1, 2, 3].map(
    (id) => pool.arrive(anArrival(id, { class: id === 1 ? "batch" : "interactive" }), asMono(0)).kind,
  );
  assert.deepEqual(kinds, ["queued", "queued", "queued"]);
  pool.advance(asMono(5));
  assert.deepEqual(pool.takeEvents(), []);
  gate.rights.fill(1);
  pool.advance(asMono(10));
  assert.deepEqual(
    pool.takeEvents().map(({ id }) => id),
    [2, 3, 1],
  );
});

test("what is asked for at the gate is what the pool's own limits let go: people first, batch up to its part", () => {
  const pool = new AdmissionPool(someLimits({ slots: 4, batchMax: 2 }), openRoom, asMono(0), new CountingGate());
  for (let id = 1; id <= 8; id += 1)
    pool.arrive(anArrival(id, { class: id <= 5 ? "batch" : "interactive" }), asMono(id));
  const [people, system, batch] = pool.gateWaiting(asMono(10));
  assert.deepEqual([people.count, system.count, batch.count], [3, 0, 1]);
  assert.deepEqual([people.waiting, batch.waiting], [3, 5]);
  assert.deepEqual([people.since, batch.since], [6, 1]);
});

test("requests whose endpoints are full wait, and are not asked for", () => {
  const room = new EndpointRoom([0, 3]);
  const pool = new AdmissionPool(someLimits({ slots: 4 }), room, asMono(0), new CountingGate());
  pool.arrive(anArrival(1, { group: "m0" }), asMono(0));
  pool.arrive(anArrival(2, { group: "m1" }), asMono(1));
  const [people] = pool.gateWaiting(asMono(2));
  assert.deepEqual([people.waiting, people.count, people.groups], [2, 1, [{ name: "m1", count: 1 }]]);
});

test("classes that wait elsewhere crowd the lower ones here: their share falls due, parted among the pools in which they wait [20.S5]", () => {
  const dueAfter = (sharers: number): number => {
    const limits = someLimits({ slots: 10, batchMax: 10, batchMinShare: 0.1 });
    const pool = new AdmissionPool(limits, openRoom, asMono(0), new CountingGate());
    pool.arrive(anArrival(1, { class: "batch" }), asMono(0));
    for (let ms = 0; ms <= 60_000; ms += 100) {
      pool.setElsewhere({ crowded: [false, true, true], sharers: [1, 1, sharers] }, asMono(ms));
      if (pool.gateWaiting(asMono(ms))[2].goesFirst) return ms;
    }
    return Number.POSITIVE_INFINITY;
  };
  assert.equal(dueAfter(1), 10_000);
  assert.equal(dueAfter(2), 10_000, "half the rate, and half of it to be owed");
  const alone = new AdmissionPool(
    someLimits({ slots: 10, batchMinShare: 0.1 }),
    openRoom,
    asMono(0),
    new CountingGate(),
  );
  alone.arrive(anArrival(1, { class: "batch" }), asMono(0));
  assert.equal(alone.gateWaiting(asMono(60_000))[2].goesFirst, false, "nobody is before it");
});

test("a gate that permits everything changes nothing, whatever comes [20.S1]", () => {
  const step = fc.record({
    act: fc.constantFrom("arrive", "arrive", "end", "cancel", "wait"),
    which: fc.nat(30),
    class: fc.constantFrom(...REQUEST_CLASSES),
    ms: fc.nat(2_000),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 80 }), (steps) => {
      const limits = someLimits({ slots: 3, batchMax: 2, batchMinShare: 0.1, queueMax: 5 });
      const plain = new AdmissionPool(limits, openRoom, asMono(0));
      const gated = new AdmissionPool(limits, openRoom, asMono(0), { permits: () => true });
      let now = 0;
      let ids = 0;
      for (const { act, which, class: requestClass, ms } of steps) {
        now += ms;
        for (const pool of [plain, gated]) {
          if (act === "end") pool.end(which, asMono(now));
          else if (act === "cancel") pool.cancel(which, asMono(now));
          else if (act === "wait") pool.advance(asMono(now));
        }
        if (act === "arrive") {
          ids += 1;
          const arrival = anArrival(ids, { class: requestClass });
          assert.deepEqual(gated.arrive(arrival, asMono(now)), plain.arrive(arrival, asMono(now)));
        }
        assert.deepEqual(gated.takeEvents(), plain.takeEvents());
      }
      assert.deepEqual(gated.view(), plain.view());
    }),
  );
});
