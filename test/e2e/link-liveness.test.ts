import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { WebSocket, WebSocketServer } from "ws";
import { LINK_CLOSE, readAgentFrame, type AgentMessage } from "../../src/contract/agent-link.ts";
import { PeerSocket } from "../../src/control/link/peer-socket.ts";
import { VirtualClock } from "../../src/testing/virtual-clock.ts";
import { passTime, passTimeUntil } from "./support/virtual-time.ts";

type Said = Exclude<AgentMessage, { type: "ping" | "pong" }>;

interface Pair extends AsyncDisposable {
  readonly clock: VirtualClock;
  readonly client: WebSocket;
  readonly peer: PeerSocket<Said>;
  readonly heard: Said[];
  readonly closes: number[];
}

/** The control plane's side of a connection on virtual time, and the other side as a plain socket. */
async function pair(heldBytesMax = 1_000_000): Promise<Pair> {
  const clock = new VirtualClock();
  const server = createServer();
  const sockets = new WebSocketServer({ server });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  const taken = new Promise<WebSocket>((resolve) => sockets.once("connection", resolve));
  const client = new WebSocket(`ws://127.0.0.1:${port}`);
  client.on("error", () => {});
  const heard: Said[] = [];
  const closes: number[] = [];
  const peer = new PeerSocket<Said>(await taken, {
    clock,
    read: readAgentFrame,
    heldBytesMax,
    onMessage: (message) => heard.push(message),
    onClose: (code) => closes.push(code),
  });
  return {
    clock,
    client,
    peer,
    heard,
    closes,
    [Symbol.asyncDispose]: async () => {
      client.terminate();
      sockets.close();
      await new Promise<void>((resolve) => server.close(() => resolve()));
    },
  };
}

const answerPings = (client: WebSocket): void => {
  client.on("message", (data) => {
    const { type, n } = JSON.parse((data as Buffer).toString("utf8")) as { type: string; n: number };
    if (type === "ping") client.send(JSON.stringify({ type: "pong", n }));
  });
};

test("a peer that answers pings stays; one that stops answering is dead within 35 s, whatever else it says [80.A2]", async () => {
  await using world = await pair();
  const { client, clock, closes } = world;
  const answering = new AbortController();
  client.on("message", (data) => {
    const { type, n } = JSON.parse((data as Buffer).toString("utf8")) as { type: string; n: number };
    if (type === "ping" && !answering.signal.aborted) client.send(JSON.stringify({ type: "pong", n }));
  });
  await passTime(clock, 300_000);
  assert.deepEqual(closes, []);
  answering.abort();
  const talk = (): boolean => {
    if (client.readyState === WebSocket.OPEN) client.send('{"type":"ping","n":1}');
    return closes.length > 0;
  };
  const ms = await passTimeUntil(clock, "its end", talk, 60_000);
  assert.ok(ms <= 35_000, `${ms} ms after the last answer`);
});

test("an answer to an older ping proves nothing of now [80.A2]", async () => {
  await using world = await pair();
  const { client, clock, closes } = world;
  const late: number[] = [];
  client.on("message", (data) => {
    const { type, n } = JSON.parse((data as Buffer).toString("utf8")) as { type: string; n: number };
    if (type !== "ping") return;
    late.push(n);
    if (late.length > 1) client.send(JSON.stringify({ type: "pong", n: late[late.length - 2] }));
  });
  await passTimeUntil(clock, "its end", () => closes.length > 0, 60_000);
});

test("a peer that does not close when it is asked to is cut, and the end is told once", async () => {
  await using world = await pair();
  const { client, clock, closes, peer } = world;
  client.pause();
  peer.close(LINK_CLOSE.replaced, "a newer one");
  await passTimeUntil(clock, "its end", () => closes.length > 0, 5_000);
  await passTime(clock, 60_000);
  assert.equal(closes.length, 1);
});

test("a peer that does not read is given no more than its bound, and the sender is told so [80.C25 80.I9]", async () => {
  await using world = await pair(1_000_000);
  const { client, peer } = world;
  answerPings(client);
  client.pause();
  const frame = JSON.stringify({ type: "x", text: "x".repeat(100_000) });
  let taken = 0;
  while (peer.send(frame) && taken < 10_000) taken += 1;
  assert.ok(taken > 0 && taken < 10_000);
  assert.ok(peer.heldBytes < 1_200_000, `${peer.heldBytes}`);
  assert.equal(peer.send(frame), false);
});
