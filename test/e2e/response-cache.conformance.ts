import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";
import type { RawCall } from "../../src/testing/raw-server.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { call, startCall, type CallAnswer, type CallOptions } from "./support/calls.ts";
import { aChunk, aCompletion, aFinish, aToken, DONE, jsonAnswer, LAST_CHUNK, SSE_HEAD } from "./support/raw-engine.ts";
import { chatBody, numbered, type ReplayWorld, type ReplayWorldOptions } from "./support/replay-world.ts";
import { startTestGateway } from "./support/test-gateway.ts";

const OTHER_KEY = { id: "other", key: "CANARY-other-0123456789abcdef0123456789", classes: ["interactive"] };
const REFUSALS = [{ status: 422 }, { status: 400, code: "UNSUPPORTED_FORMAT" }];

export const CACHE_WORLD: ReplayWorldOptions = {
  upstream: { cache: { ttl_s: 60, max_bytes: 1_000_000 }, refusals: REFUSALS, negative_ttl_s: 60 },
  keys: [OTHER_KEY],
};

/** What an upstream's cache and its remembered refusals promise, wherever they lie. */
export function cacheSuite(where: string, open: () => Promise<ReplayWorld>): void {
  let world: ReplayWorld;
  before(async () => {
    world = await open();
  });
  beforeEach(() => {
    world.answer = numbered;
  });
  after(() => world.close());

  let count = 0;
  /** Content that no other test has asked for. */
  const anew = (more: Readonly<Record<string, unknown>> = {}): Readonly<Record<string, unknown>> =>
    chatBody({ temperature: 0, messages: [{ role: "user", content: `question ${++count}` }], ...more });
  const says = (answer: CallAnswer): unknown => answer.headers["x-yardmaster-cache"];
  const held = (): { readonly begun: Promise<RawCall>; release: (how?: (got: RawCall, n: number) => void) => void } => {
    const begun = Promise.withResolvers<RawCall>();
    let letGo: ((how: (got: RawCall, n: number) => void) => void) | undefined;
    world.answer = (got, n) => {
      letGo = (how) => how(got, n);
      begun.resolve(got);
    };
    return { begun: begun.promise, release: (how = numbered) => letGo?.(how) };
  };

  test(`${where}: an equal request is given the kept answer with its age, without the engine and without a slot [20.I2 20.I4]`, async () => {
    const body = anew();
    const before = world.asked;
    const first = await world.call({ body });
    assert.equal(says(first), "miss");
    const again = await world.call({ body: Object.fromEntries(Object.entries(body).toReversed()) });
    assert.equal(says(again), "hit");
    assert.match(String(again.headers["age"]), /^\d+$/);
    assert.equal(again.text, first.text);
    assert.equal(again.headers["content-type"], first.headers["content-type"]);
    assert.notEqual(again.headers["x-request-id"], first.headers["x-request-id"]);
    assert.equal(world.asked, before + 1);
    const record = await world.auditOf(again);
    assert.equal(record?.cacheHit, true);
    assert.equal(record?.idempotentReplay, false);
    assert.equal(record?.attempts, 0);
  });

  test(`${where}: a finished stream is kept and given again byte for byte [20.I2]`, async () => {
    const text = `: a comment\n\n${aToken("読み🙂")}data: {"choices":[{"index":0,"delta":{"tool_calls":[{"id":"a"},{"id":"b"}]}}],"x":null}\n\n${aFinish()}${DONE}`;
    const body = anew({ stream: true });
    world.answer = ({ socket }) =>
      void socket.write(Buffer.concat([Buffer.from(SSE_HEAD), aChunk(text), Buffer.from(LAST_CHUNK)]));
    const first = await world.call({ body });
    const before = world.asked;
    const again = await world.call({ body });
    assert.equal(first.text, text);
    assert.equal(again.text, text);
    assert.equal(says(again), "hit");
    assert.equal(world.asked, before);
    assert.equal(says(await world.call({ body: { ...body, stream: false } })), "miss");
  });

  const apart: { name: string; first?: CallOptions; second: CallOptions }[] = [
    { name: "another field", second: { body: chatBody({ temperature: 0, top_p: 0.5 }) } },
    { name: "another model of the same upstream", second: { body: chatBody({ temperature: 0, model: "m2" }) } },
    { name: "another key", second: { body: chatBody({ temperature: 0 }), key: OTHER_KEY.key } },
    {
      name: "a header that the engine is told",
      second: { body: chatBody({ temperature: 0 }), headers: { "accept-language": "de" } },
    },
  ];
  for (const { name, second } of apart) {
    test(`${where}: ${name} is not given the answer [20.I2 80.G17]`, async () => {
      await world.call({ body: chatBody({ temperature: 0 }) });
      const before = world.asked;
      const answer = await world.call(second);
      assert.equal(says(answer), "miss");
      assert.equal(world.asked, before + 1);
    });
  }

  test(`${where}: a request that asks for any answer is never given a kept one, one with a seed is [20.I2]`, async () => {
    for (const body of [anew({ temperature: undefined }), anew({ temperature: 0.7 })]) {
      const before = world.asked;
      assert.equal(says(await world.call({ body })), "bypass");
      assert.equal(says(await world.call({ body })), "bypass");
      assert.equal(world.asked, before + 2);
    }
    const seeded = anew({ temperature: 0.7, seed: 5 });
    assert.equal(says(await world.call({ body: seeded })), "miss");
    assert.equal(says(await world.call({ body: seeded })), "hit");
    const embeddings = { path: "/v1/embeddings", body: { model: "m", input: `text ${++count}` } };
    await world.call(embeddings);
    assert.equal(says(await world.call(embeddings)), "hit");
    const pages = {
      path: "/upstreams/h/ocr",
      body: Buffer.from(`%PDF ${++count}`),
      headers: { "content-type": "application/pdf" },
    };
    await world.call(pages);
    assert.equal(says(await world.call(pages)), "hit");
  });

  test(`${where}: no-cache asks the engine and keeps its answer anew, no-store has nothing to do with the cache [20.I2]`, async () => {
    const body = anew();
    const first = await world.call({ body });
    const fresh = await world.call({ body, headers: { "cache-control": "no-cache" } });
    assert.equal(says(fresh), "bypass");
    assert.notEqual(fresh.text, first.text);
    assert.equal((await world.call({ body })).text, fresh.text);
    const secret = await world.call({ body, headers: { "cache-control": "no-store" } });
    assert.equal(says(secret), "bypass");
    assert.equal((await world.call({ body })).text, fresh.text);
    const never = anew();
    await world.call({ body: never, headers: { "cache-control": "no-store" } });
    assert.equal(says(await world.call({ body: never })), "miss");
  });

  test(`${where}: of fifty equal requests at once one reaches the engine, and all get its answer [20.I2]`, async () => {
    const body = anew();
    const before = world.asked;
    const { begun, release } = held();
    const calls = Array.from({ length: 50 }, () => world.start({ body }));
    await begun;
    await eventually(
      "all to wait",
      () => world.metric("yardmaster_reply_waiting"),
      (waiting) => waiting === 49,
    );
    release();
    const answers = await Promise.all(calls.map(({ answer }) => answer));
    assert.equal(world.asked, before + 1);
    assert.equal(new Set(answers.map(({ text }) => text)).size, 1);
    assert.equal(answers.filter((answer) => says(answer) === "hit").length, 49);
  });

  test(`${where}: people do not wait for a batch request that asks the same [20.I2]`, async () => {
    const body = anew();
    const { begun, release } = held();
    const batch = world.start({ body, class: "batch" });
    await begun;
    world.answer = numbered;
    const person = await world.call({ body, class: "interactive" });
    assert.equal(says(person), "miss");
    release();
    assert.equal((await batch.answer).status, 200);
  });

  const failures: { name: string; fail: (got: RawCall) => void; firstStatus: number }[] = [
    {
      name: "is answered 500",
      fail: ({ socket }) => void socket.write(jsonAnswer({ error: { message: "x" } }, "500 Internal Server Error")),
      firstStatus: 500,
    },
    {
      name: "is answered 429",
      fail: ({ socket }) => void socket.write(jsonAnswer({ error: { message: "x" } }, "429 Too Many Requests")),
      firstStatus: 429,
    },
    {
      name: "is answered with nothing",
      fail: ({ socket }) => void socket.write(jsonAnswer(aCompletion(""))),
      firstStatus: 200,
    },
    {
      name: "is answered in an encoding that nobody knows",
      fail: ({ socket }) => void socket.write(encoded({ a: 1 })),
      firstStatus: 200,
    },
  ];
  const encoded = (value: unknown): Buffer => {
    const bytes = Buffer.from(JSON.stringify(value));
    return Buffer.concat([
      Buffer.from(
        `HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: compress\r\nContent-Length: ${bytes.length}\r\n\r\n`,
      ),
      bytes,
    ]);
  };
  for (const { name, fail, firstStatus } of failures) {
    test(`${where}: when the first of equal requests ${name}, one other asks again and the rest get that answer [20.I2 80.G17]`, async () => {
      const body = anew();
      const before = world.asked;
      const { begun, release } = held();
      const first = world.start({ body });
      await begun;
      const rest = Array.from({ length: 10 }, () => world.start({ body }));
      await eventually(
        "all to wait",
        () => world.metric("yardmaster_reply_waiting"),
        (waiting) => waiting === 10,
      );
      world.answer = numbered;
      release(fail);
      assert.equal((await first.answer).status, firstStatus);
      const answers = await Promise.all(rest.map(({ answer }) => answer));
      assert.deepEqual(new Set(answers.map(({ status }) => status)), new Set([200]));
      assert.equal(world.asked, before + 2);
      assert.equal(says(await world.call({ body })), "hit");
    });
  }

  test(`${where}: the first client's leaving does not end the others' requests [20.I2]`, async () => {
    const body = anew();
    const before = world.asked;
    const { begun } = held();
    const first = world.start({ body });
    await begun;
    const rest = Array.from({ length: 5 }, () => world.start({ body }));
    await eventually(
      "all to wait",
      () => world.metric("yardmaster_reply_waiting"),
      (waiting) => waiting === 5,
    );
    world.answer = numbered;
    first.leave();
    const answers = await Promise.all(rest.map(({ answer }) => answer));
    assert.deepEqual(new Set(answers.map(({ status }) => status)), new Set([200]));
    assert.equal(world.asked, before + 2);
  });

  const broken: { name: string; answer: string }[] = [
    { name: "a stream that is cut", answer: `${SSE_HEAD}${aChunk(aToken("half")).toString()}` },
    {
      name: "a stream with an error event",
      answer: `${SSE_HEAD}${aChunk(`${aToken("x")}data: {"error":{"message":"no"}}\n\n${DONE}`).toString()}${LAST_CHUNK}`,
    },
    { name: "a stream that says nothing", answer: `${SSE_HEAD}${aChunk(aFinish() + DONE).toString()}${LAST_CHUNK}` },
  ];
  for (const { name, answer } of broken) {
    test(`${where}: ${name} is never kept [20.I2]`, async () => {
      const body = anew({ stream: true });
      world.answer = ({ socket }) => void socket.end(answer);
      await world.call({ body });
      world.answer = numbered;
      assert.equal(says(await world.call({ body })), "miss");
    });
  }

  test(`${where}: a kept answer is plain for every client: the engine is asked for no encoding [20.I2]`, async () => {
    const pages = { path: "/upstreams/h/ocr", body: Buffer.from(`%PDF ${++count}`) };
    await world.call({ ...pages, headers: { "accept-encoding": "gzip, br" } });
    assert.match(world.engine.calls.at(-1)?.head ?? "", /accept-encoding: identity/i);
    const again = await world.call(pages);
    assert.equal(says(again), "hit");
    assert.equal(again.headers["content-encoding"], undefined);
  });

  test(`${where}: a refusal that is named is given from memory with the original answer, and says so; no other is [20.I3 80.G17]`, async () => {
    const refuse = (status: string, code: string) => (got: RawCall, n: number) =>
      void got.socket.write(jsonAnswer({ error: { message: `no ${n}`, code } }, status));
    for (const [status, code, remembered] of [
      ["422 Unprocessable Content", "whatever", true],
      ["400 Bad Request", "UNSUPPORTED_FORMAT", true],
      ["400 Bad Request", "OTHER", false],
      ["401 Unauthorized", "x", false],
      ["403 Forbidden", "x", false],
      ["404 Not Found", "x", false],
      ["429 Too Many Requests", "x", false],
    ] as const) {
      // Any answer would do for this content: refusals are about the content alone.
      const body = anew({ temperature: 0.7 });
      world.answer = refuse(status, code);
      const before = world.asked;
      const first = await world.call({ body });
      const again = await world.call({ body });
      assert.equal(first.status, Number(status.slice(0, 3)));
      assert.equal(again.status, first.status);
      assert.equal(world.asked - before, remembered ? 1 : 2, `${status} ${code}`);
      assert.equal(again.headers["x-yardmaster-refusal"], remembered ? "remembered" : undefined);
      if (remembered) assert.equal(again.text, first.text);
      world.answer = numbered;
      assert.equal((await world.call({ body, key: OTHER_KEY.key })).status, 200);
    }
    const body = anew();
    world.answer = refuse("422 Unprocessable Content", "x");
    await world.call({ body });
    const again = await world.call({ body });
    assert.equal(again.headers["x-yardmaster-refusal"], "remembered");
    world.answer = numbered;
    assert.equal((await world.call({ body, headers: { "cache-control": "no-cache" } })).status, 200);
    assert.equal((await world.call({ body })).status, 200);
    assert.ok((await world.metric('yardmaster_cache_requests_total{upstream="u",result="refused"}')) >= 3);
  });

  test(`${where}: kept answers are given while the upstream is full, its engine is away and its queue is closed, and hold no slot [20.I4]`, async () => {
    const body = anew();
    const keyed = { body, headers: { "idempotency-key": "while-full" } };
    const upstream = { id: "u", models: ["m"], health: "passive", slots: 1, queue: { max: 0 }, cache: { ttl_s: 60 } };
    const endpoints = [{ url: `http://127.0.0.1:${world.engine.port}` }];
    const gateway = await startTestGateway({ upstreams: [{ ...upstream, endpoints }] });
    try {
      const first = await call(gateway, keyed);
      const { begun } = held();
      const holder = startCall(gateway, { body: anew() });
      await begun;
      assert.equal((await call(gateway, { body: anew() })).status, 429);
      assert.equal((await call(gateway, { body })).text, first.text);
      assert.equal((await call(gateway, keyed)).headers["idempotent-replayed"], "true");
      assert.equal((await gateway.health()).upstreams[0]?.in_use["interactive"], 1);
      holder.leave();
      await holder.answer;
      gateway.gateway.applyConfig(gateway.configOf({ upstreams: [{ ...upstream, endpoints: [] }] }));
      assert.equal((await call(gateway, { body: anew() })).status, 503);
      assert.equal(says(await call(gateway, { body })), "hit");
    } finally {
      await gateway.stop();
    }
  });

  test(`${where}: shared answers serve all keys, and bounds and configuration are those of a reload [20.I2 80.I9]`, async () => {
    const upstream = {
      id: "u",
      models: ["m"],
      health: "passive",
      slots: 8,
      endpoints: [{ url: `http://127.0.0.1:${world.engine.port}` }],
    };
    const options = {
      keys: [OTHER_KEY],
      upstreams: [{ ...upstream, cache: { ttl_s: 60, shared: true, max_bytes: 20_000 } }],
    };
    const gateway = await startTestGateway(options);
    try {
      const body = anew();
      const first = await call(gateway, { body });
      assert.equal((await call(gateway, { body, key: OTHER_KEY.key })).text, first.text);
      for (let i = 0; i < 60; i += 1) await call(gateway, { body: anew() });
      assert.ok(((await gateway.metric('yardmaster_reply_bytes{purpose="cache"}')) ?? Infinity) <= 20_000);
      assert.ok(((await gateway.metric('yardmaster_replies_evicted_total{purpose="cache"}')) ?? 0) > 0);
      const kept = anew();
      await call(gateway, { body: kept });
      gateway.gateway.applyConfig(gateway.configOf({ ...options, upstreams: [upstream] }));
      assert.equal(says(await call(gateway, { body: kept })), undefined);
      gateway.gateway.applyConfig(gateway.configOf(options));
      assert.equal(says(await call(gateway, { body: kept })), "miss");
    } finally {
      await gateway.stop();
    }
  });

  test(`${where}: a key's request that the cache can answer is answered from it, and again for its key when the cache has forgotten [20.I1 20.I2]`, async () => {
    const body = anew();
    const first = await world.call({ body });
    const keyed = { body, headers: { "idempotency-key": `cached-${count}` } };
    assert.equal(says(await world.call(keyed)), "hit");
    const again = await world.call({ ...keyed, headers: { ...keyed.headers, "cache-control": "no-cache" } });
    assert.equal(again.headers["idempotent-replayed"], "true");
    assert.equal(again.text, first.text);
  });
}
