import assert from "node:assert/strict";
import { test } from "node:test";
import type { Model } from "../../contract/catalog.ts";
import type { Random } from "../../kernel/random.ts";
import { aModel, aProfile, GIB } from "../fleet-builders.ts";
import { SimCluster } from "./sim-cluster.ts";

// A fleet without a free card, where one model waits for any that becomes free, while others are restarted with versions that fail.

const SEEDS = process.env["SIM_SEED"] === undefined ? Number(process.env["SIM_SEEDS"] ?? 150) : 1;
const FIRST_SEED = Number(process.env["SIM_SEED"] ?? 1);
const FAULTS_MS = 400_000;
const CALM_MS = 1_200_000;
/** Three of them on one node, one after another, are still no loss of it: what a lost node had is not kept. */
const FAULT_MS_MAX = 18_000;
const BAD = "-bad";

const sized = (name: string, version: string, copies: number, gib: number, part: Partial<Model> = {}): Model =>
  aModel(name, {
    replicas: { min: copies, max: 8 },
    profiles: [
      aProfile(`${name}-${version}`, { gpu: { classes: ["h200"], count: 1, memoryMib: gib * GIB }, diskMib: 1 }),
    ],
    ...part,
  });
const WAITS = sized("waits", "1", 8, 100);
const pair = (version: string, gib: number): Model => sized("pair", version, 2, gib);
const wide = (version: string, gib: number): Model =>
  sized("wide", version, 1, gib, { multiNode: { nodes: 2, fabric: "same" } });

const pick = <T>(random: Random, items: readonly T[]): T => items[Math.floor(random.next() * items.length)]!;

/** Each fault ends by itself or by what it returns. None of them takes an engine that serves: whose room that is, is another matter. */
const FAULTS: readonly (readonly [name: string, begin: (cluster: SimCluster, random: Random) => () => void])[] = [
  [
    "agentKilled",
    ({ agents }, random) => {
      const agent = pick(random, agents);
      agent.killAgent();
      return () => agent.startAgent();
    },
  ],
  [
    "controlKilled",
    ({ controls, leader }, random) => {
      const control = leader ?? pick(random, controls);
      control.kill();
      return () => control.restart();
    },
  ],
  [
    "controlFrozen",
    ({ controls, leader }, random) => {
      const control = leader ?? pick(random, controls);
      control.freeze();
      return () => control.thaw();
    },
  ],
  [
    "answersLost",
    ({ store }) => {
      store.silent = true;
      return () => (store.silent = false);
    },
  ],
  [
    "storeSlow",
    ({ store }, random) => {
      store.latencyMs = 200 + random.next() * 3_000;
      return () => (store.latencyMs = 5);
    },
  ],
];

interface Versions {
  pair: Model;
  wide: Model;
}

/** One restart with another version; the model that waits stands before or after the others in the catalog. */
function restart(cluster: SimCluster, now: Versions, version: string): void {
  const { random, store } = cluster;
  const gib = pick(random, [60, 100, 130]);
  const name = pick(random, ["pair", "wide"] as const);
  now[name] = (name === "pair" ? pair : wide)(`${version}${random.next() < 0.7 ? BAD : ""}`, gib);
  const models = [now.pair, now.wide];
  cluster.edit(random.next() < 0.5 ? [WAITS, ...models] : [...models, WAITS]);
  const its = [...store.docs.replicas.values()].filter(({ model, state }) => model === name && state === "ready");
  if (its.length > 0) cluster.askRestart(pick(random, its).id, random.next() < 0.3);
}

test("in a fleet without a free card no room goes to a model that waits while versions of others fail, whoever leads and whatever is killed; with good versions all of them serve again [40.S2]", () => {
  let kept = 0;
  for (let seed = FIRST_SEED; seed < FIRST_SEED + SEEDS; seed++) {
    const story: string[] = [];
    try {
      const now: Versions = { pair: pair("1", 100), wide: wide("1", 100) };
      const cluster = new SimCluster({ seed, nodes: 3, controls: 1 + (seed % 3), models: [now.pair, now.wide] });
      // Parking gives room up, and priority takes it: here nothing but good versions is to end what is kept.
      Object.assign(cluster.settings, { parkAfter: 1_000, failuresPerNodeMax: 1_000, minRunMs: 3_600_000 });
      const { random, clock } = cluster;
      cluster.run(60_000);
      cluster.edit([now.pair, now.wide, WAITS]);
      cluster.run(60_000);
      cluster.faults.badVersion = BAD;
      for (let count = 2 + Math.floor(random.next() * 5); count > 0; count--)
        clock.after(random.next() * FAULTS_MS, () => {
          story.push(`${Math.round(clock.mono() / 1_000)} s: restart`);
          restart(cluster, now, `${count}`);
        });
      for (let count = Math.floor(random.next() * 8); count > 0; count--) {
        const [name, begin] = pick(random, FAULTS);
        clock.after(random.next() * FAULTS_MS, () => {
          story.push(`${Math.round(clock.mono() / 1_000)} s: ${name}`);
          clock.after(random.next() * FAULT_MS_MAX, begin(cluster, random));
        });
      }
      clock.after(FAULTS_MS, () => {
        kept += [...cluster.store.docs.models.values()].filter(({ keepsRoom }) => keepsRoom !== undefined).length;
      });
      cluster.run(FAULTS_MS + 61_000);
      cluster.heal();
      cluster.edit([pair("good", 60), wide("good", 60), WAITS]);
      cluster.run(CALM_MS);
      const waits = cluster.differences().filter((words) => !words.startsWith("waits:"));
      assert.deepEqual(waits, []);
    } catch (error) {
      throw new Error(`rerun with SIM_SEED=${seed}; ${story.join("; ")}`, { cause: error });
    }
  }
  assert.ok(SEEDS === 1 || kept > SEEDS / 4, `${kept} models kept room at the end of the faults`);
});
