import type { MonoMs } from "../../kernel/clock.ts";

/** An engine counter that moves with every step, as last read. */
export interface StepsSeen {
  readonly value: number;
  /** When this value was read first. */
  readonly since: MonoMs;
  /** When it was read last. */
  readonly seenAt: MonoMs;
}

export interface StallView {
  /** Requests on the endpoint now. */
  readonly running: number;
  /**
   * Since when requests have been on the endpoint without a complete event on any, times without a request left out.
   * Comments are no events.
   */
  readonly silentSince: MonoMs | undefined;
  /**
   * Whether silence alone speaks: a stream shows its work as it goes, a whole answer only at its end, however long that is in
   * the making.
   */
  readonly silenceTells: boolean;
  /** The last complete event or byte of an answer from the endpoint, of any request. */
  readonly lastProgressAt: MonoMs | undefined;
  /** Null: the engine has no such counter, or it can't be read. */
  readonly steps: StepsSeen | null;
  readonly stalled: boolean;
  readonly stalledSince: MonoMs | undefined;
}

/** "unknown": nothing is running, or nothing has come yet and it is too early to tell. */
export type StallVerdict = "moving" | "stalled" | "unknown";

/** A counter read longer ago than this tells nothing of now. */
export const STEPS_FRESH_MS = 5_000;
/** How long a counter must be seen standing. With reads each second this is noticed within 30 s of the last step. */
export const STEPS_STANDING_MS = 25_000;
/** After this time without work a stalled endpoint may be tried again; nothing else could show that it is back. */
export const STALL_RETRY_MS = 60_000;

/**
 * Whether an endpoint makes progress, whatever its health page says.
 *
 *   - It is stalled when requests are running and none of them has had a complete event for `stallMs`, where silence tells.
 *   - A step counter that moves shows a working engine, however long no byte comes: a long prefill is no stall.
 *   - A step counter that is seen standing for 25 s while no byte comes shows the stall earlier.
 *   - A counter that can't be read counts for neither.
 *
 * A stalled endpoint is moving again when an event came, or the counter was seen to move, after it was found stalled. With
 * nothing left running it becomes "unknown" after STALL_RETRY_MS; let its breaker then admit one request alone.
 */
export function judgeStall(view: StallView, stallMs: number, now: MonoMs): StallVerdict {
  const steps = view.steps !== null && now - view.steps.seenAt <= STEPS_FRESH_MS ? view.steps : null;
  if (view.stalled && view.stalledSince !== undefined) {
    if (view.lastProgressAt !== undefined && view.lastProgressAt > view.stalledSince) return "moving";
    if (steps !== null && steps.since > view.stalledSince) return "moving";
    return view.running === 0 && now - view.stalledSince >= STALL_RETRY_MS ? "unknown" : "stalled";
  }
  if (view.running === 0 || view.silentSince === undefined) return "unknown";
  const since = Math.max(view.silentSince, view.lastProgressAt ?? view.silentSince);
  if (steps !== null) {
    // A counter also stands while nothing runs, so only its time during this silence counts.
    if (steps.seenAt - Math.max(steps.since, since) >= STEPS_STANDING_MS) return "stalled";
    if (now - steps.since < STEPS_STANDING_MS) return "moving";
  }
  if (now - since >= stallMs && view.silenceTells) return "stalled";
  return view.lastProgressAt !== undefined && view.lastProgressAt >= view.silentSince ? "moving" : "unknown";
}
