import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, test } from "node:test";
import { PROGRAM, programFolder, runProgram } from "./support/program.ts";

// The real `ctl` against servers that are down, refuse, are no gateway, or never answer: a script must be able to tell.

let answer: (res: ServerResponse) => void = (res) => void res.end();
const server = createServer((_req, res) => answer(res));
let url = "";

before(async () => {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
after(async () => {
  server.closeAllConnections();
  await new Promise<void>((resolve) => server.close(() => resolve()));
});

/** All commands go through one client, whose tests stand beside it; here one that reads and one that changes. */
const COMMANDS: readonly (readonly string[])[] = [
  ["ctl", "audit", "query"],
  ["ctl", "key", "revoke", "x"],
];

interface Ran {
  readonly code: number | null;
  readonly out: string;
  readonly err: string;
}

const run = (args: readonly string[], more: Record<string, string> = {}): Promise<Ran> =>
  new Promise((resolve) => {
    const env = {
      PATH: process.env["PATH"] ?? "",
      HOME: process.env["HOME"] ?? "",
      YARDMASTER_KEY: "k".repeat(48),
      ...more,
    };
    const child = execFile(PROGRAM, args, { env, timeout: 60_000 }, (_error, out, err) =>
      resolve({ code: child.exitCode, out, err }),
    );
  });

const refusal =
  (status: number, code: string) =>
  (res: ServerResponse): void =>
    void res
      .writeHead(status, { "content-type": "application/json" })
      .end(JSON.stringify({ error: { message: "no", type: "x", code, param: null } }));

const WRONG: readonly {
  readonly name: string;
  readonly answer: (res: ServerResponse) => void;
  readonly code: number;
  readonly says: RegExp;
}[] = [
  { name: "401", answer: refusal(401, "UNAUTHORIZED"), code: 1, says: /UNAUTHORIZED/ },
  { name: "404", answer: refusal(404, "KEY_UNKNOWN"), code: 1, says: /KEY_UNKNOWN/ },
  { name: "409", answer: refusal(409, "KEY_EXISTS"), code: 1, says: /KEY_EXISTS/ },
  { name: "500", answer: refusal(500, "INTERNAL"), code: 1, says: /INTERNAL/ },
  {
    name: "a page of HTML",
    answer: (res) => void res.writeHead(200, { "content-type": "text/html" }).end("<html>hello</html>"),
    code: 1,
    says: /is not JSON/,
  },
  { name: "a connection that breaks", answer: (res) => void res.socket?.destroy(), code: 3, says: /127\.0\.0\.1/ },
];

for (const { name, answer: how, code, says } of WRONG) {
  test(`ctl answered with ${name} ends with ${code}, says why on standard error and prints nothing else`, async () => {
    answer = how;
    await Promise.all(
      COMMANDS.map(async (command) => {
        const ran = await run([...command, "--url", url, "--json"]);
        assert.equal(ran.code, code, `${command.join(" ")}: ${ran.err}`);
        assert.equal(ran.out, "");
        assert.match(ran.err, says);
        assert.doesNotMatch(ran.err, /at .*\.ts:\d+|kkkk/);
      }),
    );
  });
}

test("a gateway that is not there ends ctl with 3, a wrong command line with 2, each with words on standard error alone", async () => {
  const gone = createServer();
  await new Promise<void>((resolve) => gone.listen(0, "127.0.0.1", resolve));
  const { port } = gone.address() as AddressInfo;
  await new Promise<void>((resolve) => gone.close(() => resolve()));
  const [down, unknown, option] = await Promise.all([
    run(["ctl", "key", "list", "--url", `http://127.0.0.1:${port}`]),
    run(["ctl", "keys"]),
    run(["ctl", "key", "list", "--jsn"]),
  ]);
  assert.deepEqual([down.code, down.out], [3, ""]);
  assert.match(down.err, /ECONNREFUSED/);
  assert.deepEqual([unknown.code, unknown.out], [2, ""]);
  assert.deepEqual([option.code, option.out], [2, ""]);
  assert.match(option.err, /did you mean --json/);
});

test("Ctrl-C while the server is mute ends ctl at once and not with 0", async () => {
  let asked: (() => void) | undefined;
  const arrived = new Promise<void>((resolve) => (asked = resolve));
  answer = () => asked?.();
  await using program = runProgram(["ctl", "key", "list", "--url", url], { env: { YARDMASTER_KEY: "k".repeat(48) } });
  await arrived;
  program.kill("SIGINT");
  const ended = await program.end();
  assert.notEqual(ended.code, 0);
  assert.equal(ended.out, "");
});

test("nothing to list is an empty list and 0, and a reader that stops reading is no failure", async () => {
  await using folder = await programFolder({ upstreams: [], auth: { mode: "none" } });
  await using gateway = runProgram(["gateway", "--config", folder.config]);
  const at = `http://127.0.0.1:${await gateway.ready()}`;
  const empty = await run(["ctl", "audit", "query", "--url", at, "--json"]);
  assert.deepEqual([empty.code, empty.err], [0, ""]);
  assert.deepEqual(JSON.parse(empty.out).records, []);
  const keys = await run(["ctl", "key", "list", "--url", at, "--json"]);
  assert.deepEqual([keys.code, JSON.parse(keys.out)], [0, []]);
  for (let i = 0; i < 300; i += 1)
    await (await fetch(`${at}/v1/chat/completions`, { method: "POST", body: "{}" })).text();
  const piped = await new Promise<Ran>((resolve) => {
    const line = `set -o pipefail; "${PROGRAM}" ctl audit query --limit 300 --json --url ${at} | head -c 20`;
    const child = execFile("/bin/bash", ["-c", line], { timeout: 240_000 }, (_error, out, err) =>
      resolve({ code: child.exitCode, out, err }),
    );
  });
  assert.deepEqual([piped.code, piped.err], [0, ""]);
});

const MISTAKES: readonly { readonly name: string; readonly text: string | Buffer; readonly says: RegExp }[] = [
  {
    name: "a misspelt section",
    text: "authh:\n  mode: none\nupstreams: []\n",
    says: /:1:1: authh: is not a known key\n +hint: did you mean `auth`/,
  },
  { name: "a mis-indented list", text: "upstreams:\n  - id: u\n   models: [m]\n", says: /:3:/ },
  {
    name: "slots as text",
    text: 'upstreams: [{id: u, models: [m], slots: "4"}]\n',
    says: /upstreams\[0\]\.slots: .*"4"|upstreams\[0\]\.slots: /,
  },
  { name: "slots 0", text: "upstreams: [{id: u, models: [m], slots: 0}]\n", says: /upstreams\[0\]\.slots: / },
  { name: "slots -1", text: "upstreams: [{id: u, models: [m], slots: -1}]\n", says: /upstreams\[0\]\.slots: / },
  {
    name: "a time without its unit",
    text: "upstreams: [{id: u, models: [m], slots: 1, timeouts: {connect: 30}}]\n",
    says: /timeouts\.connect: .*\n +hint: did you mean `connect_s`/,
  },
  {
    name: "a key that stands there twice",
    text: "auth: {mode: keys}\nauth: {mode: none}\nupstreams: []\n",
    says: /:2:1: auth: /,
  },
  { name: "an old yes", text: "auth: {allow_insecure: yes}\nupstreams: []\n", says: /auth\.allow_insecure: / },
  { name: "an octal number", text: "upstreams: [{id: u, models: [m], slots: 010}]\n", says: /upstreams\[0\]\.slots: / },
  { name: "nothing at all", text: "", says: /empty/ },
  { name: "tabs", text: "upstreams:\n\t- id: u\n", says: /:2:1: .*tab/i },
  { name: "five megabytes", text: `# ${"x".repeat(5_000_000)}\nupstreams: []\n`, says: /larger than/ },
];

test(
  "a configuration with a mistake stops the start with 2, and file, line, key path and a suggestion; `config check` says the same",
  { timeout: 240_000 },
  async () => {
    await using folder = await programFolder();
    for (const { name, text, says } of MISTAKES) {
      await writeFile(folder.config, text);
      const started = await run(["gateway", "--config", folder.config, "--listen", "127.0.0.1:0"]);
      assert.deepEqual([started.code, started.out], [2, ""], `${name}: ${started.err}`);
      assert.match(started.err, says, name);
      assert.ok(started.err.startsWith(`${folder.config}:`), started.err);
    }
    const checked = await run(["config", "check", folder.config]);
    assert.equal(checked.code, 2);
    assert.match(checked.err + checked.out, /larger than/);
  },
);
