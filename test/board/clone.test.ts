import assert from "node:assert/strict";
import { cpSync, mkdirSync, mkdtempSync, readdirSync, rmSync, statSync, symlinkSync, utimesSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { BOARD_ROUTES } from "../../src/contract/board.ts";
import { programFolder, RunningProgram } from "../e2e/support/program.ts";

// A clone has no built board: the first start makes it, with no further step.

const ROOT = join(import.meta.dirname, "../..");
const COPIED = [
  "bin",
  "dashboard",
  "scripts/build-board.ts",
  "src",
  "package.json",
  "package-lock.json",
  "tsconfig.json",
];

let clone = "";
before(() => {
  clone = mkdtempSync(join(tmpdir(), "yardmaster-clone-"));
  for (const path of COPIED)
    cpSync(join(ROOT, path), join(clone, path), { recursive: true, filter: (from) => !/dashboard\/dist/.test(from) });
  const modules = join(clone, "node_modules");
  mkdirSync(modules);
  for (const name of readdirSync(join(ROOT, "node_modules")).filter((each) => each !== ".cache"))
    symlinkSync(join(ROOT, "node_modules", name), join(modules, name));
});
after(() => rmSync(clone, { recursive: true, force: true }));

async function start(): Promise<{ readonly page: string; readonly built: number; readonly err: string }> {
  await using folder = await programFolder();
  await using program = new RunningProgram(join(clone, "bin/yardmaster"), ["up", "--listen", "127.0.0.1:0"], {
    cwd: folder.path,
  });
  const [, url = ""] = await program.said(new RegExp(`board=(http://[^ ]+${BOARD_ROUTES.page})`));
  const page = await (await fetch(url)).text();
  program.kill("SIGINT");
  const { err } = await program.end();
  return { page, built: statSync(join(clone, "dashboard/dist/index.html")).mtimeMs, err };
}

test("in a clone the first start builds the board and serves it, the next one takes it as it is, and one after a change builds it again [60.W1]", async () => {
  const first = await start();
  assert.match(first.page, /<script type="module"[^>]* src="\.\/assets\/[^"]+\.js"/);
  assert.doesNotMatch(first.err, /could not be built|WARN|ERROR/);
  assert.equal((await start()).built, first.built);
  const later = first.built / 1_000 + 2;
  utimesSync(join(clone, "dashboard/src/main.tsx"), later, later);
  assert.notEqual((await start()).built, first.built);
});
