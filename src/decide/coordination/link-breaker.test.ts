import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { asMono } from "../../kernel/clock.ts";
import { FAILURES_MAX, LinkBreaker, PROBE_MS, SPENT_MS_MAX, WINDOW_MS } from "./link-breaker.ts";

const at = asMono;

interface Row {
  readonly name: string;
  /** Failures as [time, time spent]. */
  readonly failures: readonly (readonly [number, number])[];
  readonly opens: boolean;
}

const rows: readonly Row[] = [
  { name: "one short failure is not yet an outage", failures: [[0, 1]], opens: false },
  {
    name: "three failures in a second are",
    failures: [
      [0, 1],
      [500, 1],
      [999, 1],
    ],
    opens: true,
  },
  {
    name: "three in more than a second are not",
    failures: [
      [0, 1],
      [500, 1],
      [1_000, 1],
    ],
    opens: false,
  },
  { name: "300 ms spent on one failure are enough", failures: [[300, 300]], opens: true },
  {
    name: "and so they are spent on two",
    failures: [
      [150, 150],
      [300, 150],
    ],
    opens: true,
  },
];

for (const { name, failures, opens } of rows)
  test(`${name} [80.C11]`, () => {
    const breaker = new LinkBreaker(at(0));
    for (const [time, spent] of failures) breaker.failed("f", spent, 0, at(time));
    assert.equal(breaker.state, opens ? "open" : "closed");
  });

function opened(): LinkBreaker {
  const breaker = new LinkBreaker(at(0));
  breaker.open("gone", 0, at(0));
  return breaker;
}

test("open, it tries once a second and up to a quarter of it later, and only one probe at a time [80.C11]", () => {
  const breaker = new LinkBreaker(at(0));
  breaker.open("gone", 0.5, at(0));
  assert.equal(breaker.probeAt, 1_125);
  assert.equal(breaker.beginProbe(at(1_124)), false);
  assert.equal(breaker.beginProbe(at(1_125)), true);
  assert.equal(breaker.state, "halfOpen");
  assert.equal(breaker.beginProbe(at(5_000)), false);
  assert.equal(breaker.probeAt, undefined);
});

test("a probe that fails opens it again with its own reason, one that works closes it", () => {
  const breaker = opened();
  breaker.beginProbe(at(1_000));
  breaker.endProbe("still gone", 0, at(1_100));
  assert.equal(breaker.state, "open");
  assert.equal(breaker.reason, "still gone");
  assert.equal(breaker.changedAt, 0, "it is the same opening");
  assert.equal(breaker.probeAt, 2_100);
  breaker.beginProbe(at(2_100));
  breaker.endProbe(undefined, 0, at(2_101));
  assert.equal(breaker.state, "closed");
  assert.equal(breaker.reason, "");
  assert.equal(breaker.changedAt, 2_101);
});

test("what was asked before it opened, and fails late, neither opens nor puts off anything", () => {
  const breaker = opened();
  assert.equal(breaker.failed("late", 5_000, 0, at(900)), false);
  assert.equal(breaker.probeAt, PROBE_MS);
  breaker.endProbe(undefined, 0, at(950));
  assert.equal(breaker.state, "open", "no probe was under way");
});

test("after any sequence it is open exactly when a window of failures or a failed probe says so, and probes keep their distance", () => {
  const step = fc.record({
    ms: fc.integer({ min: 0, max: 700 }),
    act: fc.constantFrom("fail", "probe", "well", "ill"),
    spent: fc.integer({ min: 0, max: 150 }),
    chance: fc.double({ min: 0, max: 0.999, noNaN: true }),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const breaker = new LinkBreaker(at(0));
      let now = 0;
      let lastProbe = Number.NEGATIVE_INFINITY;
      let failures: { at: number; spent: number }[] = [];
      for (const { ms, act, spent, chance } of steps) {
        now += ms;
        const before = breaker.state;
        if (act === "fail") {
          if (before === "closed") failures = [...failures.filter((f) => now - f.at < WINDOW_MS), { at: now, spent }];
          breaker.failed("f", spent, chance, at(now));
          const sum = failures.reduce((total, f) => total + f.spent, 0);
          if (before === "closed")
            assert.equal(breaker.state === "open", failures.length >= FAILURES_MAX || sum >= SPENT_MS_MAX);
          if (breaker.state !== "closed") failures = [];
        } else if (act === "probe") {
          if (breaker.beginProbe(at(now))) {
            assert.ok(now - lastProbe >= PROBE_MS);
            lastProbe = now;
          }
        } else {
          breaker.endProbe(act === "well" ? undefined : "ill", chance, at(now));
          if (before !== "halfOpen") assert.equal(breaker.state, before);
        }
      }
    }),
  );
});
