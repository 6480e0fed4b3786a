import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { listeningOf } from "../e2e/support/yardmaster-process.ts";
import { RunningProgram } from "../e2e/support/program.ts";
import { ran, ROOT, temporaryFolder } from "./support/tools.ts";

// The package as a user gets it: packed, installed into an empty folder without running anybody's script, and used from there.

const PACKED_BYTES_MAX = 2_000_000;
const UNPACKED_BYTES_MAX = 8_000_000;

interface Packed {
  readonly filename: string;
  readonly size: number;
  readonly unpackedSize: number;
  readonly files: readonly { readonly path: string; readonly mode: number }[];
}

const home = temporaryFolder("package");
const installed = join(home, "node_modules/yardmaster");
const program = join(home, "node_modules/.bin/yardmaster");
let packed: Packed;
after(() => rmSync(home, { recursive: true, force: true }));

before(() => {
  const pack = ran("npm", ["pack", "--json", "--silent", "--pack-destination", home]);
  assert.equal(pack.code, 0, pack.text);
  packed = JSON.parse(pack.out.slice(pack.out.indexOf("[\n")))[0] as Packed;
  writeFileSync(join(home, "package.json"), "{}");
  const install = ran("npm", ["install", "--ignore-scripts", "--no-audit", "--no-fund", `./${packed.filename}`], {
    cwd: home,
  });
  assert.equal(install.code, 0, install.text);
});

test("the package holds what runs and what is needed to run it in other ways, and neither tests nor sources nor maps", () => {
  const paths = packed.files.map(({ path }) => path);
  for (const needed of [
    "bin/yardmaster",
    "dist/main.js",
    "dist/coord/redis/slots.lua",
    "dist/gateway/audit/audit-worker.js",
    "deploy/systemd/yardmaster-gateway.service",
    "deploy/monitoring/alerts.yaml",
    "npm-shrinkwrap.json",
    "LICENSE",
    "README.md",
    "CHANGELOG.md",
  ])
    assert.ok(paths.includes(needed), needed);
  if (existsSync(join(ROOT, "dashboard/index.html")))
    assert.ok(paths.includes("dashboard/dist/index.html"), "the board was not built");
  const unneeded = paths.filter((path) =>
    /\.map$|\.test\.|\.conformance\.|^src\/|^dist\/testing\/|^bench\/|^docs\/|^test\/(?!real\/(llama-server\.py|setup-llama\.sh)$)|\.d\.ts$|(?<!^dashboard\/dist\/.*)\.ts$/.test(
      path,
    ),
  );
  assert.deepEqual(unneeded, []);
  assert.equal((packed.files.find(({ path }) => path === "bin/yardmaster")?.mode ?? 0) & 0o111, 0o111);
  assert.ok(packed.size <= PACKED_BYTES_MAX, `${packed.size} bytes`);
  assert.ok(packed.unpackedSize <= UNPACKED_BYTES_MAX, `${packed.unpackedSize} bytes unpacked`);
});

test("installed into an empty folder with scripts ignored, `up` runs from there: loopback alone, a one-time key, a first answer, `ctl status`, and the end on SIGTERM [80.D40]", async () => {
  await using up = new RunningProgram(program, ["up", "--listen", "127.0.0.1:0"], { cwd: home });
  const port = await up.ready();
  await up.said(/Ctrl-C drains and stops/);
  const open = listeningOf(up.pid) ?? [];
  assert.ok(open.length >= 2, open.join(" "));
  for (const address of open) assert.match(address, /^127\.0\.0\.1:/);

  const key = /Bearer (\S+?)"/.exec(up.out)?.[1] ?? assert.fail(`no key in: ${up.out}`);
  assert.match(up.out, /one-time/);
  assert.match(up.out, /signs one browser in, once/);
  assert.match(up.out, /`npx yardmaster ctl status` finds it/, "what is to be typed is there");
  const answer = await fetch(`http://127.0.0.1:${port}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    body: JSON.stringify({ model: "sim-model", max_tokens: 4, messages: [{ role: "user", content: "Hello." }] }),
  });
  assert.equal(answer.status, 200, await answer.text());
  const status = ran(program, ["ctl", "status"], { cwd: home });
  assert.equal(status.code, 0, status.text);
  assert.match(status.text, /leader|leading/);
  const version = JSON.parse(readFileSync(join(installed, "package.json"), "utf8")).version as string;
  assert.equal(ran(program, ["--version"], { cwd: home }).text.trim(), version);

  // A clone without the board's build says so in a page.
  const board = /^yardmaster up ready .* board=(http\S+)/m.exec(up.out)?.[1] ?? assert.fail(up.out);
  const page = await fetch(board);
  assert.equal(page.status, packed.files.some(({ path }) => path === "dashboard/dist/index.html") ? 200 : 503, board);
  assert.match(page.headers.get("content-type") ?? "", /^text\/html/);

  up.kill("SIGTERM");
  const { code, err } = await up.end();
  assert.equal(code, 0, err);
});

test("unpacked and installed by `npm ci` with scripts ignored, as on a server, it is what was tested, to the version and the hash [80.D40]", () => {
  const folder = join(home, "server");
  mkdirSync(folder);
  assert.equal(ran("tar", ["xzf", join(home, packed.filename), "--strip-components=1", "-C", folder]).code, 0);
  // This machine's Node is the project's own; a server's may be brought by the package as above.
  const install = ran("npm", ["ci", "--ignore-scripts", "--omit=dev", "--omit=optional"], { cwd: folder });
  assert.equal(install.code, 0, install.text);
  const tested = JSON.parse(readFileSync(join(ROOT, "package-lock.json"), "utf8")) as Lock;
  const there = JSON.parse(readFileSync(join(folder, "node_modules/.package-lock.json"), "utf8")) as Lock;
  assert.ok(Object.keys(there.packages).length >= 6);
  for (const [path, { version, integrity, hasInstallScript }] of Object.entries(there.packages)) {
    assert.deepEqual([version, integrity], [tested.packages[path]?.version, tested.packages[path]?.integrity], path);
    assert.notEqual(hasInstallScript, true, `${path} wants to run a script`);
  }
  const { code, text } = ran(join(folder, "bin/yardmaster"), ["--version"], { cwd: folder });
  assert.equal(code, 0, text);
});

interface Lock {
  readonly packages: Readonly<
    Record<string, { readonly version?: string; readonly integrity?: string; readonly hasInstallScript?: boolean }>
  >;
}
