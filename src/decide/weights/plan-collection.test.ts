import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { Catalog } from "../../contract/catalog.ts";
import { aModel, aNodeReport, aProfile, aReplicaDoc } from "../../testing/fleet-builders.ts";
import { listCaches, toCollect, whyNothing, type CacheFacts } from "./plan-collection.ts";

const nameOf = (digit: string): string => digit.repeat(64);
const catalog = (revision: number, models: Readonly<Record<string, string>>): Catalog => ({
  revision,
  models: new Map(
    Object.entries(models).map(([name, digit]) => [
      name,
      aModel(name, { profiles: [aProfile(name, { weightsName: nameOf(digit) })] }),
    ]),
  ),
});
const facts = (over: Partial<CacheFacts> = {}): CacheFacts => ({
  catalogs: [catalog(2, { now: "1" }), catalog(1, { before: "2" })],
  replicas: [aReplicaDoc("r", aModel("runs", { profiles: [aProfile("p", { weightsName: nameOf("3") })] }), "a")],
  nodes: [],
  ...over,
});
const unwanted = (from: CacheFacts): string[] =>
  listCaches(from)
    .filter(({ isUnwanted }) => isUnwanted)
    .map(({ name }) => name);

test("what this catalog, the one before, or a replica wants stays, what is in use too, and what is not the node's own [40.W2]", () => {
  const held = ["1", "2", "3", "4", "5"].map((digit) => ({ name: nameOf(digit), bytes: 7, inUse: digit === "5" }));
  const leftovers = [
    { name: nameOf("6"), bytes: 3, kind: "partial" as const },
    { name: nameOf("7"), bytes: null, kind: "foreign" as const },
    { name: "my-model", bytes: 9, kind: "foreign" as const },
    { name: "../../etc", bytes: 9, kind: "partial" as const },
    ...[`${nameOf("8")}.0123456789abcdef.damaged`, `${nameOf("8")}.damaged`, "../../etc/0.damaged"].map((name) => ({
      name,
      bytes: 5,
      kind: "foreign" as const,
      damaged: true,
    })),
  ];
  const from = facts({ nodes: [{ nodeId: "a", report: aNodeReport("a", { weights: held, leftovers }) }] });
  assert.deepEqual(unwanted(from), [nameOf("4"), nameOf("6")]);
  assert.deepEqual(
    [false, true].map((damaged) => toCollect(listCaches(from), damaged).map(({ name }) => name)),
    [[nameOf("4"), nameOf("6")], [`${nameOf("8")}.0123456789abcdef.damaged`]],
    "what is damaged goes by a word of its own, and only under a name that a node gives",
  );
  const wantedBy = Object.fromEntries(listCaches(from).map(({ name, wantedBy: models }) => [name[0], models]));
  assert.deepEqual([wantedBy["1"], wantedBy["2"], wantedBy["3"], wantedBy["4"]], [["now"], ["before"], ["runs"], []]);
});

test("one source that two models share is wanted by both, and goes with the second [40.W2]", () => {
  const nodes = [
    { nodeId: "a", report: aNodeReport("a", { weights: [{ name: nameOf("1"), bytes: 1, inUse: false }] }) },
  ];
  const both = catalog(3, { first: "1", second: "1" });
  assert.deepEqual(listCaches(facts({ catalogs: [both], nodes }))[0]?.wantedBy, ["first", "second"]);
  assert.deepEqual(unwanted(facts({ catalogs: [catalog(4, { second: "1" })], nodes })), []);
  assert.deepEqual(unwanted(facts({ catalogs: [catalog(5, { other: "2" }), catalog(4, { second: "1" })], nodes })), []);
  assert.deepEqual(unwanted(facts({ catalogs: [catalog(6, {}), catalog(5, {})], nodes })), [nameOf("1")]);
});

test("whatever is asked for is the node's own by its report, and wanted by nobody [40.W2]", () => {
  const digit = fc.constantFrom("1", "2", "3", "4", "5", "a", "Z");
  const models = fc.dictionary(fc.constantFrom("m1", "m2", "m3"), digit);
  const weights = fc.array(fc.record({ name: digit.map(nameOf), bytes: fc.nat(), inUse: fc.boolean() }));
  const kind = fc.constantFrom("partial" as const, "foreign" as const);
  const leftovers = fc.array(
    fc.record({ name: fc.oneof(digit.map(nameOf), fc.string()), bytes: fc.constant(null), kind }),
  );
  fc.assert(
    fc.property(models, models, weights, leftovers, (now, before, held, left) => {
      const from = facts({
        catalogs: [catalog(2, now), catalog(1, before)],
        nodes: [{ nodeId: "a", report: aNodeReport("a", { weights: held, leftovers: left }) }],
      });
      const wanted = new Set([...Object.values(now), ...Object.values(before), "3"].map(nameOf));
      for (const cached of listCaches(from).filter(({ isUnwanted }) => isUnwanted)) {
        assert.ok(!wanted.has(cached.name) && /^[0-9a-f]{64}$/.test(cached.name) && !cached.inUse);
        assert.notEqual(cached.kind, "foreign");
      }
    }),
  );
});

test("an old copy of the store, a silent fleet, a new leader and a catalog that is not known remove nothing [40.W2 80.P7]", () => {
  const fine = { restored: false, braked: false, settling: false, revision: 1, knowsBefore: true };
  assert.equal(whyNothing(fine), null);
  assert.match(whyNothing({ ...fine, restored: true }) ?? "", /old copy/);
  for (const wrong of [{ braked: true }, { settling: true }, { revision: 0 }, { knowsBefore: false }])
    assert.notEqual(whyNothing({ ...fine, ...wrong }), null);
});
