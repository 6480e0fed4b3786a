import assert from "node:assert/strict";
import { test } from "node:test";
import { BodyMemory, FREED_BYTES_MIN } from "./body-memory.ts";
import { RequestReader } from "./request-reader.ts";

const large = (): Buffer => Buffer.allocUnsafeSlow(FREED_BYTES_MIN);

test("the budget gets its bytes back once, and large memory of its own is freed only on the word that nothing looks at it [80.G13]", () => {
  for (const unused of [true, false]) {
    let given = 0;
    const chunks = [large(), Buffer.from("small"), large().subarray(1), large()];
    const memory = new BodyMemory(chunks, () => (given += 1));
    memory.free(unused);
    memory.free(!unused);
    assert.equal(given, 1);
    assert.deepEqual(
      chunks.map(({ length }) => length > 0),
      [!unused, true, true, !unused],
    );
  }
});

test("freed memory is given back to the system without a collection [80.G13]", () => {
  const before = process.memoryUsage().arrayBuffers;
  for (let i = 0; i < 200; i += 1) new BodyMemory([large().fill(i)], () => {}).free(true);
  assert.ok(process.memoryUsage().arrayBuffers - before < 20 * FREED_BYTES_MIN);
});

test("a body of some size that came with its head lies alone, so that it can be freed [80.G13]", () => {
  const pieces: Buffer[] = [];
  const reader = new RequestReader({ onHead: () => {}, onBody: (piece) => pieces.push(piece), onBodyEnd: () => {} });
  const plain = `POST / HTTP/1.1\r\nHost: h\r\nContent-Length: ${FREED_BYTES_MIN}\r\n\r\n`;
  const chunked = `POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n${FREED_BYTES_MIN.toString(16)}\r\n`;
  const body = "b".repeat(FREED_BYTES_MIN);
  for (const text of [`${plain}${body}`, `${chunked}${body}\r\n0\r\n\r\n`]) {
    reader.read(Buffer.from(text), 0, text.length);
    reader.next();
  }
  new BodyMemory(pieces, () => {}).free(true);
  assert.deepEqual(
    pieces.map(({ length }) => length),
    [0, 0],
  );
});
