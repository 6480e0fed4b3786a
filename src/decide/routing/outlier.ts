import type { MonoMs } from "../../kernel/clock.ts";
import type { Breaker, BreakerState } from "./breaker.ts";

export interface OutlierView {
  readonly id: string;
  readonly breaker: Breaker;
  readonly stalled: boolean;
}

/**
 * The endpoints that are kept out for their error rate: never more than half of an upstream's endpoints (of one none, of
 * two one, of three one), the worst first. When most endpoints fail, the cause is common to them, and sending everything to
 * the few that are left would only break these too.
 *
 * Endpoints that can't be reached or are stalled are not in the set and not bounded by it: a request sent there is lost
 * for certain, so keeping them "in" helps nobody. They use up the allowance, so that no ejection for errors takes the last
 * endpoint that answers.
 */
export function ejectedEndpoints(endpoints: readonly OutlierView[], now: MonoMs): ReadonlySet<string> {
  const failing: OutlierView[] = [];
  let away = 0;
  for (const endpoint of endpoints) {
    if (endpoint.stalled) away++;
    else if (endpoint.breaker.state(now) === "closed") continue;
    else if (endpoint.breaker.cause() === "errors") failing.push(endpoint);
    else away++;
  }
  if (failing.length === 0) return NONE;
  const allowed = Math.max(0, Math.floor(endpoints.length / 2) - away);
  const worstFirst = failing.toSorted(
    (a, b) => b.breaker.failedShare() - a.breaker.failedShare() || (a.id < b.id ? -1 : 1),
  );
  return new Set(worstFirst.slice(0, allowed).map((endpoint) => endpoint.id));
}

const NONE: ReadonlySet<string> = new Set();

/** The breaker as routing sees it: one that opened for errors counts only while its endpoint is ejected. */
export function effectiveState(breaker: Breaker, ejected: boolean, now: MonoMs): BreakerState {
  const state = breaker.state(now);
  return state !== "closed" && breaker.cause() === "errors" && !ejected ? "closed" : state;
}
