import assert from "node:assert/strict";
import { test } from "node:test";
import { seededRandom } from "../../kernel/random.ts";
import { failuresAfter, FIRST_MS_MAX, HELD_MS_MIN, JITTER_MS_MAX, redialDelay, REFUSED_MS_MIN } from "./redial.ts";

const BROKEN = { kind: "ended", heldMs: 0 } as const;
const HELD = { kind: "ended", heldMs: HELD_MS_MIN } as const;

test("a connection that held is tried again at once, and each further try comes within twice the time, up to half a minute [80.A17]", () => {
  let failures = failuresAfter(HELD, 4);
  const longest: number[] = [];
  for (let tries = 0; tries < 7; tries += 1) {
    longest.push(redialDelay(BROKEN, failures, 1));
    failures = failuresAfter(BROKEN, failures);
  }
  assert.deepEqual(
    longest,
    [1, 2, 4, 8, 16, 30, 30].map((s) => s * FIRST_MS_MAX),
  );
});

test("a fleet that misses its control plane for long is spread over half a minute [80.A17]", () => {
  const random = seededRandom(1);
  const delays = Array.from({ length: 500 }, () => redialDelay(BROKEN, 9, random.next()));
  assert.ok(delays.every((ms) => ms >= 0 && ms < JITTER_MS_MAX));
  // Of 500 agents no second sees more than three times its even share.
  const perSecond = Array.from({ length: 30 }, (_, s) => delays.filter((ms) => Math.floor(ms / 1_000) === s).length);
  assert.ok(Math.max(...perSecond) <= 50, String(perSecond));
});

test("a refused credential is tried rarely", () => {
  assert.ok(redialDelay({ kind: "refused" }, failuresAfter({ kind: "refused" }, 0), 0) >= REFUSED_MS_MIN);
});
