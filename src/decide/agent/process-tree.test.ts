import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { findTree, judgeAdoption, type ProcessEntry, type TreeSeed } from "./process-tree.ts";

const entry = (pid: number, over: Partial<ProcessEntry> = {}): ProcessEntry => ({
  pid,
  parent: 1,
  session: pid,
  startTicks: pid * 10,
  zombie: false,
  proof: null,
  ...over,
});
const MAIN = entry(100, { parent: 50, proof: "P" });
const seed = (over: Partial<TreeSeed> = {}): TreeSeed => ({
  proof: "P",
  main: { pid: 100, startTicks: 1_000 },
  before: [],
  inGroup: new Set(),
  exempt: new Set([50]),
  ...over,
});
const pids = (processes: readonly ProcessEntry[], over: Partial<TreeSeed> = {}): number[] =>
  findTree([entry(50), ...processes], seed(over)).members.map((member) => member.pid);

const rows: readonly {
  readonly name: string;
  readonly processes: readonly ProcessEntry[];
  readonly seed?: Partial<TreeSeed>;
  readonly expect: readonly number[];
}[] = [
  { name: "a child", processes: [MAIN, entry(101, { parent: 100, session: 100 })], expect: [100, 101] },
  {
    name: "a grandchild in a session of its own that kept the proof, its parents gone",
    processes: [entry(103, { proof: "P" })],
    expect: [103],
  },
  {
    name: "a child that dropped its environment but not its session, the first process gone",
    processes: [entry(101, { parent: 1, session: 100 })],
    expect: [101],
  },
  {
    name: "a child that dropped environment and session while its parent lives",
    processes: [MAIN, entry(101, { parent: 100 })],
    expect: [100, 101],
  },
  {
    name: "one that was seen to belong before it dropped everything",
    processes: [entry(101)],
    seed: { before: [{ pid: 101, startTicks: 1_010 }] },
    expect: [101],
  },
  {
    name: "one that dropped everything but is in the control group",
    processes: [entry(101)],
    seed: { inGroup: new Set([101]) },
    expect: [101],
  },
  {
    name: "another program that was given the first process's number",
    processes: [entry(100, { startTicks: 9_999 })],
    expect: [],
  },
  {
    name: "another program that was given a member's number",
    processes: [entry(101, { startTicks: 9_999 })],
    seed: { before: [{ pid: 101, startTicks: 1_010 }] },
    expect: [],
  },
  { name: "another engine", processes: [MAIN, entry(200, { parent: 50, proof: "Q" })], expect: [100] },
  { name: "what has ended and waits to be collected", processes: [{ ...MAIN, zombie: true }], expect: [] },
  {
    name: "an older process in a session of the same number",
    processes: [MAIN, entry(90, { session: 100, startTicks: 5 })],
    expect: [100],
  },
];
for (const { name, processes, seed: over, expect } of rows) {
  test(`an engine's processes: ${name} [80.A5]`, () => assert.deepEqual(pids(processes, over), expect));
}

test("the agent never belongs to an engine, even where it is marked as one", () => {
  assert.deepEqual(
    findTree([entry(50, { proof: "P" }), MAIN], seed()).members.map((member) => member.pid),
    [100],
  );
});

test("no process outside the marks is ever a member, in any table [80.A5]", () => {
  const any = fc.record({
    parent: fc.integer({ min: 1, max: 20 }),
    session: fc.integer({ min: 1, max: 20 }),
    startTicks: fc.nat(20),
    zombie: fc.boolean(),
    proof: fc.constantFrom(null, "P", "Q"),
  });
  fc.assert(
    fc.property(fc.array(any, { maxLength: 19 }), (entries) => {
      const table = entries.map((over, at) => entry(at + 2, over));
      const start = { pid: 2, startTicks: 5 };
      const { members } = findTree(table, seed({ main: start, exempt: new Set([3]) }));
      const ids = new Set(members.map((member) => member.pid));
      const all = new Set(table.map((one) => one.pid));
      for (const member of members) {
        assert.ok(member.pid !== 3 && !member.zombie);
        const marked =
          member.proof === "P" ||
          (member.pid === 2 && member.startTicks === 5) ||
          (member.session === 2 && member.startTicks >= 5);
        // A zombie parent is not listed, so descent may lead through one.
        assert.ok(marked || ids.has(member.parent) || all.has(member.parent), `process ${member.pid}`);
      }
    }),
  );
});

const adoptions: readonly {
  readonly name: string;
  readonly processes: readonly ProcessEntry[];
  readonly main?: { pid: number; startTicks: number } | null;
  readonly expect: string;
}[] = [
  { name: "with number, start time and proof", processes: [MAIN], expect: "adopt" },
  { name: "whose number belongs to another program now", processes: [entry(100)], expect: "gone" },
  {
    name: "whose number was given out again at another time",
    processes: [entry(100, { startTicks: 7, proof: null })],
    expect: "gone",
  },
  {
    name: "with the proof at another start time",
    processes: [entry(100, { startTicks: 7, proof: "P" })],
    expect: "orphans",
  },
  { name: "whose first process has ended", processes: [entry(101, { proof: "P" })], expect: "orphans" },
  { name: "that was never seen to start, but did", processes: [MAIN], main: null, expect: "adopt" },
  { name: "that was never started", processes: [], main: null, expect: "gone" },
];
for (const { name, processes, main, expect } of adoptions) {
  test(`a recorded engine ${name}: ${expect} [40.N4 80.A3]`, () => {
    const record = { proof: "P", main: main === undefined ? { pid: 100, startTicks: 1_000 } : main };
    assert.equal(judgeAdoption(processes, record).kind, expect);
  });
}
