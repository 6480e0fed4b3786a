import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { readFeedFrame, writeFeedFrame, type FeedMessage, type FeedModel } from "../../contract/feed.ts";
import type { ModelDoc, NodeDoc, ReplicaDoc, ReplicaState } from "../../contract/fleet.ts";
import type { Model } from "../../contract/catalog.ts";
import {
  aCatalog,
  aModel,
  aModelDoc,
  aNodeDoc,
  aNodeReport,
  aProfile,
  aReplicaDoc,
} from "../../testing/fleet-builders.ts";
import type { PlacementRefusal, StoredDocs } from "../reconcile/snapshot.ts";
import { diffFeed, type FeedState, makeFeed, NO_FEED } from "./make-feed.ts";

const NODE: NodeDoc = aNodeDoc("a", { name: "rack-1", lastReport: aNodeReport("a", { address: "10.0.0.7" }) });

const docsOf = (replicas: readonly ReplicaDoc[], models: readonly ModelDoc[] = []): StoredDocs => ({
  nodes: new Map([[NODE.id, NODE]]),
  replicas: new Map(replicas.map((doc) => [doc.id, doc])),
  models: new Map(models.map((doc) => [doc.name, doc])),
  memories: new Map(),
});

const model = aModel("m", { aliases: ["n"], slotsPerReplica: 8 });
const feedOf = (
  replicas: readonly ReplicaDoc[],
  more: { models?: readonly ModelDoc[]; unplaced?: readonly PlacementRefusal[]; model?: Model } = {},
): FeedState => makeFeed(aCatalog([more.model ?? model]), docsOf(replicas, more.models), more.unplaced ?? []);

test("a ready replica is an endpoint with all that a gateway needs, at the address of its node [40.C3]", () => {
  assert.deepEqual(feedOf([aReplicaDoc("r1", model, "a")]).endpoints.get("r1"), {
    replicaId: "r1",
    generation: 1,
    model: "m",
    url: "http://10.0.0.7:18000",
    engine: "vllm",
    engineKey: "key-of-r1",
    slots: 8,
    gpus: ["rack-1/a/0"],
    node: "rack-1",
    draining: false,
  });
});

const rows: readonly { readonly state: ReplicaState; readonly shown: "no" | "yes" | "draining" }[] = [
  { state: "placing", shown: "no" },
  { state: "fetching", shown: "no" },
  { state: "starting", shown: "no" },
  { state: "ready", shown: "yes" },
  { state: "draining", shown: "draining" },
  { state: "stopping", shown: "no" },
  { state: "stopped", shown: "no" },
  { state: "failed", shown: "no" },
];
for (const { state, shown } of rows)
  test(`a replica that is ${state}: shown to gateways: ${shown} [40.C3]`, () => {
    const endpoint = feedOf([aReplicaDoc("r1", model, "a", { state })]).endpoints.get("r1");
    assert.equal(endpoint === undefined ? "no" : endpoint.draining ? "draining" : "yes", shown);
  });

test("an IPv6 address is put into brackets, and a replica whose port or node is not known is left out", () => {
  const node = aNodeDoc("a", { lastReport: aNodeReport("a", { address: "fd00::7" }) });
  const docs = { ...docsOf([aReplicaDoc("r1", model, "a")]), nodes: new Map([["a", node]]) };
  assert.equal(makeFeed(aCatalog([model]), docs, []).endpoints.get("r1")?.url, "http://[fd00::7]:18000");
  assert.equal(feedOf([aReplicaDoc("r1", model, "a", { port: null })]).endpoints.size, 0);
  assert.equal(feedOf([aReplicaDoc("r1", model, "gone")]).endpoints.size, 0);
});

test("what nodes say at the moment has no part in it: it is made of documents alone [80.I8 80.C16]", () => {
  // The type says so: there is no fleet among the arguments. A silent node's report is the last that was kept.
  const silent = { ...NODE, lastReport: aNodeReport("a", { address: "10.0.0.7", gpus: [], shards: [] }) };
  const docs = { ...docsOf([aReplicaDoc("r1", model, "a")]), nodes: new Map([["a", silent]]) };
  assert.equal(makeFeed(aCatalog([model]), docs, []).endpoints.size, 1);
});

type Expected = Pick<FeedModel, "settled" | "startable" | "failedStarts"> & { readonly why: RegExp | null };
const parked = { why: "failed 5 times in a row", at: "2026-01-01T00:00:00.000Z" };
const unplaced: readonly PlacementRefusal[] = [
  { model: "m", nodes: { gpuMemory: 3 }, why: "fits on no node: needs 80.0 GiB (3 nodes)" },
];
const onDemand = aModel("m", { replicas: { min: 0, max: 1 } });
const modelRows: readonly {
  readonly name: string;
  readonly feed: FeedState;
  readonly expect: Expected;
}[] = [
  {
    name: "with a ready replica",
    feed: feedOf([aReplicaDoc("r1", model, "a")], { models: [aModelDoc("m", { failuresInRow: 2 })] }),
    expect: { settled: "ready", startable: true, failedStarts: 2, why: null },
  },
  {
    name: "that starts",
    feed: feedOf([aReplicaDoc("r1", model, "a", { state: "starting" })]),
    expect: { settled: "starting", startable: true, failedStarts: 0, why: /^starting since 2026/ },
  },
  {
    name: "that is to be placed",
    feed: feedOf([]),
    expect: { settled: "starting", startable: true, failedStarts: 0, why: /to be placed/ },
  },
  {
    name: "that waits after a failure",
    feed: feedOf([], { models: [aModelDoc("m", { failuresInRow: 2, backoffMs: 20_000 })] }),
    expect: { settled: "starting", startable: true, failedStarts: 2, why: /failed 2 times/ },
  },
  {
    name: "that is parked",
    feed: feedOf([], { models: [aModelDoc("m", { failuresInRow: 5, parked })] }),
    expect: { settled: "parked", startable: false, failedStarts: 5, why: /5 times/ },
  },
  {
    name: "without room",
    feed: feedOf([], { unplaced }),
    expect: { settled: "unplaced", startable: false, failedStarts: 0, why: /needs 80.0 GiB \(3 nodes\)/ },
  },
  {
    name: "with a ready replica and without room for another",
    feed: feedOf([aReplicaDoc("r1", model, "a")], { unplaced }),
    expect: { settled: "ready", startable: true, failedStarts: 0, why: null },
  },
  {
    name: "that runs on demand and was not asked for",
    feed: feedOf([], { model: onDemand }),
    expect: { settled: "stopped", startable: true, failedStarts: 0, why: null },
  },
  {
    name: "that drains its only replica",
    feed: feedOf([aReplicaDoc("r1", model, "a", { state: "draining", desired: "stop" })], { model: onDemand }),
    expect: { settled: "stopped", startable: true, failedStarts: 0, why: null },
  },
];
for (const { name, feed, expect } of modelRows)
  test(`a model ${name} is told as ${expect.settled}, with the reason in words [40.C3]`, () => {
    const told = feed.models.get("m");
    assert.ok(told !== undefined);
    const { settled, startable, failedStarts, why } = told;
    const { why: words, ...rest } = expect;
    assert.deepEqual({ settled, startable, failedStarts }, rest);
    if (words === null) assert.equal(why, null);
    else assert.match(why ?? "", words);
  });

test("engines are named as gateways name them, and a simulated one by its dialect and its own slots", () => {
  const engineOf = (part: Parameters<typeof aProfile>[1]): readonly (string | number | undefined)[] => {
    const other = aModel("m", { profiles: [aProfile("m-1", part)] });
    const feed = feedOf([aReplicaDoc("r1", other, "a")], { model: other });
    return [feed.models.get("m")?.engine, feed.endpoints.get("r1")?.engine, feed.endpoints.get("r1")?.slots];
  };
  assert.deepEqual(engineOf({ engine: "llama.cpp" }), ["llama.cpp", "llama.cpp", 16]);
  assert.deepEqual(engineOf({ engine: "command" }), ["generic", "generic", 16]);
  assert.deepEqual(engineOf({ engine: "sim", args: { slots: 3 } }), ["vllm", "vllm", 3]);
  assert.deepEqual(engineOf({ engine: "sim", args: { dialect: "llama.cpp" } }), ["llama.cpp", "llama.cpp", 16]);
});

const anyFeed = fc
  .uniqueArray(
    fc.record({
      id: fc.nat(12),
      name: fc.constantFrom("m", "o", "p"),
      state: fc.constantFrom<ReplicaState>("ready", "draining", "starting", "stopping"),
      port: fc.constantFrom(18_000, 18_001, null),
    }),
    { selector: ({ id }) => id, maxLength: 10 },
  )
  .chain((replicas) =>
    fc.subarray(["m", "o", "p"]).map((names) => {
      const models = names.map((name) => aModel(name));
      const docs = replicas.map(({ id, name, state, port }) =>
        aReplicaDoc(`r${id}`, aModel(name), "a", { state, port, desired: state === "ready" ? "run" : "stop" }),
      );
      return makeFeed(aCatalog(models), docsOf(docs), []);
    }),
  );

test("whatever two states are, the change laid over the first one gives the second, and equal states need none [40.C3 80.C14]", () => {
  fc.assert(
    fc.property(fc.oneof(anyFeed, fc.constant(NO_FEED)), anyFeed, (before, after) => {
      const change = diffFeed(before, after);
      const models = new Map(before.models);
      const endpoints = new Map(before.endpoints);
      for (const name of change?.modelsGone ?? []) models.delete(name);
      for (const id of change?.endpointsGone ?? []) endpoints.delete(id);
      for (const item of change?.models ?? []) models.set(item.name, item);
      for (const item of change?.endpoints ?? []) endpoints.set(item.replicaId, item);
      const plain = (state: FeedState): unknown => [
        [...state.models.values()].toSorted((a, b) => (a.name < b.name ? -1 : 1)),
        [...state.endpoints.values()].toSorted((a, b) => (a.replicaId < b.replicaId ? -1 : 1)),
      ];
      assert.deepEqual(plain({ models, endpoints }), plain(after));
      assert.equal(diffFeed(after, after), null);
      const mark = { clusterId: "c", epoch: 1, holder: "h", version: 1 };
      const whole: FeedMessage = {
        type: "state",
        mark,
        models: [...models.values()],
        endpoints: [...endpoints.values()],
      };
      assert.equal(readFeedFrame(writeFeedFrame(whole)).kind, "message");
    }),
  );
});
