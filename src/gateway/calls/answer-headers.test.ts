import assert from "node:assert/strict";
import { test } from "node:test";
import { answerHeaders, type AnswerFacts } from "./answer-headers.ts";

const facts = (over: Partial<AnswerFacts>): AnswerFacts => ({
  mode: "engine",
  requestId: "r",
  queueMs: 0,
  upstreamId: "u",
  endpoint: null,
  place: null,
  choice: null,
  limits: [],
  ...over,
});

const OF_THE_ENGINE = ["content-type", "text/plain", "X-RateLimit-Remaining-Requests", "900"];
const OF_THE_KEY = ["x-ratelimit-remaining-requests", "1"];

const valuesOf = (headers: readonly string[], name: string): (string | undefined)[] =>
  headers.flatMap((text, at) => (at % 2 === 0 && text.toLowerCase() === name ? [headers[at + 1]] : []));

for (const replacedBody of [false, true])
  test(`the limits of a key stand for those of the engine, ${replacedBody ? "also where the body is ours" : "where the body is the engine's"} [60.K3]`, () => {
    const left = (limits: readonly string[]): unknown =>
      valuesOf(answerHeaders(OF_THE_ENGINE, facts({ replacedBody, limits })), "x-ratelimit-remaining-requests");
    assert.deepEqual(left(OF_THE_KEY), ["1"]);
    assert.deepEqual(left([]), ["900"]);
  });
