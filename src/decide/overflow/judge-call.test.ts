import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { RetryCause } from "../routing/retry-policy.ts";
import { judgeEndedCall, judgeFailedCall } from "./judge-call.ts";

const status = (code: number): RetryCause => ({ kind: "status", status: code, error: "other" as never });
const transport = (failure: "connect" | "reset" | "truncated" | "protocol"): RetryCause => ({
  kind: "transport",
  failure,
  reused: false,
});

const rows: readonly [name: string, cause: RetryCause, money: "free" | "unknown", goesOn: boolean, fault: boolean][] = [
  ["it can't be connected to", transport("connect"), "free", true, true],
  ["its answer was reset", transport("reset"), "unknown", false, true],
  ["it speaks no protocol", transport("protocol"), "unknown", false, true],
  ["it is stalled", { kind: "stalled" }, "unknown", false, true],
  ["its answer is empty", { kind: "emptyAnswer" }, "unknown", true, true],
  ["its answer is garbage", { kind: "garbage" }, "unknown", true, true],
  ["its stream begins with an error", { kind: "errorFirst" }, "unknown", true, true],
  ["its account is refused", status(401), "free", true, true],
  ["it has no money left", status(402), "free", true, true],
  ["it has no such model", status(404), "free", true, true],
  ["it is full", status(429), "free", true, true],
  ["it is away for a moment", status(503), "free", true, true],
  ["it fails inside", status(500), "unknown", true, true],
  ["it waited too long for somebody", status(504), "unknown", true, true],
  ["it gave up", status(408), "unknown", true, true],
  ["it knows the request", status(409), "unknown", false, false],
  ["the request is wrong", status(400), "free", false, false],
  ["the request is too large", status(413), "free", false, false],
  ["the request can't be done", status(422), "free", false, false],
];
for (const [name, cause, money, goesOn, tiersFault] of rows)
  test(`a chat that a paid tier fails, ${name}: the money is ${money}, and it ${goesOn ? "goes on here" : "does not run twice"} [50.V7 80.C32]`, () => {
    const verdict = judgeFailedCall(cause, true);
    assert.deepEqual([verdict.money.kind, verdict.goesOn, verdict.tiersFault], [money, goesOn, tiersFault]);
    const free = judgeFailedCall(cause, false);
    assert.equal(free.money.kind, "free");
    // What is wrong with the request itself is not tried again, paid for or not.
    assert.equal(free.goesOn, cause.kind === "status" && !tiersFault ? false : true);
  });

for (const [name, cause, refuses] of [
  ["401", status(401), true],
  ["402", status(402), true],
  ["403", status(403), true],
  ["429 because its account has no money left", { kind: "status", status: 429, error: "noMoney" }, true],
  ["429", status(429), false],
  ["404", status(404), false],
  ["500", status(500), false],
] as const)
  test(`a tier that answers a chat with ${name} ${refuses ? "refuses the account" : "may take the next one"} [80.O5]`, () => {
    const { refusesAccount, money } = judgeFailedCall(cause, true);
    assert.equal(refusesAccount, refuses);
    if (refuses) assert.match(money.why, /refuses the key|no money left/);
  });

const EUR = { unit: "1kTokens", micros: 1_000, currency: "EUR" } as const;
const ended = {
  outcome: "ok",
  attempts: 1,
  firstByteMs: 5,
  promptTokens: 100,
  completionTokens: 900,
  status: 200,
} as const;
const ends: readonly [name: string, change: object, expect: object][] = [
  ["its usage was told", {}, { kind: "charged", micros: 1_000 }],
  ["its usage was not told", { completionTokens: null }, { kind: "charged", micros: null }],
  ["it broke off in the middle", { outcome: "upstream_truncated" }, { kind: "charged", micros: null }],
  ["the client left in the middle", { outcome: "client_aborted" }, { kind: "charged", micros: null }],
  ["the client left before", { outcome: "client_aborted", firstByteMs: null }, { kind: "charged", micros: null }],
  ["no call was made", { attempts: 0, outcome: "refused" }, { kind: "free", why: "no call was made" }],
];
for (const [name, change, expect] of ends)
  test(`a paid chat is settled by what is known, ${name} [50.V7]`, () =>
    assert.deepEqual(judgeEndedCall({ ...ended, ...change }, EUR), expect));

test("a chat that was never answered keeps its money held, whatever else is told of it [80.O2 80.C32]", () => {
  const outcomes = fc.constantFrom("upstream_timeout", "upstream_failed", "drain_aborted", "internal_error");
  fc.assert(
    fc.property(outcomes, fc.option(fc.nat(), { nil: null }), (outcome, tokens) => {
      const event = { ...ended, outcome, firstByteMs: null, promptTokens: tokens } as const;
      assert.equal(judgeEndedCall(event, EUR).kind, "unknown");
      assert.deepEqual(judgeEndedCall(event, null), { kind: "charged", micros: 0 });
    }),
  );
});
