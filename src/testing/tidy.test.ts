import assert from "node:assert/strict";
import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { ERRORS } from "../kernel/errors.ts";

// What the linters do not check. Reads the tracked kinds of files, changes nothing.

const ROOT = join(import.meta.dirname, "../..");
const SELF = "src/testing/tidy.test.ts";
const LINES_MAX = 500;

const read = (path: string): string => readFileSync(join(ROOT, path), "utf8");
const list = (...patterns: string[]): string[] =>
  globSync(patterns, { cwd: ROOT, exclude: ["node_modules/**", "dist/**", "data/**", "coverage/**"] })
    .map((path) => path.replaceAll("\\", "/"))
    .filter((path) => path !== SELF)
    .toSorted();

const code = list("{src,test,bench,scripts}/**/*.{ts,mjs,js,cjs,py,sh,lua,c}", "bin/*", ".ci/run", "*.cjs");
const tests = code.filter((path) => /\.(test|conformance)\.ts$/.test(path));
const prose = list("*.md", "docs/**/*.md", "test/**/*.md", "*.json", ".*.json");

/** `path:line: text` of each line that matches. */
function linesThat(paths: readonly string[], pattern: RegExp): string[] {
  return paths.flatMap((path) =>
    read(path)
      .split("\n")
      .flatMap((line, index) => (pattern.test(line) ? [`${path}:${index + 1}: ${line.trim().slice(0, 160)}`] : [])),
  );
}

test("no marker of unfinished work is left", () => {
  assert.deepEqual(linesThat([...code, ...prose], /\b(TODO|FIXME|XXX|HACK)\b|<{7} |>{7} /), []);
});

test(`no source file is longer than ${LINES_MAX} lines`, () => {
  const long = code.filter((path) => read(path).split("\n").length > LINES_MAX + 1);
  assert.deepEqual(long, []);
});

test("no test is left out or run alone; only the real engine's tests may be not run, and say so", () => {
  const skipping = /\b(test|it|describe|suite)\.(only|skip|todo)\b|\b(only|skip|todo): *(true|["'`])|\.(skip|todo)\(/;
  const allowed = "src/testing/real-llama.ts";
  const inHarness = code.filter((path) => path.startsWith("src/testing/") && path !== allowed);
  assert.deepEqual(linesThat([...new Set([...tests, ...inHarness])], skipping), []);
});

test("nothing names a machine's own paths, a package registry's host, or the material that the project was planned with", () => {
  const hosts = [
    "registry\\.npmjs\\.org",
    "pypi\\.org",
    "pythonhosted\\.org",
    "deb\\.debian\\.org",
    "proxy\\.golang\\.org",
  ];
  const paths = [
    // Absolute paths of somebody's machine, and of folders that are not part of the project.
    "(^|[\\s\"'`(=])/(home|root|work|Users)/[\\w.-]+",
    "\\.\\./shared/",
  ];
  assert.deepEqual(linesThat([...code, ...prose], new RegExp([...hosts, ...paths].join("|"))), []);
});

test("the lock file records hashes and no download addresses, and runs no install script", () => {
  const lock = JSON.parse(read("package-lock.json")) as {
    packages: Record<
      string,
      { resolved?: string; integrity?: string; link?: boolean; hasInstallScript?: boolean; dev?: boolean }
    >;
  };
  const entries = Object.entries(lock.packages).filter(([path]) => path !== "");
  assert.ok(entries.length > 0);
  for (const [path, entry] of entries) {
    assert.equal(entry.resolved, undefined, `${path} records where it was fetched from`);
    assert.ok(entry.integrity?.startsWith("sha512-"), `${path} has no hash`);
    if (entry.dev !== true) assert.notEqual(entry.hasInstallScript, true, `${path} runs a script when installed`);
  }
});

test("dependencies have exact versions, and each that is installed at a user's place has its reason written down", () => {
  const manifest = JSON.parse(read("package.json")) as Record<string, Record<string, string>>;
  const { dependencies = {}, optionalDependencies = {}, devDependencies = {} } = manifest;
  for (const [name, version] of Object.entries({ ...dependencies, ...optionalDependencies, ...devDependencies })) {
    assert.match(version, /^\d+\.\d+\.\d+$/, name);
  }
  const reasons = read("docs/reference/dependencies.md");
  for (const name of Object.keys({ ...dependencies, ...optionalDependencies }))
    assert.ok(reasons.includes(`\`${name}\``), name);
});

test("every error code stands in the reference", () => {
  const reference = read("docs/reference/errors.md");
  for (const code of Object.keys(ERRORS)) assert.ok(reference.includes(`\`${code}\``), code);
});

test("only the command line writes to the console", () => {
  const product = code.filter(
    (path) => /^src\/(?!cli\/|main\.ts|testing\/)/.test(path) && !/\.(test|conformance)\.ts$/.test(path),
  );
  assert.deepEqual(linesThat(product, /\bconsole\.\w/), []);
});

test("Lua scripts say which KEYS and ARGV they take", () => {
  const bare = list("src/**/*.lua").filter((path) => !/^--.*KEYS[\s\S]*^--.*ARGV/m.test(read(path).slice(0, 2_000)));
  assert.deepEqual(bare, []);
});

test("links between the documents lead somewhere", () => {
  for (const path of list("*.md", "docs/**/*.md", "test/**/*.md")) {
    for (const [, target = ""] of read(path).matchAll(/\]\(([^)#\s]+)[^)]*\)/g)) {
      if (/^[a-z]+:/.test(target)) continue;
      const resolved = join(path, "..", target);
      assert.ok(globSync(resolved, { cwd: ROOT }).length > 0, `${path} links to ${target}`);
    }
  }
});
