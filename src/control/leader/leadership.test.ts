import assert from "node:assert/strict";
import { test } from "node:test";
import type { NewEvent } from "../../contract/control-event.ts";
import { silentLogger } from "../../kernel/log.ts";
import { seededRandom } from "../../kernel/random.ts";
import { FreezableClock } from "../../testing/freezable-clock.ts";
import { askLease, type LeaseRow, mayWrite } from "../../testing/lease-row.ts";
import { VirtualClock } from "../../testing/virtual-clock.ts";
import { StoreFault } from "../store/sql-driver.ts";
import { Leadership } from "./leadership.ts";

const SETTINGS = { leaseMs: 10_000, renewMs: 2_000, blindMsMax: 10_000 };

/** The store's lease on virtual time: it answers late, not at all, or after losing its last write. */
class SimStore {
  row: LeaseRow | null = null;
  replica: LeaseRow | null = null;
  away = false;
  /** One way, in ms; drawn for each request. */
  latency: () => number = () => 1;
  readonly clock: VirtualClock;

  constructor(clock: VirtualClock) {
    this.clock = clock;
  }

  /** As this process reaches it: an answer to one that is frozen waits for it. */
  for(process: FreezableClock): ConstructorParameters<typeof Leadership>[0]["store"] {
    const travel = <T>(act: () => T): Promise<T> =>
      new Promise((resolve, reject) => {
        this.clock.after(this.latency(), () => {
          const away = this.away;
          const result = away ? undefined : act();
          this.clock.after(this.latency(), () =>
            process.whenAwake(() =>
              away ? reject(new StoreFault("away", { applied: "unknown" })) : resolve(result as T),
            ),
          );
        });
      });
    return {
      askLease: (request) =>
        travel(() => {
          const verdict = askLease(this.row, request, this.clock.mono());
          if (verdict.held) {
            this.replica = this.row;
            this.row = verdict.row;
          }
          const { holder, epoch, priorEpoch } = verdict.row;
          return verdict.held ? { kind: "held", epoch, priorEpoch } : { kind: "refused", by: { holder, epoch } };
        }),
      releaseLease: (term) =>
        travel(() => {
          if (this.row?.holder === term.holder && this.row.epoch === term.epoch)
            this.row = { ...this.row, expiresAt: 0 };
        }),
    };
  }
}

interface Member {
  readonly clock: FreezableClock;
  readonly leadership: Leadership;
  readonly events: NewEvent[];
}

class World {
  readonly clock = new VirtualClock();
  readonly store = new SimStore(this.clock);
  #names = 0;

  join(alone = false): Member {
    const clock = new FreezableClock(this.clock);
    const events: NewEvent[] = [];
    const self = `cp${(this.#names += 1)}`;
    const leadership = new Leadership({
      store: this.store.for(clock),
      clock,
      log: silentLogger,
      settings: SETTINGS,
      self,
      alone,
      onEvent: (event) => events.push(event),
    });
    return { clock, leadership, events };
  }
}

const epochOf = ({ leadership }: Member): number | null => leadership.term?.epoch ?? null;

test("alone, a control plane leads at once, also after one that crashed a moment ago [40.L4]", async () => {
  const world = new World();
  const crashed = world.join();
  await world.clock.advance(10);
  assert.equal(epochOf(crashed), 1);
  crashed.clock.freeze();
  const next = world.join(true);
  await world.clock.advance(10);
  assert.equal(epochOf(next), 2);
});

test("one that is stopped while its request is under way gives back what it gets, be it the lead or a renewal [40.L5]", async () => {
  for (const stoppedAfterMs of [1, SETTINGS.renewMs + 60]) {
    const world = new World();
    world.store.latency = () => 50;
    const first = world.join();
    await world.clock.advance(stoppedAfterMs);
    const stopped = first.leadership.stop();
    await world.clock.advance(1_000);
    await stopped;
    const next = world.join();
    await world.clock.advance(200);
    assert.equal(epochOf(next), 2, `${stoppedAfterMs} ms`);
  }
});

test("of two, one leads; a clean stop hands over within one interval, a crash within the lease and one interval [40.L5]", async () => {
  const world = new World();
  const [a, b] = [world.join(), world.join()];
  await world.clock.advance(5_000);
  assert.deepEqual([epochOf(a), epochOf(b)], [1, null]);
  assert.deepEqual(b.leadership.view().leader, { holder: "cp1", epoch: 1 });
  const stopped = a.leadership.stop();
  await world.clock.advance(SETTINGS.renewMs + 10);
  await stopped;
  assert.deepEqual([epochOf(a), epochOf(b)], [null, 2]);
  const c = world.join();
  await world.clock.advance(5_000);
  b.clock.freeze();
  await world.clock.advance(SETTINGS.leaseMs - 3_000);
  assert.equal(epochOf(c), null);
  await world.clock.advance(3_000 + SETTINGS.renewMs + 10);
  assert.equal(epochOf(c), 3);
});

test("a leader that slept past its lease ends its term before anything else, and may not act meanwhile [40.L2]", async () => {
  const world = new World();
  const [a, b] = [world.join(), world.join()];
  await world.clock.advance(3_000);
  const signal = a.leadership.term?.signal;
  a.clock.freeze();
  await world.clock.advance(40_000);
  assert.equal(epochOf(b), 2);
  assert.equal(a.leadership.mayAct(), false, "whatever asks first when it wakes is told no");
  a.clock.thaw();
  assert.equal(epochOf(a), null);
  assert.equal(signal?.aborted, true);
  await world.clock.advance(30_000);
  assert.deepEqual([epochOf(a), epochOf(b)], [null, 2]);
  assert.deepEqual(
    a.events.map(({ kind }) => kind),
    ["leaderChanged", "leaderStoodDown"],
  );
});

test("a renewal that hangs is given up and tried again, and the term ends when none was answered in time [40.L3]", async () => {
  const world = new World();
  const [a, b] = [world.join(), world.join()];
  await world.clock.advance(100);
  const hang = world.store.latency;
  world.store.latency = () => 1_000_000;
  await world.clock.advance(SETTINGS.blindMsMax - 1_000);
  assert.equal(a.leadership.mayAct(), true);
  assert.ok((a.leadership.view().storeSilentMs ?? 0) > 5_000);
  await world.clock.advance(2_000);
  assert.deepEqual([epochOf(a), epochOf(b)], [null, null], "without the store nobody takes over");
  await world.clock.advance(300_000);
  assert.deepEqual([epochOf(a), epochOf(b)], [null, null]);
  world.store.latency = hang;
  await world.clock.advance(10_000);
  assert.equal([epochOf(a), epochOf(b)].filter((epoch) => epoch !== null).length, 1);
});

test("a store that was set back makes the next term one above every epoch that agents obeyed, and tells of it [80.P7]", async () => {
  const world = new World();
  const a = world.join();
  await world.clock.advance(100);
  a.leadership.reported({ holder: "from-before", epoch: 41 });
  assert.equal(epochOf(a), null);
  await world.clock.advance(100);
  assert.equal(epochOf(a), 42);
  assert.deepEqual(
    a.events.map(({ kind }) => kind),
    ["leaderChanged", "leaderStoodDown", "leaderChanged", "epochRaised"],
  );
});

/** Every seed is another course of freezes, outages, slow answers, lost writes, stops and restarts. */
const SEEDS = 150;

test(`in ${SEEDS} random courses of faults no write is taken after one of a later epoch, and one leads when they end [40.L2 80.P6]`, async () => {
  for (let seed = 1; seed <= SEEDS; seed += 1) {
    try {
      await runCourse(seed);
    } catch (error) {
      throw new Error(`seed ${seed}: ${String(error)}`, { cause: error });
    }
  }
});

async function runCourse(seed: number): Promise<void> {
  const random = seededRandom(seed);
  const world = new World();
  const members = [world.join(), world.join(), world.join()];
  const accepted: { epoch: number; holder: string }[] = [];
  world.store.latency = () => (random.next() < 0.05 ? 4_000 * random.next() : 20 * random.next());
  /** What a pass does: decides while it leads, and writes some time later, whatever has become of it. */
  const write = (member: Member): void => {
    const { term } = member.leadership;
    if (term === null || !member.leadership.mayAct()) return;
    world.clock.after(3_000 * random.next(), () => {
      if (mayWrite(world.store.row, term.holder, term.epoch)) accepted.push({ epoch: term.epoch, holder: term.holder });
      else member.clock.whenAwake(() => member.leadership.fenced(term.epoch));
    });
  };
  for (let step = 0; step < 120; step += 1) {
    const index = Math.floor(random.next() * members.length);
    const member = members[index];
    if (member === undefined) continue;
    const dice = random.next();
    if (dice < 0.1) member.clock.freeze();
    else if (dice < 0.3) member.clock.thaw();
    else if (dice < 0.34) world.store.away = !world.store.away;
    else if (dice < 0.37) {
      void member.leadership.stop();
      members[index] = world.join();
    } else for (const each of members) write(each);
    await world.clock.advance(1_500 * random.next());
    const acting = members.filter(({ leadership }) => leadership.mayAct());
    assert.ok(acting.length <= 1, "with claims no longer than the lease, two never act at once");
  }
  for (const [index, { epoch, holder }] of accepted.entries()) {
    const before = accepted[index - 1];
    if (before === undefined) continue;
    assert.ok(epoch >= before.epoch, `a write under ${epoch} came after one under ${before.epoch}`);
    if (epoch === before.epoch) assert.equal(holder, before.holder);
  }
  assert.ok(accepted.length > 0, "some writes were taken");
  world.store.away = false;
  world.store.latency = () => 5;
  for (const { clock } of members) clock.thaw();
  await world.clock.advance(SETTINGS.leaseMs + 3 * SETTINGS.renewMs);
  assert.equal(members.filter(({ leadership }) => leadership.term !== null).length, 1);
}
