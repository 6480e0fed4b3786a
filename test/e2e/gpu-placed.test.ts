import assert from "node:assert/strict";
import { test } from "node:test";
import type { FeedReading } from "../../src/contract/feed.ts";
import type { GpuReport } from "../../src/contract/fleet.ts";
import { aFeedModel, aMark } from "../../src/testing/fake-feed.ts";
import { aGpu } from "../../src/testing/fleet-builders.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { call } from "./support/calls.ts";
import { engineKey, feedWorld, replicaAt, type FeedWorld } from "./support/feed-world.ts";
import { gpusOf, guardedOf, statesOf, untilGpus } from "./support/gpu-world.ts";

// What agents read of their cards, as a scripted leader tells it, and placed endpoints.

const nodeA = (card: Partial<GpuReport>, ageMs = 0): FeedReading => ({
  node: "node-a",
  gpus: [aGpu("GPU-1", card), aGpu("GPU-2", { index: 1 })],
  ageMs,
});
const SICK = { health: "sick", healthWhy: "a memory row could not be remapped" } as const;
const hostOf = (url: string): string => new URL(url).host;

const say = ({ feed }: FeedWorld, reading: FeedReading, mark = feed.mark): void =>
  feed.say({ type: "readings", mark, nodes: [reading] });

async function twoReplicas(world: FeedWorld) {
  const engines = [await world.engine(engineKey("r1")), await world.engine(engineKey("r2"))] as const;
  world.feed.tell(
    [aFeedModel("m")],
    engines.map((engine, at) => replicaAt(engine, `r${at + 1}`, { gpus: [`node-a/GPU-${at + 1}`] })),
  );
  return engines;
}

test("with no word of GPUs in the file a sick card takes out the placed endpoint on it and no other; what is not of the leader's term counts for nothing, and static endpoints are left alone [30.G1 30.G2 30.T1 30.U2]", async () => {
  await using world = await feedWorld({ mark: { epoch: 2, holder: "holder-2" } });
  const [first, second] = await twoReplicas(world);
  const own = await world.engine(engineKey("own"));
  const gateway = await world.gateway({
    upstreams: [
      { id: "own", models: ["own"], engine: "vllm", slots: 4, endpoints: [{ url: own.url, gpus: ["GPU-1"] }] },
    ],
  });
  say(world, nodeA({}));
  await untilGpus("two good cards", gateway, (view) => {
    if (view.gpus.length === 0) say(world, nodeA({}));
    return view.gpus.length === 2 && view.gpus.every(({ state }) => state === "good");
  });
  const before = gateway.logLines.length;
  say(world, nodeA(SICK), aMark({ epoch: 1, version: 99 }));
  say(world, nodeA(SICK), aMark({ epoch: 2, holder: "another", version: 99 }));
  say(world, nodeA(SICK), aMark({ epoch: 3, holder: "holder-3" }));
  say(world, nodeA({ temperatureC: 77 }));
  const view = await untilGpus("the last word", gateway, ({ gpus }) => gpus[0]?.temperature_c === 77);
  assert.deepEqual(
    [statesOf(view), gateway.logLines.slice(before).filter((line) => line.includes("gpu.guard"))],
    [{ "GPU-1": "good", "GPU-2": "good" }, []],
  );

  say(world, nodeA(SICK));
  const guarded = await untilGpus("the guard", gateway, (told) => guardedOf(told, "m").length > 0);
  assert.deepEqual(guardedOf(guarded, "m"), [hostOf(first.url)]);
  assert.deepEqual([guardedOf(guarded, "own"), guarded.shed_batch], [[], false]);
  const answers = await Promise.all(Array.from({ length: 8 }, () => call(gateway)));
  assert.deepEqual(
    answers.map(({ status }) => status),
    Array<number>(8).fill(200),
  );
  assert.deepEqual([first.ledger().opened, second.ledger().finished], [0, 8]);
});

test("a card that is well again lets its endpoint back in after a while, not at once; a reading counts by its age, and with no word more every card is unknown and none faulted [30.U1 30.U2 30.U3]", async () => {
  await using world = await feedWorld();
  await twoReplicas(world);
  const section = { couple_faults: true, couple_xid: true, clear_after_s: 0.5, staleness_s: 4, poll_s: 0.05 };
  const gateway = await world.gateway({ file: { gpu_health: section } });
  const guarded = (count: number) =>
    untilGpus(`${count} guarded`, gateway, (view) => guardedOf(view, "m").length === count);
  await eventually(
    "the card is known",
    () => {
      say(world, nodeA(SICK, 60_000));
      return gpusOf(gateway);
    },
    ({ gpus }) => gpus.length === 2,
  );
  assert.deepEqual(statesOf(await gpusOf(gateway)), { "GPU-1": "unknown", "GPU-2": "unknown" });
  say(world, nodeA(SICK));
  await guarded(1);
  say(world, nodeA({ temperatureC: 33 }));
  const view = await untilGpus("the first good word", gateway, ({ gpus }) => gpus[0]?.temperature_c === 33);
  assert.deepEqual([statesOf(view)["GPU-1"], guardedOf(view, "m").length], ["faulted", 1]);
  await eventually(
    "it is back",
    () => {
      say(world, nodeA({}));
      return gpusOf(gateway);
    },
    (told) => guardedOf(told, "m").length === 0,
  );
  say(world, nodeA(SICK));
  await guarded(1);
  world.feed.cut();
  const silent = await untilGpus("nothing is known", gateway, ({ gpus }) =>
    gpus.every(({ state }) => state === "unknown"),
  );
  assert.equal(silent.gpus.length, 2);
  await guarded(0);
});
