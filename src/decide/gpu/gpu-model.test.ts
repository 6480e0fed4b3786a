import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { asMono } from "../../kernel/clock.ts";
import { aGpuPolicy, aGpuSample } from "../../testing/gpu-samples.ts";
import { GpuBook, type Look } from "./gpu-book.ts";
import { classOfXid } from "./xid-policy.ts";

// The rules once more, slowly and without any state: each verdict is found in the whole history of the looks.

const POLICY = aGpuPolicy({ stalenessMs: 60_000, clearAfterMs: 45_000, sustainedSamples: 3 });
const CARDS = ["GPU-0", "GPU-1", "GPU-2"] as const;

interface Row {
  readonly temperatureC: number | null;
  readonly utilization: number | null;
  readonly xids: readonly number[] | null;
}
interface Seen {
  readonly at: number;
  /** Null: the look failed, or told of no card. */
  readonly rows: ReadonlyMap<string, Row> | null;
  readonly whole: boolean;
}
interface Told extends Row {
  readonly at: number;
}

/** What the model says: "good", "unknown", or the kinds of fault. */
function modelVerdict(history: readonly Seen[], card: string, now: number): string {
  const told = toldOf(history, card);
  const lastPage = history.findLast(({ rows }) => rows !== null);
  const missing = missesOf(history, card) >= 2;
  const gone = missing && lastPage !== undefined && now - lastPage.at <= POLICY.stalenessMs;
  const fresh = told.length > 0 && now - told.at(-1)!.at <= POLICY.stalenessMs;
  if (!fresh && !gone) return "unknown";
  const faults: string[] = [];
  if (xidFault(told)) faults.push("xid");
  if (goneFault(history, told, card)) faults.push("gone");
  if (heatFault(told, now)) faults.push("temperature");
  if (faults.length > 0) return faults.toSorted().join(" ");
  return gone ? "unknown" : "good";
}

/** The looks that said something of the card. */
const toldOf = (history: readonly Seen[], card: string): Told[] =>
  history.flatMap(({ at, rows }) => {
    const row = rows?.get(card);
    return row === undefined || Object.values(row).every((value) => value === null) ? [] : [{ ...row, at }];
  });

/** Whole pages since the card was last told of, that told of most cards that it is told with, and not of it. */
function missesOf(history: readonly Seen[], card: string): number {
  let misses = 0;
  /** Which cards are told together: those of a page join the ones that most of them were told with before. */
  const group = new Map<string, number>();
  for (const [at, { rows, whole }] of history.entries()) {
    if (rows === null) continue;
    const groups = [...rows.keys()].flatMap((name) => group.get(name) ?? []);
    const votes = (one: number): number => groups.filter((each) => each === one).length;
    const [page = at] = groups.toSorted((a, b) => votes(b) - votes(a) || a - b);
    for (const name of rows.keys()) group.set(name, page);
    const known = [...group.keys()].filter((name) => group.get(name) === page);
    if (rows.has(card)) misses = 0;
    else if (known.includes(card) && whole && known.filter((name) => !rows.has(name)).length < known.length * 0.55)
      misses += 1;
  }
  return misses;
}

/** Some run of samples, none of them `bad`, no two far apart, whose well ones span the time that it takes. */
function healed(after: readonly Told[], isBad: (row: Told) => boolean, isWell: (row: Told) => boolean): boolean {
  return after.some((first, from) =>
    after.some((last, to) => {
      const run = after.slice(from, to + 1);
      const near = run.every((row, at) => at === 0 || row.at - run[at - 1]!.at <= POLICY.stalenessMs);
      return (
        to >= from &&
        near &&
        !run.some(isBad) &&
        isWell(first) &&
        isWell(last) &&
        last.at - first.at >= POLICY.clearAfterMs
      );
    }),
  );
}

function heatFault(told: readonly Told[], now: number): boolean {
  const isHot = ({ temperatureC }: Told): boolean => temperatureC !== null && temperatureC >= POLICY.faultTempC;
  const lastHot = told.findLastIndex(isHot);
  if (lastHot < 0) return false;
  const measured = told.findLast(({ temperatureC }) => temperatureC !== null)!;
  if (now - measured.at > POLICY.stalenessMs) return false;
  return !healed(told.slice(lastHot + 1), isHot, ({ temperatureC }) => temperatureC !== null);
}

/** The samples at which a code of a severe kind comes. */
function incidents(told: readonly Told[]): number[] {
  return told.flatMap(({ xids }, place) => {
    if (xids === null || place === 0) return [];
    const came = xids.filter((code) => !stoodBefore(told.slice(0, place), code));
    return came
      .map((code) => classOfXid(code, 1, POLICY.xidOverrides))
      .filter((xidClass) => xidClass === "drain" || xidClass === "isolate")
      .map(() => place);
  });
}

function stoodBefore(before: readonly Told[], code: number): boolean {
  const last = before.findLastIndex(({ xids }) => xids !== null);
  const silent = before.slice(last + 1);
  const longSilent = silent.length > 0 && silent.at(-1)!.at - silent[0]!.at >= POLICY.clearAfterMs;
  return last >= 0 && !longSilent && before[last]!.xids!.includes(code);
}

function xidFault(told: readonly Told[]): boolean {
  const last = incidents(told).at(-1);
  // A fault that ended before the last incident has been replaced by it; one that did not has the same end.
  return last !== undefined && !xidHealed(told.slice(last + 1));
}

const xidHealed = (after: readonly Told[]): boolean =>
  healed(
    after,
    ({ xids }) => xids !== null && xids.length > 0,
    ({ xids }) => xids?.length === 0,
  );

function goneFault(history: readonly Seen[], told: readonly Told[], card: string): boolean {
  const lost = history.findLastIndex((_, place) => missesOf(history.slice(0, place + 1), card) >= 2);
  if (lost < 0) return false;
  const since = told.filter(({ at }) => at > history[lost]!.at);
  return !healed(
    since,
    () => false,
    () => true,
  );
}

function modelSaturated(history: readonly Seen[], card: string, now: number): boolean {
  const told = toldOf(history, card);
  if (missesOf(history, card) >= 2 || told.length === 0 || now - told.at(-1)!.at > POLICY.stalenessMs) return false;
  const gap = told.findLastIndex((row, place) => place > 0 && row.at - told[place - 1]!.at > POLICY.stalenessMs);
  const loads = told.slice(Math.max(0, gap)).filter(({ utilization }) => utilization !== null);
  const last = loads.slice(-3);
  const near = last.every((row, at) => (last[at + 1]?.at ?? now) - row.at <= POLICY.stalenessMs);
  return last.length === 3 && near && last.every(({ utilization }) => utilization! >= POLICY.shedUtilization);
}

const anyRow = fc.record({
  temperatureC: fc.constantFrom(null, 60, 60, 60, 60, 89, 91),
  utilization: fc.constantFrom(null, 20, 96, 96, 100, 100),
  xids: fc.constantFrom(null, [], [], [], [13], [79], [62], [48, 13]),
});
const goodRow: Row = { temperatureC: 60, utilization: 50, xids: [] };

/** Times between looks: mostly the interval, at times an outage. */
const anyPause = fc.constantFrom(14_000, 15_000, 16_000, 15_000, 30_000, 70_000);
const anyStep = (row: fc.Arbitrary<Row>, missing: fc.Arbitrary<boolean>) =>
  fc.record({
    pause: anyPause,
    kind: fc.constantFrom("page", "page", "page", "page", "failed", "empty"),
    whole: fc.constantFrom(true, true, true, false),
    cards: fc.tuple(...CARDS.map(() => fc.record({ missing, row }))),
  });
type Step = ReturnType<typeof anyStep> extends fc.Arbitrary<infer T> ? T : never;

/** Plays the steps, and asks at each look and some time after it. */
function play(steps: readonly Step[], ask: (book: GpuBook, history: readonly Seen[], now: number) => void): void {
  const book = new GpuBook();
  const history: Seen[] = [];
  let now = 0;
  for (const step of steps) {
    const rows = new Map(
      CARDS.flatMap((name, at) => (step.cards[at]!.missing ? [] : [[name, step.cards[at]!.row] as const])),
    );
    const failed = step.kind === "failed";
    const samples =
      step.kind === "page" ? [...rows].map(([uuid, row], index) => aGpuSample({ uuid, index, ...row })) : [];
    const look: Look = failed
      ? { kind: "failed", state: "down", why: "" }
      : { kind: "page", samples, whole: step.whole, reading: String(now) };
    book.look("s", look, asMono(now), POLICY);
    history.push({ at: now, rows: samples.length > 0 ? rows : null, whole: step.whole });
    for (const later of [0, 13_999]) ask(book, history, now + later);
    now += step.pause;
  }
}

const rarely = fc.constantFrom(true, false, false, false, false);

test("after any sequence of pages the verdicts are those of the rules read slowly [30.U1 30.U3 30.H1 30.T4]", () => {
  fc.assert(
    fc.property(fc.array(anyStep(anyRow, rarely), { minLength: 1, maxLength: 40 }), (steps) => {
      play(steps, (book, history, now) => {
        for (const [key, card] of book.cards()) {
          const verdict = book.verdict(card, asMono(now), POLICY);
          const said =
            verdict.kind === "faulted"
              ? verdict.faults
                  .map(({ kind }) => kind)
                  .toSorted()
                  .join(" ")
              : verdict.kind;
          assert.equal(said, modelVerdict(history, key, now), `${key} at ${now}`);
          assert.equal(
            card.saturated(asMono(now), POLICY),
            modelSaturated(history, key, now),
            `${key} at ${now}: saturated`,
          );
        }
      });
    }),
    { numRuns: 300 },
  );
});

type Harm = "none" | "cut" | "blank" | "noXid";
const anyHarm = fc.infiniteStream(fc.constantFrom<Harm>("none", "none", "cut", "blank", "noXid"));

function harmedLook(step: Step, xids: readonly number[], harm: Harm): Look {
  if (step.kind === "failed") return { kind: "failed", state: "down", why: "" };
  const blank: Row = { temperatureC: null, utilization: null, xids: null };
  const row = harm === "blank" ? blank : { ...goodRow, xids: harm === "noXid" ? null : xids };
  const counts = Object.fromEntries(xids.map((code) => [code, 2]));
  const xidsOfWindow = harm === "blank" || harm === "noXid" ? null : counts;
  const told = step.kind === "empty" ? [] : harm === "cut" ? CARDS.slice(0, 1) : CARDS;
  const samples = told.map((uuid, index) => aGpuSample({ uuid, index, ...row, xidsOfWindow }));
  return { kind: "page", samples, whole: harm !== "cut" && step.whole };
}

test("whatever an exporter does to good cards, none is faulted or saturated by it: 0 of 300 runs [80.A13 80.A14]", () => {
  const anySteps = fc.array(anyStep(fc.constant(goodRow), fc.constant(false)), { maxLength: 60 });
  fc.assert(
    fc.property(anySteps, fc.constantFrom([], [31], [79]), anyHarm, (steps, xids, harms) => {
      const book = new GpuBook();
      let now = 0;
      let xidsToldAt = -1;
      for (const step of steps) {
        let harm = harms.next().value;
        // A family that is away for long, or at first, is that of an exporter that tells of no code while there is none.
        if (now - xidsToldAt >= POLICY.clearAfterMs || xidsToldAt < 0) harm = "none";
        if (step.kind === "page" && harm === "none") xidsToldAt = now;
        book.look("s", harmedLook(step, xids, harm), asMono(now), POLICY);
        for (const [, card] of book.cards()) {
          assert.notEqual(book.verdict(card, asMono(now), POLICY).kind, "faulted");
          assert.equal(card.saturated(asMono(now), POLICY), false);
        }
        now += step.pause;
      }
    }),
    { numRuns: 300 },
  );
});
