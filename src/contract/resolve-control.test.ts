import assert from "node:assert/strict";
import { test } from "node:test";
import { controlSection } from "./control-schema.ts";
import { resolveControl } from "./resolve-control.ts";

test("without a section every time is the product's own, and the address is loopback", () => {
  const {
    listen,
    unreachableAfterMs,
    lostAfterMs,
    settleMs,
    startStallMs,
    stopGraceMs,
    drainGraceMs,
    parkAfter,
    advertise,
  } = resolveControl(undefined);
  assert.deepEqual(listen, { host: "127.0.0.1", port: 8_300 });
  assert.deepEqual([unreachableAfterMs, lostAfterMs, settleMs], [10_000, 60_000, 15_000]);
  assert.deepEqual([startStallMs, stopGraceMs, drainGraceMs, parkAfter], [600_000, 30_000, 300_000, 5]);
  assert.deepEqual(advertise, []);
});

test("a node is never lost before it is unreachable, whatever the file says", () => {
  const { unreachableAfterMs, lostAfterMs } = resolveControl(
    controlSection.parse({ unreachable_after_s: 120, lost_after_s: 60 }),
  );
  assert.deepEqual([unreachableAfterMs, lostAfterMs], [120_000, 120_000]);
});

test("addresses for agents are WebSocket addresses without a path, each once", () => {
  const { advertise } = resolveControl(
    controlSection.parse({ advertise: ["wss://a:8300/", "wss://a:8300", "wss://b"] }),
  );
  assert.deepEqual(advertise, ["wss://a:8300", "wss://b"]);
  for (const wrong of ["http://a:8300", "wss://a/agent/v1", "wss://user@a"])
    assert.equal(controlSection.safeParse({ advertise: [wrong] }).success, false, wrong);
});
