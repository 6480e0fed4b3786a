import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { asMono } from "../../kernel/clock.ts";
import { anArrival, aPool, EndpointRoom, sendAll, someLimits } from "../../testing/admission.ts";
import type { AdmissionPool, Arrival, Room } from "./admission-pool.ts";

const T0 = asMono(0);

/** Ends one running request after another and gives the order in which the waiting ones were admitted. */
function serviceOrder(pool: AdmissionPool, running: readonly number[]): number[] {
  const order: number[] = [];
  const toEnd = [...running];
  for (let id = toEnd.shift(); id !== undefined; id = toEnd.shift()) {
    pool.end(id, T0);
    for (const event of pool.takeEvents()) {
      assert.equal(event.kind, "admitted");
      order.push(event.id);
      toEnd.push(event.id);
    }
  }
  return order;
}

const many = (count: number, over: Partial<Arrival>): Partial<Arrival>[] => Array.from({ length: count }, () => over);

describe("slots and classes", () => {
  test("up to `slots` requests are admitted at once, the next waits for an end [10.A1]", () => {
    const pool = aPool({ slots: 2 });
    assert.deepEqual(sendAll(pool, [{}, {}, {}]), ["admitted", "admitted", "queued"]);
    assert.deepEqual(pool.takeEvents(), []);
    pool.end(1, asMono(70));
    assert.deepEqual(pool.takeEvents(), [{ kind: "admitted", id: 3, waitedMs: 70 }]);
    assert.equal(pool.view().inUse.interactive, 2);
  });

  test("interactive goes before system before batch, whoever came first [10.A2]", () => {
    const pool = aPool({ slots: 1, batchMax: 1 });
    sendAll(pool, [
      {},
      { class: "batch" },
      { class: "system" },
      { class: "interactive" },
      { class: "batch" },
      { class: "interactive" },
    ]);
    assert.deepEqual(serviceOrder(pool, [1]), [4, 6, 3, 2, 5]);
  });

  test("batch holds at most `batchMax` slots and leaves the others to people [10.A2]", () => {
    const pool = aPool({ slots: 4, batchMax: 3 });
    assert.deepEqual(sendAll(pool, many(4, { class: "batch" })), ["admitted", "admitted", "admitted", "queued"]);
    assert.equal(pool.arrive(anArrival(10), T0).kind, "admitted");
    pool.end(10, T0);
    assert.deepEqual(pool.takeEvents(), [], "the slot that an interactive request left is not batch's");
  });

  test("of 16 slots with 8 for batch, 24 batch calls run 8 and queue 16, and interactive calls don't wait [10.A7]", () => {
    const pool = aPool({ slots: 16, batchMax: 8, batchMinShare: 0.05 });
    const answers = sendAll(pool, many(24, { class: "batch", key: "b" }));
    assert.equal(answers.filter((kind) => kind === "admitted").length, 8);
    assert.equal(answers.filter((kind) => kind === "queued").length, 16);
    for (let round = 0; round < 200; round += 1) {
      const now = asMono(round * 500);
      const ids = Array.from({ length: 8 }, (_, index) => 100 + round * 8 + index);
      for (const id of ids) assert.equal(pool.arrive(anArrival(id), now).kind, "admitted");
      assert.deepEqual(pool.view().inUse, { interactive: 8, system: 0, batch: 8 });
      for (const id of ids) pool.end(id, now);
      assert.deepEqual(pool.takeEvents(), [], "the trickle never lifts batch above its cap");
    }
    assert.equal(serviceOrder(pool, [1, 2, 3, 4, 5, 6, 7, 8]).length, 16);
  });

  test("a second end of a request frees no second slot", () => {
    const pool = aPool({ slots: 1 });
    sendAll(pool, [{}, {}, {}]);
    pool.end(1, T0);
    pool.end(1, T0);
    pool.end(99, T0);
    assert.deepEqual(
      pool.takeEvents().map((event) => event.id),
      [2],
    );
    assert.equal(pool.view().inUse.interactive, 1);
  });

  test("an end of a request that only waits changes nothing", () => {
    const pool = aPool({ slots: 1 });
    sendAll(pool, [{}, {}]);
    pool.end(2, T0);
    assert.equal(pool.view().waiting.interactive, 1);
    pool.end(1, T0);
    assert.deepEqual(
      pool.takeEvents().map((event) => event.id),
      [2],
    );
  });

  test("an id that waits or holds a slot can't arrive again", () => {
    const pool = aPool({ slots: 1 });
    sendAll(pool, [{}, {}]);
    assert.throws(() => pool.arrive(anArrival(1), T0));
    assert.throws(() => pool.arrive(anArrival(2), T0));
    pool.setLimits(someLimits({ slots: 5 }), T0);
    assert.throws(() => pool.arrive(anArrival(1), T0));
    assert.deepEqual(pool.view().inUse, { interactive: 2, system: 0, batch: 0 });
  });

  test("an admission above a limit is stopped by an assertion, and takes no slot [80.C52]", () => {
    for (const over of [
      { slots: 1, batchMax: 5 },
      { slots: 5, batchMax: 1 },
    ]) {
      // A shell that breaks the rules: it admits another request from inside the booking of one.
      const room: Room = {
        canTake: () => true,
        book: (id) => void (id === 1 && pool.arrive(anArrival(2, { class: "batch" }), T0)),
      };
      const pool = aPool(over, room);
      assert.throws(() => pool.arrive(anArrival(1, { class: "batch" }), T0), /was to be admitted/);
      assert.equal(pool.view().inUse.batch, 1);
    }
  });

  test("a booking that throws takes no slot", () => {
    let broken = true;
    const pool = aPool({ slots: 1 }, { canTake: () => true, book: () => assert.ok(!broken) });
    assert.throws(() => pool.arrive(anArrival(1), T0));
    broken = false;
    assert.equal(pool.arrive(anArrival(2), T0).kind, "admitted");
  });
});

describe("turns", () => {
  test("inside a class and key the first in is the first out [10.A2]", () => {
    const pool = aPool({ slots: 1 });
    sendAll(pool, many(6, {}));
    assert.deepEqual(serviceOrder(pool, [1]), [2, 3, 4, 5, 6]);
  });

  test("a key with a backlog of a thousand delays another key's single request by one turn [10.A3]", () => {
    const pool = aPool({ slots: 1, queueMax: 2_000 });
    sendAll(pool, many(1_001, { key: "hog" }));
    const answer = pool.arrive(anArrival(5_000, { key: "single" }), T0);
    assert.deepEqual(answer, { kind: "queued", position: 2 });
    assert.deepEqual(serviceOrderOf(pool, 1, 3), [2, 5_000, 3]);
    assert.deepEqual(pool.arrive(anArrival(5_001, { key: "another" }), T0), { kind: "queued", position: 1 });
  });

  test("waiting keys take turns by weight [10.A3]", () => {
    const pool = aPool({ slots: 1, queueMax: 1_000 });
    const weights = { a: 1, b: 2, c: 5 };
    sendAll(pool, [{}, ...Object.entries(weights).flatMap(([key, weight]) => many(160, { key, weight }))]);
    const served = { a: 0, b: 0, c: 0 };
    for (const id of serviceOrderOf(pool, 1, 160)) served[id <= 161 ? "a" : id <= 321 ? "b" : "c"] += 1;
    assert.deepEqual(served, { a: 20, b: 40, c: 100 });
  });

  test("a request whose group has no room is passed over, by its own key too, and holds back nobody", () => {
    const room = new EndpointRoom([1, 2]);
    const pool = aPool({ slots: 10 }, room);
    const kinds = sendAll(pool, [
      { group: "m0" },
      { group: "m0" },
      { group: "m1" },
      { key: "other", group: "" },
      { group: "m1" },
    ]);
    assert.deepEqual(kinds, ["admitted", "queued", "admitted", "admitted", "queued"]);
    room.release(3);
    pool.end(3, T0);
    assert.deepEqual(
      pool.takeEvents().map((event) => event.id),
      [5],
    );
    room.release(1);
    pool.end(1, T0);
    assert.deepEqual(
      pool.takeEvents().map((event) => event.id),
      [2],
    );
  });

  test("more room admits as many as fit, and never more", () => {
    const room = new EndpointRoom([0, 0]);
    const pool = aPool({ slots: 10 }, room);
    sendAll(pool, many(5, { group: "m0" }));
    room.capacity[0] = 3;
    pool.roomChanged(T0);
    assert.deepEqual(
      pool.takeEvents().map((event) => event.id),
      [1, 2, 3],
    );
  });
});

/** Ends `first`, then each request admitted, `count` times. One slot only. */
function serviceOrderOf(pool: AdmissionPool, first: number, count: number): number[] {
  const order: number[] = [];
  let running = first;
  for (let turn = 0; turn < count; turn += 1) {
    pool.end(running, T0);
    running = pool.takeEvents()[0]?.id ?? -1;
    order.push(running);
  }
  return order;
}

describe("the queue's bounds", () => {
  test("the count of all classes together is bounded, exactly [10.A4 80.C17]", () => {
    const pool = aPool({ slots: 1, queueMax: 3 });
    const kinds = sendAll(pool, [
      {},
      { class: "interactive" },
      { class: "interactive" },
      { class: "system" },
      { class: "system" },
      { class: "batch" },
    ]);
    assert.deepEqual(kinds, ["admitted", "queued", "queued", "queued", "refused", "refused"]);
    assert.equal(pool.cancel(2, T0), true);
    assert.equal(pool.arrive(anArrival(9, { class: "batch" }), T0).kind, "queued");
  });

  test("the bytes of waiting bodies are bounded, exactly [10.A4 80.C17]", () => {
    const pool = aPool({ slots: 1, queueBytesMax: 1_000 });
    sendAll(pool, [{ bytes: 5_000 }, { bytes: 600 }, { bytes: 400 }]);
    assert.equal(pool.view().waitingBytes, 1_000);
    const answer = pool.arrive(anArrival(9, { bytes: 1 }), T0);
    assert.equal(answer.kind === "refused" && answer.why, "queueBytesFull");
    pool.cancel(3, T0);
    assert.equal(pool.arrive(anArrival(10, { bytes: 400 }), T0).kind, "queued");
  });

  test("a queue of zero admits or refuses", () => {
    const pool = aPool({ slots: 1, queueMax: 0 });
    assert.deepEqual(sendAll(pool, [{ class: "batch" }, { class: "interactive" }]), ["admitted", "refused"]);
    pool.end(1, T0);
    assert.equal(pool.arrive(anArrival(3), T0).kind, "admitted");
  });

  test("a full queue sheds the lowest class first, its newest request", () => {
    const pool = aPool({ slots: 1, queueMax: 4 });
    sendAll(pool, [
      {},
      { class: "batch", key: "x" },
      { class: "system" },
      { class: "batch", key: "y" },
      { class: "batch", key: "z" },
    ]);
    const displacedBy = (id: number, over: Partial<Arrival>): (number | string)[] => {
      const answer = pool.arrive(anArrival(id, over), asMono(40));
      return [answer.kind, ...pool.takeEvents().map((event) => (event.kind === "displaced" ? event.id : event.kind))];
    };
    assert.deepEqual(displacedBy(10, { class: "interactive" }), ["queued", 5]);
    assert.deepEqual(displacedBy(11, { class: "system", key: "s" }), ["queued", 4]);
    assert.deepEqual(displacedBy(12, { class: "batch", key: "w" }), ["refused"]);
    assert.deepEqual(displacedBy(13, { class: "interactive" }), ["queued", 2]);
    assert.deepEqual(displacedBy(14, { class: "interactive" }), ["queued", 11]);
    assert.deepEqual(displacedBy(15, { class: "interactive" }), ["queued", 3]);
    assert.deepEqual(displacedBy(16, { class: "interactive" }), ["refused"]);
  });

  test("a displaced request is told how long it waited and when to come back", () => {
    const pool = aPool({ slots: 1, queueMax: 1 });
    sendAll(pool, [{}, { class: "batch" }]);
    pool.arrive(anArrival(3), asMono(1_234));
    assert.deepEqual(pool.takeEvents(), [{ kind: "displaced", id: 2, waitedMs: 1_234, retryAfterMs: 600_000 }]);
  });

  test("for bytes as many of the lower classes leave as it takes, and none when that would not do", () => {
    const pool = aPool({ slots: 1, queueBytesMax: 1_000 });
    sendAll(pool, [{}, { class: "system", bytes: 500 }, ...many(5, { class: "batch" as const, bytes: 100 })]);
    const refused = pool.arrive(anArrival(20, { bytes: 1_001 }), T0);
    assert.equal(refused.kind === "refused" && refused.why, "queueBytesFull");
    assert.equal(pool.arrive(anArrival(21, { class: "system", bytes: 501 }), T0).kind, "refused");
    assert.deepEqual(pool.takeEvents(), []);
    assert.equal(pool.arrive(anArrival(22, { bytes: 250 }), T0).kind, "queued");
    assert.deepEqual(
      pool.takeEvents().map((event) => event.id),
      [7, 6, 5],
    );
    assert.equal(pool.view().waitingBytes, 950);
  });

  test("a lower class keeps its floor of a full queue, and may take it back from higher ones [80.C17]", () => {
    const pool = aPool({ slots: 0, queueMax: 40, batchMinShare: 0.05 });
    sendAll(pool, [...many(38, { class: "system" as const }), ...many(5, { class: "batch" as const })]);
    assert.equal(pool.view().waiting.batch, 2);
    assert.equal(pool.arrive(anArrival(100, { class: "system" }), T0).kind, "refused");
    assert.equal(pool.arrive(anArrival(101), T0).kind, "queued");
    assert.deepEqual(pool.view().waiting, { interactive: 1, system: 37, batch: 2 });
    assert.deepEqual([pool.cancel(39, T0), pool.cancel(40, T0)], [true, true]);
    sendAll(pool, many(38, {}), 200);
    assert.deepEqual(pool.view().waiting, { interactive: 38, system: 2, batch: 0 });
    pool.takeEvents();
    assert.deepEqual(sendAll(pool, many(3, { class: "batch" as const }), 300), ["queued", "queued", "refused"]);
    assert.deepEqual(
      pool.takeEvents().map((event) => event.id),
      [236, 235],
    );
    assert.deepEqual(pool.view().waiting, { interactive: 36, system: 2, batch: 2 });
  });

  test("a key that fills the queue gives way to the other keys of its class [80.G8]", () => {
    const pool = aPool({ slots: 1, queueMax: 10 });
    sendAll(pool, many(11, { key: "hog" }));
    const kinds = sendAll(pool, [...many(6, { key: "other" }), { key: "hog" }], 100);
    assert.deepEqual(kinds, ["queued", "queued", "queued", "queued", "queued", "refused", "refused"]);
    assert.deepEqual(
      pool.takeEvents().map((event) => event.id),
      [11, 10, 9, 8, 7],
    );
  });
});

describe("leaving, lingering, changing limits", () => {
  test("a client that goes away while queued leaves at once and is never admitted [10.A5]", () => {
    const pool = aPool({ slots: 1 });
    sendAll(pool, many(22, {}));
    for (let id = 2; id <= 21; id += 1) assert.equal(pool.cancel(id, T0), true);
    assert.equal(pool.view().waiting.interactive, 1);
    assert.equal(pool.cancel(5, T0), false);
    assert.equal(pool.cancel(1, T0), false, "a running request is not the queue's to cancel");
    pool.end(1, T0);
    assert.deepEqual(
      pool.takeEvents().map((event) => event.id),
      [22],
    );
  });

  test("a lingering slot stays held and is counted until its end [10.A5b]", () => {
    const pool = aPool({ slots: 1 });
    sendAll(pool, [{}, {}]);
    pool.linger(1, T0);
    pool.linger(1, T0);
    pool.linger(2, T0);
    assert.deepEqual([pool.view().lingering, pool.view().inUse.interactive, pool.takeEvents()], [1, 1, []]);
    pool.end(1, T0);
    assert.deepEqual([pool.view().lingering, pool.view().inUse.interactive], [0, 1]);
    assert.deepEqual(
      pool.takeEvents().map((event) => event.id),
      [2],
    );
  });

  test("fewer slots let running requests go on and admit nothing until there are fewer [10.A1]", () => {
    const pool = aPool({ slots: 4, batchMax: 4 });
    sendAll(pool, [...many(4, { class: "batch" as const }), {}, {}]);
    pool.setLimits(someLimits({ slots: 2, batchMax: 1 }), T0);
    assert.equal(pool.view().inUse.batch, 4);
    pool.end(1, T0);
    pool.end(2, T0);
    assert.deepEqual(pool.takeEvents(), []);
    pool.end(3, T0);
    assert.deepEqual(
      pool.takeEvents().map((event) => event.id),
      [5],
    );
    pool.setLimits(someLimits({ slots: 3 }), T0);
    assert.deepEqual(
      pool.takeEvents().map((event) => event.id),
      [6],
    );
  });

  test("limits that can't be are refused", () => {
    for (const over of [{ slots: -1 }, { slots: Number.NaN }, { batchMinShare: 1.5 }, { queueMax: -1 }])
      assert.throws(() => aPool(over), RangeError);
    assert.throws(() => aPool({ slots: 0 }).arrive(anArrival(1, { weight: 0 }), T0), RangeError);
  });
});

describe("places in the queue", () => {
  test("positions are the order of service, and fall as it goes on [10.A4]", () => {
    const pool = aPool({ slots: 1 });
    sendAll(pool, [{}, ...["a", "b", "c", "a", "b", "a", "a"].map((key) => ({ key }))]);
    const order = [2, 3, 4, 5, 6, 7, 8];
    assert.deepEqual(
      order.map((id) => pool.position(id)),
      [1, 2, 3, 4, 5, 6, 7],
    );
    let running = 1;
    while (order.length > 0) {
      pool.end(running, T0);
      running = pool.takeEvents()[0]?.id ?? -1;
      assert.equal(running, order.shift());
      assert.deepEqual(
        order.map((id) => pool.position(id)),
        order.map((_, index) => index + 1),
      );
    }
    assert.equal(pool.position(2), undefined);
  });

  test("a told position does not rise when others come in between [10.A4]", () => {
    const pool = aPool({ slots: 1 });
    sendAll(pool, [{}, { key: "a" }, { key: "a" }]);
    assert.equal(pool.position(3), 2);
    sendAll(pool, [{ key: "b" }, { key: "c" }], 10);
    assert.equal(pool.position(3), 2);
  });

  test("with thousands of keys a position is an estimate that still falls to 1", () => {
    const pool = aPool({ slots: 1, queueMax: 5_000 });
    sendAll(pool, [{}, ...Array.from({ length: 1_000 }, (_, index) => ({ key: `k${index}` }))]);
    assert.equal(pool.position(1_001), 1_000);
    serviceOrderOf(pool, 1, 999);
    assert.equal(pool.position(1_001), 1);
  });

  test("the estimated wait is what is ahead at the measured rate, unknown before there is one", () => {
    const pool = aPool({ slots: 1 });
    sendAll(pool, [...many(12, {}), { class: "batch" }]);
    assert.equal(pool.estimatedWaitMs(12), undefined);
    for (let id = 1; id <= 5; id += 1) pool.end(id, asMono(id * 2_000));
    const near = (value: number | undefined, expected: number): void =>
      assert.ok(Math.abs((value ?? 0) / expected - 1) < 0.05, `${value}`);
    near(pool.estimatedWaitMs(7), 2_000);
    near(pool.estimatedWaitMs(12), 12_000);
    near(pool.estimatedWaitMs(13), 14_000);
    near(pool.view().drainPerSecond ?? 0, 0.5);
    assert.equal(pool.estimatedWaitMs(1), undefined);
  });
});
