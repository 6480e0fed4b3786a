import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { asMono } from "../../kernel/clock.ts";
import { aGpuPolicy } from "../../testing/gpu-samples.ts";
import type { GpuPolicy } from "./gpu-policy.ts";
import type { XidClass } from "./xid-policy.ts";
import { XidWatch, type XidsTold } from "./xid-watch.ts";

const NOTHING: XidsTold = { xids: null, xidsOfWindow: null, xidsInTotal: null };
const gauge = (...xids: number[]): Partial<XidsTold> => ({ xids });
const ofWindow = (counts: Record<number, number> = {}): Partial<XidsTold> => ({ xidsOfWindow: counts });
const inTotal = (counts: Record<number, number> | null = null): Partial<XidsTold> => ({ xidsInTotal: counts });
const times = <T>(count: number, value: T): T[] => Array.from({ length: count }, () => value);

/** What the watch says at each look, one every 15 s; "clear" is the operator's word. */
function play(steps: readonly (Partial<XidsTold> | "clear")[], policy: Partial<GpuPolicy> = {}): string[] {
  const watch = new XidWatch();
  const rules = aGpuPolicy(policy);
  const said: string[] = [];
  let now = 0;
  for (const step of steps) {
    if (step === "clear") watch.clear();
    else {
      now += 15_000;
      said.push(watch.look({ ...NOTHING, ...step }, asMono(now), rules).kind);
    }
  }
  return said;
}

interface Row {
  readonly name: string;
  readonly steps: readonly (Partial<XidsTold> | "clear")[];
  readonly policy?: Partial<GpuPolicy>;
  /** At the last look. */
  readonly says: "well" | "bad" | "silent";
}

const rows: readonly Row[] = [
  { name: "a code that is counted for the first time has come", steps: [ofWindow(), ofWindow({ 79: 1 })], says: "bad" },
  { name: "also in total, where nothing is told before", steps: [{}, inTotal({ 79: 1 })], says: "bad" },
  { name: "what was counted at the first look is old", steps: times(9, ofWindow({ 79: 3 })), says: "well" },
  { name: "and in total too", steps: times(9, inTotal({ 79: 3 })), says: "well" },
  {
    name: "a count that is told for the first time of a known card is old",
    steps: [gauge(), gauge(), ofWindow({ 79: 1 })],
    says: "well",
  },
  {
    name: "a code that repeats is seen by its count, though the gauge stands",
    steps: [
      { ...gauge(79), ...ofWindow({ 79: 1 }) },
      { ...gauge(79), ...ofWindow({ 79: 2 }) },
    ],
    says: "bad",
  },
  {
    name: "a code that the gauge has lost to a harmless one is seen by its count",
    steps: [
      { ...gauge(), ...ofWindow() },
      { ...gauge(45), ...ofWindow({ 62: 1, 45: 1 }) },
    ],
    says: "bad",
  },
  { name: "an application's fault is none, however often", steps: [ofWindow(), ofWindow({ 31: 900 })], says: "well" },
  { name: "an unknown code is none", steps: [ofWindow(), ofWindow({ 999: 1 })], says: "well" },
  {
    name: "the operator's table counts",
    steps: [ofWindow(), ofWindow({ 31: 1 })],
    policy: { xidOverrides: new Map<number, XidClass>([[31, "drain"]]) },
    says: "bad",
  },
  {
    name: "the minutes' end is no recovery",
    steps: [ofWindow(), ofWindow({ 79: 1 }), ...times(40, ofWindow())],
    says: "silent",
  },
  {
    name: "a gauge that reads 0 afterwards is",
    steps: [
      { ...gauge(), ...ofWindow() },
      { ...gauge(), ...ofWindow({ 62: 1 }) },
      { ...gauge(), ...ofWindow() },
    ],
    says: "well",
  },
  {
    name: "but not while the code is among the last minutes'",
    steps: [{ ...gauge(), ...ofWindow() }, ...times(9, { ...gauge(), ...ofWindow({ 62: 1 }) })],
    says: "bad",
  },
  {
    name: "after the operator's word what is counted is old",
    steps: [ofWindow(), ofWindow({ 79: 2 }), "clear", ...times(9, ofWindow({ 79: 2 }))],
    says: "well",
  },
  {
    name: "and one more is new",
    steps: [ofWindow(), ofWindow({ 79: 2 }), "clear", ofWindow({ 79: 2 }), ofWindow({ 79: 3 })],
    says: "bad",
  },
  {
    name: "a code that comes again after its minutes were over has come again",
    steps: [ofWindow(), ofWindow({ 79: 1 }), "clear", ...times(6, ofWindow()), ofWindow({ 79: 1 })],
    says: "bad",
  },
  {
    name: "an old page that is given out again makes nothing new",
    steps: [ofWindow({ 79: 2 }), ofWindow({ 79: 1 }), ofWindow({ 79: 2 }), ofWindow(), ofWindow({ 79: 2 })],
    says: "well",
  },
  {
    name: "a family that is left out for a while makes nothing new",
    steps: [ofWindow({ 79: 2 }), ...times(40, gauge()), ofWindow({ 79: 2 })],
    says: "well",
  },
  {
    name: "nor do totals that are left out for less than it takes",
    steps: [inTotal({ 79: 2 }), ...times(3, {}), inTotal({ 79: 2 })],
    says: "well",
  },
  {
    name: "an exporter that begins anew counts from nothing: the next one is new",
    steps: [inTotal({ 79: 2 }), ...times(6, inTotal()), inTotal({ 79: 1 })],
    says: "bad",
  },
  {
    name: "also where the lower count has to show first that it is no old page",
    steps: [inTotal({ 79: 5 }), ...times(5, inTotal({ 79: 1 }))],
    says: "bad",
  },
  {
    name: "and what it has counted when the operator speaks is old",
    steps: [inTotal({ 79: 5 }), inTotal({ 79: 1 }), "clear", ...times(9, inTotal({ 79: 1 }))],
    says: "well",
  },
  { name: "109 that every form tells at once is one", steps: [{}, every({ 109: 1 })], says: "well" },
  {
    name: "109 that they tell one after the other is one",
    steps: [
      ofWindow(),
      { ...gauge(109), ...ofWindow() },
      { ...gauge(109), ...ofWindow({ 109: 1 }) },
      every({ 109: 1 }),
    ],
    says: "well",
  },
  { name: "109 that is counted twice is two", steps: [ofWindow(), ofWindow({ 109: 2 })], says: "bad" },
  {
    name: "109 again, which the gauge can't tell, is two",
    steps: [{ ...gauge(), ...ofWindow() }, every({ 109: 1 }), ...times(9, every({ 109: 1 })), every({ 109: 2 })],
    says: "bad",
  },
];

function every(counts: Record<number, number>): XidsTold {
  return { xids: Object.keys(counts).map(Number), xidsOfWindow: counts, xidsInTotal: counts };
}

for (const { name, steps, policy, says } of rows)
  test(`counted XIDs: ${name} [30.T4]`, () => assert.equal(play(steps, policy).at(-1), says));

/** An exporter that tells incidents in some of the forms, each of them late by its own time. */
interface Forms {
  readonly gauge: boolean;
  readonly window: boolean;
  readonly total: boolean;
}
function toldAt(incidents: readonly number[], forms: Forms, late: readonly number[], now: number): XidsTold {
  const until = (lag: number): number[] => incidents.filter((at) => at + lag * 1000 <= now);
  const [ofGauge = 0, ofWindowed = 0, ofTotal = 0] = late;
  const minutes = until(ofWindowed).filter((at) => now - at < 300_000).length;
  const all = until(ofTotal).length;
  return {
    xids: forms.gauge ? (until(ofGauge).length > 0 ? [109] : []) : null,
    xidsOfWindow: forms.window ? (minutes > 0 ? { 109: minutes } : {}) : null,
    xidsInTotal: forms.total && all > 0 ? { 109: all } : null,
  };
}

test("an incident counts once in whatever forms an exporter tells it, and the next one as the second [30.T4]", () => {
  const anyForms = fc.record({ gauge: fc.boolean(), window: fc.boolean(), total: fc.boolean() });
  const anyLate = fc.tuple(...times(3, fc.integer({ min: 0, max: 30 })));
  const anyTime = fc.integer({ min: 1, max: 60 });
  fc.assert(
    fc.property(anyForms, anyLate, anyTime, anyTime, fc.constantFrom(1, 15, 30), (forms, late, first, more, poll) => {
      fc.pre(forms.window || forms.total);
      const incidents = [first, first + 150 + more].map((seconds) => seconds * 1000 + 500);
      const watch = new XidWatch();
      const policy = aGpuPolicy();
      let fell = false;
      for (let now = 0; now <= 500_000; now += poll * 1000) {
        const told = toldAt(incidents, forms, late, now);
        fell ||= watch.look(told, asMono(now), policy).kind === "bad";
        if (now < incidents[1]!) assert.equal(fell, false, `one is none, at ${now}`);
      }
      assert.equal(fell, true, "two are a card to be reset");
    }),
    { numRuns: 300 },
  );
});
