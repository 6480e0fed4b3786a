import assert from "node:assert/strict";
import { test } from "node:test";
import { SMALL, SyntheticBoard } from "../../../src/testing/board/synthetic-board.ts";
import { BoardState } from "./board-state.ts";
import { describeAction, requestOf } from "./describe-action.ts";
import { listAskedApprovals, listJobs, listModels, listNodes, matches } from "./lists.ts";

const board = new SyntheticBoard(SMALL);
const state = (): BoardState => new BoardState(board.snapshot);

test("differences laid over a snapshot give what a new snapshot gives", () => {
  const followed = state();
  for (let tick = 0; tick < 5; tick += 1) followed.apply(board.tick());
  const fresh = state();
  assert.equal(followed.at, fresh.at);
  for (const table of ["gpus", "upstreams", "jobs", "nodes"] as const)
    assert.deepEqual([...followed.tables[table]], [...fresh.tables[table]]);
});

test("a row that did not change stays the same object, and its table keeps its revision", () => {
  const followed = state();
  const node = followed.tables.nodes.get("n0");
  const model = board.snapshot.tables.models["bge-m3"];
  assert.ok(model !== undefined);
  followed.apply({ at: 1, set: { models: { "bge-m3": { ...model, ready: 9 } } }, gone: { jobs: ["none"] } });
  assert.equal(followed.tables.nodes.get("n0"), node);
  assert.equal(followed.revisions.nodes, 0);
  assert.equal(followed.revisions.models, 1);
  assert.equal(followed.tables.models.get("bge-m3")?.ready, 9);
});

test("what needs somebody stands first, and gpu-2 before gpu-10", () => {
  const nodes = listNodes(state(), "").map(({ node }) => node.name);
  assert.equal(nodes[0], "gpu-03");
  assert.ok(nodes.indexOf("gpu-04") < nodes.indexOf("gpu-11"));
  assert.equal(listModels(state(), "")[0]?.state, "parked");
  assert.equal(listJobs(state(), "")[0]?.state, "running");
});

test("a search finds by every word, also a node by the model that it holds", () => {
  assert.equal(matches("GPU a40", ["gpu-03", "zone=a", "a40"]), true);
  assert.equal(matches("gpu b200", ["gpu-03", "a40"]), false);
  assert.ok(listNodes(state(), "mistral-small").length > 0);
});

test("a confirmation says in numbers what a drain will do", () => {
  const followed = state();
  const [replica] = [...followed.tables.replicas.values()].filter(({ nodes }) => nodes.includes("gpu-02"));
  assert.ok(replica !== undefined);
  followed.apply({ at: 1, set: { nodes: { n1: { ...board.snapshot.tables.nodes["n1"]!, inFlight: 7 } } } });
  const { title, effects } = describeAction(followed, { action: "drain", target: { node: "gpu-02" } });
  assert.equal(title, "Drain node gpu-02?");
  assert.match(effects[0] ?? "", /^1 replica is moved to other nodes: 7 requests run there now\./);
  assert.ok(effects.some((effect) => effect.includes(`${replica.model} has no other ready replica`)));
});

test("a confirmation says that nobody knows where nobody does", () => {
  const followed = state();
  const { effects } = describeAction(followed, { action: "drain", target: { node: "gpu-03" } });
  assert.match(effects[0] ?? "", /nobody knows how many requests run there/);
});

test("an action becomes the request that ctl makes, whatever a name holds", () => {
  assert.deepEqual(requestOf({ action: "scale", target: { model: "a/b?c" }, body: { replicas: 2 } }), {
    method: "POST",
    path: "/v1/models/a%2Fb%3Fc/scale",
    body: { replicas: 2 },
  });
  assert.deepEqual(requestOf({ action: "overflowRevoke", target: { tier: "cloud", job: "job_1" } }), {
    method: "DELETE",
    path: "/v1/overflow/approvals/cloud/job_1",
    body: null,
  });
});

test("a job asks for an approval when a tier lacks only a person's word", () => {
  const followed = state();
  const [job] = [...followed.tables.jobs.values()].filter(({ state: is }) => is === "queued");
  assert.ok(job !== undefined);
  const overflow = {
    at: "2026-03-02T03:12:00Z",
    decision: "held",
    tier: null,
    card: "loaded",
    why: "the card is loaded",
    held_since: null,
    signals: [],
    missing: [
      { tier: "cloud", lacks: ["no_job_approval"] },
      { tier: "other", lacks: ["not_approved"] },
    ],
    state: null,
    price_reserved: null,
    price_paid: null,
    currency: null,
  } as const;
  const held = {
    ...job,
    overflow: {
      ...overflow,
      signals: [],
      missing: overflow.missing.map(({ tier, lacks }) => ({ tier, lacks: [...lacks] })),
    },
  };
  followed.apply({ at: 1, set: { jobs: { [job.id]: held } } });
  assert.deepEqual(
    listAskedApprovals(followed).map((each) => [each.job.id, each.tiers.map(({ tier }) => tier)]),
    [[job.id, ["cloud"]]],
  );
});
