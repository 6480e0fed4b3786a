import assert from "node:assert/strict";
import { mkdtemp, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { IncomingMessage, ServerResponse } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import type { TestContext } from "node:test";
import type { Env } from "../contract/resolve-config.ts";
import { captureIo } from "../testing/capture-io.ts";
import { cliCommands } from "./commands.ts";
import { openCtlClient } from "./ctl-client.ts";
import { dispatch } from "./dispatch.ts";

interface Seen {
  readonly line: string;
  readonly authorization: string | undefined;
  readonly body: string;
}

async function aGateway(
  t: TestContext,
  answer: (req: IncomingMessage, res: ServerResponse) => void,
): Promise<{ readonly url: string; readonly seen: Seen[] }> {
  const seen: Seen[] = [];
  const server = createServer((req, res) => {
    let body = "";
    req
      .setEncoding("utf8")
      .on("data", (chunk: string) => (body += chunk))
      .on("end", () => {
        seen.push({ line: `${req.method} ${req.url}`, authorization: req.headers.authorization, body });
        answer(req, res);
      });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const address = server.address();
  return { url: `http://127.0.0.1:${typeof address === "object" ? address?.port : 0}`, seen };
}

const json =
  (status: number, body: unknown) =>
  (_: IncomingMessage, res: ServerResponse): void =>
    void res.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));

async function run(
  argv: readonly string[],
  env: Env = {},
): Promise<{ readonly code: number; readonly out: string; readonly err: string }> {
  const { io, output } = captureIo(env);
  // No key file lies where the tests are run.
  const code = await dispatch(
    [...argv, "--data-dir", join(tmpdir(), "yardmaster-no-such-folder")],
    cliCommands,
    "0",
    io,
  );
  return { code, ...output() };
}

const COMMANDS: readonly (readonly string[])[] = [
  ["ctl", "key", "list"],
  ["ctl", "key", "new", "--id", "a"],
  ["ctl", "key", "revoke", "a"],
  ["ctl", "key", "rotate", "a"],
];

const VIEW = {
  id: "a",
  fingerprint: "0",
  source: "stored",
  role: "client",
  classes: ["batch"],
  models: null,
  weight: 1,
  allow_external: false,
  expires: null,
  created: null,
  last_used: null,
};
const ISSUED = { id: "a", key: "ym_x", hash: "sha256:0", old_valid_until: null };

test("each key command makes its call, prints its result and says where a change holds", async (t) => {
  const { url, seen } = await aGateway(t, (req, res) =>
    json(200, req.method === "GET" ? { keys: [VIEW] } : req.method === "DELETE" ? { id: "a", revoked: true } : ISSUED)(
      req,
      res,
    ),
  );
  for (const command of COMMANDS) {
    const plain = await run([...command, "--url", url], { YARDMASTER_KEY: "op" });
    const where = command.includes("list") ? "" : `done at ${url}\n`;
    assert.deepEqual([plain.code, plain.err], [0, where], command.join(" "));
    assert.ok(plain.out.length > 0);
    JSON.parse((await run([...command, "--url", url, "--json"])).out);
  }
  assert.deepEqual(
    seen
      .filter((_, index) => index % 2 === 0)
      .map(({ line, authorization, body }) => `${line} ${authorization} ${body}`.trim()),
    [
      "GET /admin/keys Bearer op",
      'POST /admin/keys Bearer op {"id":"a"}',
      "DELETE /admin/keys/a Bearer op",
      'POST /admin/keys/a/rotate Bearer op {"overlap_s":0}',
    ],
  );
});

test("an empty list is [] with exit code 0", async (t) => {
  const { url } = await aGateway(t, json(200, { keys: [] }));
  assert.deepEqual(await run(["ctl", "key", "list", "--json", "--url", url]), { code: 0, out: "[]\n", err: "" });
});

const refusals: readonly (readonly [name: string, answer: (req: IncomingMessage, res: ServerResponse) => void])[] = [
  ...[401, 403, 404, 409, 500].map(
    (status) => [`status ${status}`, json(status, { error: { message: "no \u001b[2J", code: "X" } })] as const,
  ),
  ["an HTML page", (_, res) => void res.writeHead(200, { "content-type": "text/html" }).end("<html>")],
  ["an HTML error", (_, res) => void res.writeHead(502).end("<html>")],
  ["JSON of another kind", json(200, { hello: 1 })],
  ["a redirect", (_, res) => void res.writeHead(302, { location: "http://127.0.0.1:1/" }).end()],
];
for (const [name, answer] of refusals) {
  test(`${name} is exit code 1, its reason on stderr and nothing on stdout`, async (t) => {
    const { url, seen } = await aGateway(t, answer);
    for (const command of COMMANDS) {
      const { code, out, err } = await run([...command, "--url", url, "--json"]);
      assert.deepEqual([code, out], [1, ""], command.join(" "));
      assert.match(err, /^yardmaster: /);
      assert.ok(!err.includes("\u001b"));
    }
    assert.ok(seen.length >= 3);
  });
}

test("a gateway that is not there, or breaks off, is exit code 3", async (t) => {
  const { url } = await aGateway(t, (_, res) => void res.destroy());
  for (const command of COMMANDS) {
    for (const target of [url, "http://127.0.0.1:1"]) {
      const { code, out, err } = await run([...command, "--url", target]);
      assert.deepEqual([code, out], [3, ""], command.join(" "));
      assert.match(err, /not reached/);
    }
  }
});

test("what can't be sent is exit code 2", async () => {
  for (const args of [
    ["list", "--url", "ftp://h"],
    ["list", "--url", "http://u:p@h"],
    ["list", "--key-file", "/nonexistent"],
    ["revoke"],
    ["revoke", ".."],
    ["revoke", "a/b"],
    ["rotate", "a", "--overlap-s", "x"],
    ["new"],
  ]) {
    const { code, out, err } = await run(["ctl", "key", ...args]);
    assert.deepEqual([code, out], [2, ""], args.join(" "));
    assert.ok(err.length > 0);
  }
});

test("Ctrl-C ends a call that gets no answer", async (t) => {
  const stop = new AbortController();
  const { url } = await aGateway(t, () => stop.abort(new Error("interrupted")));
  const { io } = captureIo({}, stop.signal);
  await assert.rejects(dispatch(["ctl", "key", "list", "--url", url], cliCommands, "0", io), /interrupted/);
});

test("the key comes from the named file, else the environment, else the data folder", async (t) => {
  const { url, seen } = await aGateway(t, json(200, {}));
  const folder = await mkdtemp(join(tmpdir(), "yardmaster-ctl-"));
  await writeFile(join(folder, "operator.key"), "from-folder\n");
  await writeFile(join(folder, "named"), "from-file\n");
  const call = async (flags: { readonly "key-file"?: string }, env: Env): Promise<void> => {
    const client = await openCtlClient({ url, "data-dir": folder, ...flags }, captureIo(env).io);
    await client.request("GET", "/");
  };
  await call({ "key-file": join(folder, "named") }, { YARDMASTER_KEY: "from-env" });
  await call({}, { YARDMASTER_KEY: "from-env" });
  await call({}, {});
  assert.deepEqual(
    seen.map((request) => request.authorization),
    ["Bearer from-file", "Bearer from-env", "Bearer from-folder"],
  );
});

test("a key never follows a redirect and is in no error", async (t) => {
  const elsewhere = await aGateway(t, json(200, {}));
  const { url } = await aGateway(t, (_, res) => void res.writeHead(307, { location: elsewhere.url }).end());
  const { code, err } = await run(["ctl", "key", "list", "--url", url], { YARDMASTER_KEY: "CANARY-op" });
  assert.equal(code, 1);
  assert.ok(!err.includes("CANARY"));
  assert.deepEqual(elsewhere.seen, []);
});
