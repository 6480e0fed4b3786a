import assert from "node:assert/strict";
import { test } from "node:test";
import { asMono } from "../../kernel/clock.ts";
import { WaitMeter } from "./wait-meter.ts";

test("nine in ten waited no longer, and what is long ago counts no more [50.V1]", () => {
  const meter = new WaitMeter();
  assert.equal(meter.p90(asMono(0)), null);
  for (let i = 1; i <= 10; i += 1) meter.note(i * 1_000, asMono(i));
  assert.equal(meter.p90(asMono(10)), 9_000);
  assert.equal(meter.p90(asMono(400_000)), null);
  meter.note(5, asMono(400_000));
  assert.equal(meter.p90(asMono(400_000)), 5);
});

test("only the newest few hundred are kept", () => {
  const meter = new WaitMeter();
  for (let i = 0; i < 512; i += 1) meter.note(9_000, asMono(i));
  for (let i = 0; i < 512; i += 1) meter.note(1, asMono(1_000 + i));
  assert.equal(meter.p90(asMono(2_000)), 1);
});
