import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { HEADROOM, ReadBuffer } from "./read-buffer.ts";

const WINDOW_MAX = 65_536;

test("bytes that were handed over, and those in front of a read, are never written by a later read", () => {
  const anyRead = fc.record({ share: fc.double({ min: 0, max: 1, noNaN: true }), handedOver: fc.boolean() });
  fc.assert(
    fc.property(fc.array(anyRead, { maxLength: 60 }), (reads) => {
      const buffer = new ReadBuffer();
      const kept: { readonly view: Uint8Array; readonly copy: Buffer }[] = [];
      for (const [index, { share, handedOver }] of reads.entries()) {
        const { bytes, base, window } = buffer;
        const length = Math.max(1, Math.round(window.length * share));
        bytes.fill(255, base - HEADROOM, base); // The reader's to use.
        window.fill(index, 0, length);
        if (handedOver) kept.push({ view: window.subarray(0, length), copy: Buffer.from(window.subarray(0, length)) });
        buffer.afterRead(length, handedOver);
      }
      for (const { view, copy } of kept) assert.deepEqual(Buffer.from(view), copy);
    }),
  );
});

test("it grows from 1 KiB to 64 KiB while reads fill it, and no further", () => {
  const buffer = new ReadBuffer();
  const sizes = Array.from({ length: 8 }, () => {
    const size = buffer.window.length;
    buffer.afterRead(size, false);
    return size;
  });
  assert.deepEqual(sizes, [1_024, 4_096, 8_192, 16_384, 32_768, WINDOW_MAX, WINDOW_MAX, WINDOW_MAX]);
});

test("a read that is not kept costs no memory", () => {
  const buffer = new ReadBuffer();
  const { window } = buffer;
  for (let i = 0; i < 100; i += 1) buffer.afterRead(250, false);
  assert.equal(buffer.window, window);
});

test("small reads that are kept share their memory instead of taking a whole buffer each", () => {
  const buffer = new ReadBuffer();
  const memories = new Set<ArrayBufferLike>();
  for (let i = 0; i < 40; i += 1) {
    memories.add(buffer.window.buffer);
    buffer.afterRead(250, true);
  }
  assert.ok(memories.size <= 8, `${memories.size} buffers for 40 reads`);
});
