// npm test [-- FILE_OR_PATTERN…]: every test, or those named, on Node's own runner. Plain JavaScript, because it also has
// to explain itself on a Node that can't run the sources.
import { spawn, spawnSync } from "node:child_process";
import { mkdirSync } from "node:fs";
import { join } from "node:path";

const NODE_MAJOR_MIN = 24;
/** Two cores are the smallest machine the tests are made for; more files at once only slow down those that measure nothing. */
const FILES_AT_ONCE = 2;
/** A test that hangs ends the run instead of a person's patience. */
const TEST_MS_MAX = 300_000;
const EVERYTHING = ["src/**/*.test.ts", "dashboard/**/*.test.ts", "test/**/*.test.ts"];

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

const named = process.argv.slice(2);
const runner = spawn(
  process.execPath,
  [
    "--test",
    "--disable-warning=ExperimentalWarning",
    `--test-concurrency=${FILES_AT_ONCE}`,
    `--test-timeout=${TEST_MS_MAX}`,
    "--test-reporter=spec",
    "--test-reporter-destination=stdout",
    `--test-reporter=${new URL("slow-files.mjs", import.meta.url)}`,
    "--test-reporter-destination=stdout",
    ...(named.length > 0 ? named : EVERYTHING),
  ],
  { cwd: root, stdio: "inherit", env: { ...process.env, NODE_COMPILE_CACHE: cache } },
);
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => runner.kill(signal));
runner.on("error", (error) => {
  console.error(`npm test: ${error.message}`);
  process.exit(1);
});
runner.on("exit", (code, signal) => process.exit(signal === null ? (code ?? 1) : 1));
