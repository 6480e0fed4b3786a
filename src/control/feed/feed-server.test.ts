import assert from "node:assert/strict";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import type { FeedModel } from "../../contract/feed.ts";
import type { FeedState } from "../../decide/feed/make-feed.ts";
import { systemClock } from "../../kernel/clock.ts";
import { silentLogger } from "../../kernel/log.ts";
import { FakeGateway } from "../../testing/fake-gateway.ts";
import { aGpu } from "../../testing/fleet-builders.ts";
import { serveUpgrades } from "../api/upgrades.ts";
import { FeedServer } from "./feed-server.ts";

interface World extends AsyncDisposable {
  readonly feed: FeedServer;
  readonly url: string;
}

async function feedWorld(): Promise<World> {
  const server: Server = createServer();
  const feed = new FeedServer({
    clock: systemClock,
    log: silentLogger,
    clusterId: "c",
    controlId: "x",
    gatherMs: 0,
    check: () => Promise.resolve({ kind: "ok", name: null }),
    enrolled: () => Promise.resolve([]),
    onNews: () => {},
    board: { joined: () => {}, left: () => {}, take: () => {} },
  });
  serveUpgrades(server, { "/gateway/v1": (upgrade) => feed.upgrade(upgrade) }, false);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return {
    feed,
    url: `http://127.0.0.1:${port}`,
    [Symbol.asyncDispose]: async () => {
      feed.close();
      await new Promise<void>((resolve) => server.close(() => resolve()));
    },
  };
}

const modelOf = (name: string, why: string): FeedModel => ({
  name,
  aliases: [],
  engine: "vllm",
  slotsPerReplica: 1,
  startable: true,
  why,
  settled: "starting",
  failedStarts: 0,
});
const stateOf = (why: string, models = 1): FeedState => ({
  models: new Map(Array.from({ length: models }, (_, at) => [`m${at}`, modelOf(`m${at}`, why)])),
  endpoints: new Map(),
});

/** What it was told last of the card's use. */
const readUsed = (gateway: FakeGateway): number | null | undefined =>
  gateway.heard.findLast((message) => message.type === "readings")?.nodes[0]?.gpus[0]?.usedMib;

test("a gateway that does not read holds nothing up, and gets one whole state when it reads again [80.I9 80.C25]", async () => {
  await using world = await feedWorld();
  const { feed, url } = world;
  feed.lead({ epoch: 1, holder: "h" });
  feed.publish(stateOf("first", 3_000));
  await using slow = new FakeGateway(url, "k");
  await using quick = new FakeGateway(url, "k");
  await slow.until("the state", () => slow.mark !== null);
  await quick.until("the state", () => quick.mark !== null);
  slow.pause();
  const words = "w".repeat(1_500);
  const rounds = 8;
  for (let round = 1; round <= rounds; round += 1) {
    feed.publish(stateOf(`${words}${round}`, 3_000));
    feed.heardCards("node-a", [aGpu("GPU-1", { usedMib: round })], systemClock.mono());
    await quick.until(`round ${round}`, () => quick.mark?.version === round + 1);
  }
  const from = slow.heard.length;
  slow.resume();
  await slow.until("the newest state", () => slow.mark?.version === rounds + 1, 30_000);
  assert.deepEqual(slow.models, quick.models);
  const late = slow.heard.slice(from).filter(({ type }) => type === "state" || type === "change");
  assert.equal(late.at(-1)?.type, "state");
  assert.ok(late.length < rounds, `${late.length} messages waited for it`);
  await slow.until("the newest readings", () => readUsed(slow) === rounds);
});

test("a control plane that leads no longer says so, and a new term begins with a whole state of its own [40.C3]", async () => {
  await using world = await feedWorld();
  const { feed, url } = world;
  await using gw = new FakeGateway(url, "k");
  await gw.until("the first word", () => gw.count("standby") === 1);
  feed.publish(stateOf("nobody leads"));
  feed.lead({ epoch: 4, holder: "h" });
  assert.equal(gw.count("state"), 0, "a leader that has published nothing tells nothing");
  feed.publish(stateOf("first"));
  await gw.until("the state", () => gw.count("state") === 1);
  assert.deepEqual(gw.mark, { clusterId: "c", epoch: 4, holder: "h", version: 1 });
  feed.publish(stateOf("first"));
  feed.publish(stateOf("second"));
  await gw.until("the change", () => gw.count("change") === 1);
  assert.equal(gw.mark?.version, 2, "what is the same is no version");
  feed.lead(null);
  await gw.until("the word", () => gw.count("standby") === 2);
  feed.lead({ epoch: 6, holder: "h" });
  feed.publish(stateOf("third"));
  await gw.until("the state", () => gw.count("state") === 2);
  assert.deepEqual([gw.mark?.epoch, gw.mark?.version], [6, 1]);
});

test("what agents read of cards is told by a leader alone, and only to those who have its state [30.T1 40.C3]", async () => {
  await using world = await feedWorld();
  const { feed, url } = world;
  const hear = (temperatureC: number): void =>
    feed.heardCards("node-a", [aGpu("GPU-1", { temperatureC })], systemClock.mono());
  await using gw = new FakeGateway(url, "k");
  await gw.until("the first word", () => gw.count("standby") === 1);
  hear(40);
  feed.lead({ epoch: 4, holder: "h" });
  feed.publish(stateOf("first"));
  await gw.until("the readings", () => gw.count("readings") === 1);
  assert.deepEqual(
    gw.heard.map(({ type }) => type).filter((type) => type !== "ping"),
    ["welcome", "standby", "state", "readings"],
  );
  const told = gw.heard.find((message) => message.type === "readings");
  assert.deepEqual([told?.mark, told?.nodes[0]?.node], [gw.mark, "node-a"]);
  feed.lead(null);
  hear(41);
  await gw.until("the word", () => gw.count("standby") === 2);
  feed.lead({ epoch: 6, holder: "h" });
  feed.publish(stateOf("second"));
  await gw.until("the readings of the new term", () => gw.count("readings") === 2);
  const newest = gw.heard.findLast((message) => message.type === "readings");
  assert.deepEqual([newest?.mark.epoch, newest?.nodes[0]?.gpus[0]?.temperatureC], [6, 41]);
});
