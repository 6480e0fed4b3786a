import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { JobPart } from "../../contract/job.ts";
import { seededRandom } from "../../kernel/random.ts";
import { FanOut, partsError } from "./fan-out.ts";
import type { CallVerdict } from "./judge-run.ts";

const DONE: CallVerdict = { kind: "done" };
const error = { code: "UPSTREAM_ERROR", message: "m" } as const;
const AGAIN: CallVerdict = { kind: "again", error, keepsAnswer: false };
const FINAL: CallVerdict = { kind: "final", error, keepsAnswer: false };
const POSTPONE: CallVerdict = { kind: "postpone", error, afterMs: 5 };
const VERDICTS = [DONE, DONE, DONE, AGAIN, AGAIN, FINAL];

test("parts run at most fanout_max at once, each to one end within its tries, whatever they answer [20.J6]", () => {
  const options = fc.record({
    total: fc.integer({ min: 1, max: 60 }),
    atOnce: fc.integer({ min: 1, max: 9 }),
    allowPartial: fc.boolean(),
    seed: fc.nat(),
    known: fc.uniqueArray(fc.nat(59), { maxLength: 20 }),
  });
  fc.assert(
    fc.property(options, ({ total, atOnce, allowPartial, seed, known }) => {
      const random = seededRandom(seed);
      const finished: JobPart[] = known
        .filter((index) => index < total)
        .map((index) => ({ index, result: null, error: null }));
      const fan = new FanOut({ total, atOnce, attemptsMax: 3, allowPartial, finished });
      const tries = new Map<number, number>();
      const stored = new Set(finished.map((part) => part.index));
      const running: number[] = [];
      let now = 0;
      while (fan.verdict().kind === "running") {
        const started = fan.start(now);
        for (const index of started) {
          assert.ok(!stored.has(index) && !running.includes(index), "never again what has ended");
          tries.set(index, (tries.get(index) ?? 0) + 1);
          assert.ok(tries.get(index)! <= 3);
          running.push(index);
        }
        assert.ok(running.length <= atOnce && running.length === fan.running);
        if (running.length === 0) {
          assert.ok(fan.nextAt !== undefined && fan.nextAt > now, "it never stands still");
          now = fan.nextAt;
          continue;
        }
        const [index = 0] = running.splice(Math.floor(random.next() * running.length), 1);
        if (fan.ended(index, VERDICTS[Math.floor(random.next() * VERDICTS.length)]!, now, random)) stored.add(index);
      }
      const verdict = fan.verdict();
      if (verdict.kind === "done") assert.equal(stored.size, total);
      if (verdict.kind === "failed" && !allowPartial) assert.equal(verdict.failed.length > 0, true);
    }),
  );
});

test("one part that failed for good fails the job and starts nothing new, or is listed where that is allowed [20.J6]", () => {
  const random = seededRandom(1);
  const strict = new FanOut({ total: 10, atOnce: 2, attemptsMax: 3, allowPartial: false, finished: [] });
  assert.deepEqual(strict.start(0), [0, 1]);
  strict.ended(1, FINAL, 0, random);
  assert.deepEqual(strict.start(0), []);
  assert.deepEqual(strict.verdict(), { kind: "failed", failed: [1] });
  const partial = new FanOut({ total: 3, atOnce: 3, attemptsMax: 3, allowPartial: true, finished: [] });
  for (const index of partial.start(0)) partial.ended(index, index === 1 ? FINAL : DONE, 0, random);
  assert.deepEqual(partial.verdict(), { kind: "done", failed: [1] });
});

test("a job all of whose parts failed has failed, also where some may", () => {
  const fan = new FanOut({ total: 2, atOnce: 2, attemptsMax: 1, allowPartial: true, finished: [] });
  for (const index of fan.start(0)) fan.ended(index, AGAIN, 0, seededRandom(1));
  assert.deepEqual(fan.verdict(), { kind: "failed", failed: [0, 1] });
});

test("a part that can't run now postpones the rest once those that run have ended [20.J6]", () => {
  const random = seededRandom(1);
  const fan = new FanOut({ total: 5, atOnce: 2, attemptsMax: 3, allowPartial: false, finished: [] });
  fan.start(0);
  fan.ended(0, POSTPONE, 0, random);
  assert.equal(fan.verdict().kind, "running");
  assert.deepEqual(fan.start(0), []);
  assert.equal(fan.ended(1, POSTPONE, 0, random), false);
  assert.deepEqual(fan.verdict(), { kind: "postponed", error, afterMs: 5 });
});

test("parts that a limit puts off run as it lets them, a few at once, and no try of theirs is counted [20.J6 20.J7]", () => {
  const random = seededRandom(1);
  const fan = new FanOut({ total: 200, atOnce: 16, attemptsMax: 1, allowPartial: true, finished: [] });
  let running: number[] = [];
  let refused = 0;
  for (let turn = 0; turn < 1_000 && fan.verdict().kind === "running"; turn += 1) {
    for (const index of fan.start(turn)) {
      if (running.length < 2) running.push(index);
      else {
        refused += 1;
        fan.ended(index, POSTPONE, turn, random);
      }
    }
    const [first, ...others] = running;
    if (first !== undefined) fan.ended(first, DONE, turn, random);
    running = others;
  }
  assert.deepEqual(fan.verdict(), { kind: "done", failed: [] });
  assert.ok(refused < 150, `${refused} refusals for 200 parts`);
});

test("while as many parts run as may, no time is waited for: the end of one of them comes first [20.J6]", () => {
  const random = seededRandom(1);
  const fan = new FanOut({ total: 3, atOnce: 1, attemptsMax: 3, allowPartial: true, finished: [] });
  fan.start(0);
  fan.ended(0, AGAIN, 0, random);
  assert.ok((fan.nextAt ?? 0) > 0);
  fan.start(0);
  assert.equal(fan.running, 1);
  assert.equal(fan.nextAt, undefined);
});

test("the error names the parts that failed, up to twenty", () => {
  assert.equal(partsError([3, 7], 9).message, "2 of 9 parts failed: 3, 7");
  assert.match(
    partsError(
      Array.from({ length: 100 }, (_, i) => i),
      1_000,
    ).message,
    /, 19 and 80 more$/,
  );
});
