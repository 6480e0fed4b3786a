import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { seededRandom } from "../../src/kernel/random.ts";
import { rounds } from "../../src/testing/rounds.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { catalogOf, ClusterProcesses, PATIENCE_MS } from "./support/cluster-processes.ts";
import { MIDDLE_FAULTS, pause } from "./support/middle-faults.ts";
import { checkOneLeader } from "./support/one-leader.ts";

// Restarts in place with a version that can't start, on a node that is full, in the middle of which something dies or stands still.

const CARDS = 2;
const gpu = { class: ["h200"], count: 1, memory_gb: 100 };
let cluster: ClusterProcesses;
before(async () => {
  cluster = await ClusterProcesses.start({ controls: 2, nodes: 1 });
  await apply({ slots: 8 }, true);
  await cluster.untilSettled(CARDS);
});
after(() => cluster[Symbol.asyncDispose]());

/** The model with these arguments, and the one that waits before or after it. */
async function apply(args: Record<string, unknown>, isFirst: boolean): Promise<void> {
  const { models } = catalogOf(CARDS, { profiles: [{ engine: "sim", gpu, args }] }) as { models: object[] };
  const waits = { name: "waits", replicas: { min: 1 }, profiles: [{ engine: "sim", gpu, args: { slots: 8 } }] };
  await cluster.apply({ models: isFirst ? [...models, waits] : [waits, ...models] });
}

const failures = async (): Promise<number> => {
  const { body } = await cluster.tell<{ models?: { name: string; failures_in_row: number }[] }>("GET", "/v1/models");
  return body.models?.find(({ name }) => name === "m")?.failures_in_row ?? 0;
};

test("whatever dies or stands still while a version that can't start replaces a replica in its place: the card is kept, and a good version serves there [40.S2 80.P5]", async () => {
  const names = Object.keys(MIDDLE_FAULTS);
  const random = seededRandom(23);
  for (let round = 0; round < rounds(2, 4 * names.length); round += 1) {
    const fault = names[(2 * round) % names.length]!;
    const [target] = (await cluster.replicas()).filter(({ state }) => state === "ready");
    await apply({ "no-such-flag": 1 }, round % 2 === 0);
    const asked = await cluster.tell("POST", `/v1/replicas/${target!.id}/restart`, {});
    assert.equal(asked.status, 200, JSON.stringify(asked.body));
    await pause(random.next() * 4_000);
    await MIDDLE_FAULTS[fault]!(cluster);
    await eventually(`a failure, after ${fault}`, failures, (count) => count > 0, PATIENCE_MS);
    await apply({ slots: 8, seed: round + 2 }, round % 2 === 1);
    await eventually(
      `as many as before, after ${fault}`,
      () => cluster.replicas(),
      (list) => list.filter(({ state, model }) => state === "ready" && model === "m").length === CARDS,
      PATIENCE_MS,
    );
    const events = await cluster.tell<{ events: { model: string | null }[] }>(
      "GET",
      "/v1/events?kind=replicaPlaced&limit=1000",
    );
    assert.ok(
      events.body.events.every(({ model }) => model === "m"),
      fault,
    );
    assert.deepEqual(cluster.census.startedTwice(), [], fault);
  }
  await checkOneLeader(cluster);
});
