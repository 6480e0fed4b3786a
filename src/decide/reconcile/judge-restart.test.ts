import assert from "node:assert/strict";
import { test } from "node:test";
import { judgeRestart, type RestartFacts } from "./judge-restart.ts";

const aRestart = (part: Partial<RestartFacts> = {}): RestartFacts => ({
  model: "m",
  parked: null,
  isHeard: true,
  stopFirst: false,
  pace: { maxSurge: 1, maxUnavailable: 0, minAvailable: 0 },
  isMadeRoomFor: false,
  isBackedOff: false,
  backedOffWhy: "it failed 3 times",
  backedOffMs: 0,
  drainGraceMs: 300_000,
  beside: 0,
  wanted: 1,
  running: 1,
  ready: 1,
  isLasting: false,
  placeBeside: () => null,
  fitsInstead: () => null,
  willFitBeside: () => false,
  willFitInstead: () => false,
  ...part,
});
const full = { placeBeside: (): string => "a: no room" };
const never = { ...full, fitsInstead: (): string => "a: too small" };
const pace = (maxSurge: number, maxUnavailable: number, minAvailable = 0): Pick<RestartFacts, "pace"> => ({
  pace: { maxSurge, maxUnavailable, minAvailable },
});

const rows: { name: string; facts: Partial<RestartFacts>; expect: string; why?: RegExp }[] = [
  { name: "room beside it [40.S1]", facts: {}, expect: "beside" },
  { name: "no room beside it, and room with it gone [40.S2]", facts: full, expect: "inPlace", why: /a: no room/ },
  { name: "no room even with it gone [40.S3]", facts: never, expect: "refuse", why: /fit nowhere.*a: too small/ },
  {
    name: "no room even with it gone, and its node is drained [40.S3]",
    facts: { ...never, isLasting: true },
    expect: "wait",
    why: /fit nowhere.*a: too small/,
  },
  {
    name: "no room beside it before others have gone that are being replaced [40.S1 80.A18]",
    facts: { ...full, willFitBeside: () => true },
    expect: "wait",
    why: /others have to be gone first.*a: no room/,
  },
  {
    name: "to be stopped first, and there will be room beside it [40.S7]",
    facts: { stopFirst: true, willFitBeside: () => true },
    expect: "inPlace",
  },
  {
    name: "no room with it gone before others have gone that are being replaced [40.S3]",
    facts: { ...never, willFitInstead: () => true },
    expect: "wait",
    why: /others have to be gone first.*a: too small/,
  },
  { name: "room is being made for its model [40.S4]", facts: { ...full, isMadeRoomFor: true }, expect: "wait" },
  {
    name: "a back-off [40.S5]",
    facts: { isBackedOff: true, backedOffMs: 299_999 },
    expect: "wait",
    why: /waits: it failed 3 times/,
  },
  {
    name: "a back-off for as long as the drain grace [40.S5]",
    facts: { isBackedOff: true, backedOffMs: 300_000 },
    expect: "inPlace",
    why: /300 s/,
  },
  {
    name: "a back-off that long, and no room even with it gone [40.S3]",
    facts: { ...never, isBackedOff: true, backedOffMs: 300_000 },
    expect: "refuse",
  },
  { name: "a parked model [40.S6]", facts: { parked: "it fails" }, expect: "refuse", why: /it fails.*ctl retry m/ },
  { name: "a parked model, to be stopped first [40.S6]", facts: { parked: "x", stopFirst: true }, expect: "refuse" },
  { name: "to be stopped first, with room beside it [40.S7]", facts: { stopFirst: true }, expect: "inPlace" },
  { name: "to be stopped first, others away [40.S7]", facts: { stopFirst: true, running: 3 }, expect: "inPlace" },
  { name: "to be stopped first, no room then [40.S3]", facts: { ...never, stopFirst: true }, expect: "refuse" },
  { name: "its node is silent", facts: { isHeard: false }, expect: "wait" },
  { name: "as many beside as may be", facts: { beside: 1, running: 3, ready: 3 }, expect: "wait" },
  { name: "two may be beside", facts: { ...pace(2, 0), beside: 1, running: 3, ready: 3 }, expect: "beside" },
  { name: "stop first by its pace [80.A18]", facts: { ...pace(0, 1), running: 3, ready: 3 }, expect: "inPlace" },
  { name: "one away already, one may be [80.A18]", facts: { ...pace(0, 1), running: 3, ready: 2 }, expect: "wait" },
  { name: "one away already, two may be", facts: { ...pace(0, 2), running: 3, ready: 2 }, expect: "inPlace" },
  { name: "no room, one away already [80.A18]", facts: { ...full, running: 3, ready: 2 }, expect: "wait" },
  {
    name: "no room, and all that are ready are to stay [80.A18]",
    facts: { ...full, ...pace(1, 0, 2), running: 2, ready: 2 },
    expect: "refuse",
    why: /leave 1 of 1 ready, and at least 2/,
  },
  {
    name: "no room, and one more may be ready soon [80.A18]",
    facts: { ...full, ...pace(1, 0, 2), running: 3, ready: 2 },
    expect: "wait",
  },
  {
    name: "no room, and one is missing that nothing brings [80.A18]",
    facts: { ...full, wanted: 3, running: 2, ready: 2 },
    expect: "refuse",
    why: /leave 1 of 3 ready, and at least 2 are to be/,
  },
  {
    name: "no room, one is missing, and its node is drained [80.A18]",
    facts: { ...full, wanted: 3, running: 2, ready: 2, isLasting: true },
    expect: "wait",
  },
];
for (const { name, facts, expect, why } of rows) {
  const [words, tag] = name.split(" [");
  test(`a restart: ${words} → ${expect}${tag === undefined ? "" : ` [${tag}`}`, () => {
    const verdict = judgeRestart(aRestart(facts));
    assert.equal(verdict.kind, expect);
    if (why !== undefined) assert.match("why" in verdict ? verdict.why : "", why);
  });
}

test("what waits or is refused has taken no room beside it", () => {
  const placeBeside = (): never => assert.fail("it was placed");
  for (const facts of [
    { parked: "x" },
    { isMadeRoomFor: true },
    { isBackedOff: true },
    { isHeard: false },
    { beside: 1 },
  ])
    assert.notEqual(judgeRestart(aRestart({ ...facts, placeBeside })).kind, "beside");
});
