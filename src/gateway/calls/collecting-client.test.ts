import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { CollectingClient, type CollectedEnd } from "./collecting-client.ts";

interface Seen {
  readonly client: CollectingClient;
  readonly log: string[];
  readonly ends: CollectedEnd[];
}

function aClient(bytesMax = 1_000): Seen {
  const log: string[] = [];
  const ends: CollectedEnd[] = [];
  const client = new CollectingClient({
    method: "POST",
    target: "/v1/chat/completions",
    rawHeaders: ["content-type", "application/json"],
    bytesMax,
    onHead: (status) => log.push(`head ${status}`),
    onProgress: (payload) => log.push(`progress ${payload.toString()}`),
    onEnd: (end) => {
      log.push(`end ${end.kind}`);
      ends.push(end);
    },
  });
  client.onGone = () => log.push("gone");
  return { client, log, ends };
}

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

const rows: { name: string; does: (client: CollectingClient) => void; log: string[]; end: Partial<CollectedEnd> }[] = [
  {
    name: "a whole answer is told once, with its head",
    does: (client) => client.sendWhole(200, ["x-a", "1"], Buffer.from("body")),
    log: ["head 200", "end whole"],
    end: { kind: "whole", status: 200, headers: ["x-a", "1"], body: Buffer.from("body"), trailers: [] },
  },
  {
    name: "the gateway's own no carries its code",
    does: (client) => client.sendWhole(429, [], '{"error":{}}', "QUEUE_FULL"),
    log: ["head 429", "end refused"],
    end: { kind: "refused", code: "QUEUE_FULL", status: 429, headers: [], body: Buffer.from('{"error":{}}') },
  },
  {
    name: "a stream is told as it comes and whole at its end, trailers included",
    does: (client) => {
      client.begin(200, []);
      client.writePayload(Buffer.from("a"));
      client.writePayload(Buffer.from("b"));
      client.end(["x-t", "1"]);
    },
    log: ["head 200", "progress a", "progress b", "end whole"],
    end: { kind: "whole", status: 200, headers: [], body: Buffer.from("ab"), trailers: ["x-t", "1"] },
  },
  {
    name: "an answer that breaks off is no whole one",
    does: (client) => {
      client.begin(200, []);
      client.writePayload(Buffer.from("a"));
      client.breakOff();
      client.end([]);
    },
    log: ["head 200", "progress a", "end brokenOff"],
    end: { kind: "brokenOff", status: 200, body: Buffer.from("a") },
  },
  {
    name: "a break before the head has no status",
    does: (client) => client.destroy(),
    log: ["end brokenOff"],
    end: { kind: "brokenOff", status: 0, body: Buffer.alloc(0) },
  },
  {
    name: "a client that leaves ends its call before it hears of its own end",
    does: (client) => {
      client.begin(200, []);
      client.abort();
      client.writePayload(Buffer.from("late"));
    },
    log: ["head 200", "gone", "end aborted"],
    end: { kind: "aborted" },
  },
  {
    name: "one byte too many and the client leaves",
    does: (client) => {
      client.begin(200, []);
      client.writePayload(Buffer.alloc(1_000, "a"));
      client.writePayload(Buffer.from("b"));
    },
    log: ["head 200", `progress ${"a".repeat(1_000)}`, "gone", "end tooLarge"],
    end: { kind: "tooLarge", status: 200 },
  },
  {
    name: "a whole answer above the limit is not held",
    does: (client) => client.sendWhole(200, [], Buffer.alloc(1_001)),
    log: ["head 200", "end tooLarge"],
    end: { kind: "tooLarge", status: 200 },
  },
];

for (const row of rows)
  test(row.name, async () => {
    const { client, log, ends } = aClient();
    row.does(client);
    await turn();
    assert.deepEqual(log, row.log);
    assert.deepEqual(ends, [row.end]);
  });

test("nothing is told inside the call that causes it, so a call is never entered again", () => {
  const { client, log } = aClient();
  client.begin(200, []);
  client.abort();
  assert.deepEqual(log, ["head 200"]);
});

test("bytes that are collected are copies: their memory may be read into again", async () => {
  const { client, ends } = aClient();
  const read = Buffer.from("first");
  client.begin(200, []);
  client.writePayload(read);
  read.fill("x");
  client.end([]);
  await turn();
  assert.deepEqual(ends[0]?.kind === "whole" ? ends[0].body.toString() : "", "first");
});

test("whatever is done to it in whatever order, it ends at most once and holds no more than its limit", async () => {
  const anyStep = fc.constantFrom("begin", "write", "whole", "end", "breakOff", "abort", "destroy");
  await fc.assert(
    fc.asyncProperty(fc.array(anyStep, { maxLength: 20 }), async (steps) => {
      const { client, log, ends } = aClient(25);
      for (const step of steps) {
        if (step === "begin") client.begin(200, []);
        else if (step === "write") client.writePayload(Buffer.from("0123456789"));
        else if (step === "whole") client.sendWhole(200, [], "whole");
        else if (step === "end") client.end([]);
        else if (step === "breakOff") client.breakOff();
        else if (step === "abort") client.abort();
        else client.destroy();
      }
      await turn();
      assert.ok(ends.length <= 1);
      if (ends.length === 1) assert.ok(log.at(-1)?.startsWith("end "));
      for (const end of ends) if ("body" in end) assert.ok(end.body.length <= 25);
    }),
  );
});
