import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { HistoryReading, QueueReading } from "./prompt-pages.ts";
import { BLIND_MS_MAX, PromptWatch } from "./prompt-watch.ts";

const ABSENT = { kind: "absent" } as const;
const runs: QueueReading = { kind: "running", promptId: "p" };

test("a prompt that two looks in a row found nowhere is lost, and one look is not enough [20.F3]", () => {
  const watch = new PromptWatch();
  assert.equal(watch.onLook(ABSENT, runs, 0, false).kind, "wait");
  assert.equal(watch.onLook(ABSENT, ABSENT, 1, false).kind, "wait");
  assert.equal(watch.onLook(ABSENT, runs, 2, false).kind, "wait", "it was between the two pages");
  assert.equal(watch.onLook(ABSENT, ABSENT, 3, false).kind, "wait");
  assert.equal(watch.onLook(ABSENT, ABSENT, 4, false).kind, "lost");
});

test("looks that tell nothing are borne for a minute, and one that tells something begins it anew [20.F3]", () => {
  const watch = new PromptWatch();
  assert.equal(watch.onLook(undefined, undefined, 0, false).kind, "wait");
  assert.equal(watch.onLook(undefined, ABSENT, BLIND_MS_MAX - 1, false).kind, "wait");
  assert.equal(watch.onLook(ABSENT, runs, BLIND_MS_MAX, false).kind, "wait");
  assert.equal(watch.onLook(ABSENT, undefined, BLIND_MS_MAX + 1, false).kind, "wait");
  assert.equal(watch.onLook(undefined, undefined, 2 * BLIND_MS_MAX + 1, false).kind, "lost");
});

test("a success without an output is a failure, and an interruption is tried again [20.F3]", () => {
  const nothing: HistoryReading = { kind: "succeeded", files: [], outputs: "" };
  assert.deepEqual(new PromptWatch().onLook(nothing, undefined, 0, true), {
    kind: "failed",
    why: "the workflow ended and gave nothing",
    again: false,
  });
  const stopped = new PromptWatch().onLook({ kind: "interrupted" }, undefined, 0, true);
  assert.ok(stopped.kind === "failed" && stopped.again);
});

test("whatever is seen, it ends well only by the history, and waits are short without a socket and bounded with one [20.F3]", () => {
  const history = fc.constantFrom<HistoryReading | undefined>(undefined, ABSENT, { kind: "interrupted" });
  const queue = fc.constantFrom<QueueReading | undefined>(undefined, ABSENT, runs, {
    kind: "pending",
    promptId: "p",
    ahead: 2,
  });
  fc.assert(
    fc.property(fc.array(fc.tuple(history, queue, fc.boolean()), { maxLength: 60 }), (looks) => {
      const watch = new PromptWatch();
      let now = 0;
      for (const [seen, line, told] of looks) {
        const step = watch.onLook(seen, line, now, told);
        if (step.kind !== "wait") {
          assert.notEqual(step.kind, "succeeded");
          return;
        }
        assert.ok(step.ms > 0 && step.ms <= (told ? 10_000 : 2_000));
        now += step.ms;
      }
    }),
  );
});
