import assert from "node:assert/strict";
import { randomInt } from "node:crypto";
import { cpSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { after, test } from "node:test";
import { Client } from "pg";
import { parse } from "yaml";
import { startPostgres } from "../../src/testing/servers/postgres-server.ts";
import { dataFolder, findOrInstall, startServer } from "../../src/testing/servers/server-process.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { Contained, mayContain } from "./support/container.ts";
import { ran, read, ROOT, temporaryFolder } from "./support/tools.ts";

// What the Compose file defines, run as it says without its engine: each service in a container of the kernel's, with its command, its
// variables and its mounts, its name for the others in /etc/hosts. Only the addresses are of loopback, one for each service.

interface Service {
  readonly command: readonly string[];
  readonly env_file?: readonly string[];
  readonly environment?: Readonly<Record<string, string>>;
  readonly volumes: readonly string[];
  readonly healthcheck?: { readonly disable: boolean };
}

const home = temporaryFolder("composed");
const folder = join(home, "compose");
after(() => rmSync(home, { recursive: true, force: true }));
const { services } = parse(read("deploy/compose/compose.yaml"), { merge: true }) as {
  services: Readonly<Record<string, Service>>;
};
const serviceOf = (name: string): Service => services[name] ?? assert.fail(name);

const NODE_INSIDE = process.execPath.replace(ROOT, "/opt/yardmaster");
/** Of this run alone, so that two runs don't meet. */
const network = `127.${randomInt(1, 255)}.${randomInt(1, 255)}`;
const addressOf = (name: string): string => `${network}.${Object.keys(services).indexOf(name) + 1}`;
const hostsOf = (name: string): string =>
  [
    `${addressOf(name)} localhost ${name}`,
    ...Object.keys(services).map((other) => `${addressOf(other)} ${other}`),
    "",
  ].join("\n");

const variables = (path: string): (readonly [string, string])[] =>
  readFileSync(join(folder, path), "utf8")
    .trim()
    .split("\n")
    .map((line) => [line.slice(0, line.indexOf("=")), line.slice(line.indexOf("=") + 1)] as const);

function start(name: string, more: Readonly<Record<string, string>> = {}): Contained {
  const { command, env_file: files = [], environment = {}, volumes } = serviceOf(name);
  const mounts = volumes.flatMap((volume) => {
    const [from = "", to = ""] = volume.split(":");
    return from.startsWith("./") ? [[join(folder, from), to] as const] : [];
  });
  return new Contained(
    ["/opt/yardmaster/bin/yardmaster", ...command.map((word) => word.replace("0.0.0.0", addressOf(name)))],
    {
      root: join(home, name),
      mounts: Object.fromEntries(mounts),
      env: {
        HOME: "/var/lib/yardmaster",
        ...Object.fromEntries(files.flatMap(variables)),
        ...environment,
        ...more,
      },
      hosts: hostsOf(name),
    },
  );
}

async function startStores(): Promise<AsyncDisposableStack> {
  const stack = new AsyncDisposableStack();
  const postgres = ["-c", `listen_addresses=${addressOf("postgres")}`, "-c", "port=5432"];
  stack.use(await startPostgres(postgres));
  const admin = new Client({ connectionString: `postgres://yardmaster@${addressOf("postgres")}:5432/postgres` });
  await admin.connect();
  await admin.query("CREATE DATABASE yardmaster");
  await admin.end();

  const program = findOrInstall({
    program: "redis-server",
    alsoIn: [],
    debianPackage: "redis-server",
    urlVariable: "YARDMASTER_TEST_REDIS_URL",
  });
  const [, ...args] = serviceOf("redis").command.map((word) =>
    word.replace("/etc/yardmaster-redis", join(folder, "secrets/redis")),
  );
  const data = dataFolder("redis");
  const redis = await startServer({
    program,
    args: [...args, "--bind", addressOf("redis"), "--dir", data, "--save", ""],
    folder: data,
    readyLine: /Ready to accept connections/,
    stopSignal: "SIGKILL",
  });
  stack.defer(() => redis.stop());
  return stack;
}

const ready = (service: Contained): Promise<unknown> => service.program.said(/^yardmaster \w+ ready .*$/m);

async function ask(name: string): Promise<number> {
  const key = readFileSync(join(folder, "secrets/client.key"), "utf8").trim();
  const answer = await fetch(`http://${addressOf(name)}:8200/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    body: JSON.stringify({ model: "sim-model", max_tokens: 4, messages: [{ role: "user", content: "Hello." }] }),
  });
  await answer.text();
  return answer.status;
}

test("the composed cluster comes up with the secrets that were made for it, is found healthy, lets its node in by a token, answers at both gateways, also without one of its control planes, and ends in good order", async (t) => {
  if (!mayContain()) return t.diagnostic("only root may make containers: the composed cluster was not started");
  cpSync(join(ROOT, "deploy/compose"), folder, { recursive: true });
  rmSync(join(folder, "secrets"), { recursive: true, force: true });
  assert.equal(ran("sh", ["setup.sh"], { cwd: folder }).code, 0);
  await using stack = await startStores();
  const names = ["control-a", "control-b", "gateway-a", "gateway-b"];
  const running = new Map(names.map((name) => [name, stack.use(start(name))] as const));
  const of = (name: string): Contained => running.get(name) ?? assert.fail(name);
  for (const service of running.values()) await ready(service);
  for (const [name, service] of running) {
    const check = [NODE_INSIDE, "/opt/yardmaster/deploy/container/healthcheck.mjs"];
    const gateway = { YARDMASTER_HEALTH_URL: "http://localhost:8200/healthz" };
    const health = await service.exec(check, name.startsWith("gateway") ? gateway : {});
    assert.equal(health.code, 0, `${name}: ${health.text}`);
  }

  const asRoot = { YARDMASTER_KEY: readFileSync(join(folder, "secrets/admin.key"), "utf8").trim() };
  const ctl = (...words: string[]) => of("control-a").exec(["/opt/yardmaster/bin/yardmaster", "ctl", ...words], asRoot);
  const enrolled = await ctl("nodes", "enrol", "agent-1");
  assert.equal(enrolled.code, 0, enrolled.text);
  const token = /^ +(\S{20,})$/m.exec(enrolled.out)?.[1] ?? assert.fail(enrolled.text);
  const agent = stack.use(start("agent-1", { YARDMASTER_TOKEN: token }));
  await ready(agent);
  for (const name of ["gateway-a", "gateway-b"])
    await eventually(
      `an answer of ${name}`,
      () => ask(name),
      (status) => status === 200,
      60_000,
    );

  assert.equal((await of("control-a").terminate()).code, 0);
  for (const name of ["gateway-a", "gateway-b"]) assert.equal(await ask(name), 200, name);
  for (const name of ["gateway-a", "gateway-b", "control-b"]) {
    const { code, err } = await of(name).terminate();
    assert.equal(code, 0, `${name}: ${err}`);
    assert.doesNotMatch(err, /"level":"error"|ERR_ACCESS_DENIED/, name);
  }
  assert.equal((await agent.terminate()).code, 0);
});
