import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { Model, Profile } from "./catalog.ts";
import { catalogFile } from "./catalog-schema.ts";
import { canonicalJson, resolveCatalog, weightsName } from "./resolve-catalog.ts";

const model = (entry: Record<string, unknown>): Model => {
  const file = catalogFile.parse({ models: [{ name: "m", profiles: [{ engine: "sim" }], ...entry }] });
  const found = resolveCatalog(file, 7).models.get("m");
  assert.ok(found !== undefined);
  return found;
};
const profile = (entry: Record<string, unknown>): Profile => {
  const [first] = model({ profiles: [{ engine: "sim", ...entry }] }).profiles;
  assert.ok(first !== undefined);
  return first;
};

test("a model that says only what it must gets every default", () => {
  const { profiles, ...rest } = model({});
  assert.deepEqual(rest, {
    name: "m",
    aliases: [],
    priority: 50,
    replicas: { min: 1, max: 1 },
    idleStopMs: null,
    autoscale: null,
    slotsPerReplica: 16,
    rollout: "manual",
    nodes: { require: {}, avoid: {}, gpuUuids: [] },
    multiNode: null,
  });
  assert.equal(profiles.length, 1);
});

test("a model that is started on demand has room for one replica, and times and sizes are in our units", () => {
  assert.deepEqual(model({ replicas: { min: 0 } }).replicas, { min: 0, max: 1 });
  assert.equal(model({ idle_stop_s: 1800 }).idleStopMs, 1_800_000);
  assert.deepEqual(model({ autoscale: {} }).autoscale, { target: 0.7, upAfterMs: 30_000, downAfterMs: 600_000 });
  const { gpu, cpu, diskMib } = profile({
    gpu: { class: ["H200", "h200", "b200"], memory_gb: 80 },
    cpu: { cores: 8, memory_gb: 24 },
    disk_gb: 75,
  });
  assert.deepEqual(gpu, { classes: ["h200", "b200"], count: 1, memoryMib: 76_294 });
  assert.deepEqual(cpu, { cores: 8, memoryMib: 22_889 });
  assert.equal(diskMib, 71_526);
});

test("a profile's hash is the same however its members are ordered, and another for any other content", () => {
  const one = profile({ args: { "max-model-len": 32_768, seed: 1 }, env: { A: "1", B: "2" } });
  const same = profile({ env: { B: "2", A: "1" }, args: { seed: 1, "max-model-len": 32_768 } });
  assert.equal(one.hash, same.hash);
  const others = [
    profile({ args: { "max-model-len": "32768", seed: 1 }, env: { A: "1", B: "2" } }),
    profile({ args: { "max-model-len": 32_768, seed: 1 }, env: { A: "1" } }),
    profile({ args: { "max-model-len": 32_768, seed: 1 }, env: { A: "1", B: "2" }, disk_gb: 1 }),
    profile({ args: { "max-model-len": 32_768, seed: 1 }, env: { A: "1", B: "2" }, source: "/weights/m" }),
  ];
  assert.equal(new Set([one, ...others].map(({ hash }) => hash)).size, 5);
});

test("the cache name follows the source and its revision, whatever else the profile says", () => {
  const source = "hf://org/model@rev";
  assert.equal(profile({ source, disk_gb: 5 }).weightsName, profile({ source, env: { A: "1" } }).weightsName);
  assert.notEqual(weightsName("hf://org/model@rev"), weightsName("hf://org/model@other"));
  assert.equal(weightsName("file:///weights/m"), weightsName("/weights/m"));
  assert.match(weightsName(source), /^[0-9a-f]{64}$/);
  assert.equal(profile({}).weightsName, null);
});

test("a catalog can't be changed by who holds it [40.C1]", () => {
  const held = model({ aliases: ["a"], profiles: [{ engine: "sim", args: { seed: 1 } }] });
  assert.throws(() => (held.aliases as string[]).push("b"), TypeError);
  const [first] = held.profiles;
  assert.ok(first !== undefined);
  assert.throws(() => ((first.args as Record<string, unknown>)["seed"] = 2), TypeError);
});

test("equal values have equal canonical texts, and unequal ones have not", () => {
  const shuffled = (value: unknown): unknown =>
    Array.isArray(value)
      ? value.map(shuffled)
      : typeof value === "object" && value !== null
        ? Object.fromEntries(
            Object.entries(value)
              .toReversed()
              .map(([key, inner]) => [key, shuffled(inner)]),
          )
        : value;
  fc.assert(
    fc.property(fc.jsonValue(), fc.jsonValue(), (a, b) => {
      assert.equal(canonicalJson(a), canonicalJson(shuffled(a)));
      assert.deepEqual(JSON.parse(canonicalJson(a)), JSON.parse(JSON.stringify(a)));
      if (canonicalJson(a) === canonicalJson(b))
        assert.deepEqual(JSON.parse(JSON.stringify(a)), JSON.parse(JSON.stringify(b)));
    }),
  );
});
