import { randomBytes } from "node:crypto";
import { join } from "node:path";
import type { GatewayConfig } from "../../contract/gateway-config.ts";
import { LimitSharer } from "../../coord/limits/limit-sharer.ts";
import type { LimitStore } from "../../coord/limits/limit-store.ts";
import { LocalDocs } from "../../coord/local/local-docs.ts";
import { LocalLimits } from "../../coord/local/local-limits.ts";
import { LocalUsage } from "../../coord/local/local-usage.ts";
import { UsageMeter } from "../../coord/usage/usage-meter.ts";
import type { UsageStore } from "../../coord/usage/usage-store.ts";
import type { Clock } from "../../kernel/clock.ts";
import type { Logger } from "../../kernel/log.ts";
import type { KeyMetrics } from "../metrics/key-metrics.ts";
import { UsageReader } from "../usage/usage-reader.ts";
import type { Coordination } from "../open-coordination.ts";
import { KeyLimiter } from "./key-limiter.ts";

/** What keys may use, and what they have used; with the other gateways where there are any. */
export interface KeyCounts {
  readonly limiter: KeyLimiter;
  readonly usage: UsageMeter;
  readonly reader: UsageReader;
  /** Before the coordination is closed. */
  close(): Promise<void>;
}

const NAME_BYTES = 9;

export async function openKeyCounts(
  config: GatewayConfig,
  { link, watch }: Coordination,
  { clock, log, metrics }: { readonly clock: Clock; readonly log: Logger; readonly metrics: KeyMetrics },
): Promise<KeyCounts> {
  let store: LimitStore;
  let usageStore: UsageStore;
  let local: LocalLimits | null = null;
  if (link === null) {
    store = local = new LocalLimits(clock, new LocalDocs(join(config.dataDir, "limits.db"), clock));
    usageStore = new LocalUsage(join(config.dataDir, "usage.db"), config.usageKeepDays, clock);
  } else {
    const { RedisLimits } = await import("../../coord/redis/redis-limits.ts");
    const { RedisUsage } = await import("../../coord/redis/redis-usage.ts");
    store = new RedisLimits(link);
    usageStore = new RedisUsage(link, config.usageKeepDays);
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
  const usage = new UsageMeter({
    clock,
    log,
    store: usageStore,
    gateway,
    onWrite: (outcome, unwritten) => metrics.usageWritten(outcome, unwritten),
  });
  return {
    limiter,
    usage,
    reader: new UsageReader({ clock, store: usageStore, meter: usage }),
    close: async () => {
      await usage.close();
      sharer.close();
      await local?.close();
    },
  };
}
