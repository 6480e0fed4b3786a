import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { ChatStreamReader, type ChatPiece } from "./read-chat-stream.ts";

const chunk = (delta: object, more: object = {}): string =>
  `data: ${JSON.stringify({ choices: [{ index: 0, delta, ...more }] })}\n\n`;
const STREAM =
  chunk({ role: "assistant" }) +
  chunk({ reasoning_content: "hm" }) +
  chunk({ content: "<img src=x onerror=alert(1)>" }) +
  chunk({ content: "ä€" }, { finish_reason: "stop" }) +
  `: a comment\r\n\r\ndata: ${JSON.stringify({ choices: [], usage: { prompt_tokens: 3, completion_tokens: 2 } })}\n\ndata: [DONE]\n\n`;
const PIECES: readonly ChatPiece[] = [
  { kind: "thinking", text: "hm" },
  { kind: "text", text: "<img src=x onerror=alert(1)>" },
  { kind: "text", text: "ä€" },
  { kind: "finish", why: "stop" },
  { kind: "usage", prompt: 3, completion: 2 },
];

test("a streamed answer is read the same however it was cut, and its text stays text [80.D36]", () => {
  fc.assert(
    fc.property(fc.array(fc.nat(STREAM.length)), (cuts) => {
      const reader = new ChatStreamReader();
      const at = [0, ...cuts.toSorted((a, b) => a - b), STREAM.length];
      const pieces = at.slice(1).flatMap((end, index) => reader.take(STREAM.slice(at[index], end)));
      assert.deepEqual([...pieces, ...reader.end()], PIECES);
    }),
  );
});

test("an error and a whole answer are read too, and what can't be read is passed over", () => {
  const reader = new ChatStreamReader();
  assert.deepEqual(reader.take('{"error":{"code":"MODEL_UNKNOWN","message":"no"}}'), []);
  assert.deepEqual(reader.end(), [{ kind: "error", code: "MODEL_UNKNOWN", message: "no" }]);
  assert.deepEqual(reader.take('data: {not json\n\ndata: 7\n\ndata: {"choices":[{"delta":{"content":5}}]}\n\n'), []);
  assert.deepEqual(reader.take('{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}]}'), []);
  assert.deepEqual(
    reader.end().map(({ kind }) => kind),
    ["text", "finish"],
  );
});

test("a line without an end is not kept for ever", () => {
  const reader = new ChatStreamReader();
  const [piece] = reader.take("x".repeat(2 * 1024 * 1024));
  assert.equal(piece?.kind, "error");
  assert.deepEqual(reader.end(), []);
});
