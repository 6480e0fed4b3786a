/** As often as agents report while there are few of them. */
export const HEARTBEAT_MS = 2_000;
/** Reports of all agents together; with more agents each one reports less often. */
export const HEARTBEATS_PER_S = 250;
/** A node that loses this many heartbeats in a row is not yet unreachable. */
const SPARE = 3;
const HEARTBEAT_MS_MIN = 200;

/** How often an agent is to report, in ms, with so many of them. */
export function heartbeatMs(agents: number, unreachableAfterMs: number): number {
  const paced = Math.max(HEARTBEAT_MS, (agents / HEARTBEATS_PER_S) * 1_000);
  return Math.max(HEARTBEAT_MS_MIN, Math.min(paced, unreachableAfterMs / SPARE));
}
