import { join } from "node:path";
import type { GatewayConfig, UpstreamSettings } from "../../contract/gateway-config.ts";
import { LocalReplies } from "../../coord/local/local-replies.ts";
import { MemoryShelf } from "../../coord/local/memory-shelf.ts";
import { SqliteShelf } from "../../coord/local/sqlite-shelf.ts";
import type { ReplyStore } from "../../coord/reply-store.ts";
import type { Clock } from "../../kernel/clock.ts";
import type { Logger } from "../../kernel/log.ts";

interface Cache {
  readonly store: ReplyStore;
  setBytesMax(bytesMax: number): void;
}

/** Kept refusals of an upstream that keeps nothing else. */
const REFUSALS_BYTES_MAX = 4 * 1024 * 1024;

/**
 * One store for the answers to idempotency keys and one for each upstream that keeps answers or refusals. Each is made when it is
 * first needed: where nobody sends a key and nothing is configured there is none.
 */
export class ReplyStores {
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #config: () => GatewayConfig;
  #idempotency: ReplyStore | undefined;
  readonly #caches = new Map<string, Cache>();

  constructor(options: { readonly clock: Clock; readonly log: Logger; readonly config: () => GatewayConfig }) {
    this.#clock = options.clock;
    this.#log = options.log;
    this.#config = options.config;
  }

  forKeys(): ReplyStore {
    return (this.#idempotency ??= this.#openForKeys());
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
      if (settings !== undefined && (settings.cache !== null || settings.refusals.length > 0)) {
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
  }

  #openForKeys(): ReplyStore {
    const { dataDir, idempotency } = this.#config();
    const shelf = new SqliteShelf({
      path: join(dataDir, "replies.db"),
      bytesMax: idempotency.totalBytesMax,
      clock: this.#clock,
      log: this.#log,
    });
    return new LocalReplies(shelf, this.#clock);
  }

  #openCache(upstream: UpstreamSettings): Cache {
    const shelf = new MemoryShelf(bytesMaxOf(upstream), this.#clock);
    return { store: new LocalReplies(shelf, this.#clock), setBytesMax: (bytes) => shelf.setBytesMax(bytes) };
  }
}

const bytesMaxOf = (upstream: UpstreamSettings): number => upstream.cache?.bytesMax ?? REFUSALS_BYTES_MAX;
