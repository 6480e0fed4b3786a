import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { anyStream, inSegments, readStreamPlainly, splitEvents } from "../../testing/sse-streams.ts";
import { StreamWatcher, streamSucceeded, type StreamVerdict } from "./stream-watcher.ts";

function watch(text: string | Buffer, cuts: readonly number[] = []): StreamVerdict {
  const watcher = new StreamWatcher();
  inSegments(Buffer.from(text as string), cuts, (buffer, start, end) => void watcher.feed(buffer, start, end));
  return watcher.finish();
}

const chunk = (choice: object, more: object = {}): string =>
  `data: ${JSON.stringify({ id: "c", choices: [{ index: 0, delta: {}, finish_reason: null, ...choice }], ...more })}\n\n`;
const token = (content: string): string => chunk({ delta: { content } });
const DONE = "data: [DONE]\n\n";

test("a stream of any format, line ending and segmentation is read as a plain reader reads it [10.X4 10.X5b]", () => {
  fc.assert(
    fc.property(anyStream(), ({ bytes, cuts }) => {
      const plain = readStreamPlainly(bytes);
      const { errorMessage: _message, errorStatus: _status, overflow, ...seen } = watch(bytes, cuts);
      assert.equal(overflow, false);
      const { events: _events, ...expected } = plain;
      assert.deepEqual(seen, expected);
    }),
    { numRuns: 400 },
  );
});

test("a number outside of data is nobody's, however the bytes are cut [10.X4]", () => {
  const text = 'data: {"type":"response.created","sequence_number":0}\n\nrest of it","sequence_number":4}\n\n';
  for (const cuts of [[], [60], [20, 70]]) assert.equal(watch(text, cuts).lastSequenceNumber, 0);
});

test("each read is told to complete an event exactly when one with data ends in it [80.A9]", () => {
  fc.assert(
    fc.property(anyStream(), ({ bytes, cuts }) => {
      const some = cuts.slice(0, 40);
      const watcher = new StreamWatcher();
      let taken = 0;
      let events = 0;
      inSegments(bytes, some, (buffer, start, end) => {
        taken += end - start;
        const completed = watcher.feed(buffer, start, end);
        const now = splitEvents(bytes.subarray(0, taken)).events.length;
        assert.equal(completed, now > events);
        events = now;
        assert.equal(watcher.atBoundary, splitEvents(bytes.subarray(0, taken)).atBoundary);
      });
    }),
    { numRuns: 150 },
  );
});

test("a stream succeeded by its finish reason, not by [DONE] [10.X5b]", () => {
  const rows: { name: string; stream: string; expect: boolean }[] = [
    { name: "finish reason and [DONE]", stream: token("a") + chunk({ finish_reason: "stop" }) + DONE, expect: true },
    {
      name: "finish reason, and the end comes without [DONE]",
      stream: token("a") + chunk({ finish_reason: "length" }),
      expect: true,
    },
    { name: "[DONE] alone", stream: DONE, expect: false },
    { name: "tokens and [DONE], no reason", stream: token("a") + DONE, expect: false },
    {
      name: "an error event and [DONE]",
      stream: `${token("a")}data: {"error": {"message": "EngineCore encountered an issue.", "code": 500}}\n\n${DONE}`,
      expect: false,
    },
    {
      name: "an error behind a finish reason",
      stream: `${chunk({ finish_reason: "stop" })}event: error\ndata: gone\n\n`,
      expect: false,
    },
    {
      name: "the engine gave up and said so",
      stream: token("a") + chunk({ finish_reason: "abort" }) + DONE,
      expect: false,
    },
    {
      name: "an error in the flat shape",
      stream: 'data: {"object":"error","message":"m","code":500}\n\n',
      expect: false,
    },
    { name: "an error that is a string", stream: 'data: {"error":"server busy"}\n\n', expect: false },
    { name: "a message that stopped", stream: 'event: message_stop\ndata: {"type":"message_stop"}\n\n', expect: true },
    {
      name: "a response that failed",
      stream: 'event: response.failed\ndata: {"type":"response.failed","response":{"error":{"message":"x"}}}\n\n',
      expect: false,
    },
    {
      name: "a response that is incomplete",
      stream: 'data: {"type":"response.incomplete","response":{}}\n\n',
      expect: true,
    },
    { name: "audio that is done", stream: 'data: {"type":"speech.audio.done"}\n\n', expect: true },
    { name: "nothing", stream: "", expect: false },
  ];
  for (const row of rows) assert.equal(streamSucceeded(watch(row.stream)), row.expect, row.name);
});

test("generated text that looks like a sign is none [10.X5b]", () => {
  const texts = [
    '"finish_reason":"stop"',
    '{"error":{"message":"x"}}',
    "data: [DONE]\n\n",
    "event: error\n",
    "error",
    " [DONE]",
    '"usage":{"prompt_tokens":1}',
  ];
  const verdict = watch(texts.map(token).join(""));
  assert.deepEqual(
    {
      finish: verdict.finishSeen,
      error: verdict.errorSeen,
      done: verdict.doneSeen,
      prompt: verdict.usage.prompt,
      content: verdict.contentSeen,
    },
    { finish: false, error: false, done: false, prompt: null, content: true },
  );
});

test("finish reasons of two choices far from the end are seen in a long stream", () => {
  const many = token("x").repeat(3_000);
  const verdict = watch(
    chunk({ finish_reason: "stop" }) + many + chunk({ index: 1, finish_reason: "length" }) + many + DONE,
  );
  assert.ok(streamSucceeded(verdict));
  assert.equal(verdict.finishReason, "length");
});

test("usage is the last that was told, and unknown is not zero [10.X4]", () => {
  assert.deepEqual(watch(token("a") + chunk({ finish_reason: "stop" }, { usage: null }) + DONE).usage, {
    prompt: null,
    completion: null,
    cached: null,
  });
  const growing = [1, 2, 3]
    .map((completion_tokens) => chunk({ delta: { content: "a" } }, { usage: { prompt_tokens: 14, completion_tokens } }))
    .join("");
  assert.deepEqual(watch(growing).usage, { prompt: 14, completion: 3, cached: null });
  const last =
    'data: {"choices":[],"usage":{"prompt_tokens":14,"completion_tokens":8,"prompt_tokens_details":{"cached_tokens":6}}}\n\n';
  assert.deepEqual(watch(growing + last + DONE).usage, { prompt: 14, completion: 8, cached: 6 });
});

test("usage that a messages stream tells in two parts is put together, cached tokens counted in the prompt [10.X4]", () => {
  const stream =
    'event: message_start\ndata: {"type":"message_start","message":{"usage":{"cache_read_input_tokens":32,"input_tokens":1,"output_tokens":0}}}\n\n' +
    'event: content_block_delta\ndata: {"type":"content_block_delta","delta":{"type":"text_delta","text":"a"}}\n\n' +
    'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"max_tokens"},"usage":{"output_tokens":6}}\n\n';
  assert.deepEqual(watch(stream).usage, { prompt: 33, completion: 6, cached: 32 });
  assert.equal(watch(stream).finishReason, "max_tokens");
});

test("a last event of 900 KB with usage near its end is read, wherever it is cut [10.X4]", () => {
  const output = [{ content: [{ text: "\u8aad".repeat(300_000) }] }];
  const response = {
    type: "response.completed",
    sequence_number: 12,
    response: { status: "completed", output, usage: { input_tokens: 3, output_tokens: 300_000 } },
  };
  const bytes = Buffer.from(`event: response.completed\ndata: ${JSON.stringify(response)}\n\n`);
  const verdict = watch(bytes, [3, 30, 65_536, 400_001, 800_000]);
  assert.deepEqual(
    { ...verdict.usage, sequence: verdict.lastSequenceNumber, finish: verdict.finishSeen },
    { prompt: 3, completion: 300_000, cached: null, sequence: 12, finish: true },
  );
});

test("tool calls without index, with empty names and cut arguments, are content and no fault", () => {
  const calls = [
    [{ id: "a", type: "function", function: { name: "f", arguments: '{"x":"\\u00' } }],
    [{ id: "", function: { name: null, arguments: 'e9"}' } }],
    [{ function: { name: "error", arguments: '{"finish_reason":"stop"}' } }],
  ];
  const verdict = watch(
    calls.map((tool_calls) => chunk({ delta: { content: null, tool_calls } })).join("") +
      chunk({ finish_reason: "tool_calls", logprobs: null }),
  );
  assert.ok(streamSucceeded(verdict) && verdict.contentSeen);
});

test("a role and a finish reason without text are an answer without content", () => {
  const verdict = watch(chunk({ delta: { role: "assistant", content: "" } }) + chunk({ finish_reason: "stop" }) + DONE);
  assert.ok(streamSucceeded(verdict) && !verdict.contentSeen);
});

test("comments are no progress, and a stream stands at a boundary behind them [80.A9]", () => {
  const watcher = new StreamWatcher();
  const feed = (text: string): boolean => watcher.feed(Buffer.from(text), 0, Buffer.byteLength(text));
  assert.equal(feed(": ping\n\n"), false);
  assert.equal(feed(": ping\n"), false);
  assert.ok(watcher.atBoundary);
  assert.equal(feed("event: x\n\n"), false);
  assert.equal(feed("data: {"), false);
  assert.ok(!watcher.atBoundary);
  assert.equal(feed("}\r\n\r"), true);
  assert.equal(feed("\n"), false);
  assert.ok(watcher.atBoundary);
});

test("an event above the limit is an overflow, in one read or many, and memory stays at the limit [80.A10]", () => {
  for (const step of [700, 65_536, 3_000_000]) {
    const watcher = new StreamWatcher();
    const bytes = Buffer.alloc(2_000_000, "x");
    bytes.write("data: ");
    let at = 0;
    for (; at < bytes.length && !watcher.overflow; at += step)
      watcher.feed(bytes, at, Math.min(bytes.length, at + step));
    assert.ok(watcher.overflow, String(step));
    assert.ok(watcher.incompleteBytes <= 1_048_576);
    assert.equal(watcher.feed(Buffer.from("\n\ndata: [DONE]\n\n"), 0, 16), false);
    assert.ok(!streamSucceeded(watcher.finish()));
  }
  const small = new StreamWatcher({ eventBytesMax: 64 });
  const events = Buffer.from(`data: 1\n\n`.repeat(20));
  assert.equal(small.feed(events, 0, events.length), true);
  assert.equal(small.overflow, false);
});

test("no bytes of any kind make the watcher throw [80.A10]", () => {
  fc.assert(
    fc.property(
      fc.array(
        fc.oneof(
          fc.uint8Array({ maxLength: 200 }),
          fc
            .constantFrom("data: ", "\n\n", "\r", '"error"', '"usage":', '_reason":', "event: error\n")
            .map((text) => Buffer.from(text)),
        ),
      ),
      (parts) => {
        const watcher = new StreamWatcher({ eventBytesMax: 500 });
        for (const part of parts) watcher.feed(Buffer.from(part), 0, part.length);
        watcher.finish();
      },
    ),
    { numRuns: 500 },
  );
});
