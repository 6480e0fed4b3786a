import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type AddressInfo, type Socket } from "node:net";
import { test } from "node:test";
import { RawClient } from "./raw-client.ts";
import { within } from "./wait-for.ts";

async function aServer(serve: (socket: Socket) => void): Promise<AsyncDisposable & { port: number }> {
  const sockets = new Set<Socket>();
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    sockets.add(socket);
    socket.on("error", () => {});
    serve(socket);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    port: (server.address() as AddressInfo).port,
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, "close");
    },
  };
}

test("bytes are written and read as they are, taken once, and an early end rejects a wait with what came", async () => {
  await using server = await aServer((socket) =>
    socket.on("data", (data) => socket.end(Buffer.concat([data, Buffer.from([0xff, 0])]))),
  );
  using client = await RawClient.connect(server.port);
  await client.write("GET / \xe9\r\n");
  assert.equal((await client.readUntil(/\r\n\xff\0$/)).toString("latin1"), "GET / \xe9\r\n\xff\0");
  await client.readToEnd();
  assert.equal(client.ending, "closed");
  assert.equal(client.take().length, 11);
  assert.equal(client.received.length, 0);
  await assert.rejects(client.readUntil("more"), /the other side ended \(closed\)/);
});

test("a half-close reaches the other side while the answer still comes, and a reset is told from an end", async () => {
  await using server = await aServer((socket) => {
    socket.on("end", () => socket.write("after your end", () => socket.resetAndDestroy()));
    socket.resume();
  });
  using client = await RawClient.connect(server.port);
  client.halfClose();
  await client.readToEnd();
  assert.equal(client.ending, "reset");
  assert.equal(client.error?.code, "ECONNRESET");
});

test("our reset is seen as one by the other side", async () => {
  const seen = Promise.withResolvers<string | undefined>();
  await using server = await aServer((socket) => {
    socket.on("error", (error: NodeJS.ErrnoException) => seen.resolve(error.code));
    socket.write("ready");
  });
  using client = await RawClient.connect(server.port);
  await client.readUntil("ready");
  client.reset();
  assert.equal(await within("the reset", seen.promise), "ECONNRESET");
});

test("a paused client takes no bytes, so that the writer is held up, and gets them all when it goes on", async () => {
  const size = 16 * 1024 * 1024; // More than the system's buffers take.
  const held = Promise.withResolvers<boolean>();
  await using server = await aServer((socket) => {
    held.resolve(socket.write(Buffer.alloc(size)));
    socket.end();
  });
  using client = await RawClient.connect(server.port, { paused: true });
  assert.equal(await within("the write", held.promise), false);
  assert.equal(client.received.length, 0);
  client.resume();
  assert.equal((await client.readToEnd()).length, size);
});
