import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { SignalSettings } from "../../contract/overflow-settings.ts";
import { judgeSignal, type SignalInput } from "./judge-signal.ts";

const NOTHING: SignalInput = { page: { kind: "page", json: null }, utilization: null, depth: null, queueP90S: null };
const page = (json: unknown, more: Partial<SignalInput> = {}): SignalInput => ({
  ...NOTHING,
  page: { kind: "page", json },
  ...more,
});
const vram = (busyPercent: number): SignalSettings => ({ kind: "comfyui_vram", url: "http://a", busyPercent });
const device = (total: unknown, free: unknown): unknown => ({ devices: [{ vram_total: total, vram_free: free }] });
const backlog: SignalSettings = {
  kind: "gpu_util_with_backlog",
  gpu: "a/0",
  url: "http://a",
  busyPercent: 95,
  pendingMin: 1,
};
const semaphore: SignalSettings = { kind: "semaphore", url: "http://a", busyField: "guard.busy" };

const rows: readonly [name: string, settings: SignalSettings, input: SignalInput, state: string, reason: string][] = [
  ["memory below", vram(85), page(device(1_000, 576)), "not_busy", "vram 42.4% < 85.0%"],
  ["an artificially low threshold", vram(1), page(device(1_000, 576)), "busy", "vram 42.4% ≥ 1.0%"],
  [
    "util and backlog",
    backlog,
    page({ queue_pending: [[]] }, { utilization: 97 }),
    "busy",
    "util 97.0% ≥ 95.0% with pending 1 ≥ 1",
  ],
  [
    "util without backlog",
    backlog,
    page({ queue_pending: [] }, { utilization: 97 }),
    "not_busy",
    "util 97.0% ≥ 95.0% with pending 0 < 1",
  ],
  [
    "backlog without util",
    backlog,
    page({ queue_pending: [[]] }, { utilization: 3 }),
    "not_busy",
    "util 3.0% < 95.0% with pending 1 ≥ 1",
  ],
  [
    "a semaphore that is held",
    semaphore,
    page({ guard: { busy: true } }),
    "busy",
    "guard.busy: the card holds 1 ≥ 1 job",
  ],
  ["one that is free", semaphore, page({ guard: { busy: false } }), "not_busy", "guard.busy: the card holds no job"],
  ["one that counts", semaphore, page({ guard: { busy: 2 } }), "busy", "guard.busy: the card holds 2 ≥ 1 job"],
  ["a queue", { kind: "queue_depth", min: 4 }, { ...NOTHING, depth: 4 }, "busy", "queue 4 ≥ 4"],
  ["a short queue", { kind: "queue_depth", min: 4 }, { ...NOTHING, depth: 3 }, "not_busy", "queue 3 < 4"],
  [
    "queue time",
    { kind: "queue_time_p90_s", above: 120 },
    { ...NOTHING, queueP90S: 121 },
    "busy",
    "queue time p90 121.0 s > 120.0 s",
  ],
  ["no queue time", { kind: "queue_time_p90_s", above: 120 }, NOTHING, "not_busy", "queue time p90 0.0 s ≤ 120.0 s"],
];
for (const [name, settings, input, state, reason] of rows)
  test(`${name}: ${reason} [50.V1]`, () => {
    const reading = judgeSignal(settings, input);
    assert.deepEqual([reading.kind, reading.state, reading.reason], [settings.kind, state, reason]);
  });

const failed: SignalInput = { ...NOTHING, page: { kind: "failed", why: "no answer within 500 ms" }, utilization: 100 };
const brokenRows: readonly [name: string, settings: SignalSettings, input: SignalInput, reachable: boolean | null][] = [
  ["down or slow: vram", vram(1), failed, false],
  ["down or slow: backlog", backlog, failed, false],
  ["down or slow: semaphore", semaphore, failed, false],
  ["garbage: vram", vram(1), page("garbage"), true],
  ["garbage: backlog", backlog, page([1], { utilization: 100 }), true],
  ["garbage: semaphore", semaphore, page(7), true],
  ["no devices", vram(1), page({ devices: [] }), true],
  ["a missing field", vram(1), page({ devices: [{ vram_total: 5 }] }), true],
  ["a missing semaphore", semaphore, page({ guard: {} }), true],
  ["negative memory", vram(1), page(device(1_000, -1)), true],
  ["more free than there is", vram(1), page(device(1_000, 1_001)), true],
  ["no memory at all", vram(1), page(device(0, 0)), true],
  ["a negative semaphore", semaphore, page({ guard: { busy: -1 } }), true],
  ["memory as a string", vram(1), page(device("1000", "1")), true],
  ["a semaphore as a string", semaphore, page({ guard: { busy: "true" } }), true],
  ["a card that nobody measures", backlog, page({ queue_pending: [[]] }), true],
  ["a utilization that is none", backlog, page({ queue_pending: [[]] }, { utilization: 101 }), true],
  ["a queue that nobody knows", { kind: "queue_depth", min: 1 }, NOTHING, null],
];
for (const [name, settings, input, reachable] of brokenRows)
  test(`a broken signal is not busy and says that it is broken: ${name} [50.V2]`, () => {
    const reading = judgeSignal(settings, input);
    assert.deepEqual([reading.state, reading.reachable, reading.value], ["broken", reachable, null]);
    assert.ok(reading.reason.length > 0 && reading.reason.length <= 200);
  });

test("whatever a page holds, it is never taken for busy without a value at or above the threshold [50.V2]", () => {
  fc.assert(
    fc.property(
      fc.constantFrom(vram(85), backlog, semaphore),
      fc.oneof(
        fc.jsonValue(),
        fc.record({ devices: fc.array(fc.record({ vram_total: fc.jsonValue(), vram_free: fc.jsonValue() })) }),
        fc.record({ queue_pending: fc.jsonValue() }),
        fc.record({ guard: fc.record({ busy: fc.jsonValue() }) }),
      ),
      fc.option(fc.double({ min: -10, max: 200 }), { nil: null }),
      (settings, json, utilization) => {
        const reading = judgeSignal(settings, page(json, { utilization }));
        if (reading.state !== "busy") return;
        assert.ok(reading.value !== null && reading.threshold !== null && reading.value >= reading.threshold);
      },
    ),
  );
});
