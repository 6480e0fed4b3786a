import { join } from "node:path";
import type { GatewayConfig, UpstreamSettings } from "../../contract/gateway-config.ts";
import { HouseReplies } from "../../coord/house-replies.ts";
import { LocalReplies } from "../../coord/local/local-replies.ts";
import { MemoryShelf } from "../../coord/local/memory-shelf.ts";
import { SqliteShelf } from "../../coord/local/sqlite-shelf.ts";
import type { ReplyStore } from "../../coord/reply-store.ts";
import { remembers } from "../../decide/replay/plan-replay.ts";
import type { Clock } from "../../kernel/clock.ts";
import type { Logger } from "../../kernel/log.ts";
import type { Random } from "../../kernel/random.ts";
import type { GatewayMetrics } from "../metrics/gateway-metrics.ts";
import type { SharedReplies } from "./shared-replies.ts";

interface Cache {
  readonly store: ReplyStore;
  setBytesMax(bytesMax: number): void;
}

/** Kept refusals of an upstream that keeps nothing else. */
const REFUSALS_BYTES_MAX = 4 * 1024 * 1024;

interface Shared {
  /** For the answers to idempotency keys; null: in this gateway's own database. */
  readonly keys: SharedReplies | null;
  /** For the caches; null: in memory. */
  readonly caches: SharedReplies | null;
}

interface StorePorts {
  readonly clock: Clock;
  readonly log: Logger;
}

/** Where answers lie, as the configuration says. What gateways share is connected to at once, and caches once there are any. */
export async function openReplyStores(
  config: GatewayConfig,
  ports: StorePorts & { readonly random: Random; readonly metrics: GatewayMetrics },
): Promise<ReplyStores> {
  const { coordination, redisUrl, cacheRedisUrl, coordinationTimeoutMs: timeoutMs, keyPrefix } = config;
  const forKeys = coordination === "redis" ? redisUrl : null;
  if (forKeys === null && cacheRedisUrl === null) return new ReplyStores(ports, { keys: null, caches: null });
  const { SharedReplies: Shared } = await import("./shared-replies.ts");
  const keys = forKeys === null ? null : new Shared({ ...ports, url: forKeys, timeoutMs, keyPrefix });
  const caches = cacheRedisUrl === null ? keys : new Shared({ ...ports, url: cacheRedisUrl, timeoutMs, keyPrefix });
  keys?.connect();
  if (config.upstreams.some(remembers)) caches?.connect();
  return new ReplyStores(ports, { keys, caches });
}

/**
 * One store for the answers to idempotency keys and one for each upstream that keeps answers or refusals. Each is made when it is
 * first needed: where nobody sends a key and nothing is configured there is none.
 */
export class ReplyStores {
  readonly #ports: StorePorts;
  readonly #shared: Shared;
  #idempotency: ReplyStore | undefined;
  readonly #caches = new Map<string, Cache>();

  constructor(ports: StorePorts, shared: Shared) {
    this.#ports = ports;
    this.#shared = shared;
  }

  /** What the first caller's configuration says of place and bounds stays in force. */
  forKeys(config: GatewayConfig): ReplyStore {
    return (this.#idempotency ??= this.#openForKeys(config));
  }

  forUpstream(upstream: UpstreamSettings): ReplyStore {
    let cache = this.#caches.get(upstream.id);
    if (cache === undefined) this.#caches.set(upstream.id, (cache = this.#openCache(upstream)));
    return cache.store;
  }

  /** A new configuration: bounds follow it, and what an upstream kept that is gone is forgotten. */
  apply(upstreams: readonly UpstreamSettings[]): void {
    for (const [id, cache] of this.#caches) {
      const settings = upstreams.find((upstream) => upstream.id === id);
      if (settings !== undefined && remembers(settings)) {
        cache.setBytesMax(bytesMaxOf(settings));
        continue;
      }
      this.#caches.delete(id);
      void cache.store.close();
    }
  }

  /** What is open, by purpose; for the metrics. */
  *open(): Iterable<readonly [purpose: "idempotency" | "cache", store: ReplyStore]> {
    if (this.#idempotency !== undefined) yield ["idempotency", this.#idempotency];
    for (const { store } of this.#caches.values()) yield ["cache", store];
  }

  async close(): Promise<void> {
    await Promise.all(Array.from(this.open(), ([, store]) => store.close()));
    this.#shared.keys?.close();
    this.#shared.caches?.close();
  }

  #openForKeys({ dataDir, idempotency }: GatewayConfig): ReplyStore {
    const { clock, log } = this.#ports;
    const bytesMax = idempotency.totalBytesMax;
    if (this.#shared.keys !== null) return new HouseReplies(this.#shared.keys.store("replies", bytesMax), clock);
    const shelf = new SqliteShelf({ path: join(dataDir, "replies.db"), bytesMax, clock, log });
    // A database that is locked, full or slow lets one of the equal requests through, not all of them.
    return new HouseReplies(new LocalReplies(shelf, clock), clock);
  }

  #openCache(upstream: UpstreamSettings): Cache {
    const { clock } = this.#ports;
    const bytesMax = bytesMaxOf(upstream);
    if (this.#shared.caches !== null) {
      const store = this.#shared.caches.store(`cache:${upstream.id}`, bytesMax);
      return { store: new HouseReplies(store, clock), setBytesMax: (bytes) => store.setBytesMax(bytes) };
    }
    const shelf = new MemoryShelf(bytesMax, clock);
    return { store: new LocalReplies(shelf, clock), setBytesMax: (bytes) => shelf.setBytesMax(bytes) };
  }
}

const bytesMaxOf = (upstream: UpstreamSettings): number => upstream.cache?.bytesMax ?? REFUSALS_BYTES_MAX;
