import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";
import { test } from "node:test";
import { resetSocket } from "./reset-socket.ts";

for (const said of ["nothing", "its end"] as const)
  test(`a connection that has said ${said} is closed, and its other side learns of it`, async () => {
    const { promise, resolve } = Promise.withResolvers<Socket>();
    const server = createServer(resolve).listen(0, "127.0.0.1");
    await once(server, "listening");
    const address = server.address();
    assert.ok(address !== null && typeof address === "object");
    const socket = connect(address.port, "127.0.0.1");
    await once(socket, "connect");
    const other = await promise;
    const code = new Promise<string>((done) => {
      other.once("error", (error) => done("code" in error ? String(error.code) : "error"));
      other.once("end", () => done("end"));
    });
    other.resume();
    const errors: unknown[] = [];
    socket.on("error", (error) => errors.push(error));
    if (said === "its end") socket.end("x");
    resetSocket(socket);
    await once(socket, "close");
    assert.deepEqual(errors, []);
    assert.ok(["ECONNRESET", "end"].includes(await code));
    other.destroy();
    server.close();
    await once(server, "close");
  });
