import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { anyStream, splitEvents } from "../../testing/sse-streams.ts";
import { UsageFilter } from "./usage-filter.ts";

function filter(bytes: Buffer, cuts: readonly number[] = []): Buffer {
  const usageFilter = new UsageFilter();
  const bounds = [0, ...cuts, bytes.length];
  const parts: Buffer[] = [];
  for (let index = 1; index < bounds.length; index++) {
    const payload = Buffer.from(bytes.subarray(bounds[index - 1], bounds[index]));
    parts.push(...usageFilter.push(payload).map((part) => Buffer.from(part)));
    payload.fill(0x78);
  }
  return Buffer.concat([...parts, ...usageFilter.finish()]);
}

const USAGE = 'data: {"id":"c","choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}';
const each = (text: string): number[] => Array.from({ length: Buffer.byteLength(text) }, (_, index) => index);

test("exactly the usage event that the gateway asked for is removed, with any line ending and in any pieces [10.X4]", () => {
  for (const end of ["\n", "\r\n", "\r"]) {
    const before = `data: {"choices":[{"finish_reason":"stop"}]}${end}${end}`;
    const after = `data: [DONE]${end}${end}`;
    const stream = `${before}${USAGE}${end}${end}${after}`;
    assert.equal(filter(Buffer.from(stream)).toString(), before + after, JSON.stringify(end));
    assert.equal(filter(Buffer.from(stream), each(stream)).toString(), before + after, JSON.stringify(end));
  }
});

test("a usage event that is the first of a stream goes, and the byte order mark before it stays [10.X4]", () => {
  const stream = `\uFEFF${USAGE}\n\ndata: [DONE]\n\n`;
  for (const cuts of [[], [1], [2], [3], each(stream)]) {
    assert.equal(filter(Buffer.from(stream), cuts).toString(), "\uFEFFdata: [DONE]\n\n", JSON.stringify(cuts));
  }
});

test("events that only resemble it pass [10.X4]", () => {
  const events = [
    'data: {"choices":[{"index":0,"delta":{}}],"usage":{"prompt_tokens":1}}\n\n',
    'data: {"choices":[],"usage":null}\n\n',
    'data: {"choices":[],"prompt_filter_results":[]}\n\n',
    'data: {"choices":[],"usage":{},"error":{"message":"x"}}\n\n',
    'data: {"choices":[],"usage":{}\n\n',
    'data: {"type":"message_delta","usage":{"output_tokens":1}}\n\n',
    `: ${USAGE}\n\n`,
    "\n\n\r\n",
  ];
  assert.equal(filter(Buffer.from(events.join(""))).toString(), events.join(""));
});

test("an event too long to hold passes on before it is whole", () => {
  const usageFilter = new UsageFilter();
  const start = Buffer.from(`data: {"usage":{},"choices":[],"x":"${"y".repeat(70_000)}`);
  assert.equal(Buffer.concat(usageFilter.push(start)).length, start.length);
  assert.equal(Buffer.concat(usageFilter.push(Buffer.from(`"}\n\n${USAGE}\n\n`))).toString(), '"}\n\n');
  assert.deepEqual(usageFilter.finish(), []);
});

test("without usage events a stream passes byte for byte; with them all other events do [10.X1 10.X4]", () => {
  fc.assert(
    fc.property(anyStream(), ({ bytes, cuts }) => {
      const out = filter(bytes, cuts);
      const isUsage = (data: string): boolean => /^\{[^]*"choices":\s*\[\][^]*"usage":\s*\{/.test(data);
      const { events } = splitEvents(bytes);
      const kept = events.filter(({ data }) => !isUsage(data));
      assert.deepEqual(splitEvents(out).events, kept);
      if (kept.length === events.length) assert.ok(out.equals(bytes));
    }),
    { numRuns: 200 },
  );
});
