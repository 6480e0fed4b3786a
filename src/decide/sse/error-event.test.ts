import assert from "node:assert/strict";
import { test } from "node:test";
import { splitEvents } from "../../testing/sse-streams.ts";
import { renderErrorEvent } from "./error-event.ts";

test("a break is told in the stream's own format [10.X5]", () => {
  const openai = splitEvents(renderErrorEvent("openai", "UPSTREAM_ERROR", "gone", true, { requestId: "r" })).events;
  assert.equal(openai.length, 1);
  assert.equal(openai[0]?.name, "");
  const error = (JSON.parse(openai[0]?.data ?? "") as { error: { code: string; message: string } }).error;
  assert.deepEqual([error.code, error.message], ["UPSTREAM_ERROR", "gone"]);

  const anthropic = splitEvents(renderErrorEvent("anthropic", "UPSTREAM_TIMEOUT", "silent", true)).events[0];
  assert.equal(anthropic?.name, "error");
  assert.equal((JSON.parse(anthropic?.data ?? "") as { type: string }).type, "error");

  const responses = splitEvents(renderErrorEvent("responses", "DRAINING", "stopping", true, { sequence: 8 })).events[0];
  assert.equal(responses?.name, "error");
  assert.deepEqual(JSON.parse(responses?.data ?? ""), {
    type: "error",
    code: "DRAINING",
    message: "stopping",
    param: null,
    sequence_number: 8,
  });
});

test("an event that has begun is closed first, and no [DONE] follows [10.X5]", () => {
  const half = Buffer.from('data: {"a":1}\n\ndata: {"cho');
  for (const format of ["openai", "anthropic", "responses"] as const) {
    const { events, atBoundary } = splitEvents(
      Buffer.concat([half, renderErrorEvent(format, "UPSTREAM_ERROR", 'line\nbreak "quoted"', false)]),
    );
    assert.equal(events.length, 3);
    assert.ok(atBoundary);
    assert.match(events[2]?.data ?? "", /^\{.*UPSTREAM_ERROR.*\}$/);
    assert.ok(!events.some(({ data }) => data.includes("[DONE]")));
  }
});
