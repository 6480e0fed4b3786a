import assert from "node:assert/strict";
import { test } from "node:test";
import { BodyBlocks, bodyBlocks } from "./body-blocks.ts";
import { BodyMemory } from "./body-memory.ts";

const MIB = 1024 * 1024;

test("a large body's memory is used for the next of about its size, and who still has a view of the first finds it empty [80.G13]", () => {
  const blocks = new BodyBlocks();
  const first = blocks.take(4 * MIB).fill("first");
  const view = first.subarray(10, 20);
  assert.equal(blocks.giveBack(first.buffer), true);
  assert.deepEqual([first.length, view.length, blocks.freeBytes], [0, 0, 4 * MIB]);
  const second = blocks.take(3 * MIB);
  assert.equal(second.length, 3 * MIB);
  assert.equal(second.buffer.byteLength, 4 * MIB);
  assert.equal(second.toString("latin1", 0, 5), "first");
  assert.equal(blocks.freeBytes, 0);
});

test("a body that would fill little of a block, or more than all of it, gets memory of its own [80.G13]", () => {
  const blocks = new BodyBlocks();
  blocks.giveBack(blocks.take(4 * MIB).buffer);
  for (const length of [2 * MIB, 4 * MIB + 1, 1_000]) assert.equal(blocks.take(length).buffer.byteLength, length);
  assert.equal(blocks.freeBytes, 4 * MIB);
});

test("memory comes back once, and only if it was lent and is still here [80.G13]", () => {
  const blocks = new BodyBlocks();
  const lent = blocks.take(MIB);
  const { buffer } = lent;
  assert.equal(blocks.giveBack(buffer), true);
  assert.equal(blocks.giveBack(buffer), false);
  assert.equal(blocks.giveBack(Buffer.allocUnsafeSlow(MIB).buffer), false);
  const gone = blocks.take(2 * MIB);
  structuredClone(gone.buffer, { transfer: [gone.buffer as ArrayBuffer] });
  assert.equal(blocks.giveBack(gone.buffer), true);
  assert.equal(blocks.freeBytes, MIB);
});

test("what lies unused is bounded, and goes when nobody wanted it from one trim to the next [80.G13]", () => {
  const blocks = new BodyBlocks();
  const bodies = Array.from({ length: 12 }, () => blocks.take(10 * MIB));
  for (const { buffer } of bodies) blocks.giveBack(buffer);
  assert.equal(blocks.freeBytes, 60 * MIB);
  blocks.trim();
  assert.equal(blocks.freeBytes, 60 * MIB);
  blocks.giveBack(blocks.take(10 * MIB).buffer);
  blocks.trim();
  assert.equal(blocks.freeBytes, 10 * MIB);
  blocks.trim();
  assert.equal(blocks.freeBytes, 0);
  blocks.giveBack(blocks.take(MIB).buffer);
  blocks.clear();
  assert.equal(blocks.freeBytes, 0);
});

test("a body that came in such memory gives it back on the word that nothing looks at it, else never [80.G13]", () => {
  const before = bodyBlocks.freeBytes;
  for (const unused of [false, true]) {
    const body = bodyBlocks.take(MIB).subarray(0, MIB);
    new BodyMemory([body], () => {}).free(unused);
    assert.equal(bodyBlocks.freeBytes - before, unused ? MIB : 0);
    assert.equal(body.length, unused ? 0 : MIB);
  }
  bodyBlocks.clear();
});
