import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { asMono } from "../../kernel/clock.ts";
import { RECENT_MS, RETRIES_FREE, RetryBudget } from "./retry-budget.ts";

function spend(budget: RetryBudget, now: number): number {
  let retries = 0;
  while (budget.mayRetry(asMono(now))) {
    budget.onRetry(asMono(now));
    retries++;
  }
  return retries;
}

test("three retries are free, then a fifth of the requests [10.R4]", () => {
  const budget = new RetryBudget(0.2, asMono(0));
  assert.equal(spend(budget, 0), RETRIES_FREE);
  for (let i = 0; i < 4; i++) budget.onRequest(asMono(i));
  assert.equal(budget.mayRetry(asMono(5)), false);
  budget.onRequest(asMono(5));
  assert.equal(spend(budget, 5), 1);
});

test("credit of recent requests lets all be retried whose endpoint died, and is gone ten seconds later", () => {
  const make = (): RetryBudget => {
    const budget = new RetryBudget(0.2, asMono(0));
    for (let i = 0; i < 100; i++) budget.onRequest(asMono(i));
    return budget;
  };
  assert.equal(spend(make(), 200), 23);
  assert.equal(spend(make(), 12_000), RETRIES_FREE);
});

test("after ten seconds without a request the free retries are there again", () => {
  const budget = new RetryBudget(0, asMono(0));
  budget.onRequest(asMono(0));
  assert.equal(spend(budget, 0), RETRIES_FREE);
  budget.onRequest(asMono(RECENT_MS - 1));
  assert.equal(budget.mayRetry(asMono(RECENT_MS - 1)), false);
  budget.onRequest(asMono(2 * RECENT_MS));
  assert.equal(spend(budget, 2 * RECENT_MS), RETRIES_FREE);
});

test("a new ratio holds from the next request on", () => {
  const budget = new RetryBudget(0, asMono(0));
  spend(budget, 0);
  budget.setRatio(1);
  budget.onRequest(asMono(1));
  assert.equal(spend(budget, 1), 1);
});

test("against an engine that fails everything, tries are at most 1.2 times the requests and 3 more, over a whole run and any part of it [80.G9]", () => {
  const arrival = fc.tuple(fc.integer({ min: 0, max: 3_000 }), fc.integer({ min: 1, max: 40 }));
  fc.assert(
    fc.property(
      fc.array(arrival, { minLength: 1, maxLength: 60 }),
      fc.integer({ min: 0, max: 2 }),
      (arrivals, retriesMax) => {
        const budget = new RetryBudget(0.2, asMono(0));
        let now = 0;
        let requests = 0;
        let tries = 0;
        const log: { now: number; requests: number; retries: number }[] = [];
        for (const [gap, burst] of arrivals) {
          now += gap;
          for (let i = 0; i < burst; i++) {
            requests++;
            tries++;
            budget.onRequest(asMono(now));
            for (let retry = 0; retry < retriesMax && budget.mayRetry(asMono(now)); retry++) {
              budget.onRetry(asMono(now));
              tries++;
            }
          }
          log.push({ now, requests, retries: tries - requests });
          assert.ok(tries <= 1.2 * requests + 3 + 1e-6, `${tries} tries for ${requests} requests`);
        }
        // A part of a run may also use what the ten seconds before it had earned.
        for (let i = 0; i < log.length; i += 7) {
          const from = log[i]!;
          const before = log.findLast((entry) => entry.now < from.now - RECENT_MS)?.requests ?? 0;
          for (const to of log.slice(i + 1))
            assert.ok(to.retries - from.retries <= 0.2 * (to.requests - before) + 3 + 1e-6);
        }
      },
    ),
    { numRuns: 200 },
  );
});
