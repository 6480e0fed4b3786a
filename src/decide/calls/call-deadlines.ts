import { asMono, type MonoMs } from "../../kernel/clock.ts";

/** What limits the life of a request that is on an engine. Times are absolute; undefined: not yet, or none. */
export interface CallTimes {
  /** The first try began; a retry does not start the clock anew, so that one budget holds for the whole request. */
  readonly startedAt: MonoMs;
  /** The first complete event, or byte of an answer without events. */
  readonly firstEventAt: MonoMs | undefined;
  readonly lastProgressAt: MonoMs | undefined;
  /** The engine said last that it is at work and has nothing to send yet; undefined where that does not count. */
  readonly atWorkAt: MonoMs | undefined;
  /** Since when the client takes nothing while bytes wait for it. The engine is held back by us then, so its silence counts for nothing. */
  readonly blockedAt: MonoMs | undefined;
  /** The client's own deadline. */
  readonly deadline: MonoMs | undefined;
}

export interface CallLimits {
  readonly totalMs: number;
  readonly firstByteMs: number;
  readonly idleMs: number;
  readonly writeStallMs: number;
}

export type CallLimit = "total" | "deadline" | "firstByte" | "idle" | "clientStalled";

export interface CallDeadline {
  readonly at: MonoMs;
  readonly limit: CallLimit;
}

/** The limit that is reached first if nothing more happens. */
export function nextCallDeadline(view: CallTimes, limits: CallLimits): CallDeadline {
  let at = view.startedAt + limits.totalMs;
  let limit: CallLimit = "total";
  const consider = (when: number, which: CallLimit): void => {
    if (when >= at) return;
    at = when;
    limit = which;
  };
  if (view.deadline !== undefined) consider(view.deadline, "deadline");
  if (view.blockedAt !== undefined) consider(view.blockedAt + limits.writeStallMs, "clientStalled");
  else if (view.firstEventAt === undefined)
    consider((view.atWorkAt ?? view.startedAt) + limits.firstByteMs, "firstByte");
  else consider((view.lastProgressAt ?? view.firstEventAt) + limits.idleMs, "idle");
  return { at: asMono(at), limit };
}
