import type { GatewayConfig } from "../contract/gateway-config.ts";
import { clientsMax } from "../decide/http/clients-max.ts";
import type { Clock, MonoMs } from "../kernel/clock.ts";
import type { Logger } from "../kernel/log.ts";
import { openFilesMax } from "../kernel/open-files.ts";
import type { Random } from "../kernel/random.ts";
import type { FeedClient } from "./feed/feed-client.ts";
import type { EdgeHandlers, EdgeServer } from "./http/edge-port.ts";
import { NetEdgeServer } from "./http/net-edge-server.ts";
import { NodeEdgeServer } from "./http/node-edge-server.ts";
import type { GatewayMetrics } from "./metrics/gateway-metrics.ts";

/** Where a gateway meets others: its clients, and the control planes. What is not configured is not loaded. */

/** A crowd at the door is told of once in this time. */
const TURNED_AWAY_TOLD_MS = 60_000;

export const connectionsMaxOf = ({ maxConnections }: GatewayConfig): number =>
  clientsMax(maxConnections, openFilesMax());

export function makeEdge(
  config: GatewayConfig,
  to: EdgeHandlers,
  { clock, log }: { readonly clock: Clock; readonly log: Logger },
  metrics: GatewayMetrics,
): EdgeServer {
  const { clientServer, http, maxConnections } = config;
  const max = connectionsMaxOf(config);
  if (max < maxConnections)
    log.warn("connections.limited", { max, configured: maxConnections, files: openFilesMax() ?? 0 });
  let told: MonoMs | undefined;
  const onTurnedAway = (): void => {
    metrics.clientsTurnedAway.inc();
    const now = clock.mono();
    if (told !== undefined && now - told < TURNED_AWAY_TOLD_MS) return;
    told = now;
    log.warn("connections.full", { message: "as many clients are connected as may be: more are turned away" });
  };
  return clientServer === "net"
    ? new NetEdgeServer(to, clock, http, max, onTurnedAway)
    : new NodeEdgeServer(to, http, max, onTurnedAway);
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
