import { join } from "node:path";
import type { GatewayConfig } from "../../contract/gateway-config.ts";
import type { Signer } from "../../kernel/signer.ts";
import type { Coordination } from "../open-coordination.ts";
import type { AuditSink } from "./audit-sink.ts";
import { openChain, type ChainStore } from "../../audit/audit-chain.ts";
import { ChainedAudit } from "./chain/chained-audit.ts";
import { openSqliteAudit } from "./sqlite-audit.ts";
import type { SpooledAuditOptions } from "./spooled-audit.ts";

export interface OpenedAudit {
  readonly audit: AuditSink;
  /** Of this gateway alone, also where the audit is shared: whoever could change it would have to be here. */
  readonly chain: ChainStore;
}

export async function openAudit(
  config: GatewayConfig,
  coordination: Coordination,
  signer: () => Promise<Signer>,
  options: SpooledAuditOptions,
): Promise<OpenedAudit> {
  const { clock, log } = options;
  const inner = await openSink(config, coordination, options);
  const chain = openChain({ clock, dataDir: config.dataDir, signer });
  return { audit: new ChainedAudit({ clock, log, inner, chain, signer }), chain };
}

/** One audit for all gateways where they share a Redis, else this gateway's own. */
async function openSink(
  { dataDir, auditEventsMax: max }: GatewayConfig,
  { link }: Coordination,
  options: SpooledAuditOptions,
): Promise<AuditSink> {
  if (link === null) return openSqliteAudit({ ...options, path: join(dataDir, "audit.db"), max });
  const { openRedisAudit } = await import("./redis-audit.ts");
  return openRedisAudit({ ...options, link, max });
}
