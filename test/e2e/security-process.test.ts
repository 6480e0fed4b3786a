import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { stringify } from "yaml";
import { RawServer } from "../../src/testing/raw-server.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { aCompletion, jsonAnswer } from "./support/raw-engine.ts";
import { listeningOf, YardmasterProcess } from "./support/yardmaster-process.ts";

const homes: string[] = [];
after(() => Promise.all(homes.map((home) => rm(home, { recursive: true, force: true }))));

async function aHome(file?: object): Promise<string> {
  const home = await mkdtemp(join(tmpdir(), "yardmaster-process-"));
  homes.push(home);
  if (file !== undefined) await writeFile(join(home, "yardmaster.yaml"), stringify(file));
  return home;
}

const hashOf = (key: string): string => `sha256:${createHash("sha256").update(key).digest("hex")}`;
const run = async (
  args: readonly string[],
  cwd: string,
  env: Record<string, string> = {},
): Promise<{ code: number | null; text: string }> => {
  await using one = new YardmasterProcess(args, { cwd, env });
  const code = await one.ended;
  return { code, text: one.out + one.err };
};

const CANARIES = {
  client: "CANARY-client-7f3a0f4d5b6c",
  admin: "CANARY-admin-9c2b1e8d7f60",
  engine: "CANARY-engine-4e5f6a7b8c9d",
  wrong: "CANARY-wrong-0a1b2c3d4e5f",
  query: "CANARY-query-1b2c3d4e5f60",
  prompt: "CANARY-prompt-2c3d4e5f6071",
  answer: "CANARY-answer-3d4e5f607182",
  redis: "CANARY-redis-4e5f60718293",
} as const;

test("secrets planted in client keys, the engine's key, prompts and answers are found in no output, log, error, metric, audit file, health page, printed file or trace, and only hashes rest on the disk [80.D31 80.I7 80.C45 80.D32 60.K1]", async () => {
  const traces: string[] = [];
  const collector = createServer((req, res) => {
    let text = "";
    req.setEncoding("utf8").on("data", (part: string) => (text += part));
    req.on("end", () => {
      traces.push(text);
      res.end("{}");
    });
  });
  await using _collector = { [Symbol.asyncDispose]: async () => void collector.close() };
  await new Promise<void>((resolve) => collector.listen(0, "127.0.0.1", resolve));
  const given: string[] = [];
  await using engine = await RawServer.listen({
    onCall: ({ socket, head, body }) => {
      const authorization = /^authorization: (.*)\r$/im.exec(head)?.[1] ?? "";
      given.push(authorization);
      const { user } = body.length === 0 ? { user: "" } : JSON.parse(body.toString());
      const answers: Record<string, string> = {
        json: jsonAnswer(
          { error: { message: `bad key: ${authorization}`, type: "x", code: 401 } },
          "401 Unauthorized",
        ).replace("\r\n", `\r\nX-Seen: ${authorization}\r\n`),
        text: `HTTP/1.1 500 Oops\r\nContent-Type: text/plain\r\nContent-Length: ${authorization.length}\r\n\r\n${authorization}`,
        html: `HTTP/1.1 502 Bad\r\nContent-Type: text/html\r\nContent-Length: ${authorization.length}\r\n\r\n${authorization}`,
        event: (() => {
          const event = `data: {"error":{"message":"${authorization}","code":500}}\n\n`;
          return `HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: ${event.length}\r\n\r\n${event}`;
        })(),
        break: `HTTP/1.1 200 OK\r\nX: ${authorization}\r\nContent-Length: 5, 6\r\n\r\n`,
      };
      socket.write(answers[user] ?? jsonAnswer(aCompletion(CANARIES.answer)));
    },
  });
  const home = await aHome({
    listen: "127.0.0.1:0",
    auth: {
      keys: [
        { id: "team", hash: hashOf(CANARIES.client) },
        { id: "boss", hash: hashOf(CANARIES.admin), role: "admin" },
      ],
    },
    redis_url: `redis://:${CANARIES.redis}@127.0.0.1:1/0`,
    metrics: { public: false },
    otel: { endpoint: `http://127.0.0.1:${(collector.address() as AddressInfo).port}` },
    upstreams: [
      {
        id: "u",
        models: ["m"],
        slots: 8,
        key_env: "ENGINE_KEY",
        retry: { attempts: 0 },
        endpoints: [{ url: `http://127.0.0.1:${engine.port}` }],
      },
    ],
  });
  const env = { ENGINE_KEY: CANARIES.engine };
  await using gateway = new YardmasterProcess(["gateway", "--log-level", "debug", "--log-format", "json"], {
    cwd: home,
    env,
  });
  const url = `http://${await gateway.ready()}`;
  const seen: string[] = [];
  const call = async (path: string, headers: Record<string, string>, body?: object): Promise<string> => {
    const answer = await fetch(url + path, {
      method: body === undefined ? "GET" : "POST",
      headers: { "content-type": "application/json", ...headers },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const text = await answer.text();
    seen.push(`${answer.status} ${[...answer.headers].join("\n")} ${text}`);
    return text;
  };
  const asTeam = { authorization: `Bearer ${CANARIES.client}` };
  const asAdmin = { "x-api-key": CANARIES.admin };
  const chat = (user: string, stream = false): object => ({
    model: "m",
    user,
    stream,
    messages: [{ role: "user", content: CANARIES.prompt }],
  });
  const good = await call("/v1/chat/completions", asTeam, chat("good"));
  assert.ok(good.includes(CANARIES.answer), good);
  assert.ok(given.includes(`Bearer ${CANARIES.engine}`));
  seen.pop();
  for (const user of ["json", "text", "html", "break"]) await call("/v1/chat/completions", asTeam, chat(user));
  await call("/v1/chat/completions", asTeam, chat("event", true));
  for (const headers of [
    { authorization: `Bearer ${CANARIES.wrong}` },
    { "x-api-key": CANARIES.wrong },
    { "api-key": CANARIES.wrong },
    { authorization: CANARIES.wrong },
    { authorization: `Basic ${CANARIES.wrong}` },
  ])
    await call("/v1/models", headers);
  for (const name of ["key", "api_key", "other"]) await call(`/v1/models?${name}=${CANARIES.query}`, asTeam);
  await call(`/v1/models/${CANARIES.query}x`, { authorization: `Bearer ${CANARIES.wrong}` });
  await call(
    "/v1/chat/completions",
    { ...asTeam, cookie: `a=${CANARIES.wrong}` },
    { model: "m", messages: CANARIES.prompt, x: CANARIES.prompt },
  );
  seen.pop();
  const issued = JSON.parse(await call("/admin/keys", asAdmin, { id: "fresh" }));
  seen.pop();
  assert.equal(typeof issued.key, "string");
  for (const path of ["/health", "/metrics", "/admin/keys", "/admin/audit?limit=100", "/v1/models", "/readyz"])
    await call(path, asAdmin);
  const printed = await run(["config", "print", "yardmaster.yaml"], home, env);
  const checked = await run(["config", "check", "yardmaster.yaml"], home, env);
  await eventually(
    "a trace",
    () => traces.length,
    (count) => count > 0,
  );
  assert.equal(await gateway.stop(), 0);

  const files = await readdir(join(home, "data"));
  assert.ok(files.includes("audit.db") && files.includes("keys.db"), files.join());
  const places: [string, Buffer | string][] = [
    ["standard output", gateway.out],
    ["standard error", gateway.err],
    ["config print", printed.text],
    ["config check", checked.text],
    ...traces.map((text): [string, string] => ["a trace", text]),
    ...seen.map((text): [string, string] => ["an answer", text]),
    ...(await Promise.all(
      files.map(async (file): Promise<[string, Buffer]> => [file, await readFile(join(home, "data", file))]),
    )),
  ];
  for (const [place, bytes] of places) {
    for (const secret of ["CANARY-", issued.key]) {
      const at = bytes.indexOf(secret);
      assert.equal(at, -1, `${place}: ${bytes.toString().slice(Math.max(0, at - 80), at + 80)}`);
    }
  }
  assert.ok(gateway.err.split("\n").length > 3, "the log is on");
  assert.ok((await readFile(join(home, "data/keys.db"))).includes(issued.hash.slice("sha256:".length)));
  assert.equal((await stat(join(home, "data/keys.db"))).mode & 0o077, 0);
});

test("a gateway listens on its own port and nothing else, and SIGUSR1 opens no inspector [80.D29 80.C48]", async () => {
  const home = await aHome({ listen: "127.0.0.1:0", upstreams: [] });
  await using gateway = new YardmasterProcess(["gateway"], { cwd: home });
  const address = await gateway.ready();
  for (let sent = 0; sent < 3; sent++) gateway.child.kill("SIGUSR1");
  for (let probe = 0; probe < 20; probe++) assert.equal((await fetch(`http://${address}/healthz`)).status, 200);
  assert.deepEqual(listeningOf(gateway.pid) ?? [address], [address]);
  await assert.rejects(fetch("http://127.0.0.1:9229/json/version"));
  assert.doesNotMatch(gateway.err, /Debugger listening/);
  assert.equal(await gateway.stop(), 0);
});

test("`up` on a fresh machine binds loopback only, the simulated engine included, and hands out a one-time key [80.C48 80.D29]", async () => {
  const home = await aHome();
  await using up = new YardmasterProcess(["up", "--listen", "127.0.0.1:0"], { cwd: home });
  const address = await up.ready();
  await eventually(
    "the welcome",
    () => up.out,
    (text) => text.includes("Ctrl-C"),
  );
  const listening = listeningOf(up.pid) ?? [address];
  assert.ok(listening.includes(address), listening.join());
  assert.ok(listening.length <= 2 && listening.every((one) => one.startsWith("127.")), listening.join());
  assert.match(await readFile(join(home, "yardmaster.yaml"), "utf8"), /^listen: 127\.0\.0\.1:8200$/m);
  assert.equal((await fetch(`http://${address}/v1/models`)).status, 401);
  const key = /Bearer (\S+?)"/.exec(up.out)?.[1] ?? "";
  assert.equal(
    (await fetch(`http://${address}/v1/models`, { headers: { authorization: `Bearer ${key}` } })).status,
    200,
  );
  assert.ok(!up.err.includes(key));
  assert.equal((await stat(join(home, "data/operator.key"))).mode & 0o077, 0);
  assert.equal(await up.stop(), 0);
});

test("a listener that others can reach is refused without keys and with `mode: none`, by exit code 2; loopback may go without [80.C48]", async () => {
  for (const [file, args] of [
    [{ listen: "0.0.0.0:0", upstreams: [] }, []],
    [{ listen: "[::]:0", upstreams: [] }, []],
    [{ listen: "0.0.0.0:0", auth: { mode: "none" }, upstreams: [] }, []],
    [{ auth: { mode: "none" }, upstreams: [] }, ["--listen", "0.0.0.0:0"]],
    [{ upstreams: [] }, ["--listen", "0.0.0.0:0"]],
    [{ listen: ":8200", upstreams: [] }, []],
  ] as const) {
    const { code, text } = await run(["gateway", ...args], await aHome(file));
    assert.equal(code, 2, `${JSON.stringify(file)} ${args.join(" ")}: ${text}`);
    assert.match(text, /auth|listen/);
  }
  await using open = new YardmasterProcess(["gateway"], {
    cwd: await aHome({ listen: "127.0.0.1:0", auth: { mode: "none" }, upstreams: [] }),
  });
  const address = await open.ready();
  assert.equal((await fetch(`http://${address}/v1/models`)).status, 200);
  await open.stop();
  const printed = await run(["config", "print", "yardmaster.yaml"], await aHome({ upstreams: [] }));
  assert.match(printed.text, /^listen: 127\.0\.0\.1:8200$/m);
});
