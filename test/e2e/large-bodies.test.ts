import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { createServer, type AddressInfo, type Socket } from "node:net";
import { test } from "node:test";
import { RawClient } from "../../src/testing/raw-client.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { aChat, heard, requestBytes } from "./support/raw-answers.ts";
import { aChunk, aCompletion, aFinish, aToken, DONE, jsonAnswer, LAST_CHUNK, SSE_HEAD } from "./support/raw-engine.ts";
import { startTestGateway } from "./support/test-gateway.ts";

// Bodies whose memory is freed as soon as nothing looks at it: an engine that answers before it has taken all of one, and one
// that takes them in turn, get every byte.

const sha = (bytes: Buffer | string): string => createHash("sha256").update(bytes).digest("hex");

interface Engine extends AsyncDisposable {
  readonly port: number;
  /** Digests of the bodies that came whole. */
  readonly bodies: string[];
}

/** Calls back at the head of a request, and at its end; reads only while the socket is not paused. */
async function listen(onHead: (socket: Socket) => void, onBody: (socket: Socket) => void): Promise<Engine> {
  const bodies: string[] = [];
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    let parts: Buffer[] = [];
    let missing = -1;
    socket.on("error", () => {});
    socket.on("close", () => sockets.delete(socket));
    socket.on("data", (chunk) => {
      let piece = chunk;
      if (missing < 0) {
        const headEnd = piece.indexOf("\r\n\r\n");
        missing = Number(/content-length: (\d+)/i.exec(piece.toString("latin1", 0, headEnd))?.[1]);
        piece = piece.subarray(headEnd + 4);
        parts = [];
        onHead(socket);
      }
      parts.push(piece);
      missing -= piece.length;
      if (missing > 0) return;
      missing = -1;
      bodies.push(sha(Buffer.concat(parts)));
      onBody(socket);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    port: (server.address() as AddressInfo).port,
    bodies,
    [Symbol.asyncDispose]: async () => {
      for (const socket of sockets) socket.destroy();
      await new Promise<void>((resolve) => server.close(() => resolve()));
    },
  };
}

const upstreamTo = (port: number): Record<string, unknown> => ({
  id: "raw",
  engine: "vllm",
  health: "passive",
  models: ["m"],
  slots: 16,
  endpoints: [{ url: `http://127.0.0.1:${port}` }],
});

test("an engine that begins its answer before it has taken a large body still gets every byte of it [10.X1 80.G13]", async () => {
  let halted: Socket | undefined;
  await using engine = await listen(
    (socket) => {
      socket.pause();
      halted = socket;
      socket.write(SSE_HEAD + aChunk(aToken("early")).toString());
    },
    (socket) => void socket.write(aChunk(aFinish() + DONE).toString() + LAST_CHUNK),
  );
  const gateway = await startTestGateway({ upstreams: [upstreamTo(engine.port)] });
  try {
    const body = aChat({ stream: true, user: "0123456789abcdef".repeat(1_500_000) });
    using client = await RawClient.connect(gateway.port);
    await client.write(requestBytes(gateway, { body }));
    await client.readUntil("early");
    assert.deepEqual(engine.bodies, []);
    halted?.resume();
    const got = await heard(client);
    assert.equal(got.whole, true);
    assert.deepEqual(engine.bodies, [sha(JSON.stringify(body))]);
  } finally {
    await gateway.stop();
  }
});

test("forty large bodies in turn arrive byte for byte, and none of their memory stays booked [10.X1 80.G13]", async () => {
  await using engine = await listen(
    () => {},
    (socket) => void socket.write(jsonAnswer(aCompletion())),
  );
  const gateway = await startTestGateway({ upstreams: [upstreamTo(engine.port)] });
  try {
    using client = await RawClient.connect(gateway.port);
    const sent: string[] = [];
    for (let turn = 0; turn < 40; turn += 1) {
      const body = aChat({ stream: false, user: String.fromCharCode(97 + (turn % 26)).repeat(3_000_000 + turn) });
      sent.push(sha(JSON.stringify(body)));
      await client.write(requestBytes(gateway, { body, headers: ["Connection: keep-alive"] }));
      await client.readUntil((bytes) => bytes.includes("chat.completion"));
      client.take();
    }
    assert.deepEqual(engine.bodies, sent);
    await eventually(
      "no memory is booked",
      () => gateway.metric("yardmaster_buffered_bytes"),
      (bytes) => bytes === 0,
    );
  } finally {
    await gateway.stop();
  }
});
