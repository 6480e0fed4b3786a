import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { seededRandom } from "../../src/kernel/random.ts";
import { rounds } from "../../src/testing/rounds.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { catalogOf, ClusterProcesses, PATIENCE_MS } from "./support/cluster-processes.ts";
import { EngineCount, MIDDLE_FAULTS, pause } from "./support/middle-faults.ts";
import { checkOneLeader } from "./support/one-leader.ts";

// Restarts on a node that is full, in the middle of which something dies or stands still, while another model waits for a card.

const CARDS = 2;
let cluster: ClusterProcesses;
let engines: EngineCount;
before(async () => {
  cluster = await ClusterProcesses.start({ controls: 2, nodes: 1 });
  const { models } = catalogOf(CARDS) as { models: Record<string, unknown>[] };
  await cluster.apply({ models: [...models, { ...models[0], name: "waits", replicas: { min: 1 } }] });
  await cluster.untilSettled(CARDS);
  engines = new EngineCount(cluster);
});
after(async () => {
  engines[Symbol.dispose]();
  await cluster[Symbol.asyncDispose]();
});

test("whatever dies or stands still in a restart in place: the replica is replaced once, its card goes to nobody else, no engine runs twice and the other replica is not touched [40.S2 40.S8 80.A3 80.P5 80.P6 80.I4]", async () => {
  const names = Object.keys(MIDDLE_FAULTS);
  const random = seededRandom(11);
  for (let round = 0; round < rounds(names.length, 8 * names.length); round += 1) {
    const fault = names[round % names.length]!;
    const before = (await cluster.replicas()).filter(({ state }) => state === "ready");
    const [target, other] = before.toSorted((a, b) => (a.id < b.id ? -1 : 1));
    const asked = await cluster.tell("POST", `/v1/replicas/${target!.id}/restart`, {});
    assert.equal(asked.status, 200, JSON.stringify(asked.body));
    await pause(random.next() * 1_200);
    await MIDDLE_FAULTS[fault]!(cluster);
    const settled = await eventually(
      `one other replica in place of ${target!.id}, after ${fault}`,
      () => cluster.replicas(),
      (list) => {
        const ready = list.filter(({ state }) => state === "ready").map(({ id }) => id);
        return ready.length === CARDS && !ready.includes(target!.id);
      },
      PATIENCE_MS,
    );
    await cluster.untilSettled(CARDS);
    const ready = settled.filter(({ state }) => state === "ready");
    assert.ok(
      ready.some(({ id, generation }) => id === other!.id && generation === other!.generation),
      fault,
    );
    assert.ok(
      ready.every(({ model }) => model === "m"),
      fault,
    );
    assert.deepEqual(cluster.census.startedTwice(), [], fault);
    assert.equal(cluster.census.runs.length, CARDS + round + 1, `${fault}: one start for each restart`);
  }
  assert.ok(engines.most <= CARDS, `${engines.most} engines at once on ${CARDS} cards`);
  const { body } = await cluster.tell<{ events: { model: string | null }[] }>(
    "GET",
    "/v1/events?kind=replicaPlaced&limit=1000",
  );
  assert.ok(body.events.every(({ model }) => model === "m"));
  await checkOneLeader(cluster);
});
