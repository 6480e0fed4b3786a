import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { Schedule, type Job, type Rates } from "./schedule.ts";

interface Seen {
  readonly job: Job;
  startedMs: number | undefined;
  endedMs: number | undefined;
  tokens: number;
}

function aJob(
  over: {
    priority?: number;
    prompt?: number;
    output?: number;
    gapMs?: number;
    firstDelayMs?: number;
    stallAfter?: number;
  } = {},
): Seen {
  const seen: Seen = {
    startedMs: undefined,
    endedMs: undefined,
    tokens: 0,
    job: {
      priority: over.priority ?? 0,
      outputTokens: over.output ?? 10,
      ...(over.gapMs === undefined ? {} : { gapMs: over.gapMs }),
      ...(over.firstDelayMs === undefined ? {} : { firstDelayMs: over.firstDelayMs }),
      ...(over.stallAfter === undefined ? {} : { stallAfter: over.stallAfter }),
      begin(atMs) {
        seen.startedMs = atMs;
        return over.prompt ?? 0;
      },
      tokens(from, count) {
        assert.equal(from, seen.tokens);
        seen.tokens += count;
      },
      end(atMs) {
        seen.endedMs = atMs;
      },
    },
  };
  return seen;
}

const rates = (over: Partial<Rates> = {}): Rates => ({ slots: 2, prefillTps: 1_000, decodeTps: 100, ...over });

test("the first token comes when the prompt is computed, and the others at the decode rate", () => {
  const schedule = new Schedule(rates());
  const one = aJob({ prompt: 200, output: 5 });
  schedule.add(one.job, 0);
  schedule.advance(199);
  assert.equal(one.tokens, 0);
  schedule.advance(200);
  assert.equal(one.tokens, 1);
  schedule.advance(229);
  assert.equal(one.tokens, 3);
  schedule.advance(1_000);
  assert.equal(one.tokens, 5);
  assert.equal(one.endedMs, 240);
});

test("a look that comes late starts the next job at the moment its slot was free", () => {
  const schedule = new Schedule(rates({ slots: 1 }));
  const jobs = [aJob({ prompt: 100, output: 11 }), aJob({ prompt: 100, output: 11 })] as const;
  for (const { job } of jobs) schedule.add(job, 0);
  schedule.advance(1_000);
  assert.deepEqual(
    jobs.map(({ startedMs, endedMs }) => [startedMs, endedMs]),
    [
      [0, 200],
      [200, 400],
    ],
  );
});

test("lower priority numbers start first, ties in order of arrival, and nobody who runs is displaced", () => {
  const schedule = new Schedule(rates({ slots: 1 }));
  const [running, ten, zero, urgent] = [aJob(), aJob({ priority: 10 }), aJob(), aJob({ priority: -5 })];
  schedule.add(running.job, 0);
  schedule.advance(0);
  for (const { job } of [ten, zero, urgent]) schedule.add(job, 1);
  schedule.advance(10_000);
  const order = [ten, zero, urgent, running].toSorted((a, b) => (a.startedMs ?? 0) - (b.startedMs ?? 0));
  assert.deepEqual(order, [running, urgent, zero, ten]);
});

test("a long prompt shows as steps before its first token", () => {
  const schedule = new Schedule(rates({ prefillTps: 100 }));
  schedule.add(aJob({ prompt: 400 }).job, 0);
  const steps = [0, 1_000, 2_000, 3_000].map((atMs) => schedule.advance(atMs).steps);
  assert.deepEqual(steps, [0, 4, 4, 4]);
});

test("without rates a short answer is complete at the first look", () => {
  const schedule = new Schedule(rates({ prefillTps: Infinity, decodeTps: Infinity }));
  const one = aJob({ prompt: 50_000, output: 500 });
  schedule.add(one.job, 7);
  schedule.advance(7);
  assert.deepEqual([one.tokens, one.endedMs, schedule.nextMs()], [500, 7, Infinity]);
});

test("a job that leaves frees its slot for the next", () => {
  const schedule = new Schedule(rates({ slots: 1 }));
  const [one, two] = [aJob(), aJob()];
  schedule.add(one.job, 0);
  schedule.add(two.job, 0);
  schedule.advance(10);
  assert.equal(schedule.remove(one.job, 20), true);
  schedule.advance(20);
  assert.equal(two.startedMs, 20);
  assert.equal(schedule.remove(one.job, 30), false);
});

test("a stalled job and one without a first token hold their slots for ever", () => {
  const schedule = new Schedule(rates());
  const [stalled, silent] = [aJob({ stallAfter: 3 }), aJob({ firstDelayMs: Infinity })];
  for (const { job } of [stalled, silent]) schedule.add(job, 0);
  schedule.advance(1e9);
  assert.deepEqual([stalled.tokens, silent.tokens, schedule.runningCount, schedule.nextMs()], [3, 0, 2, Infinity]);
});

test("never more jobs than slots, every job ends once with all its tokens, whatever arrives and leaves", () => {
  const anyEvent = fc.record({
    waitMs: fc.nat(300),
    priority: fc.integer({ min: -3, max: 3 }),
    prompt: fc.nat(500),
    output: fc.nat(40),
    leave: fc.boolean(),
  });
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 4 }), fc.array(anyEvent, { maxLength: 40 }), (slots, events) => {
      const schedule = new Schedule(rates({ slots }));
      const all: { seen: Seen; output: number; left: boolean }[] = [];
      let nowMs = 0;
      for (const event of events) {
        nowMs += event.waitMs;
        schedule.advance(nowMs);
        assert.ok(schedule.runningCount <= slots);
        const seen = aJob(event);
        schedule.add(seen.job, nowMs);
        all.push({ seen, output: event.output, left: false });
        const victim = all[Math.floor(all.length / 2)];
        if (event.leave && victim !== undefined) victim.left = schedule.remove(victim.seen.job, nowMs) || victim.left;
      }
      schedule.advance(nowMs + 1e6);
      assert.deepEqual([schedule.runningCount, schedule.waitingCount], [0, 0]);
      for (const { seen, output, left } of all)
        assert.ok(left ? seen.endedMs === undefined : seen.endedMs !== undefined && seen.tokens === output);
    }),
  );
});
