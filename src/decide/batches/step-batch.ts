import {
  isOver,
  type BatchChunk,
  type BatchProblem,
  type BatchRecord,
  type BatchState,
  type BatchVoid,
  type ChunkResult,
} from "../../contract/batch.ts";
import { assertNever } from "../../kernel/assert-never.ts";

/**
 * The life of a batch, as a function. A change is stored only over the version that it was made from, so of two drivers that decide
 * at once one writes and the other reads again.
 *
 * Invariants:
 *   B1. Chunks follow each other without a gap or an overlap, from the first line to the last: each line is in one chunk.
 *   B2. A chunk is settled once; what was written for it by whoever did not settle it is in no file.
 *   B3. Every batch that is not over has a next action until it is, or waits for jobs, each of which ends by the batch's own time.
 *   B4. What is over never changes.
 */
export type BatchEvent =
  | { readonly kind: "drive"; readonly token: string; readonly leaseMs: number }
  | { readonly kind: "leave"; readonly token: string }
  | { readonly kind: "reject"; readonly problems: readonly BatchProblem[] }
  | { readonly kind: "accept"; readonly total: number }
  | { readonly kind: "feed"; readonly chunk: Omit<BatchChunk, "index"> }
  | { readonly kind: "settle"; readonly index: number; readonly result: ChunkResult }
  | { readonly kind: "cancel" }
  | { readonly kind: "finalize" }
  | { readonly kind: "end" };

export type BatchStep =
  | { readonly kind: "moved"; readonly batch: BatchRecord }
  | { readonly kind: "same" }
  | { readonly kind: "refused"; readonly why: "over" | "unfit" };

const SAME: BatchStep = { kind: "same" };
const OVER: BatchStep = { kind: "refused", why: "over" };
const UNFIT: BatchStep = { kind: "refused", why: "unfit" };
const moved = (batch: BatchRecord, change: Partial<BatchRecord>): BatchStep => ({
  kind: "moved",
  batch: { ...batch, ...change },
});

export function stepBatch(batch: BatchRecord, event: BatchEvent, now: number): BatchStep {
  if (isOver(batch.state)) return event.kind === "cancel" && batch.state === "cancelled" ? SAME : OVER;
  switch (event.kind) {
    case "drive":
      return moved(batch, { driver: { token: event.token, until: now + event.leaseMs } });
    case "leave":
      return batch.driver?.token === event.token ? moved(batch, { driver: null }) : SAME;
    case "reject":
      if (batch.total !== null) return UNFIT;
      return moved(batch, { ...ending("failed", now), problems: event.problems });
    case "accept":
      if (batch.total !== null) return UNFIT;
      return moved(batch, {
        total: event.total,
        ...(batch.state === "validating" ? { state: "in_progress", inProgressAt: now } : {}),
      });
    case "feed":
      return feed(batch, event.chunk);
    case "settle":
      return settle(batch, event.index, event.result);
    case "cancel":
      if (batch.cancellingAt !== null) return SAME;
      // All lines are through: what there is to be cancelled is the writing of the answer.
      if (batch.state === "finalizing") return UNFIT;
      return moved(batch, { state: "cancelling", cancellingAt: now });
    case "finalize":
      if (!isThrough(batch)) return UNFIT;
      return moved(batch, { finalizingAt: now, ...(batch.cancellingAt === null ? { state: "finalizing" } : {}) });
    case "end":
      if (batch.finalizingAt === null) return UNFIT;
      return moved(batch, ending(endOf(batch), now));
    default:
      return assertNever(event, "event of a batch");
  }
}

function feed(batch: BatchRecord, chunk: Omit<BatchChunk, "index">): BatchStep {
  const { cursor, total } = batch;
  const follows = chunk.line === cursor.line && chunk.offset === cursor.offset;
  if (!follows || total === null || chunk.lines < 1 || chunk.line + chunk.lines > total) return UNFIT;
  return moved(batch, {
    cursor: { line: chunk.line + chunk.lines, offset: chunk.offset + chunk.bytes },
    open: [...batch.open, { ...chunk, index: batch.settled.length }],
    settled: [...batch.settled, null],
  });
}

function settle(batch: BatchRecord, index: number, result: ChunkResult): BatchStep {
  const chunk = batch.open.find((each) => each.index === index);
  if (chunk === undefined || result.completed + result.failed !== chunk.lines) return UNFIT;
  return moved(batch, {
    open: batch.open.filter((each) => each !== chunk),
    settled: batch.settled.with(index, result),
  });
}

const ending = (state: BatchState, now: number): Partial<BatchRecord> => ({ state, endedAt: now, driver: null });

/** Every line was carried out or was not, and is known to be so. */
const isThrough = (batch: BatchRecord): boolean => batch.cursor.line === batch.total && batch.open.length === 0;

function endOf(batch: BatchRecord): BatchState {
  if (batch.cancellingAt !== null) return "cancelled";
  return batch.settled.some((result) => result !== null && result.expired > 0) ? "expired" : "completed";
}

/** Why lines that have no answer by now are not carried out any more; null: they may still be. */
export function voidReason(batch: BatchRecord, now: number): BatchVoid | null {
  if (batch.cancellingAt !== null) return "batch_cancelled";
  return batch.expiresAt <= now ? "batch_expired" : null;
}

export type BatchAction =
  | { readonly kind: "validate" }
  /** Lines that nobody will carry out: their jobs are to end. */
  | { readonly kind: "stopJobs"; readonly jobs: readonly string[] }
  | { readonly kind: "settle"; readonly chunk: BatchChunk }
  | { readonly kind: "feed"; readonly void: BatchVoid | null }
  | { readonly kind: "finalize" }
  | { readonly kind: "publish" }
  /** Jobs run; nothing is to be done until one has ended. */
  | { readonly kind: "wait" }
  | { readonly kind: "none" };

/** What a driver does next. `over`: jobs of open chunks that have ended, or are not there any more. */
export function nextAction(
  batch: BatchRecord,
  now: number,
  over: ReadonlySet<string>,
  openChunksMax: number,
): BatchAction {
  if (isOver(batch.state)) return { kind: "none" };
  if (batch.total === null) return { kind: "validate" };
  const settles = batch.open.find(({ jobs }) => jobs.every((id) => over.has(id)));
  if (settles !== undefined) return { kind: "settle", chunk: settles };
  const reason = voidReason(batch, now);
  const running = batch.open.flatMap(({ jobs }) => jobs.filter((id) => !over.has(id)));
  if (reason !== null && running.length > 0) return { kind: "stopJobs", jobs: running };
  if (batch.cursor.line < batch.total && batch.open.length < openChunksMax) return { kind: "feed", void: reason };
  if (batch.open.length > 0) return { kind: "wait" };
  return batch.finalizingAt === null ? { kind: "finalize" } : { kind: "publish" };
}

/** So many at once, oldest first, and each key in its turn: one with many batches holds up no other key's. */
export function chooseBatches<B extends Pick<BatchRecord, "keyId">>(oldestFirst: readonly B[], max: number): B[] {
  const ofKey = new Map<string, number>();
  return oldestFirst
    .map((batch, place) => {
      const round = ofKey.get(batch.keyId) ?? 0;
      ofKey.set(batch.keyId, round + 1);
      return { batch, round, place };
    })
    .toSorted((a, b) => a.round - b.round || a.place - b.place)
    .slice(0, max)
    .map(({ batch }) => batch);
}

/** What is known of the lines that have an end. */
export function countsOf(batch: BatchRecord): { readonly completed: number; readonly failed: number } {
  let completed = 0;
  let failed = 0;
  for (const result of batch.settled) {
    completed += result?.completed ?? 0;
    failed += result?.failed ?? 0;
  }
  return { completed, failed };
}
