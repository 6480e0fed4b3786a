import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { BodyEdges } from "./body-edges.ts";
import { readBodyUsage } from "./body-usage.ts";

test("the two ends of a large answer tell what the whole of it tells, in any pieces [10.X4]", () => {
  const filler = "1.25,".repeat(30_000);
  const usage = '"usage":{"prompt_tokens":7,"completion_tokens":0,"total_tokens":7}';
  const bodies = [
    `{"data":[${filler}1],${usage}}`,
    `{${usage},"data":[${filler}1]}`,
    `{"data":[${filler}1]}`,
    `{"data":[${filler}1],${usage}`,
    `[${filler}1]\n`,
  ].map((text) => Buffer.from(text));
  fc.assert(
    fc.property(
      fc.constantFrom(...bodies),
      fc.array(fc.integer({ min: 1, max: 90_000 }), { minLength: 1, maxLength: 5 }),
      (body, sizes) => {
        const edges = new BodyEdges();
        for (let at = 0, turn = 0; at < body.length; turn += 1) {
          const size = sizes[turn % sizes.length] ?? 1;
          if (size < 50) {
            edges.push(body.subarray(at, at + 20_000));
            at += 20_000;
          } else {
            edges.push(body.subarray(at, at + size));
            at += size;
          }
        }
        assert.deepEqual(edges.facts(), readBodyUsage(body));
      },
    ),
    { numRuns: 40 },
  );
});
