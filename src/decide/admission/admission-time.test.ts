import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { RequestClass } from "../../contract/request-class.ts";
import { asMono } from "../../kernel/clock.ts";
import { anArrival, aPool, sendAll } from "../../testing/admission.ts";

const T0 = asMono(0);

describe("time", () => {
  test("a request expires at its class's queue timeout, exactly, and nextDue tells when [10.A4]", () => {
    const pool = aPool({ slots: 1, batchMax: 1, queueTimeoutMs: { interactive: 300, system: 200, batch: 100 } });
    const classes: RequestClass[] = ["interactive", "interactive", "system", "batch"];
    sendAll(
      pool,
      classes.map((name) => ({ class: name })),
    );
    for (const [id, at] of [
      [4, 100],
      [3, 200],
      [2, 300],
    ] as const) {
      assert.equal(pool.nextDue(), at);
      pool.advance(asMono(at - 1));
      assert.deepEqual(pool.takeEvents(), []);
      pool.advance(asMono(at));
      const [event] = pool.takeEvents();
      assert.ok(event?.kind === "expired" && event.why === "queueTimeout" && event.id === id && event.waitedMs === at);
    }
    assert.equal(pool.nextDue(), undefined);
  });

  test("queueing spends the request's own deadline [10.A4]", () => {
    const pool = aPool({ slots: 1 });
    sendAll(pool, [{}, { deadline: asMono(500) }, {}]);
    pool.advance(asMono(500));
    const [event] = pool.takeEvents();
    assert.ok(event?.kind === "expired" && event.why === "deadline" && event.id === 2 && event.waitedMs === 500);
  });

  test("a slot that comes free at the moment of expiry goes to the next, not to expired work [10.A4]", () => {
    for (const late of [500, 900]) {
      const pool = aPool({ slots: 1 });
      sendAll(pool, [{}, { deadline: asMono(500) }, {}]);
      pool.end(1, asMono(late));
      assert.deepEqual(
        pool.takeEvents().map((event) => [event.kind, event.id]),
        [
          ["expired", 2],
          ["admitted", 3],
        ],
      );
    }
  });

  test("a request whose deadline has passed on arrival is refused, though a slot is free [10.A4]", () => {
    const answer = aPool().arrive(anArrival(1, { deadline: T0 }), T0);
    assert.equal(answer.kind === "refused" && answer.why, "deadlineSpent");
  });

  test("expired requests make space for an arrival before it is refused", () => {
    const pool = aPool({ slots: 1, queueMax: 1 });
    sendAll(pool, [{}, {}]);
    assert.equal(pool.arrive(anArrival(3), asMono(30_000)).kind, "queued");
    assert.deepEqual(
      pool.takeEvents().map((event) => [event.kind, event.id]),
      [["expired", 2]],
    );
  });

  test("Retry-After is the time in which the waiting will have gone at the measured rate, within 1 s and 10 min [10.A4]", () => {
    const retryAfter = (holdMs: number, waiting: number): number => {
      const pool = aPool({
        slots: 2,
        queueMax: waiting,
        queueTimeoutMs: { interactive: 1e9, system: 1e9, batch: 1e9 },
      });
      let now = 0;
      sendAll(
        pool,
        Array.from({ length: 2 + waiting }, () => ({})),
      );
      for (let id = 1; id <= 40; id += 2) {
        now += holdMs;
        for (const ended of [id, id + 1]) {
          pool.end(ended, asMono(now));
          pool.arrive(anArrival(1_000 + ended), asMono(now));
        }
      }
      const answer = pool.arrive(anArrival(9_999), asMono(now));
      assert.ok(answer.kind === "refused" && answer.why === "queueFull");
      return answer.retryAfterMs;
    };
    const twoPerSecond = retryAfter(1_000, 99); // 100 with the refused one itself
    assert.ok(twoPerSecond > 45_000 && twoPerSecond < 55_000, `${twoPerSecond}`);
    assert.equal(retryAfter(10, 50), 1_000);
    assert.equal(retryAfter(60_000, 90), 600_000);
  });

  test("before anything has ended, Retry-After is the class's queue timeout", () => {
    const answer = aPool({ slots: 0, queueMax: 0 }).arrive(anArrival(1), T0);
    assert.deepEqual(answer, { kind: "refused", why: "queueFull", retryAfterMs: 30_000 });
    assert.equal(aPool().view().drainPerSecond, null);
  });

  test("a clock that goes back does no harm", () => {
    const pool = aPool({ slots: 1 });
    pool.arrive(anArrival(1), asMono(1_000));
    pool.arrive(anArrival(2), asMono(900));
    pool.end(1, asMono(800));
    assert.deepEqual(pool.takeEvents(), [{ kind: "admitted", id: 2, waitedMs: 0 }]);
  });
});
