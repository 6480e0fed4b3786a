import assert from "node:assert/strict";
import { test } from "node:test";
import { stringify } from "yaml";
import { parseConfigText } from "./load-config.ts";

const TIER = { provider: "openai", base_url: "https://cloud.example" };

const read = (overflow: readonly Record<string, unknown>[]) =>
  parseConfigText(
    stringify({
      upstreams: ["a", "b"].map((id) => ({
        id,
        models: [`m-${id}`],
        slots: 1,
        endpoints: [{ url: `http://${id}:5000` }],
      })),
      overflow,
    }),
    "test.yaml",
    {},
  );

test("an upstream has one section, and a tier's id is its own in the whole file", () => {
  const loaded = read([
    { upstream: "a", tiers: [{ ...TIER, id: "t" }] },
    { upstream: "b", tiers: [{ ...TIER, id: "t" }] },
    { upstream: "a" },
  ]);
  assert.ok(loaded.kind === "invalid");
  assert.deepEqual(
    loaded.problems.map(({ path, message }) => [path, message.replace(/ \(line \d+\)$/, "")]),
    [
      ["overflow[1].tiers[0].id", "another tier has this id"],
      ["overflow[2].upstream", "this upstream has a section already"],
    ],
  );
});

test("a section of no upstream is a warning", () => {
  const loaded = read([{ upstream: "c" }]);
  assert.ok(loaded.kind === "valid");
  assert.deepEqual(loaded.warnings.length, 1);
  assert.match(loaded.warnings[0] ?? "", /overflow\[0\]\.upstream.*is no upstream of this file/);
});

test("a place's secret is for one host: named for another one too, by a tier or an engine, it is a mistake that names both [80.C46]", () => {
  const tier = (id: string, base_url: string, more: object = {}): object => ({
    ...TIER,
    id,
    base_url,
    key_env: "K",
    ...more,
  });
  const of = (...tiers: object[]): readonly (readonly [path: string, message: string])[] => {
    const loaded = read([{ upstream: "a", tiers }]);
    return loaded.kind === "valid" ? [] : loaded.problems.map(({ path, message }) => [path, message] as const);
  };
  const [problem] = of(tier("one", "https://one.example"), tier("two", "https://two.example"));
  assert.equal(problem?.[0], "overflow[0].tiers[1].key_env");
  assert.match(problem?.[1] ?? "", /another host is given too.*\(line \d+\)/);
  assert.deepEqual(of(tier("one", "https://one.example"), tier("two", "https://one.example/v2")), []);
  assert.deepEqual(of(tier("one", "https://one.example"), tier("two", "https://two.example", { key_env: "L" })), []);
});

test("approvals of single jobs under one Redis need a secret that all gateways have, and a short one is none [80.C31]", () => {
  const of = (more: object, env: Record<string, string> = {}): readonly string[] => {
    const overflow = [{ upstream: "a", tiers: [{ ...TIER, id: "t", approval: "per_job" }] }];
    const upstreams = [{ id: "a", models: ["m"], slots: 1, endpoints: [{ url: "http://a:5000" }] }];
    const redis = { coordination: "redis", redis_url: "redis://127.0.0.1:6379/0" };
    const loaded = parseConfigText(stringify({ upstreams, overflow, ...redis, ...more }), "test.yaml", env);
    return loaded.kind === "valid" ? [] : loaded.problems.map(({ path }) => path);
  };
  assert.deepEqual(of({}), ["signing_key_envs"]);
  assert.deepEqual(of({ signing_key_envs: ["K"] }, { K: "k".repeat(32) }), []);
  assert.deepEqual(of({ signing_key_envs: ["K"] }, { K: "k".repeat(31) }), ["signing_key_envs[0]"]);
  assert.deepEqual(of({ coordination: "local" }), []);
});
