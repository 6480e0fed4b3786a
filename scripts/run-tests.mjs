// npm test [-- FILE_OR_PATTERN…]: every test, or those named, on Node's own runner. Plain JavaScript, because it also has
// to explain itself on a Node that can't run the sources.
import { spawn, spawnSync } from "node:child_process";
import { globSync, mkdirSync } from "node:fs";
import { join } from "node:path";

const NODE_MAJOR_MIN = 24;
/** Two cores are the smallest machine the tests are made for; more files at once only slow down those that measure nothing. */
const FILES_AT_ONCE = 2;
/** A test that hangs ends the run instead of a person's patience. */
const TEST_MS_MAX = 300_000;
const EVERYTHING = ["src/**/*.test.ts", "dashboard/**/*.test.ts", "test/**/*.test.ts"];
/** These mostly wait for times to pass, and none of them measures any: they go one after another beside all others. */
const PATIENT = [
  "test/e2e/agent-adoption.test.ts",
  "test/e2e/agent-engines.test.ts",
  "test/e2e/agent-faults.test.ts",
  "test/e2e/batches-crash.test.ts",
  "test/e2e/coordination-failover.test.ts",
  "test/e2e/exit-case*.test.ts",
  "test/e2e/jobs-crash.test.ts",
  "test/e2e/live-demand.test.ts",
  "test/e2e/live-leaders.test.ts",
  "test/e2e/live-nodes.test.ts",
  "test/e2e/verify.test.ts",
];

if (Number(process.versions.node.split(".")[0]) < NODE_MAJOR_MIN) {
  console.error(
    `npm test: this is Node ${process.versions.node}; the project brings its own: run 'npm ci' first (with optional packages).`,
  );
  process.exit(1);
}

const root = join(import.meta.dirname, "..");
const cache = process.env["NODE_COMPILE_CACHE"] ?? join(root, "node_modules/.cache/yardmaster/compile");
mkdirSync(cache, { recursive: true });

// Once, and not by each test that starts what serves it.
spawnSync(process.execPath, [join(root, "scripts/build-board.ts"), "--if-stale"], { stdio: "inherit" });
const options = [
  "--test",
  "--disable-warning=ExperimentalWarning",
  `--test-timeout=${TEST_MS_MAX}`,
  "--test-reporter=spec",
  "--test-reporter-destination=stdout",
  `--test-reporter=${new URL("slow-files.mjs", import.meta.url)}`,
  "--test-reporter-destination=stdout",
];
const runners = new Set();
for (const signal of ["SIGINT", "SIGTERM"])
  process.on(signal, () => {
    for (const runner of runners) runner.kill(signal);
  });

/** Returns the exit code. `later`: what it says is kept and told at its end, so that two runs don't speak at once. */
function run(files, atOnce, later) {
  return new Promise((done) => {
    const runner = spawn(process.execPath, [...options, `--test-concurrency=${atOnce}`, ...files], {
      cwd: root,
      stdio: ["inherit", later ? "pipe" : "inherit", "inherit"],
      env: { ...process.env, NODE_COMPILE_CACHE: cache },
    });
    runners.add(runner);
    const said = [];
    runner.stdout?.on("data", (piece) => said.push(piece));
    runner.on("error", (error) => {
      console.error(`npm test: ${error.message}`);
      done({ code: 1, said });
    });
    runner.on("close", (code, signal) => {
      runners.delete(runner);
      done({ code: signal === null ? (code ?? 1) : 1, said });
    });
  });
}

const named = process.argv.slice(2);
if (named.length > 0) process.exit((await run(named, FILES_AT_ONCE, false)).code);
const list = (patterns) => patterns.flatMap((pattern) => globSync(pattern, { cwd: root }).toSorted());
const patient = list(PATIENT);
const aside = new Set(patient);
const waiting = run(patient, 1, true);
const { code } = await run(
  list(EVERYTHING).filter((file) => !aside.has(file)),
  FILES_AT_ONCE,
  false,
);
const { code: waited, said } = await waiting;
for (const piece of said) process.stdout.write(piece);
process.exitCode = code === 0 ? waited : code;
