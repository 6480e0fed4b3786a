import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { asMono, type MonoMs } from "../../kernel/clock.ts";
import { Breaker, OPEN_MS_MAX, OPEN_MS_MIN, PROBE_MS_MAX, type ResultKind } from "./breaker.ts";

const at = (ms: number): MonoMs => asMono(1_000_000 + ms);
const aBreaker = (): Breaker => new Breaker(at(0));

function feed(breaker: Breaker, kinds: readonly ResultKind[], ms = 0): Breaker {
  for (const kind of kinds) breaker.onResult(kind, at(ms));
  return breaker;
}
const times = (count: number, kind: ResultKind): ResultKind[] => Array.from({ length: count }, () => kind);

test("three failed connections in a row open it, two do not [10.R5]", () => {
  assert.equal(feed(aBreaker(), times(2, "connectFailed")).state(at(0)), "closed");
  const breaker = feed(aBreaker(), times(3, "connectFailed"));
  assert.equal(breaker.state(at(0)), "open");
  assert.equal(breaker.cause(), "connect");
  assert.match(breaker.reason() ?? "", /3 connections/);
  assert.equal(breaker.mayTry(at(0)), false);
  assert.equal(breaker.retryInMs(at(1_000)), OPEN_MS_MIN - 1_000);
});

test("an engine that was started anew is probed as soon as its health page is well, once until it has closed, and not where it failed otherwise [10.R5]", () => {
  const breaker = feed(aBreaker(), times(3, "connectFailed"));
  breaker.reached(at(300), 50);
  assert.equal(breaker.state(at(300)), "halfOpen");
  breaker.beginProbe(at(300));
  feed(breaker, ["connectFailed"], 310);
  breaker.reached(at(400), 50);
  assert.equal(breaker.state(at(400)), "open", "a page that is well before an engine that is not");
  const later = 310 + 2 * OPEN_MS_MIN;
  assert.equal(breaker.state(at(later)), "halfOpen");
  feed(breaker, ["ok", ...times(3, "connectFailed")], later);
  breaker.reached(at(later + 1), 50);
  assert.equal(breaker.state(at(later + 1)), "halfOpen");
  const failing = feed(aBreaker(), times(10, "failed"));
  failing.reached(at(1), 50);
  assert.equal(failing.state(at(1)), "open");
});

test("a row of failed connections ends with any answer, also a refusal of the request", () => {
  for (const between of ["ok", "clientFault", "failed"] as const) {
    assert.equal(
      feed(aBreaker(), ["connectFailed", "connectFailed", between, "connectFailed", "connectFailed"]).state(at(0)),
      "closed",
      between,
    );
  }
});

test("half of at least ten results within 20 s failing open it [10.R5]", () => {
  assert.equal(feed(aBreaker(), times(9, "failed")).state(at(0)), "closed");
  assert.equal(feed(aBreaker(), times(10, "failed")).cause(), "errors");
  assert.equal(feed(aBreaker(), [...times(6, "ok"), ...times(5, "failed")]).state(at(0)), "closed");
  const half = feed(aBreaker(), [...times(5, "ok"), ...times(5, "failed")]);
  assert.equal(half.state(at(0)), "open");
  assert.equal(half.failedShare(), 0.5);
  const old = feed(aBreaker(), times(9, "failed"));
  assert.equal(feed(old, ["failed"], 21_000).state(at(21_000)), "closed");
  const recent = feed(aBreaker(), times(9, "failed"));
  assert.equal(feed(recent, ["failed"], 18_000).state(at(18_000)), "open");
});

test("a client's faults never open it, however many, and the next good request is served at once", () => {
  const breaker = feed(aBreaker(), [...times(200, "clientFault"), ...times(200, "abandoned")]);
  assert.equal(breaker.state(at(0)), "closed");
  assert.equal(breaker.mayTry(at(0)), true);
});

test("half-open admits one probe at a time; its success closes, its failure opens for twice as long [10.R5]", () => {
  const breaker = feed(aBreaker(), times(3, "connectFailed"));
  assert.equal(breaker.mayTry(at(OPEN_MS_MIN - 1)), false);
  assert.equal(breaker.state(at(OPEN_MS_MIN)), "halfOpen");
  assert.equal(breaker.mayTry(at(OPEN_MS_MIN)), true);
  breaker.beginProbe(at(OPEN_MS_MIN));
  assert.equal(breaker.mayTry(at(OPEN_MS_MIN)), false);
  breaker.onResult("failed", at(6_000));
  assert.equal(breaker.retryInMs(at(6_000)), 2 * OPEN_MS_MIN);
  breaker.beginProbe(at(16_000));
  breaker.onResult("ok", at(17_000));
  assert.equal(breaker.state(at(17_000)), "closed");
  assert.equal(breaker.reason(), undefined);
  assert.equal(breaker.mayTry(at(17_000)), true);
});

test("a probe that ends without a judgement lets another try, and one that never ends does so too", () => {
  for (const kind of ["abandoned", "clientFault"] as const) {
    const breaker = feed(aBreaker(), times(3, "connectFailed"));
    breaker.beginProbe(at(5_000));
    breaker.onResult(kind, at(5_100));
    assert.equal(breaker.state(at(5_100)), "halfOpen");
    assert.equal(breaker.mayTry(at(5_100)), true);
  }
  const lost = feed(aBreaker(), times(3, "connectFailed"));
  lost.beginProbe(at(5_000));
  assert.equal(lost.mayTry(at(5_000 + PROBE_MS_MAX)), true);
});

test("openings grow to a minute and start small again only after a minute of health", () => {
  const breaker = feed(aBreaker(), times(3, "connectFailed"));
  let now = 0;
  const lengths: number[] = [];
  for (let round = 0; round < 6; round++) {
    const wait = breaker.retryInMs(at(now));
    lengths.push(wait);
    now += wait;
    breaker.beginProbe(at(now));
    breaker.onResult("connectFailed", at(now));
  }
  assert.deepEqual(lengths, [5_000, 10_000, 20_000, 40_000, 60_000, 60_000]);
  now += breaker.retryInMs(at(now));
  breaker.onResult("ok", at(now));
  feed(breaker, times(3, "connectFailed"), now + 1_000);
  assert.equal(breaker.retryInMs(at(now + 1_000)), OPEN_MS_MAX);
  now += 1_000 + OPEN_MS_MAX;
  breaker.onResult("ok", at(now));
  feed(breaker, times(3, "connectFailed"), now + OPEN_MS_MAX);
  assert.equal(breaker.retryInMs(at(now + OPEN_MS_MAX)), OPEN_MS_MIN);
});

test("late results of requests that were under way do not close it or keep it open", () => {
  const breaker = feed(aBreaker(), times(3, "connectFailed"));
  feed(breaker, ["ok", "failed", "failed"], 1_000);
  assert.equal(breaker.state(at(1_000)), "open");
  assert.equal(breaker.retryInMs(at(1_000)), 4_000);
});

test("one that is open for errors but still in use opens for good when its endpoint dies", () => {
  const breaker = feed(aBreaker(), times(10, "failed"));
  feed(breaker, times(3, "connectFailed"), 1_000);
  assert.equal(breaker.cause(), "connect");
  assert.equal(breaker.state(at(1_000)), "open");
});

test("a stall opens it, and one request alone tells whether the engine is back", () => {
  const breaker = aBreaker();
  breaker.trip("stalled", "no event for 60 s", at(0));
  assert.equal(breaker.cause(), "stalled");
  breaker.beginProbe(at(5_000));
  assert.equal(breaker.mayTry(at(5_001)), false);
});

test("never two probes at once, and never open for longer than a minute, after any sequence of results", () => {
  const step = fc.tuple(
    fc.nat(8_000),
    fc.constantFrom<ResultKind | "try">("ok", "connectFailed", "failed", "clientFault", "abandoned", "try", "try"),
  );
  fc.assert(
    fc.property(fc.array(step, { maxLength: 80 }), (steps) => {
      const breaker = aBreaker();
      let now = 0;
      let probeSince: number | undefined;
      for (const [gap, what] of steps) {
        now += gap;
        assert.ok(breaker.retryInMs(at(now)) <= OPEN_MS_MAX);
        const state = breaker.state(at(now));
        if (state !== "halfOpen") probeSince = undefined;
        if (what !== "try") {
          breaker.onResult(what, at(now));
          probeSince = undefined;
        } else if (breaker.mayTry(at(now))) {
          assert.ok(probeSince === undefined || now - probeSince >= PROBE_MS_MAX);
          assert.notEqual(state, "open");
          if (state === "halfOpen") probeSince = now;
          breaker.beginProbe(at(now));
        }
        assert.equal(breaker.state(at(now)) === "closed", breaker.reason() === undefined);
      }
    }),
    { numRuns: 300 },
  );
});

test("a probe that outlasts the time of a connection, before a page that is well, closes what failed connections opened, and nothing else [10.R5]", () => {
  const breaker = feed(aBreaker(), times(3, "connectFailed"));
  breaker.reached(at(300), 2_000);
  breaker.beginProbe(at(300));
  breaker.reached(at(2_300), 2_000);
  assert.equal(breaker.state(at(2_300)), "halfOpen", "it may still be connecting");
  assert.equal(breaker.mayTry(at(2_300)), false);
  breaker.reached(at(2_301), 2_000);
  assert.equal(breaker.state(at(2_301)), "closed");

  const unprobed = feed(aBreaker(), times(3, "connectFailed"));
  unprobed.reached(at(9_000), 2_000);
  assert.equal(unprobed.state(at(9_000)), "halfOpen", "nobody was there to see");

  const failing = feed(aBreaker(), times(10, "failed"));
  assert.equal(failing.state(at(OPEN_MS_MIN + 10)), "halfOpen");
  failing.beginProbe(at(OPEN_MS_MIN + 10));
  failing.reached(at(OPEN_MS_MIN + 9_000), 2_000);
  assert.equal(failing.state(at(OPEN_MS_MIN + 9_000)), "halfOpen", "a connection was never in doubt");
});
