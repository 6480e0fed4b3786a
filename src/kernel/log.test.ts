import assert from "node:assert/strict";
import { test } from "node:test";
import { inspect } from "node:util";
import fc from "fast-check";
import { VirtualClock } from "../testing/virtual-clock.ts";
import { BatchedLogger, type LogFields } from "./log.ts";
import { Secret } from "./secret.ts";

function written(format: "pretty" | "json", act: (log: BatchedLogger) => void): string {
  const texts: string[] = [];
  const log = new BatchedLogger({
    clock: new VirtualClock(),
    sink: { write: (text) => texts.push(text) },
    level: "info",
    format,
  });
  act(log);
  log.flush();
  return texts.join("");
}

/** What ends a line, moves a cursor or turns the order of text somewhere. */
// oxlint-disable-next-line no-control-regex -- control characters are what it looks for
const DANGEROUS = /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069]/;

for (const format of ["pretty", "json"] as const) {
  test(`no text from outside splits a ${format} log line or moves the reader's cursor [80.D16]`, () => {
    fc.assert(
      fc.property(fc.string({ unit: "binary" }), (value) => {
        const text = written(format, (log) => log.warn("engine.failed", { value, more: "end" }));
        assert.equal(text.split("\n").length, 2);
        assert.doesNotMatch(text, DANGEROUS);
        if (format === "json") assert.equal((JSON.parse(text) as { value: string }).value, value);
      }),
    );
    const text = written(format, (log) =>
      log.warn("engine.failed", { value: "a\r\n\u0000\u0085\u2028\u001b[2J\u009b\u202eb" }),
    );
    assert.equal(text.split("\n").length, 2);
    assert.doesNotMatch(text, DANGEROUS);
  });

  test(`a secret that slips into a ${format} log line shows as a mask [80.C45]`, () => {
    const secret = new Secret("CANARY-1234");
    const fields = {
      value: secret,
      text: String(secret),
      seen: inspect({ secret }),
      json: JSON.stringify({ secret }),
    } as unknown as LogFields;
    const text = written(format, (log) => log.info("key.used", fields));
    assert.doesNotMatch(text, /CANARY/);
    assert.equal(text.match(/\[redacted\]/g)?.length, 4);
  });
}

test("lines beyond the bound are counted, the count is told once, and a sink that is stuck costs no memory", () => {
  const texts: string[] = [];
  const log = new BatchedLogger({
    clock: new VirtualClock(),
    sink: { write: (text) => texts.push(text) },
    level: "info",
    format: "json",
  });
  for (let i = 0; i < 10_250; i += 1) log.info("a.b", { i });
  assert.equal(log.lostTotal, 250);
  log.flush();
  log.flush();
  const lines = texts.join("").trimEnd().split("\n");
  assert.equal(lines.length, 10_001);
  assert.equal((JSON.parse(lines.at(-1) ?? "") as { op: string; lines: number }).lines, 250);
});

test("lines below the level are not written, and lines are written without being asked after a moment", async () => {
  const texts: string[] = [];
  const clock = new VirtualClock();
  const log = new BatchedLogger({
    clock,
    sink: { write: (text) => texts.push(text) },
    level: "warn",
    format: "pretty",
  });
  log.info("a.b");
  log.warn("c.d", { quoted: 'a "b"', absent: undefined, empty: "" });
  assert.deepEqual(texts, []);
  await clock.advance(100);
  assert.deepEqual(texts, ['2026-01-01T00:00:00.000Z WARN  c.d quoted="a \\"b\\"" empty=""\n']);
});
