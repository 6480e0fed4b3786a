import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { asMono } from "../../kernel/clock.ts";
import { aGpu } from "../../testing/fleet-builders.ts";
import { GpuReadings, READINGS_AGAIN_MS, READINGS_EVERY_MS, READINGS_NODES_MAX, ToldReadings } from "./gpu-readings.ts";

const at = asMono;
const namesOf = (told: readonly { readonly node: string }[]): string[] => told.map(({ node }) => node).toSorted();

test("a gateway is told what is new of each node, with its age, and of what has not changed only after a while [30.T1]", () => {
  const readings = new GpuReadings();
  const told = new ToldReadings();
  readings.heard("a", [aGpu("A")], at(0));
  readings.heard("b", [aGpu("B")], at(900));
  readings.heard("bare", [], at(900));
  assert.deepEqual(
    told.next(readings, at(1_000)).map(({ node, ageMs }) => [node, ageMs]),
    [
      ["a", 1_000],
      ["b", 100],
    ],
  );
  assert.deepEqual(told.next(readings, at(4_000)), [], "no reading twice");
  readings.heard("a", [aGpu("A")], at(4_500));
  readings.heard("b", [aGpu("B", { temperatureC: 41 })], at(4_600));
  assert.deepEqual(namesOf(told.next(readings, at(5_000))), ["b"]);
  const late = 1_000 + READINGS_EVERY_MS + READINGS_AGAIN_MS;
  readings.heard("a", [aGpu("A")], at(late - 500));
  assert.deepEqual(namesOf(told.next(readings, at(late))), ["a"]);
  told.clear();
  assert.deepEqual(namesOf(told.next(readings, at(15_000))), ["a", "b"]);
});

test("what comes within two seconds is gathered, and a node that is silent is told of no more [30.T1 30.U3]", () => {
  const readings = new GpuReadings();
  const told = new ToldReadings();
  readings.heard("a", [aGpu("A")], at(0));
  assert.deepEqual(namesOf(told.next(readings, at(0))), ["a"]);
  readings.heard("a", [aGpu("A", { health: "sick" })], at(10));
  assert.deepEqual(told.next(readings, at(READINGS_EVERY_MS - 1)), []);
  assert.deepEqual(told.next(readings, at(READINGS_EVERY_MS))[0]?.gpus[0]?.health, "sick");
  assert.deepEqual(new ToldReadings().next(readings, at(70_000)), []);
});

test("of a large fleet few nodes are told of at a time, everyone's turn comes, and a card that turns sick or well waits for none [30.T1]", () => {
  const readings = new GpuReadings();
  const told = new ToldReadings();
  const nodes = Array.from({ length: READINGS_NODES_MAX * 3 }, (_, index) => `n${index}`);
  const hear = (now: number, sick: string | null): void => {
    for (const node of nodes)
      readings.heard(node, [aGpu(node, { usedMib: now, health: node === sick ? "sick" : "ok" })], at(now));
  };
  const seen: string[] = [];
  for (let round = 0; round < 3; round += 1) {
    hear(round * 2_000, null);
    const some = told.next(readings, at(round * 2_000));
    assert.equal(some.length, READINGS_NODES_MAX);
    seen.push(...namesOf(some));
  }
  assert.deepEqual(seen.toSorted(), nodes.toSorted());
  hear(6_000, "n190");
  assert.equal(told.next(readings, at(6_000))[0]?.node, "n190");
  hear(8_000, null);
  assert.equal(told.next(readings, at(8_000))[0]?.node, "n190");
});

test("after any reports and looks nothing is told twice, backwards, or oftener than it may be [30.T1]", () => {
  const step = fc.record({
    afterMs: fc.integer({ min: 0, max: 5_000 }),
    node: fc.constantFrom("a", "b", "c"),
    usedMib: fc.integer({ min: 0, max: 1 }),
    looks: fc.boolean(),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const readings = new GpuReadings();
      const told = new ToldReadings();
      const lastReading = new Map<string, number>();
      let now = 0;
      let lastAt = -Infinity;
      for (const { afterMs, node, usedMib, looks } of steps) {
        now += afterMs;
        if (!looks) {
          readings.heard(node, [aGpu(node, { usedMib })], at(now));
          continue;
        }
        const some = told.next(readings, at(now));
        if (some.length > 0) {
          assert.ok(now - lastAt >= READINGS_EVERY_MS);
          lastAt = now;
        }
        for (const { node: name, ageMs } of some) {
          assert.ok(ageMs >= 0 && now - ageMs > (lastReading.get(name) ?? -1));
          lastReading.set(name, now - ageMs);
        }
      }
    }),
  );
});
