import assert from "node:assert/strict";
import { test } from "node:test";
import { seededRandom } from "../../kernel/random.ts";
import { HELD_MS_MIN, JITTER_MS_MAX, QUICK_MS_MAX, redialDelay, REFUSED_MS_MIN } from "./redial.ts";

test("a connection that held is tried again at once, later tries are spread over half a minute [80.A17]", () => {
  const random = seededRandom(1);
  const delays = Array.from({ length: 500 }, () => redialDelay({ kind: "ended", heldMs: 0 }, random.next()));
  assert.ok(delays.every((ms) => ms >= 0 && ms < JITTER_MS_MAX));
  // Of 500 agents no second sees more than three times its even share.
  const perSecond = Array.from({ length: 30 }, (_, s) => delays.filter((ms) => Math.floor(ms / 1_000) === s).length);
  assert.ok(Math.max(...perSecond) <= 50, String(perSecond));
  assert.ok(redialDelay({ kind: "ended", heldMs: HELD_MS_MIN }, 0.999) < QUICK_MS_MAX);
});

test("a refused credential is tried rarely", () => {
  assert.ok(redialDelay({ kind: "refused" }, 0) >= REFUSED_MS_MIN);
});
