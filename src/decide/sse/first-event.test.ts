import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { anyStream, inSegments, splitEvents } from "../../testing/sse-streams.ts";
import { FirstEventGate, type FirstEvent } from "./first-event.ts";

function look(text: string, eventBytesMax?: number): FirstEvent {
  const bytes = Buffer.from(text);
  return new FirstEventGate(eventBytesMax === undefined ? {} : { eventBytesMax }).push(bytes, 0, bytes.length);
}

const good = { kind: "event", isError: false, isDone: false, errorMessage: undefined, refusal: undefined };
const rows: { name: string; text: string; expect: FirstEvent }[] = [
  { name: "nothing", text: "", expect: { kind: "more" } },
  { name: "half an event", text: 'data: {"choices":[{"delta', expect: { kind: "more" } },
  { name: "a whole event whose blank line is missing", text: "data: {}\n", expect: { kind: "more" } },
  { name: "comments", text: ": ping\n\n: ping\n\n", expect: { kind: "commentsOnly" } },
  { name: "a mark, then a comment", text: "\uFEFF: ping\n\n", expect: { kind: "commentsOnly" } },
  { name: "a comment, then half an event", text: ": ping\n\ndata: {", expect: { kind: "more" } },
  { name: "blank lines", text: "\n\r\n", expect: { kind: "more" } },
  { name: "an event without data", text: "event: x\n\n", expect: { kind: "more" } },
  {
    name: "a role",
    text: 'data: {"choices":[{"delta":{"role":"assistant"}}]}\r\n\r\n',
    expect: { ...good, kind: "event" },
  },
  { name: "[DONE]", text: ": ping\n\ndata:[DONE]\r\r", expect: { ...good, kind: "event", isDone: true } },
  {
    name: "an error with blanks in its JSON",
    text: 'data: {"error": {"message": "EngineCore encountered an issue."}}\n\ndata: [DONE]\n\n',
    expect: { ...good, kind: "event", isError: true, errorMessage: "EngineCore encountered an issue." },
  },
  {
    name: "an error by name",
    text: "event:error\ndata:böse\n\n",
    expect: { ...good, kind: "event", isError: true, errorMessage: "böse" },
  },
  {
    name: "a mark, then an error",
    text: '\uFEFFdata: {"object":"error","message":"m"}\n\n',
    expect: { ...good, kind: "event", isError: true, errorMessage: "m" },
  },
  {
    name: "an error of the engine's own by its code",
    text: 'data: {"error":{"message":"m","type":"BadRequestError","code":500}}\n\n',
    expect: { ...good, kind: "event", isError: true, errorMessage: "m" },
  },
  {
    name: "an engine that is full",
    text: 'data: {"error":{"message":"m","code":429}}\n\n',
    expect: { ...good, kind: "event", isError: true, errorMessage: "m" },
  },
  {
    name: "a name of an error in text",
    text: 'data: {"choices":[{"delta":{"content":"\\"error\\":{}"}}]}\n\n',
    expect: { ...good, kind: "event" },
  },
];
for (const row of rows)
  test(`the first event is told apart: ${row.name} [10.R4b]`, () => assert.deepEqual(look(row.text), row.expect));

const refusals: { name: string; data: string; status: number; body?: string }[] = [
  { name: "a number", data: '{"error":{"message":"zu länger","code":400}}', status: 400 },
  { name: "a number in quotes", data: '{"error":{"message":"m","code":"404"}}', status: 404 },
  { name: "a flat error", data: '{"object":"error","message":"m","code":422}', status: 422 },
  { name: "vLLM's type", data: '{"error":{"message":"m","type":"BadRequestError","code":null}}', status: 400 },
  { name: "llama.cpp's type", data: '{"error":{"message":"m","type":"exceed_context_size_error"}}', status: 400 },
  {
    name: "Anthropic's type",
    data: '{"type":"error","error":{"type":"request_too_large","message":"m"}}',
    status: 413,
  },
  {
    name: "a code inside a response that failed",
    data: '{"type":"response.failed","response":{"error":{"code":"invalid_prompt","message":"m"}}}',
    status: 400,
    body: '{"error":{"code":"invalid_prompt","message":"m"}}',
  },
];
for (const { name, data, status, body } of refusals)
  test(`an error that blames the request is told from an engine's failure: ${name} [10.R4b 10.R5]`, () => {
    const seen = look(`data: ${data}\n\n`);
    assert.ok(seen.kind === "event" && seen.isError && seen.refusal !== undefined);
    assert.deepEqual([seen.refusal.status, seen.refusal.body.toString()], [status, body ?? data]);
  });

test("a first event above the limit is an overflow [80.A10]", () => {
  assert.deepEqual(look(`data: ${"x".repeat(100)}`, 64), { kind: "overflow" });
  assert.deepEqual(look(": ping\n\n".repeat(100), 64), { kind: "commentsOnly" });
});

test("the first event is the same in any segmentation, and stays what it is [10.R4b]", () => {
  fc.assert(
    fc.property(anyStream(), ({ bytes, cuts }) => {
      const gate = new FirstEventGate();
      const whole = new FirstEventGate().push(bytes, 0, bytes.length);
      let seen: FirstEvent = { kind: "more" };
      inSegments(bytes, cuts, (buffer, start, end) => {
        seen = gate.push(buffer, start, end);
      });
      assert.deepEqual(seen, whole);
      assert.equal(whole.kind === "event", splitEvents(bytes).events.length > 0);
    }),
    { numRuns: 150 },
  );
});
