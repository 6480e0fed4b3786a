import assert from "node:assert/strict";
import { createServer, type AddressInfo, type Socket } from "node:net";
import { test } from "node:test";
import { RawClient } from "../../testing/raw-client.ts";
import { eventually } from "../../testing/wait-for.ts";
import { adoptSocket, readByEvents, type ReadInto } from "./adopt-socket.ts";

const WAYS: readonly (readonly [string, (accepted: Socket, into: ReadInto) => Socket])[] = [
  ["the handle changes its owner", adoptSocket],
  ["the handle is not to be found", readByEvents],
];

for (const [name, take] of WAYS) {
  test(`every byte lands once and in order in the window that was asked for, and the socket writes and ends, where ${name} [10.X1]`, async () => {
    const memory = Buffer.alloc(1_000);
    let got = "";
    let ended = 0;
    let writer: Socket | undefined;
    const server = createServer({ pauseOnConnect: true }, (accepted) => {
      let size = 0;
      const socket = take(accepted, {
        buffer: () => memory.subarray(0, (size = (size % 7) + 1)),
        callback: (length) => {
          got += memory.toString("latin1", 0, length);
          return true;
        },
      });
      writer = socket;
      socket.on("end", () => (ended += 1));
      socket.on("error", () => {});
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    try {
      using client = await RawClient.connect((server.address() as AddressInfo).port);
      const text = Array.from({ length: 400 }, (_, at) => String.fromCharCode(33 + (at % 90))).join("");
      await client.write(text.slice(0, 150));
      await client.write(text.slice(150));
      await eventually(
        "all is read",
        () => got.length,
        (length) => length === text.length,
      );
      assert.equal(got, text);
      writer?.write("answer");
      await client.readUntil("answer");
      assert.equal(writer?.remoteAddress, "127.0.0.1");
      client.halfClose();
      await eventually(
        "the end is told",
        () => ended,
        (count) => count === 1,
      );
      await client.readToEnd();
    } finally {
      server.close();
    }
  });
}
