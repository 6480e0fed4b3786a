import assert from "node:assert/strict";
import { test } from "node:test";
import { seededRandom } from "../../src/kernel/random.ts";
import { readCorpus } from "./corpus.ts";
import { Coverage } from "./coverage.ts";
import { fuzz } from "./fuzz.ts";
import { climb } from "./stairs.ts";
import { TARGETS } from "./targets.ts";

// A short run of `npm run fuzz`: what earlier runs found, and as many neighbours of it as a moment allows.

const EXECUTIONS = 50_000;
const MS_MAX = 1_500;

for (const target of TARGETS)
  test(`what coverage found, and neighbours of it, break no promise of ${target.name} [80.T4]`, () => {
    const corpus = readCorpus(target.name);
    const seed = process.pid;
    const budget = { executions: EXECUTIONS, ms: MS_MAX };
    const { executions, findings } = fuzz(target, corpus, null, seededRandom(seed), budget);
    assert.ok(executions > corpus.length, "more than the corpus was run");
    const shown = findings.map(({ input, error }) => `${JSON.stringify(input.toString("latin1"))}: ${String(error)}`);
    assert.deepEqual(shown, [], `seed ${seed}`);
  });

test("the fuzzer climbs to a fault that chance alone would not find [80.T4]", () => {
  const stairs = { name: "stairs", seeds: [Buffer.from("xxxx")], words: [Buffer.from(",")], run: climb };
  const budget = { executions: 400_000, ms: 60_000 };
  using coverage = new Coverage("/fuzz/stairs.ts");
  const { findings } = fuzz(stairs, [], coverage, seededRandom(1), budget);
  assert.match(String(findings[0]?.error), /the top/);
  assert.deepEqual(fuzz(stairs, [], null, seededRandom(1), { ...budget, executions: 20_000 }).findings, []);
});
