import assert from "node:assert/strict";
import { test } from "node:test";
import { asMono } from "../../kernel/clock.ts";
import type { FaultKind, GpuVerdict } from "./gpu-card.ts";
import { isSaturated, judgeGuards, type GuardedView, type GuardRules } from "./judge-upstream.ts";

const GOOD: GpuVerdict = { kind: "good" };
const UNKNOWN: GpuVerdict = { kind: "unknown", why: "stale" };
const faulted = (kind: FaultKind): GpuVerdict => ({
  kind: "faulted",
  faults: [{ kind, detail: "", since: asMono(0) }],
});
const HOT = faulted("temperature");
const BROKEN = faulted("xid");

const anEndpoint = (id: string, verdicts: readonly GpuVerdict[], able = true): GuardedView => ({
  id,
  able,
  cards: verdicts.map((verdict, index) => ({ gpu: `${id}/${index}`, verdict })),
});

const rows: readonly {
  readonly name: string;
  readonly views: readonly GuardedView[];
  readonly rules?: Partial<GuardRules>;
  readonly guarded: readonly string[];
}[] = [
  {
    name: "a faulted card takes out its endpoint alone",
    views: [anEndpoint("a", [GOOD, BROKEN]), anEndpoint("b", [GOOD])],
    guarded: ["a"],
  },
  {
    name: "unless faults are not coupled",
    views: [anEndpoint("a", [BROKEN]), anEndpoint("b", [GOOD])],
    rules: { coupleFaults: false },
    guarded: [],
  },
  {
    name: "what is unknown takes nothing out",
    views: [anEndpoint("a", [UNKNOWN, GOOD]), anEndpoint("b", [])],
    guarded: [],
  },
  { name: "heat keeps the last endpoint in", views: [anEndpoint("a", [HOT])], guarded: [] },
  { name: "a broken card does not", views: [anEndpoint("a", [BROKEN])], guarded: ["a"] },
  {
    name: "with drop heat takes it out too",
    views: [anEndpoint("a", [HOT])],
    rules: { lastEndpoint: "drop" },
    guarded: ["a"],
  },
  {
    name: "with keep a broken card stays",
    views: [anEndpoint("a", [BROKEN])],
    rules: { lastEndpoint: "keep" },
    guarded: [],
  },
  {
    name: "an endpoint that can't serve for other reasons is no other one",
    views: [anEndpoint("a", [HOT]), anEndpoint("b", [GOOD], false)],
    guarded: [],
  },
  {
    name: "where all are hot, all stay: one alone would get the load of all",
    views: [anEndpoint("a", [HOT]), anEndpoint("b", [HOT])],
    guarded: [],
  },
  {
    name: "where one is broken and the other hot, the broken one goes",
    views: [anEndpoint("a", [BROKEN]), anEndpoint("b", [HOT])],
    guarded: ["a"],
  },
  { name: "a broken card counts before a hot one", views: [anEndpoint("a", [HOT, BROKEN])], guarded: ["a"] },
];
for (const row of rows)
  test(`the guard: ${row.name} [30.U2]`, () => {
    const verdicts = judgeGuards(row.views, { coupleFaults: true, lastEndpoint: null, ...row.rules });
    assert.deepEqual(
      verdicts.filter(({ guarded }) => guarded).map(({ id }) => id),
      row.guarded,
    );
  });

test("an upstream is saturated when every card of every able endpoint is, and none is without cards [30.H1]", () => {
  assert.equal(isSaturated([[true, true], [true]]), true);
  assert.equal(isSaturated([[true, false], [true]]), false);
  assert.equal(isSaturated([[true], []]), false);
  assert.equal(isSaturated([]), false);
});
