import type { GatewayReport } from "../../contract/feed.ts";
import type { MonoMs } from "../../kernel/clock.ts";
import type { Upstream } from "../upstreams/upstream.ts";

/**
 * What a gateway tells of itself: who waits for the start of which model, and how long each replica has not been asked for. One
 * map for all, made from the live state (statement L2).
 */
export function makeReport(upstreams: readonly Upstream[], now: MonoMs): Pick<GatewayReport, "demand" | "used"> {
  const demand: GatewayReport["demand"] = {};
  const used: GatewayReport["used"] = {};
  for (const upstream of upstreams) {
    const model = upstream.settings.catalog?.model;
    const waiting = model === undefined ? null : upstream.startDemand(now);
    if (model !== undefined && waiting !== null) demand[model] = waiting;
    for (const endpoint of [...upstream.endpoints, ...upstream.leaving]) {
      if (endpoint.replica === null) continue;
      used[endpoint.replica.id] = { inFlight: endpoint.inFlight, idleMs: endpoint.idleMs(now) ?? null };
    }
  }
  return { demand, used };
}
