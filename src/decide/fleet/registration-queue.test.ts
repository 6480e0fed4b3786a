import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { asMono } from "../../kernel/clock.ts";
import { RegistrationQueue } from "./registration-queue.ts";

test("five hundred that come at once are let in one after another, in their order, within ten seconds [80.A17]", () => {
  const queue = new RegistrationQueue<number>({ everyMs: 20, waitingMax: 1_000 }, asMono(0));
  for (let at = 0; at < 500; at += 1) assert.equal(queue.offer(at, "a"), true);
  const order: number[] = [];
  for (let now = 0; queue.nextAt !== null; now += 1) {
    const next = queue.take(asMono(now));
    if (next !== undefined) order.push(next);
    assert.ok(now <= 10_000);
  }
  assert.deepEqual(
    order,
    Array.from({ length: 500 }, (_, at) => at),
  );
});

test("whatever comes, leaves and is taken: never two within one interval, in order, none lost, none above the bound", () => {
  const act = fc.oneof(
    fc.record({ kind: fc.constant("come" as const) }),
    fc.record({ kind: fc.constant("leave" as const), at: fc.nat(50) }),
    fc.record({ kind: fc.constant("pass" as const), ms: fc.nat(60) }),
  );
  fc.assert(
    fc.property(fc.array(act, { maxLength: 200 }), (acts) => {
      const queue = new RegistrationQueue<number>({ everyMs: 20, waitingMax: 8 }, asMono(0));
      let waiting: number[] = [];
      let [now, next, last] = [0, 0, Number.NEGATIVE_INFINITY];
      for (const step of acts) {
        if (step.kind === "come") {
          next += 1;
          assert.equal(queue.offer(next, "a"), waiting.length < 8);
          if (waiting.length < 8) waiting.push(next);
        } else if (step.kind === "leave") {
          const gone = waiting[step.at];
          if (gone !== undefined) queue.leave(gone, "a");
          waiting = waiting.filter((item) => item !== gone);
        } else now += step.ms;
        const due = queue.nextAt !== null && queue.nextAt <= now;
        const taken = queue.take(asMono(now));
        assert.equal(taken !== undefined, due);
        if (taken === undefined) continue;
        assert.equal(taken, waiting.shift());
        assert.ok(now - last >= 20);
        last = now;
      }
      assert.equal(queue.size, waiting.length);
    }),
  );
});

test("who floods the door from one address waits behind himself: each other address has its turn at once [80.A17]", () => {
  const queue = new RegistrationQueue<string>({ everyMs: 20, waitingMax: 4_096 }, asMono(0));
  for (let at = 0; at < 4_000; at += 1) queue.offer(`flood-${at}`, "flood");
  queue.offer("node-a", "10.0.0.1");
  queue.offer("node-b", "10.0.0.2");
  queue.offer("node-b again", "10.0.0.2");
  const taken = [0, 20, 40, 60, 80, 100].map((ms) => queue.take(asMono(ms)));
  assert.deepEqual(taken, ["flood-0", "node-a", "node-b", "flood-1", "node-b again", "flood-2"]);
});
