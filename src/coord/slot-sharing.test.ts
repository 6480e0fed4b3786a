import assert from "node:assert/strict";
import { test } from "node:test";
import type { RequestClass } from "../contract/request-class.ts";
import { seededRandom, type Random } from "../kernel/random.ts";
import { SimulatedEngine, SimulatedGateway, SimulatedStore } from "../testing/shared-slots.ts";
import { VirtualClock } from "../testing/virtual-clock.ts";

const TTL_MS = 15_000;
const SLOTS = 16;
const BATCH_MAX = 12;
const ENDPOINTS = [
  { token: "e1", slots: 10 },
  { token: "e2", slots: 8 },
];

class World {
  readonly clock = new VirtualClock();
  readonly store = new SimulatedStore(this.clock);
  readonly engine = new SimulatedEngine();
  readonly random: Random;
  readonly gateways: SimulatedGateway[] = [];
  readonly waited: { readonly class: RequestClass; readonly waitedMs: number; readonly gateway: string }[] = [];
  #names = 0;

  constructor(seed: number) {
    this.random = seededRandom(seed);
  }

  start(): SimulatedGateway {
    const gateway = new SimulatedGateway({
      name: `g${(this.#names += 1)}`,
      clock: this.clock,
      random: this.random,
      store: this.store,
      engine: this.engine,
      ttlMs: TTL_MS,
      slots: SLOTS,
      batchMax: BATCH_MAX,
      endpoints: ENDPOINTS,
      onAdmitted: (of) => this.waited.push(of),
    });
    this.gateways.push(gateway);
    return gateway;
  }

  get waiting(): number {
    return this.gateways.reduce((sum, gateway) => sum + gateway.waiting, 0);
  }

  get leases(): number {
    return this.store.slots.modelOf("u").inUse(this.store.slots.now());
  }

  inRange(low: number, high: number): number {
    return low + this.random.next() * (high - low);
  }
}

test("a call on an idle upstream costs one step to begin and one to end, and about one round trip [20.S2]", async () => {
  const world = new World(1);
  const gateway = world.start();
  await world.clock.advance(1_000);
  const before = gateway.link.asked;
  for (let i = 0; i < 20; i += 1) {
    gateway.send("interactive", 20);
    await world.clock.advance(100);
  }
  assert.equal(world.waited.length, 20);
  assert.ok(world.waited.every(({ waitedMs }) => waitedMs < 4));
  assert.ok(gateway.link.asked - before <= 42, `${gateway.link.asked - before} steps`);
  assert.equal(world.leases, 0);
});

test("a release at one gateway lets in who waits at another within milliseconds, without a poll [20.S4]", async () => {
  const world = new World(2);
  const [a, b] = [world.start(), world.start()];
  await world.clock.advance(1_000);
  for (let i = 0; i < SLOTS; i += 1) a.send("interactive", 5_000 + 100 * i);
  await world.clock.advance(10);
  assert.equal(world.engine.total, SLOTS);
  for (let i = 0; i < 8; i += 1) b.send("interactive", 1_000);
  await world.clock.advance(10);
  const ends = world.clock.mono() + 5_000 - 20;
  world.waited.length = 0;
  await world.clock.advance(6_000);
  assert.ok(ends > 0);
  assert.equal(world.waited.length, 8);
  const late = world.waited.map(({ waitedMs }, i) => waitedMs - (5_000 - 10 + 100 * i));
  assert.ok(
    late.every((ms) => ms < 8),
    late.join(" "),
  );
});

test("who has spent their time for stores elsewhere waits a little for a store that stands still, and lets no store that answers be given up [80.R1 80.C9]", async () => {
  const world = new World(6);
  const gateway = world.start();
  await world.clock.advance(1_000);
  gateway.send("interactive", 50);
  gateway.sharer.hurry(0);
  await world.clock.advance(100);
  assert.equal(gateway.sharer.book.mode, "shared");
  world.store.become("frozen");
  gateway.send("interactive", 50);
  gateway.sharer.hurry(0);
  await world.clock.advance(15);
  assert.deepEqual(
    world.waited.map(({ waitedMs }) => waitedMs <= 11),
    [true, true],
  );
  assert.equal(gateway.sharer.book.mode, "open");
  world.store.become("well");
  await world.clock.advance(5_000);
  assert.equal(gateway.sharer.book.mode, "shared");
  assert.equal(world.leases, 0);
});

test("the first call of a gateway on a store that was never used waits for nothing, and a crowd only until others had the time to speak [80.R4]", async () => {
  const world = new World(7);
  world.store.restartEmpty("u");
  const gateway = world.start();
  for (let i = 0; i < SLOTS; i += 1) gateway.send("interactive", 10_000);
  await world.clock.advance(20);
  assert.equal(world.waited.length, SLOTS / 4);
  await world.clock.advance(3_500);
  assert.equal(world.waited.length, SLOTS);
});

test("gateways that start on a store that was just emptied get a part of the slots at once, together no more than a quarter above those who hold them all [80.R4 80.I3]", async () => {
  for (let seed = 1; seed <= 40; seed += 1) {
    const world = new World(seed);
    const [a, b] = [world.start(), world.start()];
    await world.clock.advance(4_000);
    for (let i = 0; i < SLOTS; i += 1) (i % 2 === 0 ? a : b).send("interactive", 8_000);
    await world.clock.advance(100);
    assert.equal(world.engine.total, SLOTS);
    world.waited.length = 0;
    world.store.restartEmpty("u");
    // Those who are there find out with their next probe, and come back each in their own time.
    for (const { link } of [a, b]) world.clock.after(world.inRange(0, 1_250), () => link.reconnect());
    const newcomers = [world.start(), world.start()];
    for (const one of newcomers) for (let i = 0; i < 12; i += 1) one.send("interactive", world.inRange(500, 1_500));
    let peak = 0;
    for (let ms = 0; ms < 9_000; ms += 10) {
      await world.clock.advance(10);
      peak = Math.max(peak, world.engine.total);
      if (ms === 50) assert.ok(world.waited.length >= 1, `seed ${seed}: nobody was let in at once`);
      if (ms > 4_600) assert.ok(world.engine.total <= SLOTS, `seed ${seed}: ${world.engine.total} after ${ms} ms`);
    }
    assert.ok(peak > SLOTS && peak <= 1.25 * SLOTS, `seed ${seed}: ${peak} of ${SLOTS}`);
    await world.clock.advance(TTL_MS);
    assert.equal(world.waiting, 0);
    assert.equal(world.leases, 0);
  }
});

test("hundreds of waiters cost the store a few steps a second while nothing moves [20.S4]", async () => {
  const world = new World(3);
  const gateways = [world.start(), world.start(), world.start()];
  await world.clock.advance(1_000);
  for (let i = 0; i < SLOTS; i += 1) gateways[0]?.send("interactive", 60_000);
  await world.clock.advance(50);
  for (let i = 0; i < 500; i += 1) gateways[i % 3]?.send(i % 2 === 0 ? "batch" : "interactive", 100);
  await world.clock.advance(1_000);
  const before = gateways.reduce((sum, { link }) => sum + link.asked, 0);
  await world.clock.advance(10_000);
  const perSecond = (gateways.reduce((sum, { link }) => sum + link.asked, 0) - before) / 10;
  assert.ok(perSecond < 10, `${perSecond} steps a second`);
});

test("people at one gateway go before batch at another, whoever came first, and first come first served among equals [20.S5]", async () => {
  const world = new World(4);
  const [a, b] = [world.start(), world.start()];
  await world.clock.advance(1_000);
  for (let i = 0; i < SLOTS; i += 1) a.send("interactive", 3_000 + 50 * i);
  await world.clock.advance(50);
  for (let i = 0; i < 4; i += 1) a.send("batch", 500);
  await world.clock.advance(500);
  for (let i = 0; i < 3; i += 1) b.send("interactive", 5_000);
  await world.clock.advance(100);
  for (let i = 0; i < 3; i += 1) a.send("interactive", 5_000);
  world.waited.length = 0;
  await world.clock.advance(4_500);
  assert.deepEqual(
    world.waited.map((of) => `${of.gateway} ${of.class}`),
    [
      ...Array.from({ length: 3 }, () => "g2 interactive"),
      ...Array.from({ length: 3 }, () => "g1 interactive"),
      ...Array.from({ length: 4 }, () => "g1 batch"),
    ],
  );
});

test("batch at one gateway gets its share of the slots' time while people at another never stop, and no more [20.S5]", async () => {
  const world = new World(5);
  const batch = world.start();
  const people = world.start();
  for (const gateway of world.gateways)
    gateway.pool.setLimits(
      { ...limitsOf(gateway), batchMinShare: 0.1, queueTimeoutMs: { interactive: 9e6, system: 9e6, batch: 9e6 } },
      world.clock.mono(),
    );
  await world.clock.advance(1_000);
  let held = 0;
  const total = 600_000;
  for (let i = 0; i < 40; i += 1) people.send("interactive", 1_000);
  for (let i = 0; i < 500; i += 1) batch.send("batch", 2_000);
  for (let ms = 0; ms < total; ms += 250) {
    for (let i = people.waiting; i < 30; i += 1) people.send("interactive", 1_000);
    held += world.engine.batch.size * 250;
    assert.ok(world.engine.total <= SLOTS);
    await world.clock.advance(250);
  }
  const share = held / (total * SLOTS);
  assert.ok(share > 0.05 && share < 0.15, `${share} of the slots' time`);
});

function limitsOf({ pool }: SimulatedGateway): Parameters<SimulatedGateway["pool"]["setLimits"]>[0] {
  const { slots, batchMax } = pool.view();
  return {
    slots,
    batchMax,
    batchMinShare: 0,
    queueMax: 10_000,
    queueBytesMax: 1e9,
    queueTimeoutMs: { interactive: 30_000, system: 30_000, batch: 900_000 },
    startTimeoutMs: null,
  };
}
