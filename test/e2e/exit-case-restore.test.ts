import assert from "node:assert/strict";
import { test } from "node:test";
import { systemClock } from "../../src/kernel/clock.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { catalogOf, ClusterProcesses, PATIENCE_MS } from "./support/cluster-processes.ts";
import { checkOneLeader } from "./support/one-leader.ts";

const OLD_COUNT = 2;
const NEW_COUNT = 3;
/** Several passes, and several reports of each node. */
const WATCHED_MS = 6_000;
const never = new AbortController().signal;

interface Told {
  readonly kind: string;
  readonly replicaId: string | null;
}

for (const { copied, told } of [
  { copied: "under an earlier term", told: "epochRaised" },
  { copied: "under the term that led to the end", told: "storeBehind" },
])
  test(`a database replaced by an old copy, made ${copied}: it is seen (${told}), the next epoch is above what agents obeyed, what the copy does not know is adopted, and nothing is stopped before an operator says so [80.P7 80.I4]`, async () => {
    await using cluster = await ClusterProcesses.start({ controls: 2, nodes: 3, control: { lost_after_s: 60 } });
    await cluster.apply(catalogOf(OLD_COUNT));
    await cluster.untilSettled(OLD_COUNT);
    const stopControls = (): Promise<unknown> => Promise.all(cluster.controls.map((control) => control.kill()));
    const startControls = (): Promise<unknown> => Promise.all(cluster.controls.map((control) => control.start()));

    const sameTerm = told === "storeBehind";
    const before = await cluster.terms();
    if (!sameTerm) await stopControls();
    await cluster.databases.copy(cluster.databaseUrl, "yesterday");
    if (!sameTerm) await startControls();
    await cluster.apply(catalogOf(NEW_COUNT));
    await cluster.untilSettled(NEW_COUNT);
    const { epoch } = (await (await cluster.leading()).leader())!;
    const pids = cluster.census.alive().map(({ pid }) => pid);
    const lost = await cluster.terms();
    if (sameTerm) assert.equal(lost.length, before.length, "one term led to the end");

    await stopControls();
    await cluster.databases.restore(cluster.databaseUrl, "yesterday");
    await startControls();
    const events = await eventually(
      "what the copy does not know",
      async () => (await cluster.tell<{ events: Told[] }>("GET", "/v1/events?limit=1000")).body.events,
      (all) => all.some(({ kind }) => kind === told) && all.some(({ kind }) => kind === "replicaAdopted"),
      PATIENCE_MS,
    );
    assert.ok(((await (await cluster.leading()).leader())?.epoch ?? 0) > (epoch ?? 0));
    await cluster.untilNodes("all nodes", (nodes) => nodes.every(({ state }) => state === "ready"));
    // By the copy's catalog one is too many.
    await systemClock.sleep(WATCHED_MS, never);
    assert.deepEqual(
      cluster.census.alive().map(({ pid }) => pid),
      pids,
      `nothing was stopped: ${JSON.stringify(events.slice(-10))}`,
    );
    assert.equal(cluster.census.runs.length, pids.length, "nothing was started");
    await cluster.tell("POST", "/v1/restored/confirm");
    await cluster.untilSettled(OLD_COUNT);
    assert.equal(cluster.census.runs.length, pids.length, "what the copy wants ran already");
    await checkOneLeader(cluster, lost);
  });
