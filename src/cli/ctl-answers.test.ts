import assert from "node:assert/strict";
import { writeFileSync, mkdtempSync, rmSync } from "node:fs";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { createServer as createTcpServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { captureIo } from "../testing/capture-io.ts";
import { cliCommands } from "./commands.ts";
import { dispatch } from "./dispatch.ts";

// Every command of `ctl` against whatever may stand in the place of what it asks: none of them may say that it was done.

const folder = mkdtempSync(join(tmpdir(), "yardmaster-ctl-"));
after(() => rmSync(folder, { recursive: true }));
const catalog = join(folder, "catalog.yaml");
writeFileSync(catalog, "models: []\n");

/** What each command needs behind its words. One that is not listed needs nothing. */
const ARGUMENTS: Readonly<Record<string, readonly string[]>> = {
  "ctl key new": ["--id", "a"],
  "ctl key revoke": ["a"],
  "ctl key rotate": ["a"],
  "ctl jobs show": ["job-1"],
  "ctl jobs cancel": ["job-1"],
  "ctl explain-placement": ["m"],
  "ctl logs": ["r-1"],
  "ctl cordon": ["a"],
  "ctl uncordon": ["a"],
  "ctl drain": ["a"],
  "ctl retry": ["m"],
  "ctl scale": ["m", "2"],
  "ctl restart": ["r-1"],
  "ctl rollout": ["m"],
  "ctl nodes remove": ["a"],
  "ctl nodes enrol": ["a"],
  "ctl gateways enrol": ["a"],
  "ctl gateways revoke": ["a"],
  "ctl catalog apply": [catalog],
  "ctl catalog diff": [catalog],
  "ctl catalog rollback": ["1"],
  "ctl catalog confirm": ["token"],
  "ctl gpu clear": ["GPU-1"],
  "ctl weights gc": ["--collect"],
};
/** Those of the control plane, and the gateway's lists; the others have tests of their own. */
const OWN: readonly RegExp[] = [/^ctl (?:audit|verify|overflow|approve|spend|catalog check|usage)/];
const commands = cliCommands
  .map(({ words }) => words)
  .filter(([first]) => first === "ctl")
  .filter((words) => !OWN.some((own) => own.test(words.join(" "))));

interface Told {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

async function run(words: readonly string[], url: string, more: readonly string[] = []): Promise<Told> {
  const { io, output } = captureIo({ YARDMASTER_KEY: "CANARY-key" });
  const args = [...words, ...(ARGUMENTS[words.join(" ")] ?? []), "--url", url, "--data-dir", folder, ...more];
  const code = await dispatch(args, cliCommands, "0", io);
  return { code, ...output() };
}

async function serving<T>(
  answer: (req: IncomingMessage, res: ServerResponse) => void,
  act: (url: string) => Promise<T>,
): Promise<T> {
  const server = createServer((req, res) => {
    req.resume().on("end", () => answer(req, res));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  try {
    return await act(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  } finally {
    server.closeAllConnections();
    server.close();
  }
}
const json =
  (status: number, body: unknown) =>
  (_: IncomingMessage, res: ServerResponse): void =>
    void res.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));

const answers: readonly (readonly [what: string, answer: Parameters<typeof serving>[0], code: number])[] = [
  ...[400, 401, 403, 404, 409, 412, 422, 429, 500, 502, 503].map(
    (status) => [`status ${status}`, json(status, { error: { code: "X", message: "no" } }), 1] as const,
  ),
  ["an error without words", json(500, null), 1],
  ["a page in place of JSON", (_, res) => void res.writeHead(200, { "content-type": "text/html" }).end("<html>"), 1],
  ["half of the JSON", (_, res) => void res.writeHead(200).end('{"nodes": [{"na'), 1],
  ["nothing at all with status 200", (_, res) => void res.writeHead(200).end(), 1],
  ["an object of another program", json(200, { hello: 1 }), 1],
  ["another list", json(200, []), 1],
  ["a redirect", (_, res) => void res.writeHead(302, { location: "http://127.0.0.1:1/" }).end(), 1],
  [
    "an answer that breaks off",
    (_, res) => {
      res.writeHead(200, { "content-length": "1000" });
      res.write('{"nodes": [');
      setImmediate(() => res.destroy());
    },
    3,
  ],
  ["a connection that is closed", (_, res) => void res.destroy(), 3],
];
for (const [what, answer, expected] of answers)
  test(`no command takes ${what} for success: exit code ${expected}, the reason in the first line of standard error, and nothing on standard output [40.V1]`, () =>
    serving(answer, async (url) => {
      assert.ok(commands.length > 30);
      for (const words of commands)
        for (const more of [[], ["--json"]]) {
          const { code, out, err } = await run(words, url, more);
          assert.deepEqual([code, out], [expected, ""], `${words.join(" ")} ${more.join("")}: ${err}`);
          assert.match(err, /^yardmaster: .+\n/, words.join(" "));
          assert.ok(!err.includes("CANARY"));
        }
    }));

test("no command takes a refused connection, a name that is none, or a server that speaks no TLS for success: exit code 3 [40.V1]", async () => {
  const plain = createTcpServer((socket) => socket.on("error", () => {}).end("HTTP/1.1 400 Bad Request\r\n\r\n"));
  await new Promise<void>((resolve) => plain.listen(0, "127.0.0.1", resolve));
  const urls = [
    "http://127.0.0.1:1",
    "http://no-such-host.invalid",
    `https://127.0.0.1:${(plain.address() as AddressInfo).port}`,
  ];
  for (const url of urls)
    for (const words of commands) {
      const { code, out, err } = await run(words, url);
      assert.deepEqual([code, out], [3, ""], `${words.join(" ")} at ${url}: ${err}`);
      assert.match(err, /^yardmaster: the (?:gateway|control plane) was not reached at [^\n]+\n$/, words.join(" "));
    }
  plain.close();
});

test("a list that is empty is done: exit code 0, a line of headings, and as JSON the empty list [40.V1]", async () => {
  for (const [name, body] of [
    ["nodes", { nodes: [] }],
    ["gpus", { gpus: [] }],
    ["models", { models: [] }],
    ["replicas", { replicas: [] }],
    ["events", { events: [] }],
    ["gateways", { gateways: [] }],
  ] as const)
    await serving(json(200, body), async (url) => {
      const told = await run(["ctl", name], url);
      assert.deepEqual([told.code, told.err], [0, ""]);
      assert.match(told.out, /^[A-Z ]+\n$/);
      assert.deepEqual(JSON.parse((await run(["ctl", name], url, ["-o", "json"])).out), body);
    });
});

const NODE = {
  id: "n-1",
  name: "rack-1",
  state: "ready",
  silent_s: null,
  cordoned: false,
  draining: false,
  agent_version: null,
  address: null,
  labels: { zone: "a".repeat(200) },
  fabric: null,
  cores: null,
  memory_mib: null,
  memory_free_mib: null,
  disk_free_mib: null,
  gpus: null,
  sick_gpus: null,
  gpu_discovery: null,
  replicas: 0,
};

test("a table fits the terminal, `-o wide` has all of it and more columns, and - stands for what nobody measured [40.V1]", () =>
  serving(json(200, { nodes: [NODE] }), async (url) => {
    const shown = async (columns: number | null, ...more: readonly string[]): Promise<readonly string[]> => {
      const { io, output } = captureIo({}, new AbortController().signal, columns);
      assert.equal(await dispatch(["ctl", "nodes", "--url", url, ...more], cliCommands, "0", io), 0);
      return output().out.trimEnd().split("\n");
    };
    const [narrow, file, wide] = [await shown(80), await shown(null), await shown(80, "-o", "wide")];
    assert.ok(narrow.every((line) => line.length <= 80));
    assert.match(narrow[1] ?? "", /^rack-1 {2}ready +- +- +- +0 +- +zone=a+…$/);
    assert.ok(file[1]?.endsWith("a".repeat(200)));
    assert.match(wide[0] ?? "", /FABRIC +AGENT +ID +ADDRESS/);
    assert.ok(wide[1]?.endsWith("a".repeat(200)));
    const bad = await run(["ctl", "nodes"], url, ["-o", "xml"]);
    assert.deepEqual([bad.code, bad.out], [2, ""]);
  }));

test("with --watch events are printed once each, and the first refusal ends it with its exit code [40.V1]", async () => {
  const event = (seq: number): object => ({
    seq,
    at: "2026-01-01T00:00:00.000Z",
    kind: "nodeReady",
    model: null,
    replicaId: null,
    nodeId: "a",
    why: `number ${seq}`,
    by: null,
  });
  const asked: string[] = [];
  const rounds = [[event(1), event(2)], [], [event(3)]];
  await serving(
    (req, res) => {
      asked.push(req.url ?? "");
      const events = rounds.shift();
      json(
        events === undefined ? 403 : 200,
        events === undefined ? { error: { code: "X", message: "no" } } : { events },
      )(req, res);
    },
    async (url) => {
      const { code, out } = await run(["ctl", "events"], url, ["--watch", "-o", "json"]);
      assert.equal(code, 1);
      assert.deepEqual(
        out
          .trimEnd()
          .split("\n")
          .map((line) => (JSON.parse(line) as { seq: number }).seq),
        [1, 2, 3],
      );
      assert.deepEqual(
        asked.map((path) => new URLSearchParams(path.split("?")[1]).get("after_seq")),
        [null, "2", "2", "3"],
      );
    },
  );
});
