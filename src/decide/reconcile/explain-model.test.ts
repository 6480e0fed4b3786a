import assert from "node:assert/strict";
import { test } from "node:test";
import { asEpoch, asMono } from "../../kernel/clock.ts";
import { aGpu, aModel, aProfile, aReplicaDoc, aShard, GIB } from "../../testing/fleet-builders.ts";
import { PassWorld } from "../../testing/pass-world.ts";
import { explainModel } from "./explain-model.ts";

const now = { mono: asMono(0), wall: asEpoch(0) };

test("the same view that places explains: per profile and node, what fits and else the first reason with its figures [40.P4]", () => {
  const model = aModel("chat", {
    profiles: [aProfile("big", { gpu: { classes: ["h200"], count: 2, memoryMib: 100 * GIB } }), aProfile("small")],
  });
  const world = new PassWorld([model], []);
  world.addNode("a", { gpus: [aGpu("a/0"), aGpu("a/1", { usedMib: 50 * GIB, foreignMib: 50 * GIB })] });
  world.addNode("b", { gpus: [aGpu("b/0")] });
  const other = aReplicaDoc("r9", aModel("other"), "b");
  world.replicas.set("r9", other);
  world.report("b", [aShard(other)]);
  const explained = explainModel(world.snapshot(), "chat", now)!;
  assert.deepEqual(
    explained.profiles.map(({ profile, nodes }) => [profile.hash, nodes]),
    [
      [
        "big",
        [
          {
            nodeId: "a",
            verdict: {
              kind: "gpuMemory",
              neededMib: 100 * GIB,
              cardsNeeded: 2,
              cardsFitting: 1,
              freeMib: 90 * GIB,
              foreignMib: 50 * GIB,
            },
          },
          { nodeId: "b", verdict: { kind: "gpuCount", needed: 2, found: 1 } },
        ],
      ],
      [
        "small",
        [
          { nodeId: "b", verdict: { kind: "fits", gpuUuids: ["b/0"], perGpuMib: 70 * GIB } },
          { nodeId: "a", verdict: { kind: "fits", gpuUuids: ["a/1"], perGpuMib: 70 * GIB } },
        ],
      ],
    ],
  );
  assert.equal(explainModel(world.snapshot(), "unheard-of", now), undefined);
});
