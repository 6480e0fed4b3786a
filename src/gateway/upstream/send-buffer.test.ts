import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { SendBuffer } from "./send-buffer.ts";

const aBody = (bytes: number, fill: number): Buffer[] => {
  const body = Buffer.alloc(bytes, fill);
  return [body.subarray(0, bytes >> 1), body.subarray(bytes >> 1)];
};

test("a request is its head and body whatever was put together before, and bytes that were given away are never written again [80.G13]", () => {
  const anySend = fc.record({
    head: fc.integer({ min: 1, max: 2_000 }),
    body: fc.oneof(fc.integer({ min: 0, max: 2_000 }), fc.integer({ min: 0, max: 90_000 })),
    taken: fc.boolean(),
  });
  fc.assert(
    fc.property(fc.array(anySend, { maxLength: 40 }), (sends) => {
      const buffer = new SendBuffer();
      const kept: { readonly view: Buffer; readonly copy: Buffer }[] = [];
      for (const [index, { head, body, taken }] of sends.entries()) {
        const text = String.fromCharCode(0x80 + index).repeat(head);
        const parts = aBody(body, index);
        const view = buffer.join(text, parts, body);
        assert.deepEqual(view, Buffer.concat([Buffer.from(text, "latin1"), ...parts]));
        if (taken) continue;
        kept.push({ view, copy: Buffer.from(view) });
        buffer.giveAway();
      }
      for (const { view, copy } of kept) assert.deepEqual(view, copy);
    }),
  );
});

test("requests that are taken at once cost no memory [80.G13]", () => {
  const buffer = new SendBuffer();
  const memories = new Set<ArrayBufferLike>();
  for (let i = 0; i < 100; i += 1) memories.add(buffer.join("head", aBody(16_000, i), 16_000).buffer);
  assert.equal(memories.size, 1);
});

test("of a body that is gone nothing else takes the place [80.G13]", () => {
  const buffer = new SendBuffer();
  buffer.join("other head", aBody(100, 1), 100);
  assert.equal(buffer.join("head", [Buffer.alloc(0)], 50).toString(), "head");
});
