import type { GatewayConfig } from "../contract/gateway-config.ts";
import { randomBytes } from "node:crypto";
import type { RedisLink } from "../coord/redis/redis-link.ts";
import type { RedisWatch } from "../coord/redis/redis-watch.ts";
import type { SharedUpstream, SlotSharer } from "../coord/slot-sharer.ts";
import type { Clock } from "../kernel/clock.ts";
import { YardmasterError } from "../kernel/errors.ts";
import type { Logger } from "../kernel/log.ts";
import type { Random } from "../kernel/random.ts";
import type { GatewayMetrics } from "./metrics/gateway-metrics.ts";

/** What this gateway shares with others. Under `coordination: local` there is nothing, and nothing is loaded. */
export interface Coordination {
  readonly link: RedisLink | null;
  /** Who shares. */
  readonly watch: RedisWatch | null;
  /** How an upstream's slots are shared. */
  readonly share: ((upstream: SharedUpstream) => SlotSharer) | null;
  close(): void;
}

const LOCAL: Coordination = { link: null, watch: null, share: null, close: () => {} };

/** What `/health` tells of it. */
export interface CoordinationHealth {
  readonly mode: GatewayConfig["coordination"];
  readonly state: "local" | "shared" | "failed_open";
  readonly reason: string | null;
  readonly since_ms: number | null;
  /** This one included, as last seen. */
  readonly gateways: number | null;
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
  if (config.coordination === "local" || config.redisUrl === null) return LOCAL;
  const [{ RedisLink }, { RedisWatch }, { RedisSubscriber }, { RedisSlots }, { SlotSharer }] = await Promise.all([
    import("../coord/redis/redis-link.ts"),
    import("../coord/redis/redis-watch.ts"),
    import("../coord/redis/subscriber.ts"),
    import("../coord/redis/redis-slots.ts"),
    import("../coord/slot-sharer.ts"),
  ]);
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
  const gateway = randomBytes(GATEWAY_BYTES).toString("base64url");
  const onEmptied = (): void => metrics.storeEmptied();
  const watch = new RedisWatch(link, gateway, config.leaseTtlMs, { clock, random, log, onEmptied });
  await watch.open();
  const subscriber = new RedisSubscriber(link, { clock, random });
  const sharerPorts = {
    clock,
    random,
    log,
    store: new RedisSlots(link, subscriber),
    watch,
    defer: (callback: () => void): void => void setImmediate(callback),
    onLost: (upstream: string, leases: number): void => metrics.leasesLost(upstream, leases),
  };
  return {
    link,
    watch,
    share: (upstream) => new SlotSharer(upstream, config.leaseTtlMs, sharerPorts),
    close: () => {
      watch.close();
      subscriber.close();
      link.close();
    },
  };
}

/** So many that no two gateways that ever share have the same name. */
const GATEWAY_BYTES = 9;

export function coordinationHealth(
  mode: GatewayConfig["coordination"],
  { link, watch }: Coordination,
  clock: Clock,
): CoordinationHealth {
  const facts = link?.facts ?? null;
  return {
    mode,
    state: link === null ? "local" : link.state === "closed" ? "shared" : "failed_open",
    reason: link === null || link.state === "closed" ? null : link.reason,
    since_ms: link === null ? null : Math.round(clock.mono() - link.stateSince),
    gateways: watch === null ? null : watch.gateways,
    server: facts === null ? null : { name: facts.server, version: facts.version, policy: facts.policy },
    unfit_for_jobs: facts?.unfitForJobs ?? null,
  };
}
