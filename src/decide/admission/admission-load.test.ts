import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import type { RequestClass } from "../../contract/request-class.ts";
import { asMono } from "../../kernel/clock.ts";
import { anArrival, openRoom, PoolSimulation, type SimulatedClient, someLimits } from "../../testing/admission.ts";
import { AdmissionPool, type Arrival } from "./admission-pool.ts";
import type { PoolLimits } from "./pool-limits.ts";

const FOREVER = { interactive: 1e12, system: 1e12, batch: 1e12 };

interface Tally {
  served: number;
  expired: number;
  refused: number;
  waits: number[];
}

/** `count` clients that send again as soon as they have an answer, for ever. Answers take 0.5 to 1.5 times `holdMs`. */
function closedLoop(simulation: PoolSimulation, count: number, over: Partial<Arrival>, holdMs: number): Tally {
  const tally: Tally = { served: 0, expired: 0, refused: 0, waits: [] };
  let seed = count;
  const client: SimulatedClient = {
    onAdmitted: (_, waitedMs) => {
      tally.waits.push(waitedMs);
      seed = (seed * 48_271) % 2_147_483_647;
      return holdMs * (0.5 + (seed % 1_000) / 1_000);
    },
    onEnded: () => {
      tally.served += 1;
      send();
    },
    onGone: () => {
      tally.expired += 1;
      send();
    },
  };
  const send = (): void => void simulation.send(over, client);
  for (let index = 0; index < count; index += 1) send();
  return tally;
}

/** Arrivals at an even pace; the answers are counted. */
function paced(
  simulation: PoolSimulation,
  perSecond: number,
  forMs: number,
  over: Partial<Arrival>,
  holdMs: number,
): Tally {
  const tally: Tally = { served: 0, expired: 0, refused: 0, waits: [] };
  const client: SimulatedClient = {
    onAdmitted: (_, waitedMs) => {
      tally.waits.push(waitedMs);
      return holdMs;
    },
    onEnded: () => void (tally.served += 1),
    onGone: ({ kind }) => void (kind === "expired" ? (tally.expired += 1) : (tally.refused += 1)),
  };
  const end = simulation.now + forMs;
  const next = (): void => {
    if (simulation.now >= end) return;
    simulation.send(over, client);
    simulation.in(1_000 / perSecond, next);
  };
  next();
  return tally;
}

describe("the share of lower classes under endless higher load", () => {
  const rows: {
    name: string;
    limits: Partial<PoolLimits>;
    share: number;
    interactiveMs: number;
    batchMs: number;
    hours: number;
  }[] = [
    {
      name: "one slot, short requests",
      limits: { slots: 1, batchMax: 1 },
      share: 0.05,
      interactiveMs: 200,
      batchMs: 200,
      hours: 2,
    },
    {
      name: "one slot, batch requests much longer than people's",
      limits: { slots: 1, batchMax: 1 },
      share: 0.05,
      interactiveMs: 2_000,
      batchMs: 60_000,
      hours: 60,
    },
    {
      name: "two slots, a tenth",
      limits: { slots: 2, batchMax: 1 },
      share: 0.1,
      interactiveMs: 1_000,
      batchMs: 3_000,
      hours: 4,
    },
    {
      name: "16 slots, less than a slot's worth",
      limits: { slots: 16, batchMax: 8 },
      share: 0.05,
      interactiveMs: 4_000,
      batchMs: 4_000,
      hours: 3,
    },
    {
      name: "64 slots, several slots' worth",
      limits: { slots: 64, batchMax: 32 },
      share: 0.1,
      interactiveMs: 8_000,
      batchMs: 20_000,
      hours: 3,
    },
  ];
  for (const row of rows) {
    test(`waiting batch gets its share of the slots' time, and no more: ${row.name} [10.A2b]`, () => {
      const simulation = new PoolSimulation(
        someLimits({ ...row.limits, batchMinShare: row.share, queueTimeoutMs: FOREVER }),
      );
      const slots = row.limits.slots ?? 1;
      closedLoop(simulation, slots + 8, {}, row.interactiveMs);
      closedLoop(simulation, 40, { class: "batch" }, row.batchMs);
      simulation.run(row.hours * 3_600_000);
      const share = simulation.heldMs.batch / (slots * row.hours * 3_600_000);
      assert.ok(share > 0.95 * row.share && share < 1.05 * row.share, `${share} of the slots' time, not ${row.share}`);
    });
  }

  test("system and batch each get the share when interactive never ends [10.A2b 10.A8]", () => {
    const simulation = new PoolSimulation(
      someLimits({ slots: 8, batchMax: 4, batchMinShare: 0.05, queueTimeoutMs: FOREVER }),
    );
    closedLoop(simulation, 20, {}, 1_000);
    closedLoop(simulation, 10, { class: "system" }, 1_000);
    closedLoop(simulation, 10, { class: "batch" }, 1_000);
    simulation.run(3_600_000);
    for (const name of ["system", "batch"] as const) {
      const share = simulation.heldMs[name] / (8 * 3_600_000);
      assert.ok(share > 0.0475 && share < 0.0525, `${name}: ${share}`);
    }
  });

  test("a share of 0 turns the trickle off, and waiting batch ends by its timeout [10.A2b]", () => {
    const simulation = new PoolSimulation(someLimits({ slots: 2, batchMax: 1, batchMinShare: 0 }));
    closedLoop(simulation, 4, {}, 1_000);
    const batch = paced(simulation, 1, 1_000, { class: "batch" }, 1_000);
    simulation.run(1_000_000);
    assert.deepEqual([batch.served, batch.expired], [0, 1]);
  });

  test("the trickle does not touch class order at once: it starts when the share has earned a request's time", () => {
    const simulation = new PoolSimulation(someLimits({ slots: 1, batchMax: 1, batchMinShare: 0.05 }));
    const client = { onAdmitted: () => 3_000 };
    for (let index = 0; index < 4; index += 1) simulation.send({}, client);
    simulation.send({ class: "batch" }, client);
    simulation.run(8_500);
    assert.deepEqual(simulation.pool.view().waiting, { interactive: 1, system: 0, batch: 1 });
    assert.equal(simulation.pool.view().inUse.interactive, 1);
  });

  test("two slots with 110 % interactive load: each batch request runs or gets an answer by its deadline, and people lose no more than the share [10.A2b]", () => {
    const serve = (batch: number): { interactive: Tally; batch: Tally } => {
      const simulation = new PoolSimulation(someLimits({ slots: 2, batchMax: 1, batchMinShare: 0.05, queueMax: 40 }));
      const interactive = paced(simulation, 2.2, 600_000, {}, 1_000);
      const tally: Tally = { served: 0, expired: 0, refused: 0, waits: [] };
      const client: SimulatedClient = {
        onAdmitted: () => 1_000,
        onEnded: () => void (tally.served += 1),
        onGone: () => void (tally.expired += 1),
      };
      simulation.run(5_000);
      for (let index = 0; index < batch; index += 1)
        simulation.send({ class: "batch", deadline: asMono(simulation.now + 300_000) }, client);
      simulation.run(700_000);
      return { interactive, batch: tally };
    };
    const [without, mixed] = [serve(0), serve(20)];
    assert.equal(mixed.batch.served + mixed.batch.expired, 20);
    assert.ok(mixed.batch.served > 0);
    assert.ok(mixed.interactive.served > 0.95 * without.interactive.served - 1);
  });
});

describe("overload", () => {
  test("at ten times the load the lowest class is shed first, the top class is served, and all is normal soon after [80.G7]", () => {
    // 16 slots of 1 s: 16 a second. Offered: 10 interactive, 40 system and 110 batch a second.
    const simulation = new PoolSimulation(someLimits({ slots: 16, batchMax: 12, batchMinShare: 0.05, queueMax: 100 }));
    const ten = 600_000;
    const interactive = paced(simulation, 10, ten, {}, 1_000);
    const system = paced(simulation, 40, ten, { class: "system" }, 1_000);
    const batch = paced(simulation, 110, ten, { class: "batch" }, 1_000);
    for (let second = 0; second < 600; second += 1) {
      simulation.run(1_000);
      const { waiting } = simulation.pool.view();
      assert.ok(waiting.interactive + waiting.system + waiting.batch <= 100);
    }
    assert.ok(
      (interactive.served + simulation.pool.view().inUse.interactive) / 6_000 >= 0.999,
      `${interactive.served}`,
    );
    assert.ok(interactive.served + system.served + batch.served >= 0.95 * 16 * 600);
    assert.ok(batch.refused + batch.expired > 0.9 * 66_000);
    assert.ok(batch.served > 0.04 * 16 * 600, "its share still reaches batch");
    simulation.run(10_000);
    const after = paced(simulation, 8, 5_000, {}, 1_000);
    simulation.run(10_000);
    assert.deepEqual([after.served, Math.max(...after.waits)], [40, 0]);
  });

  test("a key that sends nine tenths of the load leaves each other key its share [80.G8 10.A3]", () => {
    const simulation = new PoolSimulation(someLimits({ slots: 10, queueMax: 100 }));
    // 10 a second can be served, 100 come: 90 of the hog, and 10/9 each of nine others, a little above a tenth of 10.
    const hog = paced(simulation, 90, 600_000, { key: "hog" }, 1_000);
    const others = Array.from({ length: 9 }, (_, index) =>
      paced(simulation, 10 / 9, 600_000, { key: `k${index}` }, 1_000),
    );
    simulation.run(640_000);
    for (const other of others) assert.ok(other.served >= 0.9 * 600, `${other.served}`);
    assert.ok(hog.served > 0, "and the hog has the rest");
  });

  test("among 10,000 waiting, each decision is right and what left leaves nothing behind", () => {
    const pool = new AdmissionPool(
      someLimits({ slots: 1, queueMax: 10_000, queueBytesMax: 1e9, queueTimeoutMs: FOREVER }),
      openRoom,
      asMono(0),
    );
    for (let id = 0; id <= 10_000; id += 1)
      assert.notEqual(
        pool.arrive(anArrival(id, { key: `k${id % 500}`, group: `g${id % 3}` }), asMono(0)).kind,
        "refused",
      );
    assert.equal(pool.arrive(anArrival(20_000, { key: "k1" }), asMono(0)).kind, "refused");
    for (let id = 5_001; id <= 10_000; id += 1) assert.ok(pool.cancel(id, asMono(1)));
    let running = 0;
    for (let served = 0; served < 5_000; served += 1) {
      pool.end(running, asMono(2));
      const [event] = pool.takeEvents();
      assert.ok(event?.kind === "admitted");
      running = event.id;
    }
    assert.deepEqual([pool.view().waiting.interactive, pool.view().waitingBytes, pool.nextDue()], [0, 0, undefined]);
  });
});

describe("fairness between keys, by properties", () => {
  const backlogs = fc.array(
    fc.record({ count: fc.integer({ min: 1, max: 30 }), weight: fc.constantFrom(0.5, 1, 2, 3, 7) }),
    { minLength: 1, maxLength: 6 },
  );

  function crowd(
    keys: readonly { count: number; weight: number }[],
    name: RequestClass,
  ): { pool: AdmissionPool; owner: Map<number, number> } {
    const pool = new AdmissionPool(
      someLimits({ slots: 1, batchMax: 1, queueMax: 1_000, queueTimeoutMs: FOREVER }),
      openRoom,
      asMono(0),
    );
    const owner = new Map<number, number>();
    let id = 0;
    pool.arrive(anArrival(id, { class: name }), asMono(0));
    keys.forEach(({ count, weight }, key) => {
      for (let index = 0; index < count; index += 1) {
        owner.set(++id, key);
        pool.arrive(anArrival(id, { class: name, key: `k${key}`, weight }), asMono(0));
      }
    });
    return { pool, owner };
  }

  function serve(pool: AdmissionPool, running: number): number {
    pool.end(running, asMono(0));
    return pool.takeEvents()[0]?.id ?? -1;
  }

  test("a single request waits for at most one turn of each key that waits, whatever their backlog and weight [10.A3]", () => {
    fc.assert(
      fc.property(
        backlogs,
        fc.nat(60),
        fc.constantFrom<RequestClass>("interactive", "system", "batch"),
        (keys, servedBefore, name) => {
          const { pool, owner } = crowd(keys, name);
          let running = 0;
          for (let turn = 0; turn < servedBefore && pool.view().waiting[name] > 1; turn += 1)
            running = serve(pool, running);
          pool.arrive(anArrival(9_999, { class: name, key: "single" }), asMono(0));
          const turns = new Map<number, number>();
          for (running = serve(pool, running); running !== 9_999; running = serve(pool, running)) {
            const key = owner.get(running) ?? -1;
            turns.set(key, (turns.get(key) ?? 0) + 1);
          }
          for (const count of turns.values()) assert.equal(count, 1);
        },
      ),
      { numRuns: 150 },
    );
  });

  test("while two keys wait, their turns differ from their weights by at most one turn each [10.A3]", () => {
    fc.assert(
      fc.property(backlogs, (keys) => {
        const { pool, owner } = crowd(keys, "interactive");
        const served = keys.map(() => 0);
        let running = 0;
        while (keys.every(({ count }, key) => (served[key] ?? 0) < count)) {
          running = serve(pool, running);
          const key = owner.get(running) ?? -1;
          served[key] = (served[key] ?? 0) + 1;
          const normal = keys.map(({ weight }, index) => (served[index] ?? 0) / weight);
          keys.forEach((a, i) =>
            keys.forEach((b, j) =>
              assert.ok((normal[i] ?? 0) - (normal[j] ?? 0) <= 1 / a.weight + 1 / b.weight + 1e-9),
            ),
          );
        }
      }),
      { numRuns: 150 },
    );
  });

  test("a position told when nobody comes after is the true order of service [10.A4]", () => {
    fc.assert(
      fc.property(
        fc.array(fc.record({ key: fc.nat(4), cancelled: fc.boolean() }), { minLength: 1, maxLength: 40 }),
        fc.nat(10),
        (requests, servedBefore) => {
          const pool = new AdmissionPool(someLimits({ slots: 1 }), openRoom, asMono(0));
          const weights = [1, 1, 2, 2, 4];
          requests.forEach(({ key }, id) =>
            pool.arrive(anArrival(id, { key: `k${key}`, weight: weights[key] ?? 1 }), asMono(0)),
          );
          let running = 0;
          for (let turn = 0; turn < servedBefore && pool.view().waiting.interactive > 0; turn += 1)
            running = serve(pool, running);
          requests.forEach(({ cancelled }, id) => cancelled && pool.cancel(id, asMono(0)));
          const told = requests.map((_, id) => pool.position(id));
          for (let place = 1; pool.view().waiting.interactive > 0; place += 1) {
            running = serve(pool, running);
            assert.ok((told[running] ?? 0) <= place, `told ${told[running]}, was ${place}`);
          }
        },
      ),
      { numRuns: 200 },
    );
  });
});
