import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { FeedEndpoint, FeedMark, FeedModel } from "../../contract/feed.ts";
import { aFeedEndpoint, aFeedModel, aMark } from "../../testing/fake-feed.ts";
import { endpointsOf, isOfLeader, takeChange, takeWhole, type FeedHeld, type FeedState } from "./take-feed.ts";

const NOTHING: FeedHeld = { state: null, confirmed: false };
const whole = (mark: Partial<FeedMark> = {}, models: FeedModel[] = [], endpoints: FeedEndpoint[] = []) => ({
  mark: aMark(mark),
  models,
  endpoints,
});
const change = (mark: Partial<FeedMark>, from: number, over: Partial<Parameters<typeof takeChange>[1]> = {}) => ({
  mark: aMark(mark),
  from,
  models: [],
  endpoints: [],
  modelsGone: [],
  endpointsGone: [],
  ...over,
});

function taken(held: FeedHeld, told: ReturnType<typeof whole>): FeedHeld & { readonly state: FeedState } {
  const outcome = takeWhole(held, told);
  assert.ok(outcome.kind === "taken", outcome.kind);
  return { state: outcome.state, confirmed: true };
}

const rows: {
  readonly name: string;
  readonly held: Partial<FeedMark>;
  readonly confirmed?: boolean;
  readonly told: Partial<FeedMark>;
  readonly whole: string;
  readonly change: string;
}[] = [
  { name: "a newer version is taken", held: {}, told: { version: 2 }, whole: "taken", change: "taken" },
  { name: "an older version is known", held: { version: 3 }, told: { version: 2 }, whole: "known", change: "known" },
  {
    name: "a higher epoch begins anew",
    held: { version: 9 },
    told: { epoch: 2, holder: "holder-2" },
    whole: "taken",
    change: "gap",
  },
  {
    name: "a lower epoch is an old leader's",
    held: { epoch: 3 },
    told: { epoch: 2, version: 99 },
    whole: "oldEpoch",
    change: "oldEpoch",
  },
  {
    name: "a second holder of one number is not believed",
    held: {},
    told: { holder: "holder-2", version: 99 },
    whole: "otherHolder",
    change: "otherHolder",
  },
  {
    name: "another cluster is not believed",
    held: {},
    told: { clusterId: "other", epoch: 99 },
    whole: "otherCluster",
    change: "otherCluster",
  },
  {
    name: "what is from the disk gives way to another cluster's whole state",
    held: { epoch: 7 },
    confirmed: false,
    told: { clusterId: "other" },
    whole: "taken",
    change: "otherCluster",
  },
  {
    name: "what is from the disk does not give way to an old leader of its own cluster",
    held: { epoch: 7 },
    confirmed: false,
    told: { epoch: 6 },
    whole: "oldEpoch",
    change: "oldEpoch",
  },
];
for (const row of rows)
  test(`${row.name} [40.C3 80.P5]`, () => {
    const { state } = taken(NOTHING, whole(row.held));
    const held = { state, confirmed: row.confirmed ?? true };
    const said = (outcome: ReturnType<typeof takeWhole>): string =>
      outcome.kind === "refused" ? outcome.why : outcome.kind;
    assert.equal(said(takeWhole(held, whole(row.told))), row.whole);
    assert.equal(said(takeChange(held, change(row.told, 1))), row.change);
  });

test("a change whose base is not here asks for everything, and one that overlaps with what is here is taken [40.C3]", () => {
  assert.equal(takeChange(NOTHING, change({ version: 2 }, 1)).kind, "gap");
  const held = taken(NOTHING, whole({ version: 4 }));
  assert.equal(takeChange(held, change({ version: 6 }, 5)).kind, "gap");
  assert.equal(takeChange(held, change({ version: 6 }, 3)).kind, "taken");
});

test("what did not change stays the same object [10.R6]", () => {
  const models = [aFeedModel("a"), aFeedModel("b")];
  const endpoints = [
    aFeedEndpoint("r1", "http://127.0.0.1:1", { model: "a" }),
    aFeedEndpoint("r2", "http://127.0.0.1:2"),
  ];
  const first = taken(NOTHING, whole({}, models, endpoints)).state;
  const again = structuredClone({ models, endpoints });
  const second = taken({ state: first, confirmed: true }, whole({ version: 2 }, again.models, again.endpoints)).state;
  assert.equal(second.models.get("a"), first.models.get("a"));
  assert.equal(second.endpoints.get("a"), first.endpoints.get("a"));
  const outcome = takeChange(
    { state: second, confirmed: true },
    change({ version: 3 }, 2, { endpoints: [aFeedEndpoint("r1", "http://127.0.0.1:9", { model: "a" })] }),
  );
  assert.ok(outcome.kind === "taken");
  assert.notEqual(outcome.state.endpoints.get("a"), first.endpoints.get("a"));
  assert.equal(outcome.state.endpoints.get("m"), first.endpoints.get("m"));
});

type Edit = { readonly model: number; readonly replica: number; readonly draining: boolean; readonly gone: boolean };
const edit: fc.Arbitrary<Edit> = fc.record({
  model: fc.nat(3),
  replica: fc.nat(5),
  draining: fc.boolean(),
  gone: fc.boolean(),
});

/** A control plane's own copy, edited step by step. */
function apply(
  models: Map<string, FeedModel>,
  endpoints: Map<string, FeedEndpoint>,
  { model, replica, draining, gone }: Edit,
) {
  const [name, id] = [`m${model}`, `r${replica}`];
  const modelsGone: string[] = [];
  const endpointsGone: string[] = [];
  if (gone && endpoints.delete(id)) endpointsGone.push(id);
  if (gone && models.delete(name)) modelsGone.push(name);
  const endpoint = aFeedEndpoint(id, `http://127.0.0.1:${replica + 1}`, { model: name, draining });
  if (!gone) endpoints.set(id, endpoint);
  if (!gone) models.set(name, aFeedModel(name, { failedStarts: replica }));
  return gone
    ? { modelsGone, endpointsGone }
    : { models: [aFeedModel(name, { failedStarts: replica })], endpoints: [endpoint] };
}

test("whatever is lost on the way, and whatever an old leader says in between, a gateway ends with the leader's state [40.C3 80.P5]", () => {
  fc.assert(
    fc.property(fc.array(fc.record({ edit, lost: fc.boolean(), old: fc.boolean() }), { maxLength: 40 }), (steps) => {
      const models = new Map<string, FeedModel>();
      const endpoints = new Map<string, FeedEndpoint>();
      let version = 1;
      const everything = (): ReturnType<typeof whole> =>
        whole({ epoch: 2, version }, [...models.values()], [...endpoints.values()]);
      let held: FeedHeld = taken(NOTHING, everything());
      for (const { edit: next, lost, old } of steps) {
        const told = change({ epoch: 2, version: version + 1 }, version, apply(models, endpoints, next));
        version += 1;
        if (old) {
          const before = held.state;
          assert.equal(takeWhole(held, whole({ epoch: 1, version: 99 })).kind, "refused");
          assert.equal(held.state, before);
        }
        if (lost) continue;
        const outcome = takeChange(held, told);
        held =
          outcome.kind === "gap" ? taken(held, everything()) : { ...held, ...(outcome.kind === "taken" && outcome) };
      }
      const { state } = taken(held, { ...everything(), mark: aMark({ epoch: 2, version: version + 1 }) });
      assert.deepEqual(new Map([...state.models].toSorted()), new Map([...models].toSorted()));
      assert.deepEqual(
        endpointsOf(state).toSorted((a, b) => (a.replicaId < b.replicaId ? -1 : 1)),
        [...endpoints.values()].toSorted((a, b) => (a.replicaId < b.replicaId ? -1 : 1)),
      );
    }),
    { numRuns: 200 },
  );
});

test("what is told beside the state counts only from him whose state it is, once its cluster has spoken [40.C3]", () => {
  const { state } = taken(NOTHING, whole({ epoch: 2, version: 4 }));
  const held: FeedHeld = { state, confirmed: true };
  assert.equal(isOfLeader(held, aMark({ epoch: 2, version: 9 })), true);
  for (const mark of [{ epoch: 1 }, { epoch: 3 }, { epoch: 2, holder: "another" }, { epoch: 2, clusterId: "another" }])
    assert.equal(isOfLeader(held, aMark(mark)), false, JSON.stringify(mark));
  assert.equal(isOfLeader({ state, confirmed: false }, aMark({ epoch: 2 })), false);
  assert.equal(isOfLeader(NOTHING, aMark()), false);
});
