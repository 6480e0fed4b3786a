import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { SimEngine } from "../../src/sim-engine/sim-engine.ts";
import { RawClient } from "../../src/testing/raw-client.ts";
import { anEngine } from "./support/an-engine.ts";
import { SMUGGLING_SHAPES } from "./support/smuggling-shapes.ts";
import { parseAnswer, type ParsedAnswer } from "./support/raw-answers.ts";
import { startTestGateway, type TestGateway } from "./support/test-gateway.ts";

let engine: SimEngine;
let gateway: TestGateway;
before(async () => {
  engine = await anEngine({ slots: 8 });
  gateway = await startTestGateway({
    upstreams: [{ id: "u", engine: "vllm", models: ["m"], slots: 8, endpoints: [{ url: engine.url }] }],
  });
});
after(async () => {
  await gateway.stop();
  await engine.close();
});

const BODY = JSON.stringify({ model: "m", max_tokens: 1, messages: [{ role: "user", content: "hi" }] });
const lines = (id: string): string =>
  `Host: g\r\nAuthorization: ${gateway.auth["authorization"]}\r\nContent-Type: application/json\r\nX-Request-Id: ${id}\r\n`;
const aRequest = (id: string, more = ""): string =>
  `POST /v1/chat/completions HTTP/1.1\r\n${lines(id)}${more}Content-Length: ${BODY.length}\r\n\r\n${BODY}`;
const reached = (id: string): number => engine.ledger().entries.filter((entry) => entry.id === id).length;

/** Every answer on the connection, until it ends or the number is reached. */
async function answersOf(bytes: string, count: number): Promise<{ answers: ParsedAnswer[]; ended: boolean }> {
  using client = await RawClient.connect(gateway.port);
  await client.write(bytes);
  const parse = (received: Buffer): ParsedAnswer[] => {
    const answers: ParsedAnswer[] = [];
    let rest = received;
    while (rest.includes("\r\n\r\n")) {
      const answer = parseAnswer(rest);
      if (!answer.whole) break;
      answers.push(answer);
      rest = answer.rest;
    }
    return answers;
  };
  if (count === Infinity) await client.readToEnd();
  else await client.readUntil((received) => parse(received).length >= count);
  return { answers: parse(client.received), ended: client.ending !== "open" };
}

for (const [index, shape] of SMUGGLING_SHAPES.entries()) {
  const verdict = {
    refused: "refused, and nothing behind it is read",
    accepted: "one request, and the marked one a second",
    swallowed: "one request with the marked one as its unread body",
  }[shape.outcome];
  test(`${JSON.stringify(shape.name)} is ${verdict} [10.X2 80.G14 80.C34 80.C36 80.D13 80.D14 80.D15]`, async () => {
    const [first, second] = [`first-${index}`, `marked-${index}`];
    const marked = aRequest(second, "Connection: close\r\n");
    const bytes = shape.bytes({ head: lines(first), body: BODY, marked }) + marked;
    if (shape.outcome === "swallowed") {
      // A third request shows where the gateway takes the first one to end.
      const { answers } = await answersOf(bytes + aRequest(`third-${index}`, "Connection: close\r\n"), Infinity);
      assert.deepEqual(
        answers.map((answer) => answer.status),
        [200, 200],
      );
      assert.deepEqual([reached(second), reached(`third-${index}`)], [0, 1]);
      return;
    }
    const { answers, ended } = await answersOf(bytes, Infinity);
    assert.equal(ended, true);
    if (shape.outcome === "refused") {
      assert.equal(answers.length, 1, "exactly one answer");
      assert.ok([400, 405, 417, 431].includes(answers[0]!.status), String(answers[0]!.status));
      assert.equal(typeof JSON.parse(answers[0]!.payload.toString()).error.code, "string");
      assert.deepEqual([reached(first), reached(second)], [0, 0]);
    } else {
      assert.deepEqual(
        answers.map((answer) => answer.status),
        [200, 200],
      );
      assert.deepEqual([reached(first), reached(second)], [1, 1]);
    }
  });
}
