import assert from "node:assert/strict";
import { test } from "node:test";
import type { ReplicaDoc, ShardReport } from "../../contract/fleet.ts";
import { aCatalog, aModel, aNodeDoc, aNodeReport, aReplicaDoc, aShard } from "../../testing/fleet-builders.ts";
import type { ClusterSnapshot } from "./cluster-view.ts";
import { replicaViews } from "./views.ts";

const NO_SPACE = "no space: 3.0 MB are needed, 1.5 MB can be used";

/** What is shown of a replica whose node is `heard` and reports its engine as `shard`. */
function whyShown(
  doc: Partial<ReplicaDoc>,
  shard: Partial<ShardReport>,
  heard: "ready" | "unreachable" = "ready",
): string | null | undefined {
  const replica = aReplicaDoc("r1", aModel("m"), "a", doc);
  const others = aShard(aReplicaDoc("r2", aModel("m"), "a"), { blockedBy: "another's trouble" });
  const seen: ClusterSnapshot = {
    catalog: aCatalog([]),
    nodes: [
      {
        doc: aNodeDoc("a"),
        state: heard,
        silentMs: 0,
        report: aNodeReport("a", { shards: [others, aShard(replica, shard)] }),
      },
    ],
    replicas: [replica],
    models: [],
    memory: [],
    unplaced: new Map(),
    use: new Map(),
    restored: false,
  };
  return replicaViews(seen)[0]?.why;
}

test("what stands in the way of a start, or of an end, is told at the replica while it does [40.N6 40.W1 80.A15]", () => {
  const pid = "blocked by PID 4711 (python), which holds 60000 MiB of GPU-1";
  assert.equal(whyShown({ state: "fetching" }, { state: "fetching", blockedBy: NO_SPACE }), NO_SPACE);
  assert.equal(whyShown({ state: "starting" }, { state: "starting", blockedBy: pid }), pid);
  assert.equal(whyShown({ state: "starting" }, { state: "starting", blockedBy: null }), null);
  assert.equal(
    whyShown({ state: "stopping", reason: "0 wanted, 1 run" }, { state: "stopping", blockedBy: "its cards are held" }),
    "0 wanted, 1 run; its cards are held",
  );
});

test("a node that is not heard does not tell what is in the way now, and what is ready or has ended has nothing in its way", () => {
  assert.equal(whyShown({ state: "fetching" }, { state: "fetching", blockedBy: NO_SPACE }, "unreachable"), null);
  assert.equal(whyShown({ state: "ready" }, { state: "ready", blockedBy: NO_SPACE }), null);
  assert.equal(
    whyShown({ state: "failed", reason: "exit: it ended" }, { state: "failed", blockedBy: NO_SPACE }),
    "exit: it ended",
  );
});
