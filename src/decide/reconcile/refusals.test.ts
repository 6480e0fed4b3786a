import assert from "node:assert/strict";
import { test } from "node:test";
import type { Model } from "../../contract/catalog.ts";
import type { NodeReport } from "../../contract/fleet.ts";
import { asEpoch, asMono } from "../../kernel/clock.ts";
import { aGpu, aModel, aModelDoc, aProfile, aReplicaDoc, aShard, GIB } from "../../testing/fleet-builders.ts";
import { PassWorld } from "../../testing/pass-world.ts";
import { describeExclusion } from "../placement/describe-exclusion.ts";
import { explainModel } from "./explain-model.ts";
import { whyNoStart } from "./model-failures.ts";
import { PASS_DEFAULTS } from "./snapshot.ts";

const now = { mono: asMono(0), wall: asEpoch(0) };
const gpuModel = (part: Partial<Model> = {}): Model =>
  aModel("m", {
    profiles: [aProfile("m", { gpu: { classes: ["h200"], count: 1, memoryMib: 100 * GIB }, diskMib: 75 * GIB })],
    ...part,
  });
const other = aModel("other", {
  profiles: [aProfile("o", { gpu: { classes: ["h200"], count: 1, memoryMib: 100 * GIB } })],
});

interface Shape {
  readonly model?: Model;
  readonly node?: Partial<NodeReport>;
  readonly more?: (world: PassWorld) => void;
}

/** One node with one card, and all that is told of why the model is not there. */
function told({ model = gpuModel(), node = {}, more = () => {} }: Shape): {
  readonly words: string;
  readonly world: PassWorld;
} {
  const world = new PassWorld([model, other], []);
  world.addNode("rack-1", { gpus: [aGpu("rack-1/0")], ...node });
  more(world);
  const { profiles, notes } = explainModel(world.snapshot(), "m", now)!;
  const nodes = profiles.flatMap(({ nodes: verdicts }) =>
    verdicts.flatMap(({ nodeId, verdict }) =>
      verdict.kind === "fits" ? [] : `${nodeId}: ${describeExclusion(verdict)}`,
    ),
  );
  return { words: [...nodes, ...notes].join("\n"), world };
}
/** The other model's replica on the only card, ready for so long. */
const taken =
  (since: number, part: Parameters<typeof aReplicaDoc>[3] = {}) =>
  (world: PassWorld): void => {
    const doc = aReplicaDoc("r9", other, "rack-1", part);
    world.replicas.set("r9", doc);
    world.report("rack-1", [aShard(doc, { since })], { gpus: [aGpu("rack-1/0", { usedMib: 100 * GIB })] });
  };
const labels = { require: { zone: "b" }, avoid: {}, gpuUuids: [] };

const rows: readonly (readonly [name: string, shape: Shape, words: RegExp])[] = [
  [
    "memory",
    { more: taken(9e6) },
    /^rack-1: needs 100\.0 GiB on each of 1 card; 0 have that, the 1 freest have 40\.0 GiB$/m,
  ],
  ["disk", { node: { diskFreeMib: 10 * GIB } }, /^rack-1: needs 75\.0 GiB of disk, and 10\.0 GiB are free$/m],
  ["class", { node: { gpus: [aGpu("rack-1/0", { class: "a40" })] } }, /^rack-1: needs h200, and has a40$/m],
  [
    "fabric",
    { model: gpuModel({ multiNode: { nodes: 2, fabric: "same" } }), node: { fabric: "x" } },
    /^rack-1: needs 2 nodes of one fabric, and on x there are 1$/m,
  ],
  ["label", { model: gpuModel({ nodes: labels }) }, /^rack-1: label zone must be b, and is not set$/m],
  [
    "sick GPU",
    { node: { gpus: [aGpu("rack-1/0", { health: "sick" })] } },
    /^rack-1: needs 1 card, and 0 are healthy \(1 sick\)$/m,
  ],
  [
    "cordon",
    { more: ({ nodeDocs }) => void nodeDocs.set("rack-1", { ...nodeDocs.get("rack-1")!, cordoned: true }) },
    /^rack-1: it is cordoned$/m,
  ],
  ["priority", { more: taken(9e6) }, /^rack-1: r9 of other stays: priority 50 is not lower than 50$/m],
  [
    "min_run",
    { model: gpuModel({ priority: 90 }), more: taken(20_000) },
    /^rack-1: r9 of other stays: it has served 20 s of 300 s \(min_run_s\)$/m,
  ],
  [
    "parked",
    {
      more: ({ models }) =>
        void models.set("m", aModelDoc("m", { profileHashes: ["m"], parked: { why: "failed 5 times", at: "" } })),
    },
    /^the model is parked: failed 5 times; `ctl retry m` lifts that$/m,
  ],
  [
    "room that is held for another",
    { model: gpuModel({ priority: 90 }), more: taken(0, { state: "placing", waitsFor: ["r8"] }) },
    /^rack-1: r9 of other is to have the room of r8$/m,
  ],
  [
    "budget of starts",
    {
      more: ({ models }) =>
        void models.set(
          "m",
          aModelDoc("m", { profileHashes: ["m"], failuresInRow: 3, backoffMs: 40_000, failedOn: { "rack-1": 5 } }),
        ),
    },
    /^rack-1: the model failed here 5 times, of 5 allowed\nit failed 3 times in a row of 5: the next start waits 40 s$/m,
  ],
];
for (const [name, shape, words] of rows)
  test(`explain-placement names the node and what is short: ${name} [40.P4]`, () =>
    assert.match(told(shape).words, words));

/** What a row names, each by itself: node and shortfall, or what the model did. A model that may not start is not placed at all. */
const partsOf = (words: RegExp): readonly string[] =>
  words.source
    .replaceAll(/^\^|\$$/g, "")
    .split("\\n")
    .slice(-1);
const NOTHING_RUNS = { starting: 0, startingNow: 0, readyWithProfile: false, readyNow: false };

// Who is to have a room that is already free starts in the pass itself.
for (const [name, shape, words] of rows.filter(([row]) => row !== "room that is held for another"))
  test(`the same stands at the model that waits: ${name} [40.P4]`, () => {
    const { world } = told(shape);
    const { unplaced } = world.pass();
    const doc = world.models.get("m");
    const itself = doc === undefined ? null : whyNoStart(doc, NOTHING_RUNS, PASS_DEFAULTS);
    const said = [...unplaced.map(({ why }) => why), itself ?? ""].join("\n");
    for (const part of partsOf(words)) assert.ok(new RegExp(part).test(said), said);
  });

for (const [name, shape, words] of rows.filter(([, { model, more }]) => more === undefined && model === undefined))
  test(`the same stands at a replica whose replacement fits nowhere: ${name} [40.S3]`, () => {
    const world = new PassWorld([gpuModel()], []);
    world.addNode("rack-1", { gpus: [aGpu("rack-1/0")] });
    for (let pass = 0; pass < 3; pass++) {
      world.pass();
      world.reportReady();
    }
    const doc = world.only();
    const changed = gpuModel({
      profiles: [aProfile("m2", { gpu: { classes: ["h200"], count: 1, memoryMib: 100 * GIB }, diskMib: 75 * GIB })],
    });
    world.apply([changed]);
    world.report("rack-1", [aShard(doc)], shape.node);
    world.askRestart(doc.id);
    world.pass();
    const [, figures = ""] = /^\^(.*)\$$/.exec(words.source) ?? [];
    assert.match(world.restarts()[0] ?? "", new RegExp(figures));
  });
