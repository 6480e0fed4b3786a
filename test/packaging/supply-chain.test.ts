import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { cpSync, existsSync, globSync, rmSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, test } from "node:test";
import { secretsIn } from "./support/secret-scan.ts";
import { ran, read, ROOT, temporaryFolder } from "./support/tools.ts";

const home = temporaryFolder("supply");
after(() => rmSync(home, { recursive: true, force: true }));

const DIRECT_MAX = 15;

interface Manifest {
  readonly dependencies: Readonly<Record<string, string>>;
  readonly optionalDependencies: Readonly<Record<string, string>>;
  readonly scripts: Readonly<Record<string, string>>;
}
const manifest = JSON.parse(read("package.json")) as Manifest;

test("a clean install from the lock file with every script ignored leaves a program that runs [80.D40]", () => {
  for (const path of ["package.json", "package-lock.json", ".npmrc", "bin", "src"])
    cpSync(join(ROOT, path), join(home, path), { recursive: true });
  const install = ran("npm", ["ci", "--ignore-scripts", "--omit=dev", "--omit=optional"], { cwd: home });
  assert.equal(install.code, 0, install.text);
  const { code, text } = ran(join(home, "bin/yardmaster"), ["--version"], { cwd: home });
  assert.equal(code, 0, text);
  // npm runs these for whoever installs the package.
  for (const name of ["preinstall", "install", "postinstall", "prepare"])
    assert.equal(manifest.scripts[name], undefined);
});

test("what a user's place gets is little, each part at one exact version with a written reason, and how a new one is taken is written down [80.C51]", () => {
  const direct = { ...manifest.dependencies, ...manifest.optionalDependencies };
  assert.ok(Object.keys(direct).length <= DIRECT_MAX, Object.keys(direct).join(" "));
  const reasons = read("docs/reference/dependencies.md");
  for (const [name, version] of Object.entries(direct)) {
    assert.match(version, /^\d+\.\d+\.\d+$/, name);
    assert.match(reasons, new RegExp(`\`${name}\`[^\n]*\\| [^|\n]{20,} \\|`), `no reason for ${name}`);
  }
  assert.match(read("CONTRIBUTING.md"), /npm install --save-exact --ignore-scripts --min-release-age=7 /);
});

test("npm knows of no severe weakness in what runs at a user's place [80.D40]", (t) => {
  const { out } = ran("npm", ["audit", "--omit=dev", "--json", "--audit=true"]);
  const answer = JSON.parse(out) as {
    metadata?: { vulnerabilities: Record<string, number> };
    statusCode?: number;
  };
  if (answer.metadata === undefined)
    return t.diagnostic(
      `this registry has no advisories to ask for (${answer.statusCode ?? "no answer"}): not checked`,
    );
  const { high, critical } = answer.metadata.vulnerabilities;
  assert.deepEqual({ high, critical }, { high: 0, critical: 0 });
});

test("a bill of materials can be made of every release, and names each part with its hash [80.D40 80.C51]", () => {
  const { code, out, text } = ran("npm", ["run", "-s", "sbom"]);
  assert.equal(code, 0, text);
  const bill = JSON.parse(out) as {
    bomFormat: string;
    components: { name: string; version: string; hashes?: { alg: string }[] }[];
  };
  assert.equal(bill.bomFormat, "CycloneDX");
  const names = bill.components.map(({ name }) => name);
  for (const name of Object.keys(manifest.dependencies)) assert.ok(names.includes(name), name);
  for (const { name, hashes = [] } of bill.components)
    assert.ok(
      hashes.some(({ alg }) => alg === "SHA-512"),
      name,
    );
});

test("no secret stands in any commit that this clone knows [80.D40]", async () => {
  const git = spawn("git", ["log", "--all", "--no-color", "--no-ext-diff", "-p", "-U0", "--format=commit %H"], {
    cwd: ROOT,
    stdio: ["ignore", "pipe", "inherit"],
  });
  const ended = once(git, "close");
  const found: string[] = [];
  let [commit, path, lines] = ["", "", 0];
  for await (const line of createInterface({ input: git.stdout })) {
    if (line.startsWith("commit ")) commit = line.slice(7, 19);
    else if (line.startsWith("+++ ")) path = line.slice(6);
    else if (line.startsWith("+")) {
      lines += 1;
      for (const kind of secretsIn(line.slice(1))) found.push(`${commit} ${path}: ${kind}`);
    }
  }
  assert.deepEqual((await ended)[0], 0);
  assert.ok(lines > 50_000, `only ${lines} lines of history were seen`);
  assert.deepEqual(found, []);
});

test("a secret of each kind is found, and what says of itself that it is none is not", () => {
  const random = (length: number, alphabet = "kQ7zR2mWx9Lp4TnV8cHb3Yf6JdGs5"): string =>
    Array.from({ length }, (_, index) => alphabet[(index * 7) % alphabet.length]).join("");
  for (const line of [
    `-----BEGIN PRIVATE ${"KEY"}-----`,
    `aws = "AKIA${random(16, "Q7ZR2MWX")}"`,
    `token: ghp_${random(40)}`,
    `sk-${random(40)}`,
    `key = ym_${random(43)}`,
    `redis://:${random(20)}@db/0`,
  ])
    assert.equal(secretsIn(line).length > 0, true, line);
  for (const line of [
    "redis://:CANARY-0a1b2c3d4e5f6071@db/0",
    "ym_…",
    "sk-0123456789abcdef0123456789abcdef0123",
    "hash: sha256:",
  ])
    assert.deepEqual(secretsIn(line), [], line);
});

test("nothing that builds or ships names something that may be another thing tomorrow: images have exact tags, workflows whole commits [80.D40]", () => {
  const images = [
    ...["Dockerfile"].flatMap((path) => [...read(path).matchAll(/^ARG \w*IMAGE=(\S+)$|^FROM (?!\$)(\S+)/gm)]),
    ...read("deploy/compose/compose.yaml").matchAll(/image: (?!\$)(\S+)|:-([\w./-]+:[\w.-]+)\}/g),
  ].map(([, first, second]) => first ?? second ?? "");
  assert.ok(images.length >= 4, images.join(" "));
  for (const image of images)
    assert.match(image, /(:\d+\.\d+\.\d+[\w.-]*|:\d+\.\d+-[\w.-]+|@sha256:[0-9a-f]{64})$/, image);
  for (const path of globSync(".github/workflows/*", { cwd: ROOT }))
    for (const [, used = ""] of read(path).matchAll(/^\s*(?:- )?uses: *(\S+)/gm))
      assert.match(used, /@[0-9a-f]{40}$/, path);
  assert.ok(existsSync(join(ROOT, "package-lock.json")));
});
