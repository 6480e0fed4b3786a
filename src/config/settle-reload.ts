import type { AuthSettings, GatewayConfig, ListenAddress } from "../contract/gateway-config.ts";
import { formatListen, isLoopback } from "../contract/listen-address.ts";

export type SettledReload =
  /** `waiting`: keys of the file whose new value is in force from the next start. */
  | { readonly kind: "apply"; readonly config: GatewayConfig; readonly waiting: readonly string[] }
  /** The new file is safe for the address that it names, but not for the one that is open. */
  | { readonly kind: "refused"; readonly message: string };

/**
 * What of a new, valid file can be in force now. What is opened once stays as it is, and access is judged by the address
 * that is open, not by the one that the file now names: else a file for loopback would open a public listener.
 */
export function settleReload(current: GatewayConfig, next: GatewayConfig): SettledReload {
  const open = !isLoopback(current.listen.host);
  if (letsEverybodyIn(current.listen, next.auth)) {
    return {
      kind: "refused",
      message: `auth.mode: \`none\` is refused while ${formatListen(current.listen)} is open; restart to change the address with it`,
    };
  }
  const config: GatewayConfig = {
    ...next,
    listen: current.listen,
    dataDir: current.dataDir,
    coordination: current.coordination,
    redisUrl: current.redisUrl,
    cacheRedisUrl: current.cacheRedisUrl,
    idempotency: { ...next.idempotency, totalBytesMax: current.idempotency.totalBytesMax },
    coordinationTimeoutMs: current.coordinationTimeoutMs,
    leaseTtlMs: current.leaseTtlMs,
    keyPrefix: current.keyPrefix,
    databaseUrl: current.databaseUrl,
    clientServer: current.clientServer,
    upstreamClient: current.upstreamClient,
    otel: current.otel,
    feed: current.feed,
    auditEventsMax: current.auditEventsMax,
    usageKeepDays: current.usageKeepDays,
    signingSecrets: current.signingSecrets,
    http: { ...next.http, headersTimeoutMs: current.http.headersTimeoutMs, keepAliveMs: current.http.keepAliveMs },
    // Public by default on loopback only; whether the file says so outright can't be told here, so in doubt it is not.
    metricsPublic: next.metricsPublic && (!open || !isLoopback(next.listen.host)),
  };
  return { kind: "apply", config, waiting: waitingKeys(current, next) };
}

/** Whether everybody who reaches the address would be let in, though nobody has said that this is meant. */
export const letsEverybodyIn = (listen: ListenAddress, auth: AuthSettings): boolean =>
  !isLoopback(listen.host) && auth.mode === "none" && !auth.allowInsecure;

const secretsIn = ({ signingSecrets }: GatewayConfig): string =>
  JSON.stringify(signingSecrets?.map((secret) => secret.reveal()));

function waitingKeys(current: GatewayConfig, next: GatewayConfig): string[] {
  const pairs: readonly (readonly [key: string, current: unknown, next: unknown])[] = [
    ["listen", formatListen(current.listen), formatListen(next.listen)],
    ["data_dir", current.dataDir, next.dataDir],
    ["coordination", current.coordination, next.coordination],
    ["redis_url", current.redisUrl?.reveal(), next.redisUrl?.reveal()],
    ["coordination_timeout_ms", current.coordinationTimeoutMs, next.coordinationTimeoutMs],
    ["lease_ttl_s", current.leaseTtlMs, next.leaseTtlMs],
    ["key_prefix", current.keyPrefix, next.keyPrefix],
    ["cache_redis_url", current.cacheRedisUrl?.reveal(), next.cacheRedisUrl?.reveal()],
    ["idempotency.total_max_bytes", current.idempotency.totalBytesMax, next.idempotency.totalBytesMax],
    ["database_url", current.databaseUrl?.reveal(), next.databaseUrl?.reveal()],
    ["client_server", current.clientServer, next.clientServer],
    ["upstream_client", current.upstreamClient, next.upstreamClient],
    ["otel.endpoint", current.otel?.endpoint, next.otel?.endpoint],
    ["otel.service_name", current.otel?.serviceName, next.otel?.serviceName],
    ["gateway.name", current.feed?.name, next.feed?.name],
    ["gateway.control", current.feed?.controls.join(), next.feed?.controls.join()],
    ["gateway.ca_file", current.feed?.tls.ca, next.feed?.tls.ca],
    ["gateway.client_cert_file", current.feed?.tls.cert, next.feed?.tls.cert],
    ["gateway.client_key_file", current.feed?.tls.key, next.feed?.tls.key],
    ["audit.max", current.auditEventsMax, next.auditEventsMax],
    ["usage.keep_days", current.usageKeepDays, next.usageKeepDays],
    ["signing_key_envs", secretsIn(current), secretsIn(next)],
    ["http.headers_timeout_s", current.http.headersTimeoutMs, next.http.headersTimeoutMs],
    ["http.keep_alive_s", current.http.keepAliveMs, next.http.keepAliveMs],
  ];
  return pairs.filter(([, before, after]) => before !== after).map(([key]) => key);
}
