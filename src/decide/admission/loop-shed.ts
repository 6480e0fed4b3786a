import { REQUEST_CLASSES, type RequestClass } from "../../contract/request-class.ts";

/**
 * What a gateway does that falls behind with its own work: it takes less of it, the lowest class first, so that what it takes
 * still gets its answer. The signal is how late the event loop is, averaged so that one long turn sheds nobody for long.
 */
const AVERAGED_OVER_MS = 1_000;

/** A well-off gateway is a few milliseconds late. At these averages callers wait noticeably, then badly, then in vain. */
export const SHED_FROM_MS: Readonly<Record<RequestClass, number>> = { interactive: 2_000, system: 1_000, batch: 500 };

/** The average after `elapsedMs` that ended `lateMs` late. */
export function averageLate(beforeMs: number, lateMs: number, elapsedMs: number): number {
  const kept = Math.exp(-elapsedMs / AVERAGED_OVER_MS);
  return beforeMs * kept + lateMs * (1 - kept);
}

/** The classes that are refused at this lateness, the most urgent first. */
export const shedClasses = (lateMs: number): readonly RequestClass[] =>
  REQUEST_CLASSES.filter((requestClass) => lateMs >= SHED_FROM_MS[requestClass]);
