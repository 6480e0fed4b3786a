import assert from "node:assert/strict";
import { cpSync, existsSync, mkdirSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { dirname, join, matchesGlob } from "node:path";
import { after, before, test } from "node:test";
import { newKey } from "../../src/contract/key-hash.ts";
import { Contained, mayContain } from "./support/container.ts";
import { ran, read, ROOT, temporaryFolder } from "./support/tools.ts";

// `npm run check:packaging`: the image's own build steps, run outside an image, and what they leave run as a container would run it.

const SIZE_BYTES_MAX = 60_000_000;

const home = temporaryFolder("image-build");
after(() => rmSync(home, { recursive: true, force: true }));
const built = join(home, "opt");

/** The files that `COPY . .` takes. */
function context(): string[] {
  const ignored = read(".dockerignore")
    .split("\n")
    .filter((line) => line !== "");
  const { out } = ran("git", ["ls-files", "-co", "--exclude-standard"]);
  return out
    .split("\n")
    .filter((path) => path !== "" && existsSync(join(ROOT, path)))
    .filter((path) => !ignored.some((rule) => path === rule || path.startsWith(`${rule}/`) || matchesGlob(path, rule)));
}

/** The commands of the stage that builds, for folders of the test's own. */
const steps = (): string[] =>
  [
    ...read("Dockerfile")
      .split(/^FROM /m)[1]!
      .replaceAll(/\\\n/g, " ")
      .matchAll(/^RUN (.*)$/gm),
  ].map(([, command = ""]) =>
    command.replaceAll("/opt/yardmaster", built).replaceAll("/var/lib/yardmaster", join(home, "state")),
  );

const bytesIn = (folder: string): number =>
  readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .reduce((sum, entry) => sum + statSync(join(entry.parentPath, entry.name)).size, 0);

before(() => {
  const source = join(home, "src");
  for (const path of context()) {
    mkdirSync(join(source, dirname(path)), { recursive: true });
    cpSync(join(ROOT, path), join(source, path));
  }
  for (const step of steps()) {
    const { code, text } = ran("sh", ["-ec", step], { cwd: source });
    assert.equal(code, 0, `${step}: ${text}`);
  }
});

test("the image's build steps leave what runs and little else, readable by everybody and writable by nobody but root", () => {
  const there = readdirSync(built).toSorted();
  const wanted = ["LICENSE", "bin", "compile", "dist", "healthcheck.mjs", "node_modules", "package.json"];
  assert.deepEqual(
    there.filter((name) => name !== "dashboard"),
    wanted,
  );
  if (existsSync(join(ROOT, "dashboard"))) assert.ok(existsSync(join(built, "dashboard/dist/index.html")));
  assert.equal(existsSync(join(built, "node_modules/typescript")), false, "what only developers need is in the image");
  const size = bytesIn(built);
  assert.ok(size <= SIZE_BYTES_MAX, `${size} bytes`);
  const loose = ran("find", [built, "!", "-type", "l", "(", "-perm", "/022", "-o", "!", "-perm", "-004", ")"]);
  assert.equal(loose.out, "");
});

test("what the image holds serves as its first process: a gateway, and a control plane with the embedded database", async (t) => {
  if (!mayContain()) return t.diagnostic("only root may make a container: nothing was run in one");
  const config = join(home, "config");
  mkdirSync(config);
  const auth = `auth: {mode: keys, keys: [{id: root, hash: "sha256:${newKey().hash}", role: admin}]}`;
  writeFileSync(join(config, "yardmaster.yaml"), `${auth}\nupstreams: []\n`);
  for (const role of ["gateway", "control"]) {
    const flags = ["--config", "/etc/yardmaster/yardmaster.yaml", "--listen", "127.0.0.1:0", "--data-dir", "data"];
    await using contained = new Contained(["/opt/yardmaster/bin/yardmaster", role, ...flags, "--log-format", "json"], {
      source: built,
      root: join(home, role),
      // The image has a Node of its own there.
      mounts: { [config]: "/etc/yardmaster", [dirname(process.execPath)]: "/usr/local/bin" },
      env: {
        PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        NODE_COMPILE_CACHE: "/opt/yardmaster/compile",
        HOME: "/var/lib/yardmaster",
      },
    });
    await contained.program.said(/^yardmaster \w+ ready .*$/m);
    const { code, err } = await contained.terminate();
    assert.equal(code, 0, err);
    assert.doesNotMatch(err, /"level":"error"/);
  }
});
