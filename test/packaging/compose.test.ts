import assert from "node:assert/strict";
import { cpSync, readFileSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { parse } from "yaml";
import { hashKey } from "../../src/contract/key-hash.ts";
import { secretsIn } from "./support/secret-scan.ts";
import { composeSpec, distributionTool, ran, read, ROOT, temporaryFolder } from "./support/tools.ts";

// The compose file, with the secrets that its own script makes: read by the library that Compose itself reads it with.

interface Service {
  readonly image: string;
  readonly command?: readonly string[];
  readonly env_file?: readonly string[];
  readonly environment?: Readonly<Record<string, string>>;
  readonly read_only?: boolean;
  readonly user?: string;
  readonly cap_drop?: readonly string[];
  readonly security_opt?: readonly string[];
  readonly ports?: readonly string[];
  readonly volumes?: readonly string[];
  readonly healthcheck?: { readonly disable?: boolean };
}

const home = temporaryFolder("compose");
const folder = join(home, "deploy/compose");
after(() => rmSync(home, { recursive: true, force: true }));
const { services } = parse(read("deploy/compose/compose.yaml"), { merge: true }) as {
  services: Readonly<Record<string, Service>>;
};
const ours = Object.entries(services).filter(([, { image }]) => image.includes("yardmaster"));

before(() => {
  distributionTool("openssl", "openssl");
  cpSync(join(ROOT, "deploy/compose"), folder, { recursive: true });
  rmSync(join(folder, "secrets"), { recursive: true, force: true });
  const made = ran("sh", ["setup.sh"], { cwd: folder });
  assert.equal(made.code, 0, made.text);
});

const secret = (path: string): string => readFileSync(join(folder, "secrets", path), "utf8");
const variables = (paths: readonly string[]): Record<string, string> =>
  Object.fromEntries(
    paths.flatMap((path) =>
      readFileSync(join(folder, path), "utf8")
        .trim()
        .split("\n")
        .map((line) => [line.slice(0, line.indexOf("=")), line.slice(line.indexOf("=") + 1)] as const),
    ),
  );

test("setup makes every secret once: each is another, lies where other users can't look, and none is in the compose file or has a default", () => {
  const values = ["admin.key", "client.key", "metrics.key", "postgres-password", "redis.env", "gateway.env"].map(
    secret,
  );
  assert.equal(new Set(values).size, values.length);
  assert.equal(statSync(join(folder, "secrets")).mode & 0o077, 0);
  const again = ran("sh", ["setup.sh"], { cwd: folder });
  assert.equal(again.code, 1);
  assert.match(again.text, /nothing was changed/);
  const shipped = read("deploy/compose/compose.yaml");
  assert.deepEqual(shipped.split("\n").flatMap(secretsIn), []);
  assert.doesNotMatch(shipped, /[A-Z]PASSWORD: |[A-Z]PASSWORD=|(?:PASSWORD|SECRET|TOKEN|KEY)\w*:-[^}]/);
  assert.equal(
    variables(["secrets/hashes.env"])["YARDMASTER_ADMIN_HASH"],
    `sha256:${hashKey(secret("admin.key").trim())}`,
  );
  const chain = ran("openssl", ["verify", "-CAfile", "secrets/tls/public/ca.crt", "secrets/tls/control/control.crt"], {
    cwd: folder,
  });
  assert.equal(chain.code, 0, chain.text);
});

test("the compose file is what Compose takes, with every variable put in", () => {
  const { code, text } = ran(composeSpec(), ["compose.yaml"], { cwd: folder });
  assert.equal(code, 0, text);
});

test("each part runs without rights, as nobody in particular, on a root that it can't write to, and is reached on loopback alone", () => {
  for (const [name, service] of Object.entries(services)) {
    assert.equal(service.read_only, true, name);
    assert.match(service.user ?? "", /^[1-9]\d*:[1-9]\d*$/, name);
    assert.deepEqual(service.cap_drop, ["ALL"], name);
    assert.deepEqual(service.security_opt, ["no-new-privileges:true"], name);
    for (const port of service.ports ?? []) assert.match(port, /^\$\{YARDMASTER_BIND:-127\.0\.0\.1\}:/, name);
  }
  const redis = services["redis"]?.command?.join(" ") ?? "";
  assert.match(redis, /--appendonly yes/);
  assert.match(redis, /--maxmemory-policy noeviction/);
  const count = (role: string): number => ours.filter(([, { command = [] }]) => command[0] === role).length;
  assert.deepEqual(["gateway", "control", "agent"].map(count), [2, 2, 1]);
});

test("every file that the services read is a configuration that the product takes, without a warning", () => {
  for (const [name, { command = [], env_file: files = [], environment = {} }] of ours) {
    const config = command[command.indexOf("--config") + 1] ?? "";
    const env = { PATH: process.env["PATH"], ...variables(files), ...environment, NODE_OPTIONS: "" };
    const file = join(folder, "config", config.replace("/etc/yardmaster/", ""));
    const checked = ran(join(ROOT, "bin/yardmaster"), ["config", "check", file], { env });
    assert.equal(checked.code, 0, `${name}: ${checked.text}`);
    // Control planes and agents need no upstreams.
    const warnings = checked.text.split("\n").filter((line) => /^warning: (?!.*upstreams: is empty)/.test(line));
    assert.deepEqual(warnings, [], name);
  }
  const catalog = ran(join(ROOT, "bin/yardmaster"), ["ctl", "catalog", "check", join(folder, "config/catalog.yaml")]);
  assert.equal(catalog.code, 0, catalog.text);
  const { version } = JSON.parse(read("package.json")) as { version: string };
  for (const [name, { image }] of ours) assert.match(image, new RegExp(`:${version.replaceAll(".", "\\.")}\\}$`), name);
});
