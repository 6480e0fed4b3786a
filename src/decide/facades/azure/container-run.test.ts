import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import {
  ContainerRun,
  LOOK_FAILURES_MAX,
  LOOK_MS_MAX,
  LOOK_MS_MIN,
  type ContainerHead,
  type RunStep,
} from "./container-run.ts";
import type { OperationReading } from "./operation.ts";

const V4 = { family: "documentintelligence", modelId: "prebuilt-read", apiVersion: "2024-11-30" } as const;
const V3 = { family: "formrecognizer", modelId: "prebuilt-read", apiVersion: "2023-07-31" } as const;
const head = (status: number, more: Partial<ContainerHead> = {}): ContainerHead => ({
  status,
  retryAfterMs: undefined,
  operationLocation: undefined,
  ...more,
});
const accepted = (target: typeof V4 | typeof V3, retryAfterMs?: number): ContainerHead =>
  head(202, {
    retryAfterMs,
    operationLocation: `http://c/${target.family}/documentModels/prebuilt-read/analyzeResults/op-1?api-version=x`,
  });
const UNDER: OperationReading = { kind: "under" };

test("a document is looked at under its own id until its result is there [20.F2]", () => {
  const run = new ContainerRun(V4);
  assert.deepEqual(run.onSubmitted(accepted(V4, 1_000)), { kind: "wait", ms: 1_000 });
  assert.deepEqual(run.onWaited(), {
    kind: "look",
    path: "/documentintelligence/documentModels/prebuilt-read/analyzeResults/op-1?api-version=2024-11-30",
  });
  assert.equal(run.onLooked(head(200), UNDER).kind, "wait");
  assert.deepEqual(run.onLooked(head(200), { kind: "succeeded" }), { kind: "succeeded" });
});

test("without Retry-After it is looked at soon at first, then less often, within bounds", () => {
  const run = new ContainerRun(V4);
  let last = 0;
  let step: RunStep = run.onSubmitted(accepted(V4));
  for (let look = 0; look < 20; look += 1) {
    assert.ok(step.kind === "wait" && step.ms >= last && step.ms >= LOOK_MS_MIN && step.ms <= 2_000);
    last = step.ms;
    step = run.onLooked(head(200), UNDER);
  }
});

const endings: readonly (readonly [
  what: string,
  looked: [ContainerHead | undefined, OperationReading | undefined],
  step: string,
])[] = [
  ["a container that lost the document", [head(404), undefined], "broken reset"],
  ["success without a result", [head(200), { kind: "noResult" }], "broken reset"],
  ["a document that can't be analysed", [head(200), { kind: "failed", code: "c", message: "m" }], "failed"],
  ["a result", [head(200), { kind: "succeeded" }], "succeeded"],
];
for (const [what, looked, said] of endings) {
  test(`${what} ends it as ${said}, and nothing is left to call off [20.F2]`, () => {
    const run = new ContainerRun(V4);
    run.onSubmitted(accepted(V4));
    assert.notEqual(run.removal, null);
    const step = run.onLooked(...looked);
    assert.equal(step.kind === "broken" ? `broken ${step.failure}` : step.kind, said);
    assert.equal(run.removal, null);
  });
}

test("looks that tell nothing are borne, spaced out, and end it when they are too many in a row [20.F2]", () => {
  const tellingNothing: readonly (readonly [ContainerHead | undefined, OperationReading | undefined])[] = [
    [undefined, undefined],
    [head(503), undefined],
    [head(200), { kind: "unreadable", why: "x" }],
  ];
  for (const looked of tellingNothing) {
    const run = new ContainerRun(V4);
    run.onSubmitted(accepted(V4));
    for (let failure = 1; failure < LOOK_FAILURES_MAX; failure += 1) assert.equal(run.onLooked(...looked).kind, "wait");
    assert.equal(run.onLooked(head(200), UNDER).kind, "wait"); // A good one between: the count begins anew.
    for (let failure = 1; failure < LOOK_FAILURES_MAX; failure += 1) assert.equal(run.onLooked(...looked).kind, "wait");
    const step = run.onLooked(...looked);
    assert.ok(step.kind === "broken" && step.failure === "reset");
    assert.notEqual(run.removal, null); // It may be at work still.
  }
});

test("a refusal of the document is passed on, and a 202 without an operation is no success [20.F2]", () => {
  assert.deepEqual(new ContainerRun(V4).onSubmitted(head(429, { retryAfterMs: 1_000 })), { kind: "refused" });
  assert.deepEqual(new ContainerRun(V4).onSubmitted(head(200)), { kind: "refused" });
  for (const operationLocation of [undefined, "", "http://c/admin"]) {
    const step = new ContainerRun(V4).onSubmitted(head(202, { operationLocation }));
    assert.ok(step.kind === "broken" && step.failure === "protocol");
  }
});

test("only v4.0 has a request that calls an operation off", () => {
  const run = new ContainerRun(V3);
  run.onSubmitted(accepted(V3));
  assert.equal(run.removal, null);
});

const anyHead = fc.record({
  status: fc.constantFrom(200, 404, 410, 429, 500, 503),
  retryAfterMs: fc.option(fc.integer({ min: 0, max: 10_000_000 }), { nil: undefined }),
  operationLocation: fc.constant(undefined),
});
const anyReading: fc.Arbitrary<OperationReading | undefined> = fc.constantFrom<OperationReading | undefined>(
  UNDER,
  UNDER,
  UNDER,
  { kind: "noResult" },
  { kind: "unreadable", why: "x" },
  { kind: "succeeded" },
  { kind: "failed", code: "c", message: "m" },
  undefined,
);

test("whatever the container answers: waits within bounds, an end well only with a result, and an end when it can't be asked [20.F2]", () => {
  fc.assert(
    fc.property(fc.array(fc.tuple(fc.option(anyHead, { nil: undefined }), anyReading), { maxLength: 60 }), (looks) => {
      const run = new ContainerRun(V4);
      run.onSubmitted(accepted(V4, 0));
      let failures = 0;
      for (const [looked, any] of looks) {
        const reading = looked?.status === 200 ? any : undefined;
        const step = run.onLooked(looked, reading);
        const telling = reading?.kind === "under";
        failures = telling ? 0 : failures + 1;
        if (step.kind === "wait") {
          assert.ok(step.ms >= LOOK_MS_MIN && step.ms <= LOOK_MS_MAX);
          assert.ok(failures < LOOK_FAILURES_MAX);
          continue;
        }
        assert.equal(step.kind === "succeeded", reading?.kind === "succeeded");
        assert.equal(step.kind === "failed", reading?.kind === "failed");
        return;
      }
    }),
    { numRuns: 2_000 },
  );
});
