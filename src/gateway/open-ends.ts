import type { GatewayConfig } from "../contract/gateway-config.ts";
import type { Clock } from "../kernel/clock.ts";
import type { Logger } from "../kernel/log.ts";
import type { Random } from "../kernel/random.ts";
import type { FeedClient } from "./feed/feed-client.ts";
import type { EdgeHandlers, EdgeServer } from "./http/edge-port.ts";
import { NetEdgeServer } from "./http/net-edge-server.ts";
import { NodeEdgeServer } from "./http/node-edge-server.ts";
import type { GatewayMetrics } from "./metrics/gateway-metrics.ts";

/** Where a gateway meets others: its clients, and the control planes. What is not configured is not loaded. */

export function makeEdge(
  { clientServer, http, maxConnections }: GatewayConfig,
  to: EdgeHandlers,
  clock: Clock,
): EdgeServer {
  return clientServer === "net"
    ? new NetEdgeServer(to, clock, http, maxConnections)
    : new NodeEdgeServer(to, http, maxConnections);
}

interface FeedParts {
  readonly config: GatewayConfig;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  readonly version: string;
}

export async function openFeed(
  { config, clock, random, log, version }: FeedParts,
  metrics: GatewayMetrics,
): Promise<FeedClient | null> {
  if (config.feed === null) return null;
  const { FeedClient } = await import("./feed/feed-client.ts");
  const onRefused: GatewayMetrics["feedRefused"] = (why) => metrics.feedRefused(why);
  return FeedClient.open({ settings: config.feed, dataDir: config.dataDir, clock, random, log, version, onRefused });
}
