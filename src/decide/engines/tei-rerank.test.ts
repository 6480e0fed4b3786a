import assert from "node:assert/strict";
import { test } from "node:test";
import { teiRerank } from "./tei-rerank.ts";

const REQUEST = { model: "r", query: "q", documents: ["a", { text: "b" }, "c"], top_n: 2, truncate: true };

test("a rerank request becomes the engine's own, and fields of the engine's stay", () => {
  assert.deepEqual(teiRerank.request(REQUEST), {
    kind: "translated",
    body: { query: "q", texts: ["a", "b", "c"], truncate: true },
  });
  assert.deepEqual(REQUEST.documents.length, 3);
});

test("a request that can't be translated is refused with a reason", () => {
  const bad = [
    { documents: ["a"] },
    { query: "q" },
    { query: "q", documents: "a" },
    { query: "q", documents: [1] },
    { query: "q", documents: [{ t: "a" }] },
    { query: "q", documents: [], top_n: 0 },
  ];
  for (const body of bad) assert.equal(teiRerank.request(body).kind, "invalid", JSON.stringify(body));
});

test("the engine's list becomes results, best first, cut to what was asked for", () => {
  const answer = [
    { index: 0, score: 0.1 },
    { index: 2, score: 0.9 },
    { index: 1, score: 0.5 },
  ];
  assert.deepEqual(teiRerank.answer(answer, REQUEST, "id-1"), {
    id: "id-1",
    model: "r",
    results: [
      { index: 2, relevance_score: 0.9 },
      { index: 1, relevance_score: 0.5 },
    ],
  });
  const whole = teiRerank.answer(answer, { query: "q", documents: ["a", "b", "c"], return_documents: true }, "i");
  assert.deepEqual(whole?.["results"], [
    { index: 2, relevance_score: 0.9, document: { text: "c" } },
    { index: 1, relevance_score: 0.5, document: { text: "b" } },
    { index: 0, relevance_score: 0.1, document: { text: "a" } },
  ]);
});

test("an answer that is not the engine's list is not translated", () => {
  for (const answer of [null, {}, [1], [{ index: 3, score: 1 }], [{ index: -1, score: 1 }], [{ index: 0 }]])
    assert.equal(teiRerank.answer(answer, REQUEST, "i"), undefined, JSON.stringify(answer));
});
