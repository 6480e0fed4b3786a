import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { checkRequestHeaders } from "../../decide/http/header-rules.ts";
import { systemClock } from "../../kernel/clock.ts";
import { RawClient } from "../../testing/raw-client.ts";
import { eventually } from "../../testing/wait-for.ts";
import type { ClientReply, ClientRequest } from "./client-port.ts";
import { refuseAtEdge, type EdgeHandlers, type EdgeServer } from "./edge-port.ts";
import { NetEdgeServer } from "./net-edge-server.ts";
import { NodeEdgeServer } from "./node-edge-server.ts";

// Both servers behind one port: what one of them takes for a request, and how it answers, the other must.

const HTTP = { headersTimeoutMs: 5_000, bodyIdleMs: 5_000, keepAliveMs: 60_000 };
const MAKE: Readonly<Record<string, (handlers: EdgeHandlers) => EdgeServer>> = {
  net: (handlers) => new NetEdgeServer(handlers, systemClock, HTTP, 1_000),
  http: (handlers) => new NodeEdgeServer(handlers, HTTP, 1_000),
};

interface Seen {
  readonly method: string;
  readonly target: string;
  readonly httpVersion: string;
  readonly rawHeaders: readonly string[];
  readonly body: string;
}

interface Listening extends AsyncDisposable {
  readonly port: number;
  readonly seen: Seen[];
  readonly server: EdgeServer;
}

type Answer = (req: ClientRequest, res: ClientReply, body: Buffer) => void;
const plain: Answer = (_req, res, body) => res.sendWhole(200, ["x-own", "1"], `got ${body.length}`);

async function listen(kind: string, answer: Answer = plain): Promise<Listening> {
  const seen: Seen[] = [];
  const server = MAKE[kind]!({
    onRefused: () => "r-1",
    onRequest: (req, res, expectsContinue) => {
      const checked = checkRequestHeaders(req.rawHeaders, req.httpVersion);
      if (checked.kind === "bad") return refuseAtEdge(res, "r-1", checked.code, checked.why);
      if (expectsContinue) res.sendContinue();
      const parts: Buffer[] = [];
      req.readBody({
        onData: (chunk) => void parts.push(chunk),
        onBroken: () => {},
        onEnd: () => {
          const body = Buffer.concat(parts);
          const { method, target, httpVersion, rawHeaders } = req;
          seen.push({ method, target, httpVersion, rawHeaders, body: body.toString("latin1") });
          answer(req, res, body);
        },
      });
    },
  });
  const { port } = await server.listen("127.0.0.1", 0);
  return {
    port,
    seen,
    server,
    [Symbol.asyncDispose]: async () => {
      server.destroyAll();
      await server.close();
    },
  };
}

/** Sends the bytes and ends its side: what is whole by then is a request, all else never becomes one. */
async function say(to: Listening, bytes: Buffer): Promise<{ seen: Seen[]; text: string }> {
  to.seen.length = 0;
  using client = await RawClient.connect(to.port);
  await client.write(bytes).catch(() => {}); // It may be refused before all of it was sent.
  client.halfClose();
  await client.readToEnd();
  return { seen: [...to.seen], text: client.text };
}

const HEADERS = ["Host: h", "X-A: b", "Connection: keep-alive", "Content-Type: application/json"];
const anyBase = fc.oneof(
  fc.constant(`GET /a HTTP/1.1\r\n${HEADERS.join("\r\n")}\r\n\r\n`),
  fc
    .nat(30)
    .map((n) => `POST /b?c HTTP/1.1\r\n${HEADERS.join("\r\n")}\r\nContent-Length: ${n}\r\n\r\n${"x".repeat(n)}`),
  fc
    .nat(30)
    .map(
      (n) =>
        `POST /d HTTP/1.1\r\n${HEADERS.join("\r\n")}\r\nTransfer-Encoding: chunked\r\n\r\n${(n + 1).toString(16)}\r\n${"y".repeat(n + 1)}\r\n0\r\n\r\n`,
    ),
  fc.constant("GET /old HTTP/1.0\r\nHost: h\r\nConnection: keep-alive\r\n\r\n"),
);
/** What comes behind it; Node's server lets no chunked body wait behind a running answer. */
const anySecond = anyBase.filter((text) => !text.includes("chunked"));
const anyInsert = fc.constantFrom(
  "\r\n",
  "\n",
  "\r",
  "\0",
  " ",
  "\t",
  ":",
  ",",
  "_",
  "\x80",
  "\x7f",
  "0",
  "Z",
  "Content-Length: 5\r\n",
  "Transfer-Encoding: chunked\r\n",
  "Transfer-Encoding: gzip\r\n",
  "Content-Length: 0\r\n",
  "X-B: c\r\n",
  " folded\r\n",
  "Host: other\r\n",
  "Expect: 100-continue\r\n",
  "Connection: close\r\n",
  "GET / HTTP/1.1\r\n",
  "0\r\n\r\n",
  "3;a=b\r\n",
);
interface Mutation {
  readonly at: number;
  readonly drop: number;
  readonly insert: string;
}
const anyMutation: fc.Arbitrary<Mutation> = fc.record({
  at: fc.double({ min: 0, max: 1, noNaN: true }),
  drop: fc.nat(3),
  insert: fc.oneof(fc.constant(""), anyInsert),
});
function mutate(text: string, mutations: readonly Mutation[]): string {
  let result = text;
  for (const { at, drop, insert } of mutations) {
    const from = Math.floor(at * result.length);
    result = result.slice(0, from) + insert + result.slice(from + drop);
  }
  return result;
}

test("of bytes that are nearly requests our server takes none that Node's refuses, and reads each as Node's does [10.X2 80.G14]", async () => {
  await using net = await listen("net");
  await using http = await listen("http");
  let taken = 0;
  let refused = 0;
  let stricter = 0;
  await fc.assert(
    fc.asyncProperty(anyBase, anySecond, fc.array(anyMutation, { maxLength: 3 }), async (first, second, mutations) => {
      const bytes = Buffer.from(mutate(first, mutations) + second, "latin1");
      const ours = (await say(net, bytes)).seen;
      const theirs = (await say(http, bytes)).seen;
      assert.deepEqual(ours, theirs.slice(0, ours.length), JSON.stringify(bytes.toString("latin1")));
      if (ours.length === 2) taken += 1;
      else refused += 1;
      if (ours.length < theirs.length) stricter += 1;
    }),
    { numRuns: 600 },
  );
  assert.ok(taken > 60 && refused > 60, `${taken} taken, ${refused} refused`);
  assert.ok(stricter < 60, `${stricter} refused that Node takes: strict is good, but common requests must pass`);
});

for (const kind of Object.keys(MAKE)) {
  test(`${kind}: a body of any length comes whole, in one piece of memory or in chunks, and its sender can go on [10.X1]`, async () => {
    await using to = await listen(kind);
    using client = await RawClient.connect(to.port);
    for (const length of [0, 1, 16 * 1024 - 1, 16 * 1024, 70_000, 1_000_000]) {
      const body = Buffer.alloc(length, "0123456789abcdef");
      await client.write(`POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: ${length}\r\n\r\n`);
      await client.write(body);
      await client.readUntil((bytes) => bytes.includes(`got ${length}`));
      client.take();
      assert.ok(to.seen.at(-1)?.body === body.toString("latin1"), String(length));
    }
  });

  test(`${kind}: a client that leaves before its answer ends is told of once; one that leaves behind it is not [10.A5]`, async () => {
    const gone: string[] = [];
    const open: ClientReply[] = [];
    await using to = await listen(kind, (req, res) => {
      res.onGone = () => gone.push(req.target);
      if (req.target === "/open") {
        res.begin(200, [], undefined);
        res.writePayload(Buffer.from("begun"));
        open.push(res);
      } else if (req.target === "/whole") res.sendWhole(200, [], "whole");
      else open.push(res);
    });
    for (const target of ["/open", "/silent", "/whole"]) {
      using client = await RawClient.connect(to.port);
      await client.write(`GET ${target} HTTP/1.1\r\nHost: h\r\n\r\n`);
      if (target === "/silent")
        await eventually(
          "it is asked",
          () => to.seen.length,
          (count) => count === 2,
        );
      else await client.readUntil(target === "/open" ? "begun" : "whole");
      client.close();
      await eventually(
        "its connection is gone",
        () => to.server.connections,
        (count) => count === 0,
      );
    }
    assert.deepEqual(gone, ["/open", "/silent"]);
    for (const res of open) {
      assert.deepEqual([res.gone, res.untakenBytes], [true, 0]);
      res.end([]);
      res.breakOff();
      assert.equal(res.begin(200, [], undefined), false);
    }
  });

  test(`${kind}: bytes that a client does not take are counted until it takes them, and the writer hears of it [80.G10]`, async () => {
    let reply: ClientReply | undefined;
    let drains = 0;
    await using to = await listen(kind, (_req, res) => {
      reply = res;
      res.onDrain = () => (drains += 1);
      res.begin(200, [], undefined);
    });
    using client = await RawClient.connect(to.port, { paused: true });
    await client.write("GET /x HTTP/1.1\r\nHost: h\r\n\r\n");
    const res = await eventually(
      "it is asked",
      () => reply,
      (one) => one !== undefined,
    );
    const piece = Buffer.from(`10000\r\n${"z".repeat(65_536)}\r\n`);
    let sent = 0;
    while (res!.writeFramed(Buffer.from(piece)) !== "blocked") sent += 1;
    assert.ok(res!.untakenBytes > 0);
    client.resume();
    await eventually(
      "it takes again",
      () => drains,
      (count) => count === 1,
    );
    res!.end(["x-t", "1"]);
    await client.readUntil((bytes) => bytes.includes("0\r\nx-t: 1\r\n\r\n"));
    assert.equal(client.text.split("z".repeat(65_536)).length - 1, sent + 1);
    await eventually(
      "nothing is left",
      () => res!.untakenBytes,
      (bytes) => bytes === 0,
    );
  });

  test(`${kind}: what is pipelined waits for the answer before it, and is never looked at behind an error [80.D18]`, async () => {
    const waiting: ClientReply[] = [];
    await using to = await listen(kind, (_req, res) => void waiting.push(res));
    for (const status of [200, 404]) {
      to.seen.length = 0;
      waiting.length = 0;
      using client = await RawClient.connect(to.port);
      await client.write("GET /1 HTTP/1.1\r\nHost: h\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\n\r\n");
      await eventually(
        "the first one is asked",
        () => waiting.length,
        (count) => count === 1,
      );
      assert.equal(to.seen.length, 1);
      waiting[0]!.sendWhole(status, [], "first");
      if (status === 200)
        await eventually(
          "the second one is asked",
          () => to.seen.map(({ target }) => target).join(" "),
          (targets) => targets === "/1 /2",
        );
      else {
        await client.readToEnd();
        assert.equal(to.seen.length, 1);
      }
    }
  });

  test(`${kind}: stopping ends idle connections at once and running ones with their answer [10.X6]`, async () => {
    let reply: ClientReply | undefined;
    const to = await listen(kind, (req, res, body) => {
      if (req.target === "/idle") plain(req, res, body);
      else reply = res;
    });
    using idle = await RawClient.connect(to.port);
    await idle.write("GET /idle HTTP/1.1\r\nHost: h\r\n\r\n");
    await idle.readUntil("got 0");
    using busy = await RawClient.connect(to.port);
    await busy.write("GET /1 HTTP/1.1\r\nHost: h\r\n\r\n");
    await eventually(
      "it is asked",
      () => reply,
      (one) => one !== undefined,
    );
    const closed = to.server.close();
    await idle.readToEnd();
    assert.equal(busy.ending, "open");
    reply!.sendWhole(200, ["connection", "close"], "last");
    await busy.readToEnd();
    assert.match(busy.text, /last$/);
    await closed;
    assert.equal(to.server.connections, 0);
  });
}
