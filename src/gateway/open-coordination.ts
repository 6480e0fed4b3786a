import type { GatewayConfig } from "../contract/gateway-config.ts";
import type { RedisLink } from "../coord/redis/redis-link.ts";
import type { Clock } from "../kernel/clock.ts";
import { YardmasterError } from "../kernel/errors.ts";
import type { Logger } from "../kernel/log.ts";
import type { Random } from "../kernel/random.ts";
import type { GatewayMetrics } from "./metrics/gateway-metrics.ts";

/** What this gateway shares with others. Under `coordination: local` there is nothing, and nothing is loaded. */
export interface Coordination {
  readonly link: RedisLink | null;
  close(): void;
}

/** What `/health` tells of it. */
export interface CoordinationHealth {
  readonly mode: GatewayConfig["coordination"];
  readonly state: "local" | "shared" | "failed_open";
  readonly reason: string | null;
  readonly since_ms: number | null;
  readonly server: { readonly name: string; readonly version: string | null; readonly policy: string | null } | null;
  /** Why jobs must not be entrusted to the server; null when they may, or when it was not seen yet. */
  readonly unfit_for_jobs: string | null;
}

interface CoordinationPorts {
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  readonly metrics: GatewayMetrics;
}

/**
 * A server that is away does not keep the gateway from starting: it starts as it would go on without it. One that is there
 * and can't do what is needed does, with a COORDINATION_UNSUITABLE that names what is missing.
 */
export async function openCoordination(config: GatewayConfig, ports: CoordinationPorts): Promise<Coordination> {
  if (config.coordination === "local" || config.redisUrl === null) return { link: null, close: () => {} };
  const { RedisLink } = await import("../coord/redis/redis-link.ts");
  const { clock, random, log, metrics } = ports;
  const link = new RedisLink(
    { url: config.redisUrl, timeoutMs: config.coordinationTimeoutMs, keyPrefix: config.keyPrefix },
    { clock, random, log, onStep: (script, outcome) => metrics.coordinationStep(script, outcome) },
  );
  await link.open();
  if (link.unsuitable !== null) {
    link.close();
    throw new YardmasterError("COORDINATION_UNSUITABLE", `the Redis of redis_url can't be used: ${link.unsuitable}`);
  }
  return { link, close: () => link.close() };
}

export function coordinationHealth(
  mode: GatewayConfig["coordination"],
  { link }: Coordination,
  clock: Clock,
): CoordinationHealth {
  const facts = link?.facts ?? null;
  return {
    mode,
    state: link === null ? "local" : link.state === "closed" ? "shared" : "failed_open",
    reason: link === null || link.state === "closed" ? null : link.reason,
    since_ms: link === null ? null : Math.round(clock.mono() - link.stateSince),
    server: facts === null ? null : { name: facts.server, version: facts.version, policy: facts.policy },
    unfit_for_jobs: facts?.unfitForJobs ?? null,
  };
}
