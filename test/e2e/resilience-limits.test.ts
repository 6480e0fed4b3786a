import assert from "node:assert/strict";
import { test } from "node:test";
import { RawClient } from "../../src/testing/raw-client.ts";
import { VirtualClock } from "../../src/testing/virtual-clock.ts";
import { aTask, startCall } from "./support/calls.ts";
import { startPagedEngine } from "./support/paged-engine.ts";
import { aCompletion, aFinish, aToken, DONE } from "./support/raw-engine.ts";
import { passTime, passTimeUntil } from "./support/virtual-time.ts";
import { upstreamOf, virtualSim, withVirtualWorld } from "./support/virtual-world.ts";

// Work that takes long because it is long. Times on a virtual clock; sockets are real.

const LONG = { timeouts: { first_byte_s: 900, idle_s: 900, total_s: 3_600 } };
const PAGES = { "/health": "ok" };

test("an answer whose head comes after 310 s, and a stream that pauses for 310 s, go through where the limits say 900 s: no other limit cuts them [80.I9 10.R5b]", async () => {
  const clock = new VirtualClock();
  await using engine = await startPagedEngine({
    pages: PAGES,
    onPost: (_req, res, body) => {
      if (!body.includes('"stream":true')) {
        clock.after(
          310_000,
          () => void res.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(aCompletion())),
        );
        return;
      }
      res.writeHead(200, { "content-type": "text/event-stream" });
      res.write(aToken("one"));
      clock.after(310_000, () => void res.end(aFinish() + DONE));
    },
  });
  await withVirtualWorld(clock, [upstreamOf("generic", [engine.url], LONG)], async ({ gateway, answers }) => {
    for (const stream of [false, true]) {
      const from = clock.mono();
      const [answer] = await answers([startCall(gateway, { body: aTask({}, { stream }) })]);
      assert.deepEqual([answer?.status, answer?.whole], [200, true], answer?.text);
      assert.ok(clock.mono() - from >= 310_000);
    }
    assert.equal(engine.posts, 2);
  });
});

test("a call to an upstream of kind http that works for minutes is neither cut nor taken for a stall, and its endpoint takes others meanwhile [10.R5b]", async () => {
  const clock = new VirtualClock();
  await using one = await startPagedEngine({
    pages: {},
    onPost: (_req, res) => void clock.after(200_000, () => void res.end("a film")),
  });
  await using two = await startPagedEngine({
    pages: {},
    onPost: (_req, res) => void clock.after(200_000, () => void res.end("a film")),
  });
  const upstream = { id: "films", kind: "http", slots: 8, endpoints: [{ url: one.url }, { url: two.url }] };
  await withVirtualWorld(clock, [upstream], async ({ gateway, answers, endpoint }) => {
    const ask = (): ReturnType<typeof startCall> =>
      startCall(gateway, { path: "/upstreams/films/render", body: Buffer.from("{}") });
    const first = [ask(), ask()];
    await passTime(clock, 150_000, 1_000);
    for (const { url } of [one, two]) assert.equal((await endpoint(url)).stalled, false);
    for (const answer of await answers([...first, ask(), ask()]))
      assert.deepEqual([answer.status, answer.text], [200, "a film"]);
    assert.equal(one.posts + two.posts, 4);
  });
});

test("whole answers that take minutes on the only engine, which shows no progress and has no counter, are waited for, and those behind them queue instead of being refused [10.R5b 80.C23]", async () => {
  const clock = new VirtualClock();
  await using engine = await startPagedEngine({
    pages: PAGES,
    onPost: (_req, res) =>
      void clock.after(
        150_000,
        () => void res.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(aCompletion())),
      ),
  });
  await withVirtualWorld(
    clock,
    [upstreamOf("generic", [engine.url], { slots: 1, queue: { timeout_s: { interactive: 600 } } })],
    async ({ gateway, answers }) => {
      const calls = [1, 2].map(() => startCall(gateway, { body: aTask({}, { stream: false }) }));
      await passTime(clock, 100_000, 1_000);
      calls.push(startCall(gateway, { body: aTask({}, { stream: false }) }));
      for (const answer of await answers(calls)) assert.equal(answer.status, 200, answer.text);
      assert.equal(engine.posts, 3);
    },
  );
});

test("a stalled endpoint's call that nobody else can take stays until its own limit, and goes as soon as somebody can [10.R5b 80.A8]", async () => {
  const clock = new VirtualClock();
  await using bad = await virtualSim(clock, 1);
  await using good = await virtualSim(clock, 2);
  bad.script({ do: { hangAfterHead: true } });
  const endpoints = [
    { url: bad.url, slots: 1 },
    { url: good.url, slots: 1 },
  ];
  await withVirtualWorld(
    clock,
    [{ ...upstreamOf("generic", []), endpoints, routing: { policy: "round_robin" } }],
    async ({ gateway, answers, endpoint }) => {
      const stuck = startCall(gateway, { body: aTask() });
      await passTimeUntil(clock, "it hangs", () => bad.ledger().headSent === 1, 2_000);
      const holder = startCall(gateway, { body: aTask({ tokens: 10, delayBetweenMs: 10_000 }) });
      await passTimeUntil(clock, "the stall", async () => (await endpoint(bad.url)).stalled, 70_000);
      assert.equal(good.ledger().opened, 1, "the other endpoint is full");
      const [held, moved] = await answers([holder, stuck]);
      assert.deepEqual([held?.status, held?.whole, moved?.status, moved?.whole], [200, true, 200, true]);
      assert.deepEqual([bad.ledger().aborted, good.ledger().finished], [1, 2]);
    },
  );
});

test("a body that comes slowly but steadily for more than five minutes is taken in [80.I9]", async () => {
  const clock = new VirtualClock();
  await using engine = await startPagedEngine({ pages: PAGES });
  await withVirtualWorld(clock, [upstreamOf("generic", [engine.url])], async ({ gateway }) => {
    using client = await RawClient.connect(gateway.port);
    const body = JSON.stringify({ ...aTask(), padding: "x".repeat(400_000) });
    await client.write(
      `POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: ${gateway.auth["authorization"]}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\nConnection: close\r\n\r\n`,
    );
    const pieces = 32;
    const size = Math.ceil(body.length / pieces);
    for (let i = 0; i < pieces; i += 1) {
      await client.write(body.slice(i * size, (i + 1) * size));
      await passTime(clock, 10_000, 1_000);
    }
    await client.readToEnd();
    assert.match(client.text, /^HTTP\/1\.1 200 [\s\S]*\[DONE\]/);
  });
});
