import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { BatchRecord, ChunkResult } from "../../contract/batch.ts";
import { aBatch } from "../../testing/a-batch.ts";
import { chooseBatches, nextAction, stepBatch, voidReason, type BatchEvent } from "./step-batch.ts";

const NONE: ReadonlySet<string> = new Set();
const result = (lines: number, change: Partial<ChunkResult> = {}): ChunkResult => ({
  name: "n",
  outputPieces: 1,
  outputBytes: 10,
  errorPieces: 0,
  errorBytes: 0,
  completed: lines,
  failed: 0,
  expired: 0,
  ...change,
});
const chunk = (line: number, lines: number, change: Partial<BatchRecord["open"][number]> = {}) => ({
  offset: line * 10,
  bytes: lines * 10,
  line,
  lines,
  jobs: ["job_a"],
  void: null,
  ...change,
});

function after(batch: BatchRecord, ...events: readonly BatchEvent[]): BatchRecord {
  let at = batch;
  for (const event of events) {
    const step = stepBatch(at, event, 50);
    if (step.kind !== "moved") throw new Error(`${event.kind}: ${JSON.stringify(step)}`);
    at = step.batch;
  }
  return at;
}

const running = aBatch({ state: "in_progress", inProgressAt: 1, total: 4 });
const fed = after(running, { kind: "feed", chunk: chunk(0, 4) });

const rows: readonly {
  readonly name: string;
  readonly batch: BatchRecord;
  readonly now?: number;
  readonly over?: string[];
  readonly action: string;
}[] = [
  { name: "an input that nobody has read is read", batch: aBatch(), action: "validate" },
  { name: "lines are made jobs", batch: running, action: "feed" },
  { name: "jobs that run are waited for", batch: fed, action: "wait" },
  { name: "a chunk whose jobs have ended is settled", batch: fed, over: ["job_a"], action: "settle" },
  { name: "jobs of a cancelled batch are stopped", batch: after(fed, { kind: "cancel" }), action: "stopJobs" },
  { name: "jobs of a batch whose time is over are stopped", batch: fed, now: 1_000, action: "stopJobs" },
  {
    name: "a chunk of nobody's jobs is settled",
    batch: after(
      running,
      { kind: "cancel" },
      { kind: "feed", chunk: chunk(0, 4, { jobs: [], void: "batch_cancelled" }) },
    ),
    action: "settle",
  },
  {
    name: "with all lines through the batch is finalized",
    batch: after(fed, { kind: "settle", index: 0, result: result(4) }),
    action: "finalize",
  },
  {
    name: "then its files are shown",
    batch: after(fed, { kind: "settle", index: 0, result: result(4) }, { kind: "finalize" }),
    action: "publish",
  },
];
for (const { name, batch, now = 50, over = [], action } of rows)
  test(`what a driver does next: ${name} [20.J7]`, () =>
    assert.equal(nextAction(batch, now, new Set(over), 8).kind, action));

const ends: readonly { readonly name: string; readonly events: readonly BatchEvent[]; readonly state: string }[] = [
  {
    name: "a batch whose lines are through is completed",
    events: [{ kind: "settle", index: 0, result: result(4) }],
    state: "completed",
  },
  {
    name: "one with failed lines is completed too",
    events: [{ kind: "settle", index: 0, result: result(4, { completed: 1, failed: 3 }) }],
    state: "completed",
  },
  {
    name: "one with a line whose time was over has expired",
    events: [{ kind: "settle", index: 0, result: result(4, { completed: 3, failed: 1, expired: 1 }) }],
    state: "expired",
  },
  {
    name: "one that was called off is cancelled, whatever was done",
    events: [{ kind: "cancel" }, { kind: "settle", index: 0, result: result(4) }],
    state: "cancelled",
  },
];
for (const { name, events, state } of ends)
  test(`how a batch ends: ${name} [20.J7]`, () => {
    const ended = after(fed, ...events, { kind: "finalize" }, { kind: "end" });
    assert.deepEqual([ended.state, ended.endedAt, ended.driver], [state, 50, null]);
    assert.equal(stepBatch(ended, { kind: "end" }, 60).kind, "refused");
    assert.equal(stepBatch(ended, { kind: "cancel" }, 60).kind, state === "cancelled" ? "same" : "refused");
  });

test("a chunk that leaves a gap or overlaps, and a result for other lines than the chunk's, are refused [20.J7]", () => {
  const half = after(running, { kind: "feed", chunk: chunk(0, 2) });
  const bad: readonly BatchEvent[] = [
    { kind: "feed", chunk: chunk(3, 1) },
    { kind: "feed", chunk: chunk(0, 2) },
    { kind: "feed", chunk: chunk(2, 3) },
    { kind: "feed", chunk: chunk(2, 0) },
    { kind: "feed", chunk: { ...chunk(2, 2), offset: 1 } },
    { kind: "settle", index: 0, result: result(3) },
    { kind: "settle", index: 1, result: result(2) },
    { kind: "finalize" },
    { kind: "end" },
    { kind: "accept", total: 4 },
    { kind: "reject", problems: [] },
  ];
  for (const event of bad) assert.deepEqual(stepBatch(half, event, 50), { kind: "refused", why: "unfit" }, event.kind);
  const settled = after(half, { kind: "settle", index: 0, result: result(2) });
  assert.equal(stepBatch(settled, { kind: "settle", index: 0, result: result(2) }, 50).kind, "refused", "once");
});

test("each key has its turn, oldest first, however many batches another one has [20.J7]", () => {
  const batches = ["a", "a", "a", "b", "c", "b"].map((keyId, index) => ({ keyId, index }));
  assert.deepEqual(
    chooseBatches(batches, 4).map(({ index }) => index),
    [0, 3, 4, 1],
  );
});

test("whatever comes in between, every line is in one chunk that is settled once, and the batch ends [20.J7]", () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 40 }),
      fc.array(fc.tuple(fc.integer({ min: 1, max: 7 }), fc.constantFrom("go", "cancel", "expire", "stale", "leave"))),
      (total, moves) => {
        let batch = aBatch({ expiresAt: 1_000 });
        let now = 0;
        const seen: number[] = [];
        const write = (event: BatchEvent): boolean => {
          const step = stepBatch(batch, event, now);
          if (step.kind === "moved") batch = step.batch;
          return step.kind === "moved";
        };
        for (let i = 0; i < 400 && batch.endedAt === null; i += 1) {
          const [size, move] = moves[i % Math.max(1, moves.length)] ?? [3, "go"];
          if (move === "cancel") write({ kind: "cancel" });
          if (move === "expire") now = 2_000;
          const before = batch;
          const running = new Set(before.open.flatMap(({ jobs }) => jobs).filter((_, at) => (at + i) % 3 !== 0));
          const over = new Set(before.open.flatMap(({ jobs }) => jobs).filter((id) => !running.has(id)));
          const action = nextAction(before, now, over, 3);
          const reason = voidReason(before, now);
          if (action.kind === "validate") write({ kind: "accept", total });
          if (action.kind === "feed") {
            const { line, offset } = before.cursor;
            const lines = Math.min(size, total - line);
            const jobs = action.void === null ? [`job_${i}`] : [];
            write({ kind: "feed", chunk: { line, offset, lines, bytes: lines, jobs, void: action.void } });
          }
          if (action.kind === "settle") {
            const { index, line, lines } = action.chunk;
            const expired = reason === "batch_expired" ? lines : 0;
            const told = write({
              kind: "settle",
              index,
              result: result(lines, { completed: 0, failed: lines, expired }),
            });
            if (told) for (let at = line; at < line + lines; at += 1) seen.push(at);
            // A driver that read before this one wrote decides the same again: its word is refused.
            if (move === "stale") assert.equal(write({ kind: "settle", index, result: result(lines) }), false);
          }
          if (action.kind === "finalize") write({ kind: "finalize" });
          if (action.kind === "publish") write({ kind: "end" });
        }
        assert.ok(batch.endedAt !== null, "it ends");
        assert.deepEqual(
          seen.toSorted((a, b) => a - b),
          Array.from({ length: total }, (_, line) => line),
        );
        assert.equal(nextAction(batch, now, NONE, 3).kind, "none");
      },
    ),
  );
});
