import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { FeedEndpoint } from "../../../src/contract/feed.ts";
import type { SimEngine } from "../../../src/sim-engine/sim-engine.ts";
import { aFeedEndpoint, FakeFeed, FEED_TOKEN, type FakeFeedOptions } from "../../../src/testing/fake-feed.ts";
import { anEngine } from "./an-engine.ts";
import { startTestGateway, type TestGateway, type TestGatewayOptions } from "./test-gateway.ts";

/** A control plane that tests speak for, and gateways that follow it. */
export interface FeedWorld extends AsyncDisposable {
  readonly feed: FakeFeed;
  readonly dataDir: string;
  /** All that gateways of this world have logged. */
  logged(): string;
  engine(key: string, change?: Parameters<typeof anEngine>[0]): Promise<SimEngine>;
  gateway(over?: Partial<TestGatewayOptions>): Promise<TestGateway>;
}

export async function feedWorld(options: FakeFeedOptions = {}): Promise<FeedWorld> {
  const feed = await FakeFeed.start(options);
  const dataDir = await mkdtemp(join(tmpdir(), "yardmaster-feed-"));
  const engines: SimEngine[] = [];
  const gateways: TestGateway[] = [];
  return {
    feed,
    dataDir,
    logged: () => gateways.flatMap(({ logLines }) => logLines).join("\n"),
    engine: async (key, change = {}) => {
      const engine = await anEngine({ apiKey: key, slots: 4, ...change });
      engines.push(engine);
      return engine;
    },
    gateway: async (over = {}) => {
      const { file, ...rest } = over;
      const gateway = await startTestGateway({
        upstreams: [],
        env: { YARDMASTER_TOKEN: FEED_TOKEN },
        ...rest,
        file: { data_dir: dataDir, gateway: { name: "gw", control: [feed.url] }, ...file },
      });
      let stopped: Promise<void> | undefined;
      const once = { ...gateway, stop: () => (stopped ??= gateway.stop()) };
      gateways.push(once);
      return once;
    },
    [Symbol.asyncDispose]: async () => {
      await Promise.all(gateways.map((gateway) => gateway.stop()));
      await Promise.all(engines.map((engine) => engine.close()));
      await feed[Symbol.asyncDispose]();
      await rm(dataDir, { recursive: true, force: true });
    },
  };
}

export const engineKey = (name: string): string => `CANARY-engine-key-${name}-0123456789`;

/** The replica that runs there. */
export const replicaAt = (engine: SimEngine, id: string, over: Partial<FeedEndpoint> = {}): FeedEndpoint =>
  aFeedEndpoint(id, engine.url, { engineKey: engineKey(id), ...over });
