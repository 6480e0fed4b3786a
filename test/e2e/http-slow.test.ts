import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { systemClock } from "../../src/kernel/clock.ts";
import type { SimEngine } from "../../src/sim-engine/sim-engine.ts";
import { RawClient } from "../../src/testing/raw-client.ts";
import { anEngine } from "./support/an-engine.ts";
import { headerOf, parseAnswer } from "./support/raw-answers.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { startTestGateway, type TestGateway } from "./support/test-gateway.ts";

/** The product's limits are 10 s for a head and 60 s for a body; Node looks for slow heads once a second. */
const LIMITS = { headers_timeout_s: 1, request_timeout_s: 1.5, keep_alive_s: 60 };
const SLOW_CLIENTS = 300;

let engine: SimEngine;
let gateway: TestGateway;
before(async () => {
  engine = await anEngine({ slots: 2_000, decodeTps: 20 });
  gateway = await startTestGateway({
    file: { http: LIMITS },
    upstreams: [{ id: "u", engine: "vllm", models: ["m"], slots: 2_000, endpoints: [{ url: engine.url }] }],
  });
});
after(async () => {
  await gateway.stop();
  await engine.close();
});

const auth = (): string =>
  `Host: g\r\nAuthorization: ${gateway.auth["authorization"]}\r\nContent-Type: application/json\r\n`;

interface Cut {
  readonly status: number;
  readonly code: string;
  readonly ending: string;
}

/** Writes one byte at a time until the other side ends; the answer, and how the connection ended. */
async function drip(client: RawClient, piece: string): Promise<Cut> {
  const dripping = new AbortController();
  const writing = (async () => {
    while (client.ending === "open" && !dripping.signal.aborted) {
      await client.write(piece).catch(() => dripping.abort());
      await systemClock.sleep(50, dripping.signal).catch(() => {});
    }
  })();
  const bytes = await client.readToEnd();
  dripping.abort();
  await writing;
  client.close();
  const answer = parseAnswer(bytes);
  return {
    status: answer.status,
    code: JSON.parse(answer.payload.toString()).error.code,
    ending: client.ending,
  };
}

/** Many that drip. They begin one after another, so that each says its first word well within the time that it has for it. */
async function dripAll(many: readonly (readonly [start: string, piece: string])[]): Promise<readonly Cut[]> {
  const cuts: Promise<Cut>[] = [];
  for (const [start, piece] of many) {
    const client = await RawClient.connect(gateway.port, { patienceMs: 30_000 });
    await client.write(start);
    cuts.push(drip(client, piece));
  }
  return Promise.all(cuts);
}

test("a head that drips, one that stops, and a connection that says nothing are all cut with 408 or closed, while probes are served [80.G11]", async () => {
  const probe = async (): Promise<void> => {
    const answer = await fetch(`${gateway.url}/healthz`);
    assert.equal(await answer.text(), "ok\n");
  };
  const slow = dripAll([
    ...Array.from({ length: 100 }, () => [`POST /v1/chat/completions HTTP/1.1\r\n${auth()}X-Slow: `, "a"] as const),
    ...Array.from({ length: 20 }, () => ["GET", " "] as const),
  ]);
  const stopped = Promise.all(
    Array.from({ length: SLOW_CLIENTS }, async (_, at) => {
      using client = await RawClient.connect(gateway.port, { patienceMs: 30_000 });
      if (at % 2 === 0) await client.write(`GET /v1/models HTTP/1.1\r\n${auth()}`);
      await client.readToEnd();
      return client.ending;
    }),
  );
  let probes = 0;
  let going = true;
  const probing = (async () => {
    while (going) {
      await probe();
      probes += 1;
    }
  })();
  const [dripped, ended] = await Promise.all([slow, stopped]);
  going = false;
  await probing;
  assert.ok(
    dripped.slice(0, 100).every((one) => one.status === 408 && one.code === "REQUEST_TIMEOUT"),
    JSON.stringify(dripped.find((one) => one.status !== 408)),
  );
  assert.ok(ended.every((how) => how !== "open"));
  assert.ok(probes >= 5, String(probes));
  await eventually(
    "all gone",
    () => gateway.metric('yardmaster_connections{side="client"}'),
    (open) => open === undefined || open <= 8,
  );
});

test("a body that drips or stops, with a length or chunked, is cut with 408 and costs no slot; a steady one of the same duration goes through [80.G11]", async () => {
  const before = engine.ledger().opened;
  const starts = [
    `POST /v1/chat/completions HTTP/1.1\r\n${auth()}Content-Length: 100000\r\n\r\n{"model":"m","pad":"`,
    `POST /v1/chat/completions HTTP/1.1\r\n${auth()}Transfer-Encoding: chunked\r\n\r\n`,
  ];
  const slow = dripAll(
    Array.from({ length: 60 }, (_, at) => [starts[at % 2]!, at % 2 === 0 ? "x" : "1\r\n{\r\n"] as const),
  );
  // A few KB at a time for three times the limit: slow, but on its way.
  const steady = (async () => {
    using client = await RawClient.connect(gateway.port, { patienceMs: 30_000 });
    const body = `{"model":"m","max_tokens":1,"pad":"${"x".repeat(60_000)}","messages":[{"role":"user","content":"hi"}]}`;
    await client.write(
      `POST /v1/chat/completions HTTP/1.1\r\n${auth()}Connection: close\r\nContent-Length: ${body.length}\r\n\r\n`,
    );
    for (let at = 0; at < body.length; at += 2_000) {
      await client.write(body.slice(at, at + 2_000));
      await systemClock.sleep(150, new AbortController().signal);
    }
    return parseAnswer(await client.readToEnd()).status;
  })();
  for (const one of await slow)
    assert.deepEqual([one.status, one.code, one.ending !== "open"], [408, "REQUEST_TIMEOUT", true]);
  assert.equal(await steady, 200);
  assert.equal(engine.ledger().opened, before + 1);
});

test("a slow body on an admin route, and one on a route that reads none, are cut too [80.G11]", async () => {
  const asAdmin = `Host: g\r\nAuthorization: Bearer ${gateway.keys.admin}\r\nContent-Type: application/json\r\n`;
  const [admin] = await dripAll([[`POST /admin/keys HTTP/1.1\r\n${asAdmin}Content-Length: 1000\r\n\r\n`, " "]]);
  assert.deepEqual([admin?.status, admin?.code], [408, "REQUEST_TIMEOUT"]);
  using client = await RawClient.connect(gateway.port, { patienceMs: 30_000 });
  await client.write(`GET /healthz HTTP/1.1\r\nHost: g\r\nContent-Length: 1000000\r\n\r\n`);
  const answer = parseAnswer(await client.readToEnd());
  assert.deepEqual([answer.status, headerOf(answer, "connection")], [200, "close"]);
});

async function openNormal(): Promise<{ gateway: TestGateway } & AsyncDisposable> {
  const normal = await startTestGateway({
    upstreams: [{ id: "u", engine: "vllm", models: ["m"], slots: 2_000, endpoints: [{ url: engine.url }] }],
  });
  return { gateway: normal, [Symbol.asyncDispose]: () => normal.stop() };
}

test("two thousand idle connections and two hundred quiet streams side by side: no error, probes served, and each stream whole [80.G12]", async () => {
  // Under the product's own limits: opening so many takes longer than the short ones of this file.
  await using normal = await openNormal();
  const { port, url } = normal.gateway;
  const idle = await Promise.all(Array.from({ length: 2_000 }, () => RawClient.connect(port, { patienceMs: 60_000 })));
  // One request each, so that they are idle and not unborn.
  await Promise.all(
    idle.map(async (client) => {
      await client.write("GET /healthz HTTP/1.1\r\nHost: g\r\n\r\n");
      await client.readUntil("ok\n");
      client.take();
    }),
  );
  const streams = await Promise.all(Array.from({ length: 200 }, () => RawClient.connect(port, { patienceMs: 60_000 })));
  const body = JSON.stringify({
    model: "m",
    stream: true,
    max_tokens: 20,
    ignore_eos: true,
    messages: [{ role: "user", content: "hi" }],
  });
  await Promise.all(
    streams.map((client) =>
      client.write(
        `POST /v1/chat/completions HTTP/1.1\r\n${auth()}Connection: close\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
      ),
    ),
  );
  await Promise.all(streams.map((client) => client.readUntil("data:")));
  assert.ok((await normal.gateway.metric('yardmaster_in_flight{upstream="u",class="interactive"}'))! >= 1);
  for (let probe = 0; probe < 20; probe++) assert.equal((await fetch(`${url}/healthz`)).status, 200);
  const ends = await Promise.all(
    streams.map(async (client) => {
      const answer = parseAnswer(await client.readToEnd());
      client.close();
      return answer.whole && answer.payload.includes("[DONE]");
    }),
  );
  assert.ok(ends.every(Boolean));
  await Promise.all(
    idle.map(async (client) => {
      await client.write("GET /healthz HTTP/1.1\r\nHost: g\r\nConnection: close\r\n\r\n");
      assert.match((await client.readToEnd()).toString(), /ok\n$/);
      client.close();
    }),
  );
});

test("connections above `max_connections` are turned away, those below go on [80.G12]", async () => {
  const small = await startTestGateway({ file: { max_connections: 5 }, upstreams: [] });
  try {
    const held = await Promise.all(Array.from({ length: 5 }, () => RawClient.connect(small.port)));
    await eventually(
      "five are held",
      async () => {
        using extra = await RawClient.connect(small.port);
        await extra.write("GET /healthz HTTP/1.1\r\nHost: g\r\n\r\n").catch(() => {});
        await extra.readToEnd();
        return extra.received.length;
      },
      (bytes) => bytes === 0,
    );
    await held[0]!.write("GET /healthz HTTP/1.1\r\nHost: g\r\nConnection: close\r\n\r\n");
    assert.match((await held[0]!.readToEnd()).toString(), /ok\n$/);
    for (const client of held) client.close();
  } finally {
    await small.stop();
  }
});
