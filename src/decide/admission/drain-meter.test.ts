import assert from "node:assert/strict";
import { test } from "node:test";
import { asMono } from "../../kernel/clock.ts";
import { DrainMeter } from "./drain-meter.ts";

/** `inUse` slots for `seconds`, with an end every `everyMs`. */
function busy(meter: DrainMeter, fromMs: number, seconds: number, inUse: number, everyMs: number): number {
  let now = fromMs;
  while (now < fromMs + seconds * 1_000) {
    now += everyMs;
    meter.ran(inUse, everyMs, asMono(now));
    meter.ended();
  }
  return now;
}

test("before anything has ended there is no rate", () => {
  const meter = new DrainMeter(asMono(0));
  meter.ran(4, 5_000, asMono(5_000));
  assert.equal(meter.perSecond(4), undefined);
  assert.equal(meter.holdMs(), undefined);
});

test("the rate is that of the slots in use, and a half-empty pool predicts a full one", () => {
  const meter = new DrainMeter(asMono(0));
  busy(meter, 0, 30, 4, 250);
  assert.ok(Math.abs((meter.perSecond(4) ?? 0) - 4) < 0.2);
  assert.ok(Math.abs((meter.perSecond(16) ?? 0) - 16) < 0.8);
  assert.ok(Math.abs((meter.holdMs() ?? 0) - 1_000) < 50);
});

test("an engine that becomes ten times slower shows within minutes", () => {
  const meter = new DrainMeter(asMono(0));
  const slowFrom = busy(meter, 0, 300, 4, 250);
  busy(meter, slowFrom, 240, 4, 2_500);
  assert.ok((meter.perSecond(4) ?? 9) < 0.5);
});

test("without ends the rate falls towards zero", () => {
  const meter = new DrainMeter(asMono(0));
  let now = busy(meter, 0, 60, 4, 250);
  for (let second = 0; second < 300; second += 1) meter.ran(4, 1_000, asMono((now += 1_000)));
  assert.ok((meter.perSecond(4) ?? 0) < 0.1);
});
