import { randomBytes } from "node:crypto";
import { join } from "node:path";
import type { GatewayConfig } from "../../contract/gateway-config.ts";
import { LimitSharer } from "../../coord/limits/limit-sharer.ts";
import type { LimitStore } from "../../coord/limits/limit-store.ts";
import { LocalDocs } from "../../coord/local/local-docs.ts";
import { LocalLimits } from "../../coord/local/local-limits.ts";
import type { Clock } from "../../kernel/clock.ts";
import type { KeyMetrics } from "../metrics/key-metrics.ts";
import type { Coordination } from "../open-coordination.ts";
import { KeyLimiter } from "./key-limiter.ts";

/** What keys use, counted with the other gateways where there are any. */
export interface KeyCounts {
  readonly limiter: KeyLimiter;
  /** Before the coordination is closed. */
  close(): Promise<void>;
}

const NAME_BYTES = 9;

export async function openKeyCounts(
  config: GatewayConfig,
  { link, watch }: Coordination,
  { clock, metrics }: { readonly clock: Clock; readonly metrics: KeyMetrics },
): Promise<KeyCounts> {
  let store: LimitStore;
  let local: LocalLimits | null = null;
  if (link === null) store = local = new LocalLimits(clock, new LocalDocs(join(config.dataDir, "limits.db"), clock));
  else {
    const { RedisLimits } = await import("../../coord/redis/redis-limits.ts");
    store = new RedisLimits(link);
  }
  const gateway = watch?.gateway ?? randomBytes(NAME_BYTES).toString("base64url");
  let names = 0;
  const sharer = new LimitSharer({
    clock,
    store,
    gateway,
    gateways: () => watch?.gateways ?? 1,
    stepMs: config.coordinationTimeoutMs,
    ttlMs: config.leaseTtlMs,
    newName: () => `${gateway}.${(names += 1)}`,
    defer: (callback) => void setImmediate(callback),
  });
  const limiter = new KeyLimiter({
    clock,
    sharer,
    onLimited: (limit) => metrics.limited(limit),
    onAway: () => metrics.countedAway(),
  });
  return {
    limiter,
    close: async () => {
      sharer.close();
      await local?.close();
    },
  };
}
