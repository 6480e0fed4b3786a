import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";
import { eventually } from "../../src/testing/wait-for.ts";
import { errorCodeOf, type CallAnswer, type CallOptions } from "./support/calls.ts";
import { aChunk, aFinish, aToken, DONE, jsonAnswer, LAST_CHUNK, SSE_HEAD, writeInTurns } from "./support/raw-engine.ts";
import { chatBody, numbered, type ReplayWorld, type ReplayWorldOptions } from "./support/replay-world.ts";

const OTHER_KEY = { id: "other", key: "CANARY-other-0123456789abcdef0123456789", classes: ["interactive"] };

export const IDEMPOTENCY_WORLD: ReplayWorldOptions = {
  file: { idempotency: { wait_s: 20, max_bytes: 262_144 }, drain_s: 5 },
  keys: [OTHER_KEY],
};

/** What an idempotency key promises, whatever keeps the answers. */
export function idempotencySuite(where: string, open: () => Promise<ReplayWorld>): void {
  let world: ReplayWorld;
  before(async () => {
    world = await open();
  });
  beforeEach(() => {
    world.answer = numbered;
  });
  after(() => world.close());

  let names = 0;
  const newKey = (): string => `key-${++names}`;
  const keyed = (key: string, options: CallOptions = {}): CallOptions => ({
    body: chatBody(),
    ...options,
    headers: { "idempotency-key": key, ...options.headers },
  });
  const isReplay = (answer: CallAnswer): boolean => answer.headers["idempotent-replayed"] === "true";

  test(`${where}: the first answer to a key is given again, byte for byte and marked, without the engine and without a slot [20.I1 20.I4]`, async () => {
    const key = newKey();
    world.answer = ({ socket }, count) =>
      void socket.write(
        jsonAnswer({ count, text: "駅🙂" }).replace("\r\n\r\n", "\r\nX-Engine: one\r\nX-Engine: two\r\n\r\n"),
      );
    const before = world.asked;
    const first = await world.call(keyed(key));
    assert.equal(first.status, 200);
    assert.equal(isReplay(first), false);
    const again = await world.call(keyed(key, { body: { messages: chatBody()["messages"], model: "m" } }));
    assert.equal(world.asked, before + 1);
    assert.equal(again.status, 200);
    assert.equal(again.text, first.text);
    assert.equal(isReplay(again), true);
    for (const name of ["content-type", "x-engine", "x-yardmaster-upstream", "x-yardmaster-endpoint"])
      assert.equal(again.headers[name], first.headers[name], name);
    assert.notEqual(again.headers["x-request-id"], first.headers["x-request-id"]);
    assert.match(String(again.headers["age"]), /^\d+$/);
    const record = await world.auditOf(again);
    assert.equal(record?.idempotentReplay, true);
    assert.equal(record?.attempts, 0);
    assert.equal(record?.requestId, again.headers["x-request-id"]);
    assert.equal(record?.bytesOut, Buffer.byteLength(again.text));
  });

  test(`${where}: a finished stream is given again whole, with events cut anywhere, tool calls without an index and unknown members [20.I1]`, async () => {
    const key = newKey();
    const tools = [
      '{"choices":[{"index":0,"delta":{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{\\"x\\":\\"\\\\u00"}}]}}],"vendor":1}',
      '{"choices":[{"index":0,"delta":{"tool_calls":[{"id":"","function":{"name":null,"arguments":"e9\\"}"}},{"id":"b","function":{"name":"g","arguments":"{}"}}]},"logprobs":null}]}',
      '{"choices":[{"index":1,"delta":{"reasoning_content":"駅","refusal":null}}]}',
      '{"choices":[{"index":0,"delta":{}}]}',
    ];
    const text = `: hello\n\n${tools.map((tool) => `data: ${tool}\n\n`).join("")}${aToken("読み🙂")}${aFinish("tool_calls")}${DONE}`;
    const bytes = Buffer.from(text);
    world.answer = ({ socket }) =>
      writeInTurns(socket, [SSE_HEAD, ...Array.from(bytes, (_, i) => aChunk(bytes.subarray(i, i + 1))), LAST_CHUNK]);
    const before = world.asked;
    const first = await world.call(keyed(key, { body: chatBody({ stream: true }) }));
    const again = await world.call(keyed(key, { body: chatBody({ stream: true }) }));
    assert.equal(first.text, text);
    assert.equal(again.text, text);
    assert.equal(again.headers["content-type"], first.headers["content-type"]);
    assert.equal(isReplay(again), true);
    assert.equal(world.asked, before + 1);
  });

  test(`${where}: of many equal requests at once one reaches the engine, and all get its answer [20.I1 80.G16]`, async () => {
    for (let round = 0; round < 5; round += 1) {
      const key = newKey();
      const before = world.asked;
      const held = Promise.withResolvers<() => void>();
      world.answer = (got, count) => held.resolve(() => numbered(got, count));
      const calls = Array.from({ length: 40 }, () => world.start(keyed(key)));
      (await held.promise)();
      const answers = await Promise.all(calls.map(({ answer }) => answer));
      assert.equal(world.asked, before + 1);
      assert.equal(new Set(answers.map(({ text }) => text)).size, 1);
      assert.deepEqual(new Set(answers.map(({ status }) => status)), new Set([200]));
      assert.equal(answers.filter(isReplay).length, 39);
    }
  });

  const others: { name: string; options: (key: string) => CallOptions }[] = [
    { name: "another key's request", options: (key) => keyed(key, { key: OTHER_KEY.key }) },
    {
      name: "another route",
      options: (key) => keyed(key, { path: "/v1/completions", body: { model: "m", prompt: "hi" } }),
    },
    { name: "a pass-through route", options: (key) => keyed(key, { path: "/upstreams/h/v1/chat/completions" }) },
  ];
  for (const { name, options } of others) {
    test(`${where}: ${name} under the same idempotency key is a request of its own [80.G16]`, async () => {
      const key = newKey();
      const first = await world.call(keyed(key));
      const other = await world.call(options(key));
      assert.equal(other.status, 200);
      assert.notEqual(other.text, first.text);
      assert.equal(isReplay(other), false);
      assert.equal(isReplay(await world.call(options(key))), true);
    });
  }

  const mismatches: { name: string; options: CallOptions }[] = [
    { name: "another field", options: { body: chatBody({ max_tokens: 5 }) } },
    { name: "another model", options: { body: chatBody({ model: "m2" }) } },
    { name: "another query", options: { path: "/v1/chat/completions?x=1" } },
  ];
  for (const { name, options } of mismatches) {
    test(`${where}: a key that comes with ${name} is refused with 422, while the first runs and after it [20.I1 80.G16]`, async () => {
      const key = newKey();
      const held = Promise.withResolvers<() => void>();
      world.answer = (got, count) => held.resolve(() => numbered(got, count));
      const first = world.start(keyed(key));
      const release = await held.promise;
      const early = await world.call(keyed(key, options));
      assert.equal(early.status, 422);
      assert.equal(errorCodeOf(early.text), "IDEMPOTENCY_MISMATCH");
      release();
      assert.equal((await first.answer).status, 200);
      const late = await world.call(keyed(key, options));
      assert.equal(late.status, 422);
      assert.equal(isReplay(await world.call(keyed(key))), true);
    });
  }

  test(`${where}: keys that are empty, too long or hold a blank are refused before the engine, and one of 255 characters is taken [80.C27]`, async () => {
    const before = world.asked;
    for (const key of ["", "k".repeat(256), "k".repeat(10_000), "a b"]) {
      const answer = await world.call(keyed(key));
      assert.equal(answer.status, 400, key.slice(0, 10));
      assert.equal(errorCodeOf(answer.text), "BAD_REQUEST");
    }
    assert.equal(world.asked, before);
    assert.equal((await world.call(keyed(newKey().padEnd(255, "k")))).status, 200);
  });

  const error = (status: string, code = "x"): string => jsonAnswer({ error: { message: "no", code } }, status);
  const notKept: { name: string; first: string }[] = [
    { name: "500", first: error("500 Internal Server Error") },
    { name: "503", first: error("503 Service Unavailable") },
    { name: "429", first: error("429 Too Many Requests") },
    { name: "401 of the engine", first: error("401 Unauthorized") },
    { name: "a stream that breaks off", first: `${SSE_HEAD}${aChunk(aToken("one")).toString()}` },
    {
      name: "a stream that ends without a finish",
      first: `${SSE_HEAD}${aChunk(aToken("one")).toString()}${LAST_CHUNK}`,
    },
    {
      name: "an answer that is encoded",
      first:
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: compress\r\nContent-Length: 1\r\n\r\nx",
    },
    { name: "an answer that is too large", first: jsonAnswer({ big: "x".repeat(300_000) }) },
  ];
  for (const { name, first } of notKept) {
    test(`${where}: ${name} is not kept for a key: the next request with it is tried afresh [20.I1]`, async () => {
      const key = newKey();
      world.answer = (got) => void got.socket.end(first);
      await world.call(keyed(key, { headers: { "x-request-timeout-ms": "20000" } }));
      const before = world.asked;
      world.answer = numbered;
      const second = await world.call(keyed(key));
      assert.equal(second.status, 200);
      assert.equal(isReplay(second), false);
      assert.equal(world.asked, before + 1);
      assert.equal(isReplay(await world.call(keyed(key))), true);
    });
  }

  test(`${where}: an engine's refusal of the content is the answer to its key`, async () => {
    const key = newKey();
    world.answer = ({ socket }) => void socket.write(error("400 Bad Request", "context_length"));
    const first = await world.call(keyed(key));
    world.answer = numbered;
    const again = await world.call(keyed(key));
    assert.equal(again.status, 400);
    assert.equal(again.text, first.text);
    assert.equal(isReplay(again), true);
  });

  test(`${where}: when the first fails those who wait are tried one at a time, and its client's leaving kills none of them [20.I1 80.G16]`, async () => {
    const key = newKey();
    let running = 0;
    let peak = 0;
    const before = world.asked;
    const begun = Promise.withResolvers<void>();
    world.answer = (got, count) => {
      running += 1;
      peak = Math.max(peak, running);
      got.socket.once("close", () => (running -= 1));
      const nth = count - before;
      if (nth === 1) begun.resolve(); // Answers never.
      else if (nth <= 3) got.socket.end(error("500 Internal Server Error"));
      else {
        numbered(got, count);
        running -= 1;
      }
    };
    const first = world.start(keyed(key));
    await begun.promise;
    const waiting = Array.from({ length: 12 }, () => world.start(keyed(key)));
    await Promise.all(waiting.map((call) => call.sent()));
    await eventually(
      "all to wait",
      () => world.metric("yardmaster_reply_waiting"),
      (count) => count === 12,
    );
    first.leave();
    const answers = await Promise.all(waiting.map(({ answer }) => answer));
    assert.equal(peak, 1);
    assert.equal(world.asked - before, 4);
    assert.equal(answers.filter(({ status }) => status === 500).length, 2);
    assert.equal(answers.filter(({ status }) => status === 200).length, 10);
    assert.equal(new Set(answers.filter(({ status }) => status === 200).map(({ text }) => text)).size, 1);
  });

  test(`${where}: a duplicate waits no longer than its own deadline, and is then told 409 with Retry-After [20.I1]`, async () => {
    const key = newKey();
    const held = Promise.withResolvers<() => void>();
    world.answer = (got, count) => held.resolve(() => numbered(got, count));
    const first = world.start(keyed(key));
    const release = await held.promise;
    const second = await world.call(keyed(key, { headers: { "x-request-timeout-ms": "150" } }));
    assert.equal(second.status, 409);
    assert.equal(errorCodeOf(second.text), "IDEMPOTENCY_IN_PROGRESS");
    assert.match(String(second.headers["retry-after"]), /^[1-9]\d*$/);
    release();
    assert.equal((await first.answer).status, 200);
  });

  test(`${where}: a duplicate that leaves is forgotten, and the others still get the answer`, async () => {
    const key = newKey();
    const held = Promise.withResolvers<() => void>();
    world.answer = (got, count) => held.resolve(() => numbered(got, count));
    const first = world.start(keyed(key));
    const release = await held.promise;
    const leaving = world.start(keyed(key));
    const staying = world.start(keyed(key));
    await Promise.all([leaving.sent(), staying.sent()]);
    leaving.leave();
    release();
    assert.equal((await first.answer).status, 200);
    assert.equal((await staying.answer).status, 200);
  });

  test(`${where}: other methods than POST, and requests without a key, have nothing to do with any of it`, async () => {
    const before = world.asked;
    const key = newKey();
    for (const method of ["PUT", "DELETE"]) {
      for (let i = 0; i < 2; i += 1) {
        const answer = await world.call(keyed(key, { method, path: "/upstreams/h/items/1" }));
        assert.equal(answer.status, 200);
        assert.equal(isReplay(answer), false);
      }
    }
    for (let i = 0; i < 2; i += 1) assert.equal(isReplay(await world.call({ body: chatBody() })), false);
    assert.equal(world.asked - before, 6);
  });

  test(`${where}: a form that is sent again with a new boundary is the same request [20.I1]`, async () => {
    const key = newKey();
    const form = (boundary: string, file: string): CallOptions =>
      keyed(key, {
        path: "/v1/audio/transcriptions",
        headers: { "content-type": `multipart/form-data; boundary=${boundary}` },
        body: Buffer.from(
          `--${boundary}\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n--${boundary}\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n${file}\r\n--${boundary}--\r\n`,
        ),
      });
    const first = await world.call(form("one", "RIFF"));
    assert.equal(first.status, 200);
    const again = await world.call(form("another", "RIFF"));
    assert.equal(isReplay(again), true);
    assert.equal(again.text, first.text);
    assert.equal((await world.call(form("third", "RIFX"))).status, 422);
  });

  test(`${where}: what became of keys is counted, and nobody holds a slot in the end [20.I4]`, async () => {
    const key = newKey();
    const replayed = 'yardmaster_idempotency_requests_total{result="replayed"}';
    const before = await world.metric(replayed);
    await world.call(keyed(key));
    // Who asks before the answer is kept waits for it, which counts as something else.
    const counted = await eventually(
      "a replay to be counted",
      async () => {
        assert.equal((await world.call(keyed(key))).status, 200);
        return (await world.metric(replayed)) - before;
      },
      (count) => count > 0,
    );
    assert.equal(counted, 1);
    for (const result of ["first", "waited", "in_progress", "mismatch"])
      assert.ok((await world.metric(`yardmaster_idempotency_requests_total{result="${result}"}`)) > 0, result);
    assert.equal(await world.metric('yardmaster_in_flight{upstream="u",class="interactive"}'), 0);
    assert.ok((await world.metric('yardmaster_replies{purpose="idempotency"}')) > 0);
    assert.equal(await world.metric("yardmaster_buffered_bytes"), 0);
  });
}
