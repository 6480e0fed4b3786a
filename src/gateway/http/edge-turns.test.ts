import assert from "node:assert/strict";
import { connect } from "node:net";
import { test } from "node:test";
import { systemClock } from "../../kernel/clock.ts";
import { bodyBlocks } from "./body-blocks.ts";
import type { ClientRequest } from "./client-port.ts";
import { NetEdgeServer } from "./net-edge-server.ts";

const HTTP = { headersTimeoutMs: 5_000, bodyIdleMs: 5_000, keepAliveMs: 60_000 };
const BODY = 8 * 1024 * 1024;
const TURN_BYTES_MAX = 256 * 1024;

/** Bytes of the body by turn of the event loop; `onPiece` is called behind each piece. */
async function uploadTurns(
  holdsAll: boolean,
  onPiece: (req: ClientRequest, turn: number) => void = () => {},
): Promise<Map<number, number>> {
  const turns = new Map<number, number>();
  let turn = 0;
  let over = false;
  const count = (): void => {
    turn += 1;
    if (!over) setImmediate(count);
  };
  const whole = Promise.withResolvers<void>();
  const onRequest = (req: ClientRequest): void =>
    req.readBody({
      holdsAll,
      onData: (piece) => {
        turns.set(turn, (turns.get(turn) ?? 0) + piece.length);
        onPiece(req, turn);
      },
      onBroken: () => {},
      onEnd: () => whole.resolve(),
    });
  const server = new NetEdgeServer({ onRequest, onRefused: () => "r-1" }, systemClock, HTTP, 10);
  const { port } = await server.listen("127.0.0.1", 0);
  const client = connect(port, "127.0.0.1");
  client.write(`POST / HTTP/1.1\r\nHost: h\r\nContent-Length: ${BODY}\r\n\r\n`);
  client.write(Buffer.alloc(BODY, "x"));
  count();
  await whole.promise;
  over = true;
  client.destroy();
  server.destroyAll();
  await server.close();
  assert.equal(
    [...turns.values()].reduce((sum, bytes) => sum + bytes, 0),
    BODY,
  );
  return turns;
}

for (const [how, holdsAll] of [
  ["into memory of its own", true],
  ["in pieces", false],
] as const)
  test(`an upload that has come already is read ${how} over many turns of the event loop, so that others come first [80.G13]`, async () => {
    const turns = await uploadTurns(holdsAll);
    // What came with the head counts with the read behind it.
    assert.ok(Math.max(...turns.values()) < 2 * TURN_BYTES_MAX, `${Math.max(...turns.values())} bytes in one turn`);
    assert.ok(turns.size >= BODY / (2 * TURN_BYTES_MAX), `${turns.size} turns`);
  });

test("a body that is paused while others come first stays paused until it is resumed [10.X1]", async () => {
  const early: number[] = [];
  let resumedAt = 0;
  await uploadTurns(true, (req, turn) => {
    if (turn < resumedAt) early.push(turn);
    resumedAt = turn + 3;
    req.pauseBody();
    let left = 4;
    const wait = (): void => {
      left -= 1;
      if (left === 0) req.resumeBody();
      else setImmediate(wait);
    };
    wait();
  });
  assert.deepEqual(early, []);
});

test("without a connection no memory for bodies is kept [80.G13]", async () => {
  bodyBlocks.giveBack(bodyBlocks.take(BODY).buffer);
  assert.equal(bodyBlocks.freeBytes, BODY);
  await uploadTurns(false);
  assert.equal(bodyBlocks.freeBytes, 0);
});
