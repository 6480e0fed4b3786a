import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { seededRandom } from "../../src/kernel/random.ts";
import { rounds } from "../../src/testing/rounds.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { catalogOf, ClusterProcesses, PATIENCE_MS } from "./support/cluster-processes.ts";
import { EngineCount, MIDDLE_FAULTS, pause } from "./support/middle-faults.ts";
import { checkOneLeader } from "./support/one-leader.ts";

// A higher model takes a card of a full node, in the middle of which something dies or stands still.

const CARDS = 2;
const { models } = catalogOf(CARDS) as { models: readonly Record<string, unknown>[] };
const withHigher = { models: [...models, { ...models[0], name: "high", priority: 90, replicas: { min: 1 } }] };
let cluster: ClusterProcesses;
let engines: EngineCount;
before(async () => {
  cluster = await ClusterProcesses.start({ controls: 2, nodes: 1, control: { min_run_s: 0 } });
  await cluster.apply({ models });
  await cluster.untilSettled(CARDS);
  engines = new EngineCount(cluster);
});
after(async () => {
  engines[Symbol.dispose]();
  await cluster[Symbol.asyncDispose]();
});

const readyOf = async (): Promise<readonly string[]> =>
  (await cluster.replicas()).filter(({ state }) => state === "ready").map(({ model }) => model);
const displaced = async (): Promise<number> => {
  const path = "/v1/events?kind=replicaDisplaced&limit=1000";
  return (await cluster.tell<{ events: unknown[] }>("GET", path)).body.events.length;
};

test("whatever dies or stands still while one model takes another's card: one replica goes, once, the higher one gets its card, no card has two engines and nothing goes back and forth [40.P5 80.A3 80.P5 80.P6 80.I4]", async () => {
  const names = Object.keys(MIDDLE_FAULTS);
  const random = seededRandom(5);
  for (let round = 0; round < rounds(3, 8 * names.length); round += 1) {
    const fault = names[round % names.length]!;
    const before = await displaced();
    const applied = cluster.apply(withHigher);
    await pause(random.next() * 2_500);
    await MIDDLE_FAULTS[fault]!(cluster);
    await applied;
    await cluster.apply(withHigher);
    await eventually(
      `one of each, after ${fault}`,
      readyOf,
      (ready) => ready.toSorted().join() === "high,m",
      PATIENCE_MS,
    );
    await cluster.untilSettled(CARDS);
    assert.equal((await displaced()) - before, 1, fault);
    assert.deepEqual(cluster.census.startedTwice(), [], fault);
    await cluster.apply({ models });
    await eventually("both of the lower one again", readyOf, (ready) => ready.join() === "m,m", PATIENCE_MS);
    await cluster.untilSettled(CARDS);
  }
  assert.ok(engines.most <= CARDS, `${engines.most} engines at once on ${CARDS} cards`);
  await checkOneLeader(cluster);
});
