import assert from "node:assert/strict";
import { test } from "node:test";
import { asMono, type MonoMs } from "../../kernel/clock.ts";
import { seededRandom } from "../../kernel/random.ts";
import { judgeStall, STALL_RETRY_MS, type StallVerdict, type StallView, type StepsSeen } from "./stall.ts";

const STALL_MS = 60_000;
const s = (seconds: number): MonoMs => asMono(1_000_000 + seconds * 1_000);
const steps = (since: number, seenAt: number): StepsSeen => ({ value: 7, since: s(since), seenAt: s(seenAt) });

function judge(now: number, view: Partial<StallView>): StallVerdict {
  return judgeStall(
    {
      running: 1,
      silentSince: s(0),
      silenceTells: true,
      lastProgressAt: undefined,
      steps: null,
      stalled: false,
      stalledSince: undefined,
      ...view,
    },
    STALL_MS,
    s(now),
  );
}

const rows: {
  readonly name: string;
  readonly now: number;
  readonly view: Partial<StallView>;
  readonly expect: StallVerdict;
}[] = [
  {
    name: "an endpoint with nothing running is never stalled",
    now: 900,
    view: { running: 0, silentSince: undefined, lastProgressAt: s(0) },
    expect: "unknown",
  },
  { name: "a request that waits for its first byte is no stall yet", now: 59, view: {}, expect: "unknown" },
  { name: "no byte for 60 s with a request running is a stall", now: 60, view: {}, expect: "stalled" },
  {
    name: "where silence tells nothing, no byte for an hour is no stall",
    now: 3600,
    view: { silenceTells: false },
    expect: "unknown",
  },
  {
    name: "a counter that stands tells where silence does not",
    now: 30,
    view: { silenceTells: false, steps: steps(0, 30) },
    expect: "stalled",
  },
  {
    name: "an event of any request shows progress",
    now: 100,
    view: { running: 3, lastProgressAt: s(99) },
    expect: "moving",
  },
  {
    name: "silence of all requests since the last event is a stall",
    now: 160,
    view: { running: 3, lastProgressAt: s(100) },
    expect: "stalled",
  },
  {
    name: "events before the request came do not count against it",
    now: 130,
    view: { silentSince: s(100), lastProgressAt: s(0) },
    expect: "unknown",
  },
  {
    name: "a moving counter is progress however long no byte comes",
    now: 300,
    view: { steps: steps(299, 300) },
    expect: "moving",
  },
  {
    name: "a counter seen standing for 25 s without a byte is a stall",
    now: 26,
    view: { steps: steps(1, 26) },
    expect: "stalled",
  },
  {
    name: "a counter that stands while bytes come is none",
    now: 100,
    view: { lastProgressAt: s(90), steps: steps(0, 100) },
    expect: "moving",
  },
  {
    name: "a counter that stood while nothing ran counts from dispatch",
    now: 120,
    view: { silentSince: s(100), steps: steps(0, 120) },
    expect: "unknown",
  },
  {
    name: "a counter that can't be read any more leaves only the bytes",
    now: 50,
    view: { steps: steps(0, 40) },
    expect: "unknown",
  },
  {
    name: "a counter that moved before it became unreadable is no proof for ever",
    now: 61,
    view: { steps: steps(50, 50) },
    expect: "stalled",
  },
  {
    name: "a stalled endpoint stays so without a sign",
    now: 100,
    view: { stalled: true, stalledSince: s(60), steps: steps(0, 100) },
    expect: "stalled",
  },
  {
    name: "an event after the stall shows that it moves",
    now: 100,
    view: { stalled: true, stalledSince: s(60), lastProgressAt: s(99) },
    expect: "moving",
  },
  {
    name: "a counter that moves after the stall shows that it moves",
    now: 100,
    view: { running: 0, stalled: true, stalledSince: s(60), steps: steps(98, 100) },
    expect: "moving",
  },
  {
    name: "an empty stalled endpoint may be tried again after a minute",
    now: 120,
    view: { running: 0, stalled: true, stalledSince: s(120 - STALL_RETRY_MS / 1_000) },
    expect: "unknown",
  },
  {
    name: "one with requests on it may not",
    now: 200,
    view: { stalled: true, stalledSince: s(60) },
    expect: "stalled",
  },
];
for (const row of rows) test(`${row.name} [10.R5b]`, () => assert.equal(judge(row.now, row.view), row.expect));

/** An engine watched each second: the counter moves while it works, events come when it says so. */
function watch(
  seconds: number,
  engine: (second: number) => { readonly moves: boolean; readonly event: boolean },
  readable: boolean,
): number | undefined {
  let seen: StepsSeen = steps(0, 0);
  let value = 7;
  let lastProgressAt: MonoMs | undefined;
  for (let second = 1; second <= seconds; second++) {
    const { moves, event } = engine(second);
    if (moves) value++;
    if (event) lastProgressAt = s(second);
    seen = { value, since: seen.value === value ? seen.since : s(second), seenAt: s(second) };
    const verdict = judgeStall(
      {
        running: 1,
        silentSince: lastProgressAt ?? s(0),
        silenceTells: true,
        lastProgressAt,
        steps: readable ? seen : null,
        stalled: false,
        stalledSince: undefined,
      },
      STALL_MS,
      s(second),
    );
    if (verdict === "stalled") return second;
  }
  return undefined;
}

test("a hang is seen within 65 s by bytes alone and within 30 s by the counter [80.A8]", () => {
  for (let hangsAt = 1; hangsAt < 40; hangsAt++) {
    const hang = (second: number): { moves: boolean; event: boolean } => ({
      moves: second < hangsAt,
      event: second < hangsAt,
    });
    const byBytes = watch(200, hang, false);
    const byCounter = watch(200, hang, true);
    assert.ok(byBytes !== undefined && byBytes - hangsAt <= 65, `${byBytes}`);
    assert.ok(byCounter !== undefined && byCounter - hangsAt <= 30, `${byCounter}`);
  }
});

test("a thousand prefills of 55 s are never taken for stalls, with the counter or without [80.A8]", () => {
  const random = seededRandom(8);
  for (let round = 0; round < 1_000; round++) {
    // Chunks of a long prefill take up to ten seconds each.
    const stepEvery = 1 + Math.floor(random.next() * 10);
    const prefill = (second: number): { moves: boolean; event: boolean } => ({
      moves: second % stepEvery === 0,
      event: second >= 55,
    });
    assert.equal(watch(70, prefill, round % 2 === 0), undefined);
  }
});
