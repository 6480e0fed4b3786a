import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { REQUEST_CLASSES, type RequestClass } from "../../contract/request-class.ts";
import { asMono, type MonoMs } from "../../kernel/clock.ts";
import { anArrival, EndpointRoom, someLimits } from "../../testing/admission.ts";
import { AdmissionPool, type Arrival } from "./admission-pool.ts";
import type { PoolLimits } from "./pool-limits.ts";

/** What the pool should do, written to be read: lists and scans, no accounts for the lower classes. */
class ReferencePool {
  limits: PoolLimits;
  readonly room: EndpointRoom;
  now = 0;
  waiting: { readonly arrival: Arrival; readonly arrivedAt: number; expiresAt: number }[] = [];
  readonly holders = new Map<number, RequestClass>();
  readonly lingering = new Set<number>();
  readonly #fair = { interactive: new Turns(), system: new Turns(), batch: new Turns() };
  log: string[] = [];

  constructor(limits: PoolLimits, room: EndpointRoom) {
    this.limits = limits;
    this.room = room;
  }

  arrive(arrival: Arrival): string {
    if (arrival.deadline !== undefined && arrival.deadline <= this.now) return "refused deadlineSpent";
    this.settle();
    if (this.#slot(arrival.class) && this.room.canTake(arrival.group)) {
      this.#take(arrival);
      return "admitted";
    }
    const full = this.#makeSpace(arrival);
    if (full !== undefined) return `refused ${full}`;
    if (!this.#of(arrival.class).some((other) => other.arrival.key === arrival.key))
      this.#fair[arrival.class].start(arrival.key);
    const timeoutAt = this.now + waitOf(this.limits, arrival);
    this.waiting.push({ arrival, arrivedAt: this.now, expiresAt: Math.min(timeoutAt, arrival.deadline ?? Infinity) });
    return "queued";
  }

  setLimits(limits: PoolLimits): void {
    const before = this.limits;
    this.limits = limits;
    for (const entry of this.waiting) retime(entry, before, limits, this.now);
  }

  end(id: number): void {
    if (!this.holders.delete(id)) return;
    this.lingering.delete(id);
    this.settle();
  }

  leave(id: number): void {
    const entry = this.waiting.find(({ arrival }) => arrival.id === id);
    this.waiting = this.waiting.filter((other) => other !== entry);
    if (entry !== undefined && this.#of(entry.arrival.class).length === 0)
      this.#fair[entry.arrival.class] = new Turns();
  }

  settle(): void {
    const due = this.waiting
      .filter(({ expiresAt }) => expiresAt <= this.now)
      .toSorted((a, b) => a.expiresAt - b.expiresAt);
    for (const { arrival } of due) {
      this.leave(arrival.id);
      this.log.push(`expired ${arrival.id}`);
    }
    for (let next = this.#next(); next !== undefined; next = this.#next()) {
      this.#take(next);
      this.#fair[next.class].serve(next.key, next.weight);
      this.leave(next.id);
      this.log.push(`admitted ${next.id}`);
    }
  }

  #of(name: RequestClass): typeof this.waiting {
    return this.waiting.filter(({ arrival }) => arrival.class === name);
  }

  #held(name: RequestClass): number {
    return [...this.holders.values()].filter((held) => held === name).length;
  }

  #slot(name: RequestClass): boolean {
    return this.holders.size < this.limits.slots && (name !== "batch" || this.#held("batch") < this.limits.batchMax);
  }

  #take(arrival: Arrival): void {
    this.room.book(arrival.id, arrival.group);
    this.holders.set(arrival.id, arrival.class);
  }

  #next(): Arrival | undefined {
    for (const name of REQUEST_CLASSES) {
      const ready = this.#slot(name) ? this.#of(name).filter(({ arrival }) => this.room.canTake(arrival.group)) : [];
      const [first] = ready
        .map(({ arrival }) => arrival)
        .toSorted((a, b) => this.#fair[name].compare(a.key, b.key) || a.id - b.id);
      if (first !== undefined) return first;
    }
    return undefined;
  }

  #load(entries: readonly Arrival[], without: { count: number; bytes: number }, weight: number): number {
    const bytes = entries.reduce((sum, entry) => sum + entry.bytes, 0) - without.bytes;
    return (
      Math.max((entries.length - without.count) / this.limits.queueMax, bytes / this.limits.queueBytesMax) / weight
    );
  }

  #heaviest(entries: readonly Arrival[]): Arrival[] {
    const flows = [...Map.groupBy(entries, ({ key }) => key).values()];
    const load = (flow: Arrival[]): number => this.#load(flow, { count: 0, bytes: 0 }, flow[0]?.weight ?? 1);
    return flows.toSorted((a, b) => load(b) - load(a) || (b.at(-1)?.id ?? 0) - (a.at(-1)?.id ?? 0))[0] ?? [];
  }

  #makeSpace(arrival: Arrival): string | undefined {
    const { queueMax, queueBytesMax } = this.limits;
    if (queueMax === 0) return "queueFull";
    if (arrival.bytes > queueBytesMax) return "queueBytesFull";
    const sum = (entries: readonly Arrival[]): number => entries.reduce((total, { bytes }) => total + bytes, 0);
    const entries = (): Arrival[] => this.waiting.map((entry) => entry.arrival);
    const over = () => ({
      count: Math.max(0, entries().length + 1 - queueMax),
      bytes: Math.max(0, sum(entries()) + arrival.bytes - queueBytesMax),
    });
    const isOver = (): boolean => over().count > 0 || over().bytes > 0;
    if (!isOver()) return undefined;
    const why = over().count > 0 ? "queueFull" : "queueBytesFull";

    const rank = REQUEST_CLASSES.indexOf(arrival.class);
    const lower = entries().filter((entry) => REQUEST_CLASSES.indexOf(entry.class) > rank);
    const peers = entries().filter((entry) => entry.class === arrival.class);
    const rest = { count: Math.max(0, over().count - lower.length), bytes: Math.max(0, over().bytes - sum(lower)) };
    const hog = this.#heaviest(peers);
    const own = peers.filter(({ key }) => key === arrival.key);
    const givesWay =
      hog[0] !== undefined &&
      hog[0].key !== arrival.key &&
      hog.length >= rest.count &&
      sum(hog) >= rest.bytes &&
      this.#load(hog, rest, hog[0].weight) >= this.#load([...own, arrival], { count: 0, bytes: 0 }, arrival.weight);
    if ((rest.count > 0 || rest.bytes > 0) && !givesWay) return why;
    while (isOver()) {
      const lowest = REQUEST_CLASSES.toReversed().find((name, index) => 2 - index > rank && this.#of(name).length > 0);
      const from =
        lowest === undefined
          ? entries().filter(({ class: name, key }) => name === arrival.class && key === hog[0]?.key)
          : this.#of(lowest).map((entry) => entry.arrival);
      const victim = this.#heaviest(from).at(-1);
      assert.ok(victim !== undefined);
      this.leave(victim.id);
      this.log.push(`displaced ${victim.id}`);
    }
    return undefined;
  }
}

const waitOf = (limits: PoolLimits, arrival: Arrival): number =>
  limits.startTimeoutMs ?? limits.queueTimeoutMs[arrival.class];

/** A start begins or ends to be waited for: the other time from now on, and never more than both together. */
function retime(
  entry: { readonly arrival: Arrival; readonly arrivedAt: number; expiresAt: number },
  before: PoolLimits,
  after: PoolLimits,
  now: number,
): void {
  if ((before.startTimeoutMs === null) === (after.startTimeoutMs === null)) return;
  const start = before.startTimeoutMs ?? after.startTimeoutMs ?? 0;
  const most = entry.arrivedAt + start + after.queueTimeoutMs[entry.arrival.class];
  entry.expiresAt = Math.min(most, now + waitOf(after, entry.arrival), entry.arrival.deadline ?? Infinity);
}

/** Start tags of the keys of one class. */
class Turns {
  #virtual = 0;
  #turn = 0;
  readonly #tags = new Map<string, { tag: number; turn: number }>();

  start(key: string): void {
    this.#tags.set(key, { tag: Math.max(this.#virtual, this.#tags.get(key)?.tag ?? 0), turn: this.#turn++ });
  }

  serve(key: string, weight: number): void {
    this.#virtual = Math.max(this.#virtual, this.#tags.get(key)?.tag ?? 0);
    this.#tags.set(key, { tag: this.#virtual + 1 / weight, turn: this.#turn++ });
  }

  compare(a: string, b: string): number {
    const [first, second] = [this.#tags.get(a), this.#tags.get(b)];
    assert.ok(first !== undefined && second !== undefined);
    return first.tag - second.tag || first.turn - second.turn;
  }
}

type Step =
  | {
      readonly kind: "arrive";
      readonly class: RequestClass;
      readonly key: number;
      readonly bytes: number;
      readonly group: string;
      readonly deadlineIn: number | undefined;
    }
  | { readonly kind: "end" | "linger" | "cancel"; readonly pick: number }
  | { readonly kind: "limits"; readonly over: Partial<PoolLimits> }
  | { readonly kind: "room"; readonly capacity: readonly number[] }
  | { readonly kind: "pass"; readonly ms: number };

const WEIGHTS = [1, 1, 2, 5];
const arrive = fc.record({
  kind: fc.constant("arrive" as const),
  class: fc.constantFrom(...REQUEST_CLASSES),
  key: fc.nat(3),
  bytes: fc.nat(40),
  group: fc.constantFrom("", "", "m0", "m1"),
  deadlineIn: fc.option(fc.nat(300), { nil: undefined }),
});
const act = fc.record({
  kind: fc.constantFrom("end" as const, "end" as const, "linger" as const, "cancel" as const),
  pick: fc.nat(1_000),
});
const limits = fc.record({
  slots: fc.nat(5),
  batchMax: fc.nat(4),
  queueMax: fc.nat(10),
  queueBytesMax: fc.nat(200),
  startTimeoutMs: fc.constantFrom(null, null, 100, 250),
});
const room = fc.record({
  kind: fc.constant("room" as const),
  capacity: fc.array(fc.nat(4), { minLength: 2, maxLength: 2 }),
});
const pass = fc.record({ kind: fc.constant("pass" as const), ms: fc.nat(120) });
const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 10, arbitrary: arrive },
  { weight: 7, arbitrary: act },
  { weight: 1, arbitrary: limits.map((over) => ({ kind: "limits" as const, over })) },
  { weight: 1, arbitrary: room },
  { weight: 3, arbitrary: pass },
);
/** One class, several keys and groups, little else: long queues, so that turns are what matters. */
const turnStep: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 5,
    arbitrary: arrive.map((one) => ({ ...one, class: "interactive" as const, bytes: 1, deadlineIn: undefined })),
  },
  { weight: 4, arbitrary: fc.record({ kind: fc.constant("end" as const), pick: fc.nat(1_000) }) },
  { weight: 1, arbitrary: room },
);
const TIMEOUTS = { interactive: 150, system: 150, batch: 400 };

/** Drives the pool by steps and holds it to everything that must always be true; returns what happened. */
class Driver {
  readonly pool: AdmissionPool;
  readonly room: EndpointRoom;
  limits: PoolLimits;
  now: MonoMs = asMono(0);
  id = 0;
  readonly running = new Map<number, Arrival>();
  readonly waiting = new Map<number, { readonly arrival: Arrival; readonly arrivedAt: number; expiresAt: number }>();
  readonly #positions = new Map<number, number>();
  readonly #settled = new Set<number>();

  constructor(limits: PoolLimits, room: EndpointRoom) {
    this.limits = limits;
    this.room = room;
    this.pool = new AdmissionPool(limits, room, this.now);
  }

  arrive(step: Step & { kind: "arrive" }): Arrival {
    return anArrival(++this.id, {
      class: step.class,
      key: `k${step.key}`,
      weight: WEIGHTS[step.key] ?? 1,
      bytes: step.bytes,
      group: step.group,
      deadline: step.deadlineIn === undefined ? undefined : asMono(this.now + step.deadlineIn),
    });
  }

  apply(step: Step, arrival: Arrival | undefined, id: number): string {
    let said = "";
    if (step.kind === "arrive" && arrival !== undefined) {
      const answer = this.pool.arrive(arrival, this.now);
      said = answer.kind === "refused" ? `refused ${answer.why}` : answer.kind;
      const expiresAt = Math.min(this.now + waitOf(this.limits, arrival), arrival.deadline ?? Infinity);
      if (answer.kind === "queued") this.waiting.set(arrival.id, { arrival, arrivedAt: this.now, expiresAt });
      if (answer.kind === "queued") this.#positions.set(arrival.id, answer.position);
      if (answer.kind === "admitted") this.#admitted(arrival);
      if (answer.kind === "refused") assert.ok(answer.retryAfterMs >= 1_000 && answer.retryAfterMs <= 600_000);
    } else if (step.kind === "end") {
      this.running.delete(id);
      this.room.release(id);
      this.pool.end(id, this.now);
    } else if (step.kind === "linger") this.pool.linger(id, this.now);
    else if (step.kind === "cancel") assert.equal(this.pool.cancel(id, this.now), this.waiting.delete(id));
    else if (step.kind === "limits") this.pool.setLimits(this.limits, this.now);
    else if (step.kind === "room") this.pool.roomChanged(this.now);
    else this.pool.advance(this.now);
    return said;
  }

  /** Takes the events and checks each, then the state. */
  check(): string[] {
    const log = this.pool.takeEvents().map((event) => {
      const entry = this.waiting.get(event.id);
      assert.ok(entry !== undefined, `${event.kind} of ${event.id}, which does not wait`);
      this.waiting.delete(event.id);
      assert.equal(event.kind === "expired", entry.expiresAt <= this.now, "expired work and only that expires");
      if (event.kind === "admitted") {
        const { arrival } = entry;
        for (const { arrival: other } of this.waiting.values()) {
          const sameLane = other.class === arrival.class && other.key === arrival.key && other.group === arrival.group;
          assert.ok(!sameLane || other.id > arrival.id, "first in, first out inside class, key and group");
        }
        this.#admitted(arrival);
      }
      return `${event.kind} ${event.id}`;
    });
    const view = this.pool.view();
    const count = (name: RequestClass): number =>
      [...this.running.values()].filter((arrival) => arrival.class === name).length;
    for (const name of REQUEST_CLASSES) {
      assert.equal(view.inUse[name], count(name));
      assert.equal(
        view.waiting[name],
        [...this.waiting.values()].filter(({ arrival }) => arrival.class === name).length,
      );
    }
    assert.equal(
      view.waitingBytes,
      [...this.waiting.values()].reduce((sum, { arrival }) => sum + arrival.bytes, 0),
    );
    assert.equal(
      this.pool.nextDue() ?? Infinity,
      Math.min(Infinity, ...[...this.waiting.values()].map(({ expiresAt }) => expiresAt)),
    );
    for (const { arrival } of this.waiting.values()) {
      const hasSlot =
        this.running.size < this.limits.slots && (arrival.class !== "batch" || count("batch") < this.limits.batchMax);
      assert.ok(!(hasSlot && this.room.canTake(arrival.group)), "nobody waits who could be admitted");
      const position = this.pool.position(arrival.id) ?? Infinity;
      assert.ok(position >= 1 && position <= (this.#positions.get(arrival.id) ?? 0), "positions only fall");
      this.#positions.set(arrival.id, position);
    }
    return log;
  }

  #admitted(arrival: Arrival): void {
    assert.ok(!this.#settled.has(arrival.id), "admitted once");
    this.#settled.add(arrival.id);
    this.running.set(arrival.id, arrival);
    assert.ok(this.running.size <= this.limits.slots, "never above slots");
    const batch = [...this.running.values()].filter((other) => other.class === "batch").length;
    assert.ok(arrival.class !== "batch" || batch <= this.limits.batchMax, "batch never above its cap");
  }
}

function prepare(driver: Driver, step: Step): number {
  if (step.kind === "pass") driver.now = asMono(driver.now + step.ms);
  if (step.kind === "limits") {
    const next = { ...driver.limits, ...step.over };
    for (const entry of driver.waiting.values()) retime(entry, driver.limits, next, driver.now);
    driver.limits = next;
  }
  if (step.kind === "room") step.capacity.forEach((slots, index) => (driver.room.capacity[index] = slots));
  if (step.kind === "end" || step.kind === "linger") return pickOf([...driver.running.keys()], step.pick);
  if (step.kind === "cancel") return pickOf([...driver.waiting.keys(), ...driver.running.keys()], step.pick);
  return -1;
}

const pickOf = (ids: readonly number[], pick: number): number => ids[pick % Math.max(1, ids.length)] ?? -1;
const firstLimits = (share: number): PoolLimits =>
  someLimits({
    slots: 3,
    batchMax: 2,
    batchMinShare: share,
    queueMax: 8,
    queueBytesMax: 150,
    queueTimeoutMs: TIMEOUTS,
  });

function agreesWithModel(steps: readonly Step[], limits: PoolLimits): void {
  const driver = new Driver(limits, new EndpointRoom([2, 2]));
  const model = new ReferencePool(driver.limits, new EndpointRoom([2, 2]));
  for (const step of steps) {
    const id = prepare(driver, step);
    const arrival = step.kind === "arrive" ? driver.arrive(step) : undefined;
    const said = driver.apply(step, arrival, id);
    model.now = driver.now;
    model.setLimits(driver.limits);
    driver.room.capacity.forEach((slots, index) => (model.room.capacity[index] = slots));
    let expected = "";
    if (arrival !== undefined) expected = model.arrive(arrival);
    else if (step.kind === "end") {
      model.room.release(id);
      model.end(id);
    } else if (step.kind === "linger" && model.holders.has(id)) model.lingering.add(id);
    else if (step.kind === "cancel") model.leave(id);
    else if (step.kind !== "linger") model.settle();
    assert.equal(said, expected);
    assert.deepEqual(driver.check(), model.log);
    assert.equal(driver.pool.view().lingering, model.lingering.size);
    model.log = [];
  }
}

test("answers, admissions, expiries and displacements are those of a plain model, after any sequence [10.A2 10.A8]", () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 80 }), (steps) => agreesWithModel(steps, firstLimits(0))),
    { numRuns: 250 },
  );
});

test("the turns of keys are those of a plain model, whatever endpoints have room [10.A3 10.A8]", () => {
  const limits = { ...firstLimits(0), queueMax: 40 };
  fc.assert(
    fc.property(fc.array(turnStep, { minLength: 20, maxLength: 100 }), (steps) => agreesWithModel(steps, limits)),
    { numRuns: 150 },
  );
});

test("never above slots or batchMax, and no slot is lost, after any sequence of arrivals, ends, cancels and limits [10.A1 10.A8]", () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 100 }), fc.constantFrom(0.05, 0.3, 1), (steps, share) => {
      const driver = new Driver(firstLimits(share), new EndpointRoom([2, 2]));
      for (const step of steps) {
        const id = prepare(driver, step);
        driver.apply(step, step.kind === "arrive" ? driver.arrive(step) : undefined, id);
        driver.check();
      }
      // Everything ends, or expires: the pool is as new.
      for (let round = 0; driver.running.size + driver.waiting.size > 0; round += 1) {
        assert.ok(round < 1_000, "every wait ends");
        const [id] = driver.running.keys();
        if (id === undefined) driver.now = driver.pool.nextDue() ?? driver.now;
        driver.apply(id === undefined ? { kind: "pass", ms: 0 } : { kind: "end", pick: 0 }, undefined, id ?? -1);
        driver.check();
      }
      const { inUse, waiting, waitingBytes, lingering } = driver.pool.view();
      const none = { interactive: 0, system: 0, batch: 0 };
      assert.deepEqual(
        { inUse, waiting, waitingBytes, lingering },
        { inUse: none, waiting: none, waitingBytes: 0, lingering: 0 },
      );
      assert.equal(driver.pool.nextDue(), undefined);
    }),
    { numRuns: 250 },
  );
});

test("cancelling at any point of a crowd's life loses no slot and serves all the others", () => {
  for (let at = 0; at <= 24; at += 1) {
    const driver = new Driver(firstLimits(0), new EndpointRoom([9, 9]));
    const served: number[] = [];
    for (let turn = 0; turn < 24; turn += 1) {
      const arrives = {
        kind: "arrive" as const,
        class: "interactive" as const,
        key: turn % 3,
        bytes: 1,
        group: "",
        deadlineIn: undefined,
      };
      if (turn < 11) driver.apply(arrives, driver.arrive(arrives), -1);
      if (turn === at) driver.apply({ kind: "cancel", pick: 0 }, undefined, 5);
      if (turn >= 11) served.push(pickOf([...driver.running.keys()], 0));
      if (turn >= 11) driver.apply({ kind: "end", pick: 0 }, undefined, pickOf([...driver.running.keys()], 0));
      driver.check();
    }
    assert.equal(driver.running.size + driver.waiting.size, 0);
    assert.equal(new Set(served.filter((id) => id > 0 && id !== 5)).size, 10);
  }
});
