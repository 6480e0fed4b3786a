// npm run fuzz [-- TARGET…] [--seconds S] [--executions N] [--seed N] [--keep]: feeds what reads bytes from outside with inputs that its own
// coverage steers, and ends with 1 where a promise does not hold. --keep leaves in test/fuzz/corpus the smallest inputs that reach all code that was reached.
import { parseArgs } from "node:util";
import { seededRandom } from "../src/kernel/random.ts";
import { readCorpus, writeCorpus } from "../test/fuzz/corpus.ts";
import { Coverage } from "../test/fuzz/coverage.ts";
import { fuzz, smallest } from "../test/fuzz/fuzz.ts";
import { TARGETS } from "../test/fuzz/targets.ts";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    seconds: { type: "string", default: "80" },
    executions: { type: "string", default: "2000000" },
    seed: { type: "string", default: String(Date.now() % 1_000_000) },
    keep: { type: "boolean", default: false },
  },
});
const unknown = positionals.filter((name) => !TARGETS.some((target) => target.name === name));
if (unknown.length > 0) {
  console.error(
    `npm run fuzz: no target ${unknown.join(", ")}; there are ${TARGETS.map(({ name }) => name).join(", ")}`,
  );
  process.exit(2);
}
let total = 0;
let failed = false;
for (const target of TARGETS) {
  if (positionals.length > 0 && !positionals.includes(target.name)) continue;
  using coverage = new Coverage();
  const corpus = readCorpus(target.name);
  const budget = { executions: Number(values.executions), ms: Number(values.seconds) * 1_000 };
  const outcome = fuzz(target, corpus, coverage, seededRandom(Number(values.seed)), budget);
  total += outcome.executions;
  if (values.keep) writeCorpus(target.name, smallest(target, [...corpus, ...outcome.found]));
  console.log(
    `${target.name}: ${outcome.executions} inputs, ${coverage.functions} functions, ${corpus.length} + ${outcome.found.length} in the corpus, ${outcome.findings.length} faults (seed ${values.seed})`,
  );
  for (const { input, error } of outcome.findings) {
    failed = true;
    console.error(
      `  ${JSON.stringify(input.toString("latin1"))}\n  ${error instanceof Error ? error.stack : String(error)}`,
    );
  }
}
console.log(`${total} inputs in all`);
process.exitCode = failed ? 1 : 0;
