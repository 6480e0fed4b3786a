import type { StartVerdict } from "../../decide/feed/judge-start.ts";
import type { MonoMs } from "../../kernel/clock.ts";
import type { Endpoint } from "./endpoint.ts";
import { isListed } from "./model-groups.ts";

/** Retry-After when nothing tells how long a whole upstream stays away. */
export const AWAY_MS = 5_000;
/** And when a model's start was not there in time, or has failed. */
export const NOT_STARTED_MS = 10_000;

export interface Unavailable {
  readonly reason: string;
  readonly retryAfterMs: number;
}

/**
 * Why no endpoint could serve the model even if all its slots were free; null when one could. `strict`: for readiness and
 * status, where an endpoint that is only tried for want of a better one does not count.
 */
export function whyUnavailable(
  start: StartVerdict,
  endpoints: readonly Endpoint[],
  model: string,
  strict: boolean,
  now: MonoMs,
): Unavailable | null {
  if (start.kind === "waits") return null;
  if (start.kind === "refused") return { reason: start.why, retryAfterMs: NOT_STARTED_MS };
  if (endpoints.length === 0) return { reason: "no endpoint is configured or registered", retryAfterMs: AWAY_MS };
  const reasons: string[] = [];
  let retryAfterMs = AWAY_MS;
  const listed = isListed(endpoints, model);
  for (const endpoint of endpoints) {
    const why = endpoint.whyAway(now, model, listed, strict);
    if (why === null) return null;
    reasons.push(`${endpoint.publicId}: ${why}`);
    const opensIn = endpoint.breaker.retryInMs(now);
    if (opensIn > 0) retryAfterMs = Math.min(retryAfterMs, opensIn);
  }
  return { reason: reasons.slice(0, 4).join("; "), retryAfterMs };
}
