import assert from "node:assert/strict";
import { test } from "node:test";
import { systemClock } from "../../kernel/clock.ts";
import { RawClient } from "../../testing/raw-client.ts";
import { NetEdgeServer } from "./net-edge-server.ts";

const HTTP = { headersTimeoutMs: 300, bodyIdleMs: 60_000, keepAliveMs: 300 };
const REQUEST = "GET / HTTP/1.1\r\nHost: h\r\n";
const rows = [
  { name: "empty lines before the first request", start: "", piece: "\r\n", answers: 0 },
  { name: "halves of empty lines before the first request", start: "", piece: "\r", next: "\n", answers: 0 },
  { name: "halves of empty lines behind an answer", start: `${REQUEST}\r\n`, piece: "\r", next: "\n", answers: 1 },
  {
    name: "the rest of a body behind its answer",
    start: `${REQUEST}Content-Length: 50000\r\n\r\n`,
    piece: "x",
    answers: 1,
  },
];
for (const { name, start, piece, next = piece, answers } of rows)
  test(`a connection on which nothing comes but ${name} is closed like an idle one [80.G11]`, async (t) => {
    const server = new NetEdgeServer(
      { onRefused: () => "r-1", onRequest: (_req, res) => res.sendWhole(200, [], "well") },
      systemClock,
      HTTP,
      10,
    );
    const { port } = await server.listen("127.0.0.1", 0);
    t.after(() => {
      server.destroyAll();
      return server.close();
    });
    using client = await RawClient.connect(port, { patienceMs: 20_000 });
    await client.write(start);
    if (answers > 0) await client.readUntil("well");
    let over = false;
    const ended = client.readToEnd().finally(() => (over = true));
    for (let turn = 0; !over; turn += 1) {
      await client.write(turn % 2 === 0 ? piece : next).catch(() => {}); // It may be closed meanwhile.
      await systemClock.sleep(40, new AbortController().signal);
    }
    await ended;
    assert.equal(client.text.split("HTTP/1.1 200").length - 1, answers);
    assert.equal(client.text.includes("HTTP/1.1 4"), false);
  });
