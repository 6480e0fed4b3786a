import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type AddressInfo, type Socket } from "node:net";
import { test } from "node:test";
import { Redis } from "ioredis";
import { systemClock } from "../../kernel/clock.ts";
import type { LogFields, Logger } from "../../kernel/log.ts";
import { seededRandom } from "../../kernel/random.ts";
import { Secret } from "../../kernel/secret.ts";
import { FaultProxy } from "../../testing/fault-proxy.ts";
import { OwnRedis } from "../../testing/servers/redis-server.ts";
import { eventually, within } from "../../testing/wait-for.ts";
import { RedisConnection } from "./redis-connection.ts";
import { RedisLink, type StepOutcome } from "./redis-link.ts";
import { loadScript, type Script } from "./script.ts";

const PROBE = loadScript(new URL("./probe.lua", import.meta.url));
/** A loaded machine must not look like a dead server where that is not the question. */
const PATIENT_MS = 2_000;

interface World extends Disposable {
  readonly link: RedisLink;
  readonly lines: readonly { readonly op: string; readonly fields: LogFields | undefined }[];
  probe(): Promise<StepOutcome>;
}

async function world(url: string, timeoutMs = PATIENT_MS): Promise<World> {
  const lines: { op: string; fields: LogFields | undefined }[] = [];
  const note = (op: string, fields?: LogFields): void => void lines.push({ op, fields });
  const log: Logger = { debug: note, info: note, warn: note, error: note };
  const settings = { url: new Secret(url), timeoutMs, keyPrefix: "t" };
  const link = new RedisLink(settings, { clock: systemClock, random: seededRandom(1), log });
  await link.open();
  return {
    link,
    lines,
    probe: () => link.run(PROBE, ["t:probe"], ["1"]),
    [Symbol.dispose]: () => link.close(),
  };
}

const stateIs = (link: RedisLink, state: string): Promise<void> => {
  const { promise, resolve } = Promise.withResolvers<void>();
  const listening = link.onState((now) => {
    if (now === state) resolve();
  });
  if (link.state === state) resolve();
  return within(`the link to be ${state}`, promise).finally(() => listening[Symbol.dispose]());
};

async function timed<T>(work: () => Promise<T>): Promise<{ readonly value: T; readonly ms: number }> {
  const from = systemClock.mono();
  const value = await work();
  return { value, ms: systemClock.mono() - from };
}

const script = (text: string): Script => ({ name: "test", text, sha: "0".repeat(40) });

test("a script runs by its hash, and whole again when the server has forgotten it [80.R10]", async () => {
  await using server = await OwnRedis.start();
  using here = await world(server.url);
  assert.equal((await here.probe()).kind, "reply");
  const other = new Redis(server.url);
  await other.script("FLUSH");
  assert.equal((await here.probe()).kind, "reply");
  other.disconnect();
});

test("a frozen server costs each step its deadline until it is given up, then nothing; thawed it is used again [80.R1]", async () => {
  await using server = await OwnRedis.start();
  using here = await world(server.url, 100);
  server.pause();
  const first = await timed(() => Promise.all([here.probe(), here.probe(), here.probe()]));
  assert.deepEqual(
    first.value.map(({ kind }) => kind),
    ["unknown", "unknown", "unknown"],
  );
  assert.equal(here.link.state, "open");
  const next = await here.probe();
  assert.deepEqual(next, { kind: "notSent", why: "breakerOpen" });
  server.resume();
  await stateIs(here.link, "closed");
  assert.equal((await here.probe()).kind, "reply");
  assert.deepEqual(
    here.lines.filter(({ op }) => op === "coordination.link").map(({ fields }) => fields?.["state"]),
    ["open", "closed"],
    "one line per change of state",
  );
});

test("one step is enough to find out that a server stands still, and one that was late once is not given up [80.R1 80.C11]", async () => {
  await using server = await OwnRedis.start();
  using here = await world(server.url, 200);
  server.pause();
  const late = here.probe();
  await systemClock.sleep(280, new AbortController().signal);
  server.resume();
  assert.deepEqual(await late, { kind: "unknown", why: "timeout" });
  await eventually(
    "an answer",
    () => here.probe(),
    ({ kind }) => kind === "reply",
  );
  assert.deepEqual(here.lines, []);
  server.pause();
  await here.probe();
  await stateIs(here.link, "open");
});

test("a step with less time than the link's own says nothing against a server that answers [80.C9]", async () => {
  await using server = await OwnRedis.start();
  await using proxy = await FaultProxy.start({ clock: systemClock, target: { port: server.port } });
  using here = await world(`redis://127.0.0.1:${proxy.port}/0`);
  proxy.add("downstream", { kind: "latency", latencyMs: 100 });
  for (let i = 0; i < 5; i += 1)
    assert.equal((await here.link.run(PROBE, ["t:probe"], ["1"], { timeoutMs: 10 })).kind, "unknown");
  assert.equal((await here.probe()).kind, "reply");
  assert.equal(here.link.state, "closed");
});

test("steps that began before the breaker opened settle within their deadline, and none is queued for later [80.C9]", async () => {
  await using server = await OwnRedis.start();
  using here = await world(server.url, 100);
  const other = new Redis(server.url, { lazyConnect: true });
  await other.connect();
  await server.kill();
  other.disconnect();
  const { value, ms } = await timed(() => Promise.all(Array.from({ length: 20 }, () => here.probe())));
  assert.ok(value.every(({ kind }) => kind === "unknown" || kind === "notSent"));
  assert.ok(ms < 2_000, `${ms} ms`);
  await server.again();
  await stateIs(here.link, "closed");
  const check = new Redis(server.url);
  const calls = (await check.info("commandstats")).match(/cmdstat_eval(?:sha)?:calls=\d+/g) ?? [];
  check.disconnect();
  const total = calls.reduce((sum, text) => sum + Number(text.split("=")[1]), 0);
  assert.ok(total <= 4, `what was asked of the dead server is not asked of the new one: ${calls.join(" ")}`);
});

test("a connection that is cut is replaced within its step's time, without the breaker opening [80.R10]", async () => {
  await using server = await OwnRedis.start();
  using here = await world(server.url);
  const other = new Redis(server.url);
  const reconnected = Promise.withResolvers<void>();
  here.link.onConnected(() => reconnected.resolve());
  await other.call("CLIENT", ["KILL", "TYPE", "normal", "SKIPME", "yes"]);
  await within("a new connection", reconnected.promise);
  assert.equal(here.link.state, "closed");
  assert.equal((await here.probe()).kind, "reply");
  other.disconnect();
});

test("a dead server is looked for no more than once a second [80.R3]", async () => {
  await using server = await OwnRedis.start();
  await using proxy = await FaultProxy.start({ clock: systemClock, target: { port: server.port } });
  using here = await world(`redis://127.0.0.1:${proxy.port}/0`, 100);
  const from = systemClock.mono();
  const before = proxy.accepted;
  await server.kill();
  await stateIs(here.link, "open");
  await server.again();
  await stateIs(here.link, "closed");
  const seconds = (systemClock.mono() - from) / 1_000;
  assert.ok(
    proxy.accepted - before <= Math.ceil(seconds) + 1,
    `${proxy.accepted - before} connections in ${seconds} s`,
  );
});

test("a connection that is accepted and never greeted is given up within its time, wherever one is opened [80.R1 80.R10]", async () => {
  await using server = await OwnRedis.start();
  const admin = new Redis(server.url);
  await admin.call("ACL", ["SETUSER", "u", "on", ">p", "~*", "&*", "+@all"]);
  admin.disconnect();
  server.pause();
  const url = new Secret(`redis://u:p@127.0.0.1:${server.port}/0`);
  const opening = RedisConnection.open(url, 100, systemClock, () => {});
  await within("the connection to be given up", assert.rejects(opening, /no connection within 100 ms/));
});

test("a slow server opens the breaker, and a probe that is as slow does not close it [80.R5]", async () => {
  await using server = await OwnRedis.start();
  await using proxy = await FaultProxy.start({ clock: systemClock, target: { port: server.port } });
  using here = await world(`redis://127.0.0.1:${proxy.port}/0`, 100);
  assert.equal(here.link.state, "closed");
  proxy.add("downstream", { kind: "latency", latencyMs: 400 });
  await Promise.all([here.probe(), here.probe(), here.probe()]);
  await stateIs(here.link, "open");
  const admin = new Redis(server.url);
  const asked = async (): Promise<number> =>
    Number(/cmdstat_evalsha:calls=(\d+)/.exec(await admin.info("commandstats"))?.[1] ?? 0);
  const before = await asked();
  await eventually("two more probes", asked, (calls) => calls >= before + 2);
  admin.disconnect();
  assert.notEqual(here.link.state, "closed");
  proxy.clear();
  await stateIs(here.link, "closed");
});

test("what the server refuses is told by kind and opens the breaker: a full memory, while what frees still gets through [80.R6]", async () => {
  await using server = await OwnRedis.start(["--maxmemory", "100kb"]);
  using here = await world(server.url);
  assert.equal(here.link.state, "open", "a server without room is not one to rely on");
  assert.match(here.link.reason, /OOM/);
  const freed = await here.link.command("DEL", ["t:x"], { evenIfOpen: true });
  assert.equal(freed.kind, "reply");
});

test("a server that will never do is named with what it lacks: no right to run scripts, no such command", async () => {
  await using server = await OwnRedis.start();
  const admin = new Redis(server.url);
  await admin.call("ACL", ["SETUSER", "weak", "on", ">CANARY-weak-password", "~*", "&*", "+@all", "-eval", "-evalsha"]);
  using here = await world(`redis://weak:CANARY-weak-password@127.0.0.1:${server.port}/0`);
  assert.match(here.link.unsuitable ?? "", /lacks a right.*eval/i);
  assert.equal(here.link.state, "open");
  assert.equal(JSON.stringify([here.lines, here.link.reason]).includes("CANARY"), false);
  admin.disconnect();
});

test("a policy that throws keys away is found by INFO, and by CONFIG where INFO is denied; it is no place for jobs [80.R7]", async () => {
  await using server = await OwnRedis.start(["--maxmemory-policy", "allkeys-lru"]);
  const admin = new Redis(server.url);
  await admin.call("ACL", ["SETUSER", "noinfo", "on", ">p", "~*", "&*", "+@all", "-info"]);
  await admin.call("ACL", ["SETUSER", "neither", "on", ">p", "~*", "&*", "+@all", "-info", "-config"]);
  for (const user of ["", "noinfo:p@", "neither:p@"]) {
    using here = await world(`redis://${user}127.0.0.1:${server.port}/0`);
    assert.equal(here.link.state, "closed", "slots can do with it");
    assert.match(here.link.facts?.unfitForJobs ?? "", /noeviction/);
    assert.equal(here.link.facts?.policy, user === "neither:p@" ? null : "allkeys-lru");
    assert.ok(here.lines.some(({ op }) => op === "coordination.server"));
  }
  admin.disconnect();
});

test("a policy that is set while the connection stands is found out, for the worse and for the better [80.R7]", async () => {
  await using server = await OwnRedis.start();
  using here = await world(server.url);
  assert.equal(here.link.facts?.unfitForJobs, null);
  const admin = new Redis(server.url);
  for (const policy of ["volatile-lru", "noeviction"]) {
    await admin.config("SET", "maxmemory-policy", policy);
    await eventually(
      `${policy} to be seen`,
      () => here.link.facts?.policy,
      (seen) => seen === policy,
    );
    assert.equal(here.link.facts?.unfitForJobs === null, policy === "noeviction");
  }
  const said = here.lines
    .filter(({ op }) => op === "coordination.server")
    .map(({ fields }) => String(fields?.["message"]));
  assert.match(said[0] ?? "", /^not fit for jobs: .*volatile-lru/);
  assert.equal(said[1], "fit for jobs again");
  admin.disconnect();
});

test("a password in the address is in no message [80.I7]", async () => {
  const port = await closedPort();
  using here = await world(`redis://:CANARY-secret-of-redis@127.0.0.1:${port}/0`);
  assert.equal(here.link.state, "open");
  assert.match(here.link.reason, /ECONNREFUSED/);
  assert.equal(JSON.stringify([here.lines, here.link.reason]).includes("CANARY"), false);
});

async function closedPort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  return port;
}

test("half an answer and then a close, garbage, and errors of all kinds never reject and never stay pending [80.R10]", async () => {
  const replies = [
    "$10\r\nabc",
    "*3\r\n:1\r\n",
    "-LOADING busy\r\n",
    "-READONLY no\r\n",
    "-MOVED 1 h:1\r\n",
    "?what\r\n",
    "-\r\n",
    ":1",
  ];
  let nth = 0;
  let asked = 0;
  const sockets = new Set<Socket>();
  const fake = createServer((socket) => {
    sockets.add(socket);
    socket.on("error", () => {});
    socket.on("data", (data) => {
      const commands = data.toString("latin1").match(/\*\d+\r\n/g)?.length ?? 0;
      for (let i = 0; i < commands; i += 1) {
        asked += 1;
        // The greeting and the first looks are answered well, so that steps get that far.
        if (asked % 5 !== 0) socket.write("+OK\r\n");
        else {
          socket.write(replies[nth++ % replies.length] ?? "");
          if (nth % 2 === 0) socket.destroy();
        }
      }
    });
  }).listen(0, "127.0.0.1");
  await once(fake, "listening");
  using here = await world(`redis://127.0.0.1:${(fake.address() as AddressInfo).port}/0`, 50);
  for (let round = 0; round < 400; round += 1) {
    const outcome = await within("a step", here.link.command("GET", ["t:x"], { evenIfOpen: round % 2 === 0 }));
    assert.ok(["reply", "refused", "unknown", "notSent"].includes(outcome.kind));
  }
  for (const socket of sockets) socket.destroy();
  fake.close();
});

test("a script's own fault is told as it is", async () => {
  await using server = await OwnRedis.start();
  using here = await world(server.url);
  const outcome = await here.link.run(script("return redis.call('NOSUCH')"), [], []);
  assert.equal(outcome.kind, "refused");
});
