import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import { systemClock } from "../kernel/clock.ts";
import { openCall, postText, rawCall } from "../testing/raw-call.ts";
import type { SimDialect, SimEngineOptions } from "./options.ts";
import { startSimEngine, type LedgerView, type SimEngine } from "./sim-engine.ts";

const WAIT_MS = 8_000;
/** A gap between tokens that no test lives to see. */
const FOREVER_MS = 3_600_000;

const start = (dialect: SimDialect, over: Partial<SimEngineOptions> = {}): Promise<SimEngine> =>
  startSimEngine({
    models: ["tiny"],
    dialect,
    slots: 2,
    prefillTps: 0,
    decodeTps: 0,
    seed: 1,
    clock: systemClock,
    ...over,
  });

const chat = (over: object = {}): string =>
  JSON.stringify({ model: "tiny", messages: [{ role: "user", content: "hello" }], max_tokens: 4, ...over });
const call = (over: object = {}, headers: readonly string[] = []): string =>
  postText("/v1/chat/completions", chat(over), headers);
const endless = { max_tokens: 100, sim: { delayBetweenMs: FOREVER_MS } };

async function until(engine: SimEngine, met: (ledger: LedgerView) => boolean): Promise<void> {
  assert.ok(await engine.waitFor(met, WAIT_MS), JSON.stringify({ ...engine.ledger(), entries: [] }));
}

test("vLLM sends a waiting stream its head at once and nothing more, llama.cpp sends nothing before the first token", async () => {
  for (const dialect of ["vllm", "llama.cpp"] as const) {
    await using engine = await start(dialect, { slots: 1 });
    const first = openCall(engine.port, call({ stream: true, ...endless }));
    await until(engine, (ledger) => ledger.firstByte === 1);
    const second = openCall(engine.port, call({ stream: true }));
    await until(engine, (ledger) => ledger.queuedNow === 1 && (dialect === "llama.cpp" || ledger.headSent === 2));
    assert.deepEqual(
      [engine.ledger().headSent, engine.ledger().firstByte, engine.ledger().inSlotNow],
      [dialect === "vllm" ? 2 : 1, 1, 1],
    );
    first.destroy();
    await until(engine, (ledger) => ledger.finished === 1);
    second.destroy();
  }
});

test("no more requests than slots run at once, and the peak of both figures is kept", async () => {
  await using engine = await start("vllm", { slots: 3 });
  const sockets = Array.from({ length: 8 }, () => openCall(engine.port, call({ stream: true, ...endless })));
  await until(engine, (ledger) => ledger.firstByte === 3 && ledger.queuedNow === 5);
  const metrics = await (await fetch(`${engine.url}/metrics`)).text();
  assert.match(metrics, /^vllm:num_requests_running\{.*\} 3\.0$/m);
  assert.match(metrics, /^vllm:num_requests_waiting\{.*\} 5\.0$/m);
  for (const socket of sockets) socket.destroy();
  await until(engine, (ledger) => ledger.aborted === 8);
  const { concurrentNow, concurrentPeak, inSlotNow, inSlotPeak, queuedNow, queuedPeak } = engine.ledger();
  assert.deepEqual(
    { concurrentNow, concurrentPeak, inSlotNow, inSlotPeak, queuedNow, queuedPeak },
    { concurrentNow: 0, concurrentPeak: 8, inSlotNow: 0, inSlotPeak: 3, queuedNow: 0, queuedPeak: 5 },
  );
});

test("vLLM starts waiting requests by priority, lower first", async () => {
  await using engine = await start("vllm", { slots: 1 });
  const blocker = openCall(engine.port, call({ stream: true, ...endless }));
  await until(engine, (ledger) => ledger.firstByte === 1);
  const order = [10, undefined, -5];
  for (const [index, priority] of order.entries()) {
    openCall(engine.port, call(priority === undefined ? {} : { priority }, [`x-request-id: p${priority ?? 0}`]));
    await until(engine, (ledger) => ledger.queuedNow === index + 1);
  }
  blocker.destroy();
  await until(engine, (ledger) => ledger.finished === 3);
  const started = engine
    .ledger()
    .entries.slice(1)
    .toSorted((a, b) => (a.slotMs ?? 0) - (b.slotMs ?? 0));
  assert.deepEqual(
    started.map(({ id }) => id),
    ["p-5", "p0", "p10"],
  );
});

for (const stream of [true, false]) {
  test(`vLLM stops a ${stream ? "streamed" : "whole"} answer as soon as its client leaves, by FIN or by reset`, async () => {
    await using engine = await start("vllm", { slots: 2 });
    const sockets = [
      openCall(engine.port, call({ stream, ...endless })),
      openCall(engine.port, call({ stream, ...endless })),
    ] as const;
    await until(engine, (ledger) => ledger.inSlotNow === 2);
    sockets[0].end();
    sockets[1].resetAndDestroy();
    await until(engine, (ledger) => ledger.aborted === 2 && ledger.inSlotNow === 0);
    assert.ok(engine.ledger().entries.every((entry) => entry.end === "aborted" && entry.slotFreeMs !== null));
  });
}

test("llama.cpp stops an abandoned stream, but an abandoned whole answer keeps its slot to the end", async () => {
  await using engine = await start("llama.cpp", { slots: 2 });
  const streamed = openCall(engine.port, call({ stream: true, ...endless }));
  const whole = openCall(engine.port, call({ max_tokens: 2, sim: { delayBetweenMs: 400 } }));
  await until(engine, (ledger) => ledger.inSlotNow === 2);
  streamed.destroy();
  whole.destroy();
  await until(engine, (ledger) => ledger.aborted === 2);
  assert.equal(engine.ledger().entries[0]?.slotFreeMs !== null, true);
  assert.deepEqual([engine.ledger().inSlotNow, engine.ledger().concurrentNow], [1, 1]);
  assert.match(await (await fetch(`${engine.url}/metrics`)).text(), /^llamacpp:requests_processing 1$/m);
  await until(engine, (ledger) => ledger.inSlotNow === 0 && ledger.concurrentNow === 0);
  assert.deepEqual(
    engine.ledger().entries.map(({ end, tokens }) => [end, tokens]),
    [
      ["aborted", 1],
      ["aborted", 2],
    ],
  );
});

test("llama.cpp says that no slot is free when it is asked so", async () => {
  await using engine = await start("llama.cpp", { slots: 1 });
  assert.equal((await fetch(`${engine.url}/slots?fail_on_no_slot=1`)).status, 200);
  openCall(engine.port, call({ stream: true, ...endless }));
  await until(engine, (ledger) => ledger.inSlotNow === 1);
  assert.equal((await fetch(`${engine.url}/slots?fail_on_no_slot=1`)).status, 503);
  const slots = (await (await fetch(`${engine.url}/slots`)).json()) as { is_processing: boolean }[];
  assert.equal(slots[0]?.is_processing, true);
});

test("the ledger keeps what was received: raw headers, hash and size of the body, model, class, id", async () => {
  await using engine = await start("vllm");
  const body = chat({ metadata: { class: "batch" }, user: "someone" });
  await rawCall(
    engine.port,
    postText("/v1/chat/completions", body, ["X-Request-ID: abc", "X-Twice: 1", "x-twice: 2", "connection: close"]),
  );
  const [entry] = engine.ledger().entries;
  const { createHash } = await import("node:crypto");
  assert.equal(entry?.bodySha256, createHash("sha256").update(body).digest("hex"));
  assert.deepEqual(
    [
      entry?.id,
      entry?.method,
      entry?.path,
      entry?.model,
      entry?.tag,
      entry?.stream,
      entry?.bodyBytes,
      entry?.end,
      entry?.status,
      entry?.tokens,
    ],
    ["abc", "POST", "/v1/chat/completions", "tiny", "batch", false, Buffer.byteLength(body), "finished", 200, 4],
  );
  assert.deepEqual(entry?.headers.slice(-8), [
    "X-Request-ID",
    "abc",
    "X-Twice",
    "1",
    "x-twice",
    "2",
    "connection",
    "close",
  ]);
  assert.equal(engine.ledger().byTag["batch"]?.finished, 1);
});

test("an error answer counts as failed, and pages are not counted at all", async () => {
  await using engine = await start("vllm");
  await fetch(`${engine.url}/health`);
  await fetch(`${engine.url}/metrics`);
  await rawCall(engine.port, call({ model: "nope" }, ["connection: close"]));
  const { opened, failed, finished, concurrentNow } = engine.ledger();
  assert.deepEqual(
    { opened, failed, finished, concurrentNow },
    { opened: 1, failed: 1, finished: 0, concurrentNow: 0 },
  );
});

test("a client that leaves while it sends its body is an abort", async () => {
  await using engine = await start("vllm");
  const socket = openCall(
    engine.port,
    "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n{",
  );
  await until(engine, (ledger) => ledger.opened === 1);
  socket.destroy();
  await until(engine, (ledger) => ledger.aborted === 1 && ledger.concurrentNow === 0);
});

test("the ledger is read, waited for and reset over HTTP", async () => {
  await using engine = await start("vllm");
  const waiting = fetch(`${engine.url}/sim/ledger/wait?finished=2&concurrentNow=0&timeout_ms=${WAIT_MS}`);
  await rawCall(engine.port, call({}, ["connection: close"]));
  await rawCall(engine.port, call({}, ["connection: close"]));
  const met = await waiting;
  assert.deepEqual([met.status, ((await met.json()) as { met: boolean }).met], [200, true]);
  assert.equal((await fetch(`${engine.url}/sim/ledger/wait?opened=99&timeout_ms=1`)).status, 408);
  assert.equal((await fetch(`${engine.url}/sim/ledger/wait?colour=1`)).status, 400);
  assert.equal(((await (await fetch(`${engine.url}/sim/ledger`)).json()) as { opened: number }).opened, 2);
  await fetch(`${engine.url}/sim/ledger`, { method: "DELETE" });
  assert.deepEqual([engine.ledger().opened, engine.ledger().entries.length], [0, 0]);
});

test("on SIGTERM vLLM ends streams with an error event and [DONE], whole answers with 500, and closes its port", async () => {
  await using engine = await start("vllm", { slots: 1 });
  const running = rawCall(engine.port, call({ stream: true, ...endless }));
  await until(engine, (ledger) => ledger.firstByte === 1);
  const waiting = rawCall(engine.port, call({ stream: true }));
  const whole = rawCall(engine.port, call());
  await until(engine, (ledger) => ledger.queuedNow === 2 && ledger.headSent === 2);
  await engine.terminate();
  for (const answer of [await running, await waiting]) {
    const text = answer.bytes.toString();
    assert.match(
      text,
      /data: \{"error": \{"message": .*"code": 500\}\}\n\n\r\n[0-9a-f]+\r\ndata: \[DONE\]\n\n\r\n0\r\n\r\n$/,
    );
    assert.doesNotMatch(text, /"finish_reason":"/);
  }
  assert.match((await whole).bytes.toString(), /^HTTP\/1\.1 500 /);
  await assert.rejects(fetch(`${engine.url}/health`));
});

test("on SIGTERM llama.cpp cuts its streams without an end chunk", async () => {
  await using engine = await start("llama.cpp");
  const running = rawCall(engine.port, call({ stream: true, ...endless }));
  await until(engine, (ledger) => ledger.firstByte === 1);
  await engine.terminate();
  const { bytes, end } = await running;
  assert.equal(end, "fin");
  assert.doesNotMatch(bytes.toString(), /\r\n0\r\n\r\n$/);
});

test("a killed engine drops every connection and its port", async () => {
  const engine = await start("vllm");
  const socket = openCall(engine.port, call({ stream: true, ...endless }));
  await until(engine, (ledger) => ledger.firstByte === 1);
  const gone = once(socket, "close");
  engine.kill();
  await gone;
  await assert.rejects(fetch(`${engine.url}/health`));
  await engine.close();
});

test("a waiting client that leaves never gets a slot", async () => {
  await using engine = await start("vllm", { slots: 1 });
  const first = openCall(engine.port, call({ stream: true, ...endless }));
  await until(engine, (ledger) => ledger.firstByte === 1);
  const second = openCall(engine.port, call());
  await until(engine, (ledger) => ledger.queuedNow === 1);
  second.destroy();
  await until(engine, (ledger) => ledger.aborted === 1);
  first.destroy();
  await until(engine, (ledger) => ledger.aborted === 2 && ledger.concurrentNow === 0);
  assert.equal(engine.ledger().entries[1]?.slotMs, null);
});

test("a prompt seen before is partly cached, and the answer and the counters say so", async () => {
  await using engine = await start("vllm");
  const long = { messages: [{ role: "user", content: "the same long question ".repeat(40) }] };
  const cached = async (): Promise<number> => {
    const response = await fetch(`${engine.url}/v1/chat/completions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: chat(long),
    });
    return ((await response.json()) as { usage: { prompt_tokens_details: { cached_tokens: number } } }).usage
      .prompt_tokens_details.cached_tokens;
  };
  assert.equal(await cached(), 0);
  const hit = await cached();
  assert.ok(hit >= 128);
  assert.match(
    await (await fetch(`${engine.url}/metrics`)).text(),
    new RegExp(`^vllm:prefix_cache_hits_total\\{.*\\} ${hit}\\.0$`, "m"),
  );
});
