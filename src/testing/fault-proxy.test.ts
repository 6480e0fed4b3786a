import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type AddressInfo, type Socket } from "node:net";
import { test, type TestContext } from "node:test";
import { systemClock, type Clock } from "../kernel/clock.ts";
import { FaultProxy } from "./fault-proxy.ts";
import { RawClient } from "./raw-client.ts";
import { VirtualClock } from "./virtual-clock.ts";
import { eventually, Watched } from "./wait-for.ts";

/** A server behind a proxy; it keeps what it received, and echoes it unless told otherwise. */
async function aProxied(t: TestContext, clock: Clock, serve?: (socket: Socket) => void) {
  const state = new Watched();
  const seen = { bytes: [] as Buffer[], endings: [] as string[] };
  const sockets: Socket[] = [];
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    sockets.push(socket);
    socket.on("data", (data) => {
      seen.bytes.push(data);
      state.changed();
    });
    socket.on("end", () => {
      seen.endings.push("end");
      state.changed();
    });
    socket.on("error", (error: NodeJS.ErrnoException) => {
      seen.endings.push(error.code ?? "");
      state.changed();
    });
    (serve ?? ((peer) => peer.pipe(peer)))(socket);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const proxy = await FaultProxy.start({ clock, target: { port: (server.address() as AddressInfo).port } });
  t.after(async () => {
    await proxy.down();
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  const received = (): string => Buffer.concat(seen.bytes).toString("latin1");
  return { proxy, seen, state, received };
}

test("without toxics bytes, the half-close and a reset pass as they are", async (t) => {
  const { proxy, seen, state } = await aProxied(t, systemClock);
  using client = await RawClient.connect(proxy.port);
  await client.write("hello \xff\0");
  client.halfClose();
  assert.equal((await client.readToEnd()).toString("latin1"), "hello \xff\0");
  assert.equal(client.ending, "closed");
  assert.deepEqual(seen.endings, ["end"]);

  using second = await RawClient.connect(proxy.port);
  await second.write("x");
  await second.readUntil("x");
  second.reset();
  await state.until("the reset behind the proxy", () => seen.endings.includes("ECONNRESET"));
  assert.equal(proxy.accepted, 2);
});

test("latency delays each direction for itself, in order", async (t) => {
  const clock = new VirtualClock();
  const { proxy, state, received } = await aProxied(t, clock);
  proxy.add("downstream", { kind: "latency", latencyMs: 500, jitterMs: 100 });
  using client = await RawClient.connect(proxy.port);
  await client.write("one");
  await state.until("the request, which nothing delays", () => received() === "one");
  await client.write("two");
  await state.until("the second", () => received() === "onetwo");
  await clock.advance(399);
  assert.equal(client.text, "");
  // The echo reaches the proxy in real time, so virtual time goes on until it has been delayed.
  await eventually(
    "the late answer",
    () => clock.advance(700).then(() => client.text),
    (text) => text === "onetwo",
  );
});

test("a timeout toxic swallows what comes and closes in its time; taken away, data passes again", async (t) => {
  const clock = new VirtualClock();
  const { proxy, state, received } = await aProxied(t, clock);
  using blackhole = await RawClient.connect(proxy.port);
  const toxic = proxy.add("upstream", { kind: "timeout", timeoutMs: 0 });
  await blackhole.write("lost");
  await eventually(
    "the bytes in the proxy",
    () => proxy.open,
    (open) => open === 1,
  );
  await clock.advance(3_600_000);
  assert.equal(blackhole.ending, "open");
  assert.equal(received(), "");
  toxic[Symbol.dispose]();
  await blackhole.write("again");
  await state.until("what came after", () => received().endsWith("again"));

  proxy.add("downstream", { kind: "timeout", timeoutMs: 5_000 });
  using client = await RawClient.connect(proxy.port);
  await client.write("kept");
  await eventually(
    "the connection",
    () => proxy.open,
    (open) => open === 2,
  );
  await clock.advance(5_000);
  await client.readToEnd();
  assert.equal(client.ending, "closed");
  assert.equal(client.text, "");
});

test("a reset toxic resets both sides, and limit_data closes after its bytes, per connection", async (t) => {
  const clock = new VirtualClock();
  const { proxy, seen, state } = await aProxied(t, clock);
  using client = await RawClient.connect(proxy.port);
  await client.write("x");
  await client.readUntil("x");
  const reset = proxy.add("downstream", { kind: "reset_peer", timeoutMs: 100 });
  await clock.advance(100);
  await client.readToEnd();
  assert.equal(client.ending, "reset");
  await state.until("the reset behind the proxy", () => seen.endings.includes("ECONNRESET"));
  reset[Symbol.dispose]();

  proxy.add("downstream", { kind: "limit_data", bytes: 5 });
  for (let round = 0; round < 2; round += 1) {
    using limited = await RawClient.connect(proxy.port);
    await limited.write("1234567890");
    assert.equal((await limited.readToEnd()).toString(), "12345");
  }
});

test("a slicer cuts into pieces and a bandwidth paces them, and nothing is lost or reordered", async (t) => {
  const clock = new VirtualClock();
  const { proxy } = await aProxied(t, clock);
  proxy.add("upstream", { kind: "slicer", averageBytes: 3, variationBytes: 2, delayMs: 1 });
  proxy.add("downstream", { kind: "bandwidth", bytesPerS: 1_000 });
  using client = await RawClient.connect(proxy.port);
  const text = Array.from({ length: 200 }, (_, index) => `${index},`).join("");
  await client.write(text);
  const start = clock.mono();
  await eventually(
    "everything",
    () => clock.advance(10).then(() => client.text),
    (seen) => seen === text,
  );
  const passedMs = clock.mono() - start;
  assert.ok(passedMs >= 500, `${text.length} bytes at 1000 B/s passed in ${passedMs} virtual ms`);
});

test("slow_close passes the end on late", async (t) => {
  const clock = new VirtualClock();
  const { proxy } = await aProxied(t, clock, (socket) => socket.end("bye"));
  proxy.add("downstream", { kind: "slow_close", delayMs: 1_000 });
  using client = await RawClient.connect(proxy.port);
  await client.readUntil("bye");
  await clock.advance(999);
  assert.equal(client.ending, "open");
  await eventually(
    "the end",
    () => clock.advance(1_000).then(() => client.ending),
    (ending) => ending === "closed",
  );
});

test("down breaks what is open and refuses what comes; up listens on the same port", async (t) => {
  const { proxy } = await aProxied(t, systemClock);
  using client = await RawClient.connect(proxy.port);
  await client.write("x");
  await client.readUntil("x");
  const { port } = proxy;
  await proxy.down();
  await client.readToEnd();
  assert.equal(client.ending, "reset");
  await assert.rejects(RawClient.connect(port), { code: "ECONNREFUSED" });
  await proxy.up();
  assert.equal(proxy.port, port);
  using again = await RawClient.connect(port);
  await again.write("y");
  await again.readUntil("y");
});

test("a client that does not read holds up the server behind the proxy", async (t) => {
  let sent = 0;
  let blocked = (): void => {};
  const stuck = new Promise<void>((resolve) => (blocked = resolve));
  const total = 64 * 1024 * 1024;
  const { proxy } = await aProxied(t, systemClock, (socket) => {
    const more = (): void => {
      while (sent < total) {
        sent += 65_536;
        if (!socket.write(Buffer.alloc(65_536))) return blocked();
      }
      socket.end();
    };
    socket.on("drain", more);
    more();
  });
  using client = await RawClient.connect(proxy.port, { paused: true });
  await stuck;
  // What the system's own buffers take is unknown, but it ends long before all is sent.
  let last = -1;
  await eventually(
    "the writer at rest",
    () => sent,
    (now) => now === last || ((last = now), false),
  );
  assert.ok(sent < total, `${sent} bytes were taken for a client that reads nothing`);
  client.resume();
  assert.equal((await client.readToEnd()).length, total);
});
