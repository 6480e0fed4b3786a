import type { GatewayConfig } from "../contract/gateway-config.ts";
import { formatListen } from "../contract/listen-address.ts";

/** Keys whose new value waits for the next start: what they name is opened once. In the words of the file. */
export function restartNeeded(current: GatewayConfig, next: GatewayConfig): string[] {
  const pairs: readonly (readonly [key: string, current: unknown, next: unknown])[] = [
    ["listen", formatListen(current.listen), formatListen(next.listen)],
    ["data_dir", current.dataDir, next.dataDir],
    ["coordination", current.coordination, next.coordination],
    ["redis_url", current.redisUrl?.reveal(), next.redisUrl?.reveal()],
    ["database_url", current.databaseUrl?.reveal(), next.databaseUrl?.reveal()],
    ["upstream_client", current.upstreamClient, next.upstreamClient],
    ["otel.endpoint", current.otel?.endpoint, next.otel?.endpoint],
    ["otel.service_name", current.otel?.serviceName, next.otel?.serviceName],
  ];
  return pairs.filter(([, before, after]) => before !== after).map(([key]) => key);
}
