import { Redis } from "ioredis";
import { type Clock, systemClock } from "../../../src/kernel/clock.ts";
import type { SimEngine } from "../../../src/sim-engine/sim-engine.ts";
import { OwnRedis } from "../../../src/testing/servers/redis-server.ts";
import { eventually } from "../../../src/testing/wait-for.ts";
import { anEngine } from "./an-engine.ts";
import { upstreamHealth, type UpstreamHealth } from "./health.ts";
import { startTestGateway, type TestGateway } from "./test-gateway.ts";

// Several gateways that share one upstream through a Redis of the test's own, and the engine behind them, which has more
// slots than they may use together, so that one too many would show in its ledger.

export interface SharedOptions {
  readonly slots: number;
  readonly gateways: number;
  /** Of the upstream, in the words of the file. */
  readonly upstream?: Record<string, unknown>;
  /** Of the file's top level. */
  readonly file?: Record<string, unknown>;
  readonly redisArgs?: readonly string[];
  /** The store was never used: gateways can't know that it was not emptied a moment ago. */
  readonly fresh?: boolean;
  /** One for each gateway; without it the machine's. */
  readonly clocks?: readonly Clock[];
  /** Where the gateways look for Redis; without it where it is. */
  readonly redisUrl?: (redis: OwnRedis) => Promise<string>;
}

export interface SharedWorld {
  readonly redis: OwnRedis;
  /** A connection of the test's own. */
  readonly admin: Redis;
  readonly engine: SimEngine;
  readonly gateways: readonly TestGateway[];
  /** Leases that have not lapsed, as Redis counts them. */
  leases(): Promise<number>;
  sharing(gateway: TestGateway): Promise<NonNullable<UpstreamHealth["sharing"]>>;
  /** Resolves when each gateway is in this state. */
  all(state: "shared" | "failed_open"): Promise<void>;
}

export const PREFIX = "yardmaster";
export const UPSTREAM = "u";
const LEASES = `{${PREFIX}:${UPSTREAM}}:leases`;

/** A store that is as old as one in use: gateways on a fresh one wait until others had the time to speak. */
export const seasonStore = (admin: Redis): Promise<unknown> => admin.set(`{${PREFIX}}:boot`, "test|0");

export const adminOf = (redis: OwnRedis): Redis => {
  const admin = new Redis(redis.url, { retryStrategy: () => 100 });
  admin.on("error", () => {}); // Tests kill the server.
  return admin;
};

/** Unless a test asks how soon a Redis is given up, a busy machine does not look like one that is away. */
export const shareFile = (redisUrl: string, more: Record<string, unknown> = {}): Record<string, unknown> => ({
  coordination: "redis",
  redis_url: redisUrl,
  coordination_timeout_ms: 3_000,
  ...more,
});

export const sharedUpstream = (
  engine: string,
  slots: number,
  more: Record<string, unknown> = {},
): Record<string, unknown> => ({
  id: UPSTREAM,
  models: ["m"],
  engine: "vllm",
  slots,
  endpoints: [{ url: engine }],
  ...more,
});

export const roomyEngine = (): Promise<SimEngine> => anEngine({ slots: 256 });

export async function withSharedWorld(
  options: SharedOptions,
  run: (world: SharedWorld) => Promise<void>,
): Promise<void> {
  const redis = await OwnRedis.start(options.redisArgs);
  const admin = adminOf(redis);
  const engine = await roomyEngine();
  const gateways: TestGateway[] = [];
  try {
    if (options.fresh !== true) await seasonStore(admin);
    const url = (await options.redisUrl?.(redis)) ?? redis.url;
    const upstream = sharedUpstream(engine.url, options.slots, options.upstream);
    for (let i = 0; i < options.gateways; i += 1)
      gateways.push(
        await startTestGateway({
          upstreams: [upstream],
          file: shareFile(url, options.file),
          clock: options.clocks?.[i] ?? systemClock,
        }),
      );
    const sharing = async (gateway: TestGateway): Promise<NonNullable<UpstreamHealth["sharing"]>> => {
      const { sharing: shown } = await upstreamHealth(gateway, UPSTREAM);
      if (shown === null) throw new Error("this gateway shares nothing");
      return shown;
    };
    const all = async (state: "shared" | "failed_open"): Promise<void> => {
      for (const gateway of gateways)
        await eventually(
          `all gateways ${state}`,
          () => sharing(gateway),
          (shown) => shown.state === state,
          30_000,
        );
    };
    if (options.redisUrl === undefined) await all("shared");
    await run({ redis, admin, engine, gateways, sharing, all, leases: () => countLeases(admin) });
  } finally {
    await Promise.all(gateways.map((gateway) => gateway.stop()));
    await engine.close();
    admin.disconnect();
    await redis.close();
  }
}

export async function countLeases(admin: Redis): Promise<number> {
  const [seconds = 0, micros = 0] = (await admin.time()).map(Number);
  return admin.zcount(LEASES, seconds * 1_000 + Math.floor(micros / 1_000), "+inf");
}
