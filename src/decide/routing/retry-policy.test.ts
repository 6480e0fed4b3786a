import assert from "node:assert/strict";
import { test } from "node:test";
import { mayRetryAttempt, type RetryCause, type RetryView } from "./retry-policy.ts";

const decide = (cause: RetryCause, view: Partial<RetryView> = {}): string => {
  const decision = mayRetryAttempt({
    cause,
    idempotent: true,
    startsOnce: false,
    retries: 0,
    retriesMax: 2,
    budget: true,
    ...view,
  });
  return decision.kind === "retry" ? decision.on : decision.why;
};
const transport = (failure: "connect" | "reset" | "truncated" | "protocol", reused = false): RetryCause => ({
  kind: "transport",
  failure,
  reused,
});
const status = (code: number, error: Extract<RetryCause, { kind: "status" }>["error"] = "engineFault"): RetryCause => ({
  kind: "status",
  status: code,
  error,
});

const elsewhere: readonly [string, RetryCause][] = [
  ["a reset on a new connection", transport("reset")],
  ["a break before the first event", transport("truncated")],
  ["502", status(502)],
  ["503", status(503, "overloaded")],
  ["504", status(504)],
  ["429 of the engine", status(429, "overloaded")],
];
for (const [name, cause] of elsewhere)
  test(`${name} is tried on another endpoint [10.R4]`, () => assert.equal(decide(cause), "other"));

test("a failed connection is tried on another endpoint whatever the budget holds and however many were tried: no engine had any work of it [10.R4 80.I8]", () => {
  assert.equal(decide(transport("connect")), "unsent");
  assert.equal(decide(transport("connect"), { budget: false }), "unsent");
  assert.equal(decide(transport("connect"), { retries: 2 }), "unsent");
  assert.equal(decide(transport("connect"), { retriesMax: 0 }), "attemptsSpent");
});

const behindTheHead: readonly [string, RetryCause][] = [
  ["a 500 of an engine that says it is dead", status(500, "engineDead")],
  ["a 500 of an engine that shuts down", status(500, "shuttingDown")],
  ["a 200 whose first event is an error", { kind: "errorFirst" }],
  ["a 200 without a byte", { kind: "emptyAnswer" }],
  ["a stalled endpoint", { kind: "stalled" }],
];
for (const [name, cause] of behindTheHead)
  test(`${name} is tried on another endpoint, as the client has seen nothing [10.R4b]`, () =>
    assert.equal(decide(cause), "other"));

const final: readonly [string, RetryCause][] = [
  ["a 500 of the request's making", status(500)],
  ["400", status(400, "clientFault")],
  ["404", status(404, "clientFault")],
  ["422", status(422, "clientFault")],
  ["a 503 that the adapter knows as the request's fault", status(503, "clientFault")],
  ["an answer that is no HTTP", transport("protocol")],
  ["an answer that is not what the route answers with", { kind: "garbage" }],
];
for (const [name, cause] of final)
  test(`${name} is not tried again [10.R4]`, () => assert.equal(decide(cause), "notRetryable"));

test("an attempt of a job is not made again after the engine went away with it, and is where no engine had it [80.G5]", () => {
  const gone = [transport("reset"), transport("reset", true), transport("truncated"), status(503, "engineDead")];
  for (const cause of gone) assert.equal(decide(cause, { startsOnce: true }), "started");
  assert.equal(decide(transport("connect"), { startsOnce: true }), "unsent");
  const refused = [status(503, "overloaded"), status(503, "shuttingDown")];
  for (const cause of refused) assert.equal(decide(cause, { startsOnce: true }), "other");
});

test("a reused connection that broke before any byte is tried once more at the same place, outside the budget", () => {
  assert.equal(decide(transport("reset", true), { budget: false, retriesMax: 0 }), "same");
  assert.equal(decide(transport("reset", true), { retries: 1 }), "other");
  assert.equal(decide(transport("reset", true), { retries: 1, budget: false }), "budget");
  assert.equal(decide(transport("truncated", true), { budget: false }), "budget");
});

test("a request that may have had an effect is tried again only when nothing was sent [10.R4]", () => {
  assert.equal(decide(transport("connect"), { idempotent: false }), "unsent");
  for (const cause of [
    transport("reset"),
    transport("reset", true),
    status(503),
    status(429),
    { kind: "stalled" } as const,
  ])
    assert.equal(decide(cause, { idempotent: false }), "notIdempotent");
});

test("tries are bounded by their number and by the budget [10.R4]", () => {
  assert.equal(decide(status(503), { retries: 2 }), "attemptsSpent");
  assert.equal(decide(status(503), { retriesMax: 0 }), "attemptsSpent");
  assert.equal(decide(status(503), { retries: 1, budget: false }), "budget");
});
