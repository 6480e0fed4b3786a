import { join } from "node:path";
import type { GatewayConfig } from "../../contract/gateway-config.ts";
import type { Coordination } from "../open-coordination.ts";
import type { AuditSink } from "./audit-sink.ts";
import { openSqliteAudit } from "./sqlite-audit.ts";
import type { SpooledAuditOptions } from "./spooled-audit.ts";

/** One audit for all gateways where they share a Redis, else this gateway's own. */
export async function openAudit(
  { dataDir, auditEventsMax: max }: GatewayConfig,
  { link }: Coordination,
  options: SpooledAuditOptions,
): Promise<AuditSink> {
  if (link === null) return openSqliteAudit({ ...options, path: join(dataDir, "audit.db"), max });
  const { openRedisAudit } = await import("./redis-audit.ts");
  return openRedisAudit({ ...options, link, max });
}
