import assert from "node:assert/strict";
import { test } from "node:test";
import type { FleetEvent } from "../../contract/fleet.ts";
import { asEpoch, parseIsoTime } from "../../kernel/clock.ts";
import { aModel, aReplicaDoc } from "../../testing/fleet-builders.ts";
import { type PassFacts, passSpans, SPANS_OF_PASS_MAX } from "./pass-spans.ts";

const AT = parseIsoTime("2026-01-01T00:10:00.000Z") ?? asEpoch(0);
const event = (kind: FleetEvent["kind"], part: Partial<FleetEvent> = {}): FleetEvent => ({
  kind,
  model: "m",
  replicaId: "r1",
  nodeId: "a",
  why: "because",
  ...part,
});
const doc = aReplicaDoc("r1", aModel("m"), "a", { createdAt: "2026-01-01T00:08:00.000Z", readyAt: null });
const facts = (events: readonly FleetEvent[], part: Partial<PassFacts> = {}): PassFacts => ({
  beganAt: asEpoch(AT),
  tookMs: 4,
  writes: 1,
  commands: 1,
  unplaced: 0,
  events,
  replicas: new Map([["r1", doc]]),
  ...part,
});
const shown = (of: PassFacts): readonly string[] =>
  passSpans(of)
    .slice(1)
    .map(
      ({ name, startMs, endMs, isOfPass, isError, attributes }) =>
        `${name} ${endMs - startMs} ms${isOfPass ? " in the pass" : ""}${isError ? ` error ${attributes["error.type"]}` : ""}`,
    );

test("a pass is a span with what it did, and one that did nothing has none [40.V3]", () => {
  const [pass] = passSpans(facts([event("nodeReady")], { writes: 3, commands: 2, unplaced: 1 }));
  assert.deepEqual(pass, {
    name: "reconcile.pass",
    startMs: AT,
    endMs: AT + 4,
    isOfPass: false,
    isError: false,
    attributes: {
      "yardmaster.pass.writes": 3,
      "yardmaster.pass.commands": 2,
      "yardmaster.pass.events": 1,
      "yardmaster.pass.unplaced": 1,
      "yardmaster.pass.spans_left_out": 0,
    },
  });
  assert.deepEqual(passSpans(facts([], { writes: 0, commands: 0, unplaced: 3 })), []);
});

for (const [name, of, expect] of [
  ["a placement is a part of the pass", event("replicaPlaced"), "replica.placement 4 ms in the pass"],
  ["a start lasts from the placement to readiness", event("replicaReady"), "replica.start 120004 ms"],
  ["a restart lasts from the replacement's placement", event("restartDone"), "replica.restart 120004 ms"],
  [
    "a model without room is a refusal",
    event("modelUnplaced"),
    "reconcile.refusal 4 ms in the pass error modelUnplaced",
  ],
  ["a refused restart is one", event("restartRefused"), "reconcile.refusal 4 ms in the pass error restartRefused"],
  ["a parked model is one", event("modelParked"), "reconcile.refusal 4 ms in the pass error modelParked"],
] as const)
  test(`${name} [40.V3]`, () => assert.deepEqual(shown(facts([of])), [expect]));

test("a start that failed is told with its kind; an engine that had served is no start [40.V3]", () => {
  const failure = { kind: "oom", message: "no memory", signal: null, exitCode: 1, lastLines: [] } as const;
  const failed = { ...doc, state: "failed", failure } as const;
  assert.deepEqual(shown(facts([event("replicaFailed")], { replicas: new Map([["r1", failed]]) })), [
    "replica.start 120004 ms error oom",
  ]);
  const served = { ...failed, readyAt: "2026-01-01T00:09:00.000Z" };
  assert.deepEqual(shown(facts([event("replicaFailed")], { replicas: new Map([["r1", served]]) })), []);
});

test("a clock that was set back makes no span that ends before it begins, and a pass tells of so many alone [40.V3]", () => {
  const late = { ...doc, createdAt: "2027-01-01T00:00:00.000Z" };
  assert.deepEqual(shown(facts([event("replicaReady")], { replicas: new Map([["r1", late]]) })), [
    "replica.start 0 ms",
  ]);
  const spans = passSpans(facts(Array.from({ length: SPANS_OF_PASS_MAX + 5 }, () => event("replicaPlaced"))));
  assert.equal(spans.length, SPANS_OF_PASS_MAX + 1);
  assert.equal(spans[0]?.attributes["yardmaster.pass.spans_left_out"], 5);
});
