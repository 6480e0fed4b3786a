import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { ShardFailure } from "../../contract/fleet.ts";
import {
  adoptedLife,
  askStop,
  isOver,
  LEFTOVER_GRACE_MS,
  newLife,
  reportedState,
  stepShard,
  UNSEEN_MS,
  UNWELL_MS,
  type ShardAction,
  type ShardLife,
  type ShardSigns,
} from "./shard-life.ts";

const LIMITS = { startStallMs: 10_000, markers: [/one/, /two/] };
const GRACE_MS = 5_000;
const BEFORE: ShardSigns = {
  weights: "present",
  room: "enough",
  process: "notStarted",
  members: 0,
  death: null,
  newLines: [],
  memoryMib: null,
  health: "none",
  service: "unknown",
  cards: "free",
  lastLines: ["last words"],
};
const ALIVE: ShardSigns = { ...BEFORE, process: "alive", members: 1 };
const SERVES: ShardSigns = { ...ALIVE, health: "healthy", service: "serves" };
const GONE: ShardSigns = { ...BEFORE, process: "gone" };
const DEATH: ShardFailure = { kind: "signal", message: "SIGSEGV", signal: "SIGSEGV", exitCode: null, lastLines: ["x"] };

/** Steps through signs that hold for so long, one look a second. Tells the last life and what was done when. */
function live(
  scenes: readonly { readonly signs: Partial<ShardSigns>; readonly seconds: number; readonly stop?: boolean }[],
  from: ShardLife = newLife(0, GRACE_MS),
): { readonly life: ShardLife; readonly done: readonly string[] } {
  let life = from;
  let now = 0;
  const done: string[] = [];
  for (const { signs, seconds, stop } of scenes) {
    if (stop === true) life = askStop(life, GRACE_MS);
    for (let i = 0; i < seconds; i += 1) {
      const step = stepShard(life, { ...BEFORE, ...signs }, LIMITS, now);
      ({ life } = step);
      done.push(...step.actions.map((action) => `${action}@${now / 1_000}`));
      now += 1_000;
    }
  }
  return { life, done };
}

const fetched = (mark: number, why: string | null = null, isQueued = false): Partial<ShardSigns> => ({
  weights: { mark, why, isQueued },
});

test("weights that come on may take as long as they need; those that do not for its time are a start that failed [40.N6 40.W1]", () => {
  const slow = Array.from({ length: 50 }, (_, at) => ({ signs: fetched(at + 1), seconds: 9 }));
  const coming = live(slow);
  assert.deepEqual([coming.life.phase, reportedState(coming.life)], ["fetching", "fetching"]);
  const there = live([...slow, { signs: {}, seconds: 2 }]);
  assert.deepEqual([there.life.phase, there.done], ["starting", ["spawn@451"]]);
  const stuck = live([
    { signs: fetched(5), seconds: 2 },
    { signs: fetched(5, "no space: 9 MB are needed"), seconds: 5 },
  ]);
  assert.deepEqual([stuck.life.phase, stuck.life.blockedBy], ["fetching", "no space: 9 MB are needed"]);
  const { life } = live([
    { signs: fetched(5), seconds: 1 },
    { signs: fetched(5, "no space"), seconds: 12 },
  ]);
  assert.deepEqual(
    [life.phase, life.failure?.kind, life.failure?.message],
    ["failed", "fetch", "the weights have not come on for 10 s: no space"],
  );
});

test("weights whose turn has not come wait for it, and a replica that is stopped meanwhile has stopped [40.N6 40.W1]", () => {
  const waits = live([{ signs: fetched(0, null, true), seconds: 100 }]);
  assert.equal(waits.life.phase, "fetching");
  const stopped = live([
    { signs: fetched(0, null, true), seconds: 1 },
    { signs: fetched(0), seconds: 1, stop: true },
  ]);
  assert.deepEqual([stopped.life.phase, stopped.done], ["stopped", []]);
});

test("an engine is started once, is ready when it has answered, and stays so [40.N6]", () => {
  const { life, done } = live([
    { signs: BEFORE, seconds: 3 },
    { signs: ALIVE, seconds: 3 },
    { signs: SERVES, seconds: 100 },
  ]);
  assert.deepEqual([reportedState(life), done], ["ready", ["spawn@1"]]);
});

test("a start without progress fails after its time, with the last lines, and is ended [40.N6]", () => {
  const { life, done } = live([
    { signs: BEFORE, seconds: 2 },
    { signs: { ...ALIVE, newLines: ["one"] }, seconds: 5 },
    { signs: { ...ALIVE, newLines: ["chatter"] }, seconds: 12 },
    { signs: GONE, seconds: 1 },
  ]);
  assert.deepEqual(
    [reportedState(life), life.failure?.kind, life.failure?.lastLines],
    ["failed", "stall", ["last words"]],
  );
  assert.deepEqual(done, ["spawn@1", "term@12", "kill@17", "kill@18"]);
});

test("a start that goes on may take many times that long [40.N6]", () => {
  const scenes = Array.from({ length: 40 }, (_, at) => ({ signs: { ...ALIVE, memoryMib: at * 100 }, seconds: 9 }));
  const { life } = live([{ signs: BEFORE, seconds: 2 }, ...scenes]);
  assert.equal(reportedState(life), "starting");
});

test("an end that nobody asked for is a failure; one that was asked for is none [40.N4b]", () => {
  const unasked = live([
    { signs: BEFORE, seconds: 2 },
    { signs: SERVES, seconds: 2 },
    { signs: { ...GONE, death: DEATH }, seconds: 2 },
  ]);
  assert.deepEqual([reportedState(unasked.life), unasked.life.failure], ["failed", DEATH]);
  const asked = live([
    { signs: BEFORE, seconds: 2 },
    { signs: SERVES, seconds: 2 },
    { signs: SERVES, seconds: 2, stop: true },
    { signs: { ...GONE, death: DEATH }, seconds: 2 },
  ]);
  assert.deepEqual(
    [reportedState(asked.life), asked.life.failure, asked.done],
    ["stopped", null, ["spawn@1", "term@4"]],
  );
});

test("an engine that does not listen is killed after its grace, again and again until nothing is left [40.N4]", () => {
  const { life, done } = live([
    { signs: BEFORE, seconds: 2 },
    { signs: SERVES, seconds: 1 },
    { signs: SERVES, seconds: 8, stop: true },
  ]);
  assert.equal(reportedState(life), "stopping");
  assert.deepEqual(done, ["spawn@1", "term@3", "kill@8", "kill@9", "kill@10"]);
});

test("children that outlive the engine are told, then killed, before it counts as ended [80.A5]", () => {
  const { life, done } = live([
    { signs: BEFORE, seconds: 2 },
    { signs: SERVES, seconds: 1 },
    { signs: { ...GONE, members: 2, death: DEATH }, seconds: 4 },
  ]);
  assert.equal(reportedState(life), "stopping");
  assert.deepEqual(done.slice(1), ["term@3", `kill@${3 + LEFTOVER_GRACE_MS / 1_000}`, "kill@6"]);
  assert.equal(reportedState(live([{ signs: GONE, seconds: 1 }], life).life), "failed");
});

test("a card that still shows its memory is not free, and one that can't be read is waited for, not for ever [40.N4 40.N4b]", () => {
  const ended = [
    { signs: BEFORE, seconds: 2 },
    { signs: SERVES, seconds: 1 },
    { signs: SERVES, seconds: 1, stop: true },
  ];
  const held = live([...ended, { signs: { ...GONE, cards: { held: "9000 MiB" } }, seconds: 500 }]);
  assert.deepEqual([reportedState(held.life), held.life.blockedBy], ["stopping", "9000 MiB"]);
  assert.equal(reportedState(live([...ended, { signs: { ...GONE, cards: "unknown" }, seconds: 5 }]).life), "stopping");
  const unseen = live([...ended, { signs: { ...GONE, cards: "unknown" }, seconds: UNSEEN_MS / 1_000 + 2 }]);
  assert.equal(reportedState(unseen.life), "stopped");
});

test("nothing is started on a card without room; who is in the way is told, and in the end the start fails [80.A5]", () => {
  const short = { room: { short: "blocked by PID 7" } };
  const soon = live([{ signs: short, seconds: 5 }]);
  assert.deepEqual([reportedState(soon.life), soon.life.blockedBy, soon.done], ["starting", "blocked by PID 7", []]);
  const late = live([{ signs: short, seconds: 15 }]);
  assert.deepEqual([late.life.failure?.kind, late.life.blockedBy, late.done], ["gpuOom", "blocked by PID 7", []]);
  const freed = live([
    { signs: short, seconds: 5 },
    { signs: BEFORE, seconds: 1 },
  ]);
  assert.deepEqual([freed.life.blockedBy, freed.done], [null, ["spawn@5"]]);
});

test("weights that are not there are a failed fetch", () => {
  const { life, done } = live([{ signs: { weights: { missing: "no such file" } }, seconds: 2 }]);
  assert.deepEqual([life.failure?.kind, life.failure?.message, done], ["fetch", "no such file", []]);
});

test("a page that says it can't serve is believed after a while; silence and a moment's trouble are not [40.N6]", () => {
  const ready = [
    { signs: BEFORE, seconds: 2 },
    { signs: SERVES, seconds: 1 },
  ];
  const seconds = UNWELL_MS / 1_000;
  const unwell: Partial<ShardSigns> = { ...ALIVE, service: "unwell" };
  assert.equal(
    live([...ready, { signs: { ...ALIVE, service: "unknown" }, seconds: 10 * seconds }]).life.phase,
    "ready",
  );
  const shortly = live([
    ...ready,
    { signs: unwell, seconds: seconds - 1 },
    { signs: SERVES, seconds: 1 },
    { signs: unwell, seconds: seconds - 1 },
  ]);
  assert.equal(shortly.life.phase, "ready");
  const long = live([...ready, { signs: unwell, seconds: seconds + 2 }]);
  assert.deepEqual([long.life.phase, long.life.failure?.kind], ["ending", "unhealthy"]);
});

test("an engine that was taken over goes on where it was", () => {
  assert.equal(live([{ signs: SERVES, seconds: 5 }], adoptedLife(0, GRACE_MS, true)).life.phase, "ready");
  assert.equal(live([{ signs: ALIVE, seconds: 5 }], adoptedLife(0, GRACE_MS, false)).life.phase, "starting");
});

test("whatever is seen in whatever order, an engine starts once, is killed only after its grace, and ends only when all is gone [40.N4]", () => {
  const signs = fc.record({
    weights: fc.constantFrom("present" as const, "looking" as const),
    room: fc.oneof(fc.constantFrom("enough" as const, "unknown" as const), fc.constant({ short: "x" })),
    alive: fc.boolean(),
    members: fc.nat(2),
    service: fc.constantFrom("unknown" as const, "serves" as const, "unwell" as const),
    cards: fc.oneof(fc.constantFrom("free" as const, "unknown" as const), fc.constant({ held: "x" })),
    stop: fc.boolean(),
    ms: fc.nat(20_000),
  });
  fc.assert(
    fc.property(fc.array(signs, { maxLength: 80 }), (steps) => {
      let life = newLife(0, GRACE_MS);
      let now = 0;
      let spawned = false;
      let dead = false;
      let termedAt: number | null = null;
      for (const step of steps) {
        now += step.ms;
        if (step.stop) life = askStop(life, GRACE_MS);
        dead ||= spawned && !step.alive;
        const process = !spawned ? "notStarted" : dead ? "gone" : "alive";
        const members = !spawned ? 0 : dead ? step.members : step.members + 1;
        const before = life;
        const next = stepShard(life, { ...BEFORE, ...step, process, members }, LIMITS, now);
        ({ life } = next);
        const acted = (action: ShardAction): boolean => next.actions.includes(action);
        if (isOver(before)) assert.deepEqual([life, next.actions], [before, []]);
        if (acted("spawn")) {
          assert.ok(!spawned && step.room === "enough");
          spawned = true;
        }
        if (acted("term")) termedAt ??= now;
        if (acted("kill") && process === "alive") {
          assert.ok(termedAt !== null && now - termedAt >= GRACE_MS);
        }
        if (isOver(life) && !isOver(before) && spawned)
          assert.ok(dead && members === 0 && typeof step.cards === "string");
        if (life.stopAsked && life.phase === "failed") assert.notEqual(life.failure, null);
      }
    }),
    { numRuns: 500 },
  );
});
