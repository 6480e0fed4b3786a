import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { FleetEvent } from "../../contract/fleet.ts";
import { asMono } from "../../kernel/clock.ts";
import { FOLD_BURST, FOLD_MS, foldEvents, type FoldState } from "./fold-events.ts";

const unknown = (nodeId: string, replicaId: string): FleetEvent => ({
  kind: "unknownEngine",
  model: null,
  replicaId,
  nodeId,
  why: "an engine runs that the store does not know",
});
const many = (nodeId: string, count: number): FleetEvent[] =>
  Array.from({ length: count }, (_, index) => unknown(nodeId, `r-${index}`));
const none: FoldState = new Map();

test("a thousand replicas that one node made up are a few events, told with their count, and hide no other node's [40.V3]", () => {
  const lost: FleetEvent = { ...unknown("b", "r"), kind: "nodeLost" };
  const first = foldEvents(none, [...many("a", 1_000), ...many("b", 1), lost], asMono(0));
  assert.equal(first.events.length, FOLD_BURST + 2);
  assert.match(first.events[FOLD_BURST - 1]?.why ?? "", /only counted for a while/);
  assert.deepEqual(
    first.events.slice(FOLD_BURST).map(({ kind, nodeId }) => [kind, nodeId]),
    [
      ["unknownEngine", "b"],
      ["nodeLost", "b"],
    ],
  );
  const later = foldEvents(first.state, many("a", 3), asMono(FOLD_MS));
  assert.deepEqual(
    later.events.map(({ why }) => /after 980 more that were only counted/.test(why)),
    [true],
  );
});

test("however a node times what it makes up, no more than its burst and one for each minute is told, and each is told or counted [40.V3]", () => {
  fc.assert(
    fc.property(fc.array(fc.record({ waitMs: fc.nat(200_000), count: fc.nat(60) }), { maxLength: 30 }), (steps) => {
      let [now, told, counted, given] = [0, 0, 0, 0];
      let state = none;
      for (const { waitMs, count } of steps) {
        now += waitMs;
        given += count;
        const folded = foldEvents(state, many("a", count), asMono(now));
        state = folded.state;
        told += folded.events.length;
        for (const { why } of folded.events) counted += Number(/after (\d+) more/.exec(why)?.[1] ?? 0);
        assert.ok(told <= FOLD_BURST + now / FOLD_MS + 1e-6);
      }
      assert.equal(told + counted + ([...state.values()][0]?.held ?? 0), given);
    }),
  );
});
