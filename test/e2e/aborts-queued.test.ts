import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { RawClient } from "../../src/testing/raw-client.ts";
import { RawServer, type RawCall } from "../../src/testing/raw-server.ts";
import { aChat, heard, parseAnswer, requestBytes } from "./support/raw-answers.ts";
import { aChunk, aCompletion, aFinish, aToken, DONE, jsonAnswer, LAST_CHUNK, SSE_HEAD } from "./support/raw-engine.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { startTestGateway, type TestGateway } from "./support/test-gateway.ts";

// Clients that leave the queue, in every way in which a connection can end, behind one that holds the only slot. The engine is
// written by hand: what it received is the proof.

let engine: RawServer;
let gateway: TestGateway;
let answer: (call: RawCall) => void;

before(async () => {
  engine = await RawServer.listen({ onCall: (call) => answer(call) });
  gateway = await startTestGateway({
    upstreams: [
      {
        id: "u",
        models: ["m"],
        engine: "vllm",
        health: "passive",
        slots: 1,
        batch_max: 1,
        endpoints: [{ url: `http://127.0.0.1:${engine.port}` }],
      },
    ],
  });
});
after(async () => {
  await gateway.stop();
  await engine[Symbol.asyncDispose]();
});

const waiting = (): Promise<number | undefined> =>
  gateway.metric('yardmaster_waiting{upstream="u",class="interactive"}');
const userOf = ({ body }: RawCall): string => JSON.parse(body.toString()).user;
const asUser = (user: string, more: Record<string, unknown> = {}): Buffer =>
  requestBytes(gateway, { body: aChat({ user, ...more }), headers: [`X-Request-Id: ${user}`] });

/** The client whose running answer must not be touched: its stream is written piece by piece by the test. */
class Holder {
  readonly client: RawClient;
  readonly #call: RawCall;
  #sent = "";

  static async start(): Promise<Holder> {
    const { promise, resolve } = Promise.withResolvers<RawCall>();
    answer = (call) => (userOf(call) === "X" ? resolve(call) : call.socket.write(jsonAnswer(aCompletion())));
    const client = await RawClient.connect(gateway.port);
    await client.write(asUser("X"));
    const holder = new Holder(client, await promise);
    holder.#call.socket.write(SSE_HEAD);
    await holder.say("first");
    return holder;
  }

  private constructor(client: RawClient, call: RawCall) {
    this.client = client;
    this.#call = call;
  }

  /** One more event of the stream; resolves when the client has it. */
  async say(word: string): Promise<void> {
    const event = aToken(word);
    this.#sent += event;
    this.#call.socket.write(aChunk(event));
    await this.client.readUntil(word);
  }

  /** Ends the stream; fails unless the client got exactly what the engine wrote. */
  async finish(): Promise<void> {
    this.#sent += aFinish() + DONE;
    this.#call.socket.write(Buffer.concat([aChunk(aFinish() + DONE), Buffer.from(LAST_CHUNK)]));
    const got = await heard(this.client);
    assert.equal(got.text, this.#sent);
    assert.ok(got.whole);
  }
}

async function lastOneIsServed(): Promise<void> {
  using last = await RawClient.connect(gateway.port);
  await last.write(asUser("last", { stream: false }));
  assert.equal((await heard(last)).status, 200);
}

type Leave = (client: RawClient) => void | Promise<void>;
const WAYS: Readonly<Record<string, Leave>> = {
  "close their connection": (client) => client.close(),
  "reset their connection": (client) => client.reset(),
  // A client that has sent its whole request and then ends its side is taken for gone: it is how most clients that stop look.
  "end only their own side": (client) => client.halfClose(),
};

for (const [name, leave] of Object.entries(WAYS)) {
  test(`twenty waiting clients that ${name} leave the queue at once, reach no engine, and the running stream is not touched [10.A5 80.I9]`, async () => {
    const before = engine.calls.length;
    const holder = await Holder.start();
    const clients = await Promise.all(Array.from({ length: 20 }, () => RawClient.connect(gateway.port)));
    for (const [index, client] of clients.entries())
      await client.write(asUser(`gone-${index}`, { stream: index % 2 === 0 }));
    await eventually("twenty wait", waiting, (count) => count === 20);
    await holder.say("second");
    for (const client of clients) await leave(client);
    await eventually("the queue is empty", waiting, (count) => count === 0);
    await holder.say("third");
    const { records } = await gateway.audit("?outcome=client_aborted_queued&limit=500");
    const mine = records.slice(-20);
    assert.deepEqual(
      mine.map((record) => record.requestId).toSorted(),
      Array.from({ length: 20 }, (_, index) => `gone-${index}`).toSorted(),
    );
    for (const record of mine) {
      assert.deepEqual(
        [record.status, record.attempts, record.endpoint, record.firstByteMs, record.completionTokens],
        [499, 0, null, null, null],
      );
    }
    await holder.finish();
    await lastOneIsServed();
    for (const client of clients) client.close();
    assert.deepEqual(engine.calls.slice(before).map(userOf), ["X", "last"]);
  });
}

test("clients that leave while their body is still coming never join the queue [10.A5]", async () => {
  const before = engine.calls.length;
  const holder = await Holder.start();
  const leaves = Object.values(WAYS);
  const clients = await Promise.all(Array.from({ length: 12 }, () => RawClient.connect(gateway.port)));
  for (const [index, client] of clients.entries())
    await client.write(
      asUser(`upload-${index}`, { padding: "x".repeat(200_000) }).subarray(0, 100_000 + index * 5_000),
    );
  await eventually(
    "the bodies come",
    () => gateway.metric("yardmaster_buffered_bytes"),
    (bytes) => (bytes ?? 0) > 12 * 200_000,
  );
  for (const [index, client] of clients.entries()) await leaves[index % leaves.length]?.(client);
  await eventually(
    "their memory is back",
    () => gateway.metric("yardmaster_buffered_bytes"),
    (bytes) => bytes === 0,
  );
  assert.equal(await waiting(), 0);
  await holder.finish();
  await lastOneIsServed();
  for (const client of clients) client.close();
  assert.deepEqual(engine.calls.slice(before).map(userOf), ["X", "last"]);
});

test("a client that leaves with a second request in the pipe takes both along, whatever their size [10.A5]", async () => {
  const before = engine.calls.length;
  const holder = await Holder.start();
  const sizes = [10, 30_000, 300_000, 3_000_000];
  for (const leave of Object.values(WAYS)) {
    const clients = await Promise.all(sizes.map(() => RawClient.connect(gateway.port)));
    for (const [index, client] of clients.entries()) {
      const first = requestBytes(gateway, { body: aChat({ user: "piped" }), headers: ["Connection: keep-alive"] });
      // What the gateway doesn't read stays in the system's buffers, so this write may never end.
      client
        .write(Buffer.concat([first, asUser("piped-second", { padding: "x".repeat(sizes[index] ?? 0) })]))
        .catch(() => {});
    }
    await eventually("all wait", waiting, (count) => count === sizes.length);
    for (const client of clients) await leave(client);
    await eventually("the queue is empty", waiting, (count) => count === 0);
    for (const client of clients) client.close();
  }
  await holder.finish();
  await lastOneIsServed();
  assert.deepEqual(engine.calls.slice(before).map(userOf), ["X", "last"]);
});

test(
  "clients that leave in the instant in which the slot comes free cost the engine at most a torn call each, and no slot [10.A5 80.G6]",
  { timeout: 240_000 },
  async () => {
    for (const [round, leave] of Object.values(WAYS)
      .flatMap((way) => Array.from({ length: 8 }, () => way))
      .entries()) {
      const holder = await Holder.start();
      using client = await RawClient.connect(gateway.port);
      await client.write(asUser("instant"));
      await eventually("it waits", waiting, (count) => count === 1);
      const seen = engine.calls.length;
      const torn = Promise.withResolvers<void>();
      answer = (call) => {
        if (userOf(call) !== "instant") call.socket.write(jsonAnswer(aCompletion()));
        else call.socket.once("close", torn.resolve);
      };
      // Both in one turn of the event loop, now one first and now the other.
      const ended = round % 2 === 0 ? (leave(client), holder.finish()) : holder.finish();
      if (round % 2 === 1) await leave(client);
      await ended;
      await lastOneIsServed();
      const users = engine.calls.slice(seen).map(userOf);
      assert.ok(users.length <= 2 && users.at(-1) === "last", users.join());
      // Whoever reached the engine all the same was torn down there.
      if (users.length === 2) await torn.promise;
      await eventually(
        "the slot is free",
        () => gateway.metric('yardmaster_in_flight{upstream="u",class="interactive"}'),
        (count) => count === 0,
      );
    }
  },
);

test("a second request in the pipe is answered after the first, on the same connection [10.A5]", async () => {
  answer = (call) => call.socket.write(jsonAnswer(aCompletion(userOf(call))));
  using client = await RawClient.connect(gateway.port);
  const first = requestBytes(gateway, {
    body: aChat({ user: "one", stream: false }),
    headers: ["Connection: keep-alive"],
  });
  await client.write(Buffer.concat([first, asUser("two", { stream: false })]));
  const one = parseAnswer(await client.readToEnd());
  assert.match(one.payload.toString(), /"one"/);
  const two = parseAnswer(one.rest);
  assert.match(two.payload.toString(), /"two"/);
});

test("a second request too large to wait in memory is not executed: the first is answered whole and the connection ends, so that the client can ask again [10.A5 80.I9]", async () => {
  const before = engine.calls.length;
  let reply = (): void => {};
  const { promise: asked, resolve } = Promise.withResolvers<void>();
  answer = (call) => {
    reply = () => void call.socket.write(jsonAnswer(aCompletion(userOf(call))));
    resolve();
  };
  using client = await RawClient.connect(gateway.port);
  await client.write(
    requestBytes(gateway, { body: aChat({ user: "one", stream: false }), headers: ["Connection: keep-alive"] }),
  );
  await asked;
  await client.write(asUser("two", { padding: "x".repeat(300_000) }));
  reply();
  const one = await heard(client);
  assert.match(one.text, /"one"/);
  assert.ok(one.whole && one.rest.length === 0);
  assert.deepEqual(engine.calls.slice(before).map(userOf), ["one"]);
});
