import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import fc from "fast-check";
import type { RequestOutcome } from "../../contract/audit-event.ts";
import { asMono } from "../../kernel/clock.ts";
import { contentKey } from "./content-key.ts";
import { errorCodesOf, isEmptyCompletion, judgeForContent, whyNotForKey, type EndedAnswer } from "./keep-answer.ts";
import { Shelf } from "./shelf.ts";

const anAnswer = (over: Partial<EndedAnswer> = {}): EndedAnswer => ({
  outcome: "ok",
  whole: true,
  status: 200,
  headers: ["Content-Type", "application/json"],
  empty: false,
  errorCodes: () => [],
  ...over,
});
const CACHE = { ttlMs: 60_000, bytesMax: 1_000_000, shared: false };
const RULES = {
  cache: CACHE,
  refusals: [
    { status: 422, code: null },
    { status: 400, code: "UNSUPPORTED_FORMAT" },
  ],
  refusalTtlMs: 5_000,
};
const refusal = (status: number, ...codes: string[]): EndedAnswer =>
  anAnswer({ outcome: "engine_error", status, errorCodes: () => codes });
const encoded = ["content-encoding", "gzip"];

const rows: { name: string; answer: EndedAnswer; key: string | null; content: string }[] = [
  { name: "a good answer", answer: anAnswer(), key: null, content: "answer" },
  { name: "one that was not whole", answer: anAnswer({ whole: false }), key: "unfinished", content: "unfinished" },
  { name: "a refusal of the content", answer: refusal(400), key: null, content: "not_ok" },
  { name: "a refusal that is named", answer: refusal(422), key: null, content: "refusal" },
  { name: "one named by its code", answer: refusal(400, "x", "UNSUPPORTED_FORMAT"), key: null, content: "refusal" },
  { name: "another code of a named status", answer: refusal(400, "OTHER"), key: null, content: "not_ok" },
  { name: "the engine's own 401", answer: refusal(401), key: "worth_retrying", content: "not_ok" },
  { name: "403", answer: refusal(403), key: "worth_retrying", content: "not_ok" },
  { name: "429", answer: refusal(429), key: "worth_retrying", content: "not_ok" },
  { name: "500", answer: refusal(500), key: "worth_retrying", content: "not_ok" },
  {
    name: "an error with status 200",
    answer: anAnswer({ outcome: "engine_error" }),
    key: "unfinished",
    content: "unfinished",
  },
  { name: "an encoded answer", answer: anAnswer({ headers: encoded }), key: "encoded", content: "encoded" },
  {
    name: "identity named",
    answer: anAnswer({ headers: ["Content-Encoding", "identity"] }),
    key: null,
    content: "answer",
  },
  { name: "an answer that says nothing", answer: anAnswer({ empty: true }), key: null, content: "empty" },
  {
    name: "no-store from the engine",
    answer: anAnswer({ headers: ["Cache-Control", "No-Store"] }),
    key: null,
    content: "no_store",
  },
  { name: "a cookie", answer: anAnswer({ headers: ["Set-Cookie", "a=b"] }), key: null, content: "no_store" },
  { name: "202", answer: anAnswer({ status: 202 }), key: null, content: "not_ok" },
];
for (const { name, answer, key, content } of rows) {
  test(`${name}: for a key ${key ?? "kept"}, for its content ${content} [20.I1 20.I2 20.I3]`, () => {
    assert.equal(whyNotForKey(answer), key);
    const judged = judgeForContent(answer, RULES, true);
    assert.equal(judged.kind === "keep" ? judged.as : judged.why, content);
  });
}

const unfinished: RequestOutcome[] = [
  "refused",
  "queue_timeout",
  "client_aborted_queued",
  "client_aborted",
  "upstream_failed",
  "upstream_truncated",
  "upstream_timeout",
  "client_stalled",
  "drain_aborted",
  "internal_error",
];
for (const outcome of unfinished) {
  test(`a call that ended as ${outcome} leaves nothing behind, whatever its status [20.I1 80.G17]`, () => {
    for (const status of [0, 200, 400, 422, 499, 503]) {
      const answer = anAnswer({ outcome, status });
      assert.equal(whyNotForKey(answer), "unfinished");
      assert.equal(judgeForContent(answer, RULES, true).kind, "not");
    }
  });
}

test("the codes of an error are found where engines put them", () => {
  const of = (value: unknown): string[] => errorCodesOf(Buffer.from(JSON.stringify(value)));
  assert.deepEqual(of({ error: { code: "A", type: "b", message: "c" } }), ["A", "b"]);
  assert.deepEqual(of({ code: 400, type: "x" }), ["400", "x"]);
  assert.deepEqual(of({ error: "text", code: null }), []);
  assert.deepEqual(of([1]), []);
  assert.deepEqual(errorCodesOf(Buffer.from("no JSON")), []);
});

test("a completion that finished and says nothing is told from one that says something", () => {
  const of = (...choices: unknown[]): boolean => isEmptyCompletion(Buffer.from(JSON.stringify({ choices })));
  assert.equal(of({ message: { role: "assistant", content: "" } }), true);
  assert.equal(of({ message: { role: "assistant", content: null, tool_calls: [] } }), true);
  assert.equal(of({ text: "" }), true);
  assert.equal(of({ text: "a" }), false);
  assert.equal(of({ message: { content: null, tool_calls: [{ id: "a" }] } }), false);
  assert.equal(of({ message: { content: "" } }, { message: { content: "x" } }), false);
  assert.equal(of({ message: { content: "", reasoning_content: "x" } }), false);
  assert.equal(isEmptyCompletion(Buffer.from('{"data":[]}')), false);
});

// A memory as the gateway has it, made of the same decisions, under any sequence of callers, contents, answers and time.
test("after any sequence no refusal is given that is not named, none after its time, and nothing to another key [80.G17]", () => {
  const newHasher = () => createHash("sha256");
  const keys = new Map<string, string>();
  const keyOf = (tenant: string, prompt: string): string => {
    const name = `${tenant} ${prompt}`;
    let key = keys.get(name);
    if (key === undefined) {
      key = contentKey(
        {
          upstreamId: "u",
          model: "m",
          method: "POST",
          path: "/v1/embeddings",
          query: "",
          keyId: tenant,
          body: prompt,
          rawHeaders: [],
          mode: "engine",
          extra: new Set(),
        },
        newHasher,
      );
      keys.set(name, key);
    }
    return key;
  };
  const step = fc.tuple(
    fc.constantFrom("a", "b"),
    fc.constantFrom("p", "q"),
    fc.constantFrom(200, 400, 401, 403, 408, 422, 429, 499, 500, 503),
    fc.constantFrom<RequestOutcome | "answered">(
      "answered",
      "answered",
      "answered",
      "client_aborted",
      "upstream_truncated",
    ),
    fc.constantFrom("UNSUPPORTED_FORMAT", "OTHER"),
    fc.nat(4_000),
  );
  let given = 0;
  fc.assert(
    fc.property(fc.array(step, { maxLength: 8 }), (steps) => {
      const shelf = new Shelf<{ tenant: string; prompt: string; status: number; code: string; at: number }>(1_000);
      let now = asMono(0);
      for (const [tenant, prompt, status, how, code, passMs] of steps) {
        now = asMono(now + passMs);
        const key = keyOf(tenant, prompt);
        const found = shelf.get(key, now)?.value;
        if (found !== undefined) {
          given += 1;
          assert.equal(found.tenant, tenant);
          assert.equal(found.prompt, prompt);
          const named = found.status === 422 || (found.status === 400 && found.code === "UNSUPPORTED_FORMAT");
          assert.ok(found.status === 200 || named, `${found.status} ${found.code}`);
          if (found.status !== 200) assert.ok(now - found.at < RULES.refusalTtlMs);
          continue;
        }
        const outcome = how === "answered" ? (status < 400 ? "ok" : "engine_error") : how;
        const judged = judgeForContent(anAnswer({ outcome, status, errorCodes: () => [code] }), RULES, true);
        if (judged.kind === "keep") shelf.put(key, { tenant, prompt, status, code, at: now }, 1, now, judged.ttlMs);
      }
    }),
    { numRuns: 100_000 },
  );
  assert.ok(given > 10_000);
});
