// Builds the board into dashboard/dist: part of `npm run build` and `npm test`, and of `bin/yardmaster up|control` in a clone whose board
// is missing or older than its sources. Fails when the scripts have grown beyond what a phone on a bad line should have to load.
// usage: build-board.ts [--if-stale] [--verbose]
import { globSync, mkdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";

const SCRIPT_BYTES_MAX = 120 * 1024;
/** What is in the built files and not ours, and whose licence goes with it. */
const BUNDLED = ["preact", "uplot", "@fontsource/barlow"];
const SOURCES = [
  "dashboard/{src,public}/**/*.*",
  "dashboard/index.html",
  "src/contract/board.ts",
  "scripts/build-board.ts",
  "package-lock.json",
];

const root = join(import.meta.dirname, "..");
const dist = join(root, "dashboard/dist");
const cache = join(root, "node_modules/.cache/yardmaster");
const made = join(cache, `board-${process.pid}`);
const old = join(cache, `board-old-${process.pid}`);

if (!process.argv.includes("--if-stale") || isStale()) await make();

async function make(): Promise<void> {
  try {
    mkdirSync(cache, { recursive: true });
    await bundle();
    writeFileSync(join(made, "licences.txt"), licences());
    const bytes = scriptBytes(made);
    if (bytes > SCRIPT_BYTES_MAX)
      throw new Error(`its scripts have ${bytes} bytes compressed, more than ${SCRIPT_BYTES_MAX}`);
    putInPlace();
    if (process.argv.includes("--verbose")) process.stdout.write(`board: ${bytes} bytes of script, compressed\n`);
  } catch (error) {
    process.stderr.write(`the board could not be built: ${error instanceof Error ? error.message : String(error)}\n`);
    process.exitCode = 1;
  } finally {
    rmSync(made, { recursive: true, force: true });
    rmSync(old, { recursive: true, force: true });
  }
}

async function bundle(): Promise<void> {
  // Not loaded where nothing is to be built.
  const { build } = await import("vite");
  await build({
    configFile: false,
    root: join(root, "dashboard"),
    base: "./",
    logLevel: "warn",
    oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
    build: {
      outDir: made,
      emptyOutDir: true,
      target: "es2022",
      // Neither inline scripts nor data: addresses pass the page's own policy.
      modulePreload: { polyfill: false },
      assetsInlineLimit: 0,
      reportCompressedSize: false,
    },
  });
}

function isStale(): boolean {
  try {
    const built = statSync(join(dist, "index.html")).mtimeMs;
    return globSync(SOURCES, { cwd: root }).some((path) => statSync(join(root, path)).mtimeMs > built);
  } catch {
    return true;
  }
}

/** In one step each: whoever reads meanwhile finds one whole build or none. */
function putInPlace(): void {
  try {
    renameSync(dist, old);
  } catch {
    // There was none.
  }
  renameSync(made, dist);
}

function scriptBytes(folder: string): number {
  return globSync("**/*.js", { cwd: folder })
    .map((path) => gzipSync(readFileSync(join(folder, path)), { level: 9 }).length)
    .reduce((sum, size) => sum + size, 0);
}

function licences(): string {
  return BUNDLED.map((name) => {
    const [path] = globSync(`node_modules/${name}/LICENSE*`, { cwd: root });
    if (path === undefined) throw new Error(`${name} brings no licence`);
    return `${name}\n\n${readFileSync(join(root, path), "utf8")}`;
  }).join("\n\n----\n\n");
}
