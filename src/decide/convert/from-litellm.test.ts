import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { Converted } from "./conversion.ts";
import { convertLitellm } from "./from-litellm.ts";

const converted = (file: unknown): Converted => {
  const outcome = convertLitellm(file);
  return outcome.kind === "converted" ? outcome : assert.fail(outcome.why);
};

interface Upstream {
  readonly id: string;
  readonly models: readonly string[];
  readonly slots: number;
  readonly endpoints: readonly { readonly url: string; readonly slots: number }[];
  readonly [key: string]: unknown;
}

const upstreamsOf = (outcome: Converted): readonly Upstream[] => outcome.config["upstreams"] as readonly Upstream[];
const one = (params: Record<string, unknown>, more: Record<string, unknown> = {}): unknown => ({
  model_list: [{ model_name: "m", litellm_params: params, ...more }],
});
const notesOf = (outcome: Converted): string[] => outcome.notes.map(({ path, kind }) => `${kind} ${path.join(".")}`);

const rows: { readonly name: string; readonly params: Record<string, unknown>; readonly expect: Partial<Upstream> }[] =
  [
    {
      name: "a vLLM server, without the /v1 and under both its names",
      params: { model: "hosted_vllm/Org/Model", api_base: "http://h:8000/v1/", max_parallel_requests: 8 },
      expect: { engine: "vllm", models: ["m", "Org/Model"], slots: 8, endpoints: [{ url: "http://h:8000", slots: 8 }] },
    },
    {
      name: "a path that is more than /v1",
      params: { model: "openai/m", api_base: "http://h:80/llm/v1", max_parallel_requests: 1 },
      expect: { engine: "generic", endpoints: [{ url: "http://h/llm", slots: 1 }] },
    },
    {
      name: "a cloud, with the key that it usually has",
      params: { model: "gpt-4o" },
      expect: {
        external: true,
        health: "passive",
        key_env: "OPENAI_API_KEY",
        endpoints: [{ url: "https://api.openai.com", slots: 16 }],
      },
    },
    {
      name: "a key from the environment",
      params: { model: "openai/m", api_base: "http://h:1", api_key: "os.environ/MY_KEY" },
      expect: { key_env: "MY_KEY" },
    },
    {
      name: "a key in plain text gets a variable",
      params: { model: "openai/m", api_base: "http://h:1", api_key: "sk-1" },
      expect: { key_env: "M_API_KEY" },
    },
    {
      name: "prices of a million tokens",
      params: { model: "openai/m", api_base: "http://h:1", input_cost_per_token: 2e-7, output_cost_per_token: 6e-7 },
      expect: { price: { input_per_1m: 0.2, output_per_1m: 0.6, currency: "USD" } },
    },
    {
      name: "times and tries",
      params: { model: "openai/m", api_base: "http://h:1", timeout: 90, stream_timeout: 5, num_retries: 40 },
      expect: { timeouts: { total_s: 90, first_byte_s: 5 }, retry: { attempts: 10 } },
    },
  ];
for (const { name, params, expect } of rows)
  test(`of LiteLLM's file: ${name}`, () => {
    const [upstream] = upstreamsOf(converted(one(params)));
    for (const [key, value] of Object.entries(expect)) assert.deepEqual(upstream?.[key], value, key);
  });

test("entries of one name are one upstream's endpoints, and names of the same servers share their slots", () => {
  const at = (name: string, port: number): unknown => ({
    model_name: name,
    litellm_params: { model: "hosted_vllm/x", api_base: `http://h:${port}`, max_parallel_requests: 4 },
  });
  const upstreams = upstreamsOf(
    converted({ model_list: [at("a", 1), at("a", 2), at("b", 2), at("b", 1), at("c", 3)] }),
  );
  assert.deepEqual(
    upstreams.map(({ models, slots, endpoints }) => [models.slice(0, 2), slots, endpoints.length]),
    [
      [["a", "b"], 8, 2],
      [["c"], 4, 1],
    ],
  );
});

test("what can't stand behind the first entry of a name is left out, and told", () => {
  const entry = (params: Record<string, unknown>): unknown => ({ model_name: "m", litellm_params: params });
  const outcome = converted({
    model_list: [
      entry({ model: "openai/m", api_base: "http://h:1", api_key: "os.environ/A" }),
      entry({ model: "openai/m", api_base: "http://h:2", api_key: "os.environ/B" }),
      entry({ model: "gpt-4o" }),
      entry({ model: "hosted_vllm/m", api_base: "http://h:3", api_key: "os.environ/A" }),
    ],
  });
  assert.equal(upstreamsOf(outcome)[0]?.endpoints.length, 1);
  for (const index of [1, 2, 3]) assert.ok(notesOf(outcome).includes(`dropped model_list.${index}`), `entry ${index}`);
});

test("a file that is not LiteLLM's is refused", () => {
  for (const file of [null, [], "text", {}, { models: {} }, { model_list: {} }])
    assert.equal(convertLitellm(file).kind, "refused");
  assert.deepEqual(upstreamsOf(converted({ model_list: [null, 7, {}, { model_name: "a" }] })), []);
});

/** A tree of keys that no version of LiteLLM has, with texts that must not come through. */
const strange = fc.letrec((tie) => ({
  tree: fc.oneof(
    { maxDepth: 3 },
    fc.constant("CANARY"),
    fc.integer(),
    fc.boolean(),
    fc.dictionary(fc.stringMatching(/^zz[a-z]{1,6}$/), tie("tree"), { minKeys: 1, maxKeys: 3 }),
    fc.array(tie("tree"), { minLength: 1, maxLength: 2 }),
  ),
})).tree;

/** Each leaf's path. */
function leaves(value: unknown, path: readonly (string | number)[]): (readonly (string | number)[])[] {
  if (typeof value !== "object" || value === null) return [path];
  return Object.entries(value).flatMap(([key, inner]) =>
    leaves(inner, [...path, Array.isArray(value) ? Number(key) : key]),
  );
}

test("no key is dropped in silence: wherever one stands that nobody knows, a note names it or a key above it, and never its value", () => {
  const places = ["", "router_settings", "litellm_settings", "general_settings"] as const;
  fc.assert(
    fc.property(
      fc.record(
        Object.fromEntries(
          places.map((place) => [place, fc.dictionary(fc.stringMatching(/^zz[a-z]{1,6}$/), strange, { maxKeys: 3 })]),
        ),
      ),
      fc.dictionary(fc.stringMatching(/^zz[a-z]{1,6}$/), strange, { maxKeys: 3 }),
      (extra, inParams) => {
        const file: Record<string, unknown> = {
          ...extra[""],
          model_list: [{ model_name: "m", litellm_params: { model: "openai/m", api_base: "http://h:1", ...inParams } }],
        };
        for (const place of places.slice(1)) file[place] = { timeout: 5, ...extra[place] };
        const outcome = converted(file);
        const told = outcome.notes.map(({ path }) => JSON.stringify(path).slice(0, -1));
        const unknown = leaves(file, []).filter((path) => path.some((step) => String(step).startsWith("zz")));
        for (const path of unknown)
          assert.ok(
            told.some((prefix) => JSON.stringify(path).startsWith(prefix)),
            JSON.stringify(path),
          );
        assert.ok(!JSON.stringify(outcome).includes("CANARY"));
      },
    ),
  );
});

test("each secret of the file has a variable of its own, so that no server is sent another's key; the same one keeps its name", () => {
  const server = (name: string, at: number, key: string): unknown => ({
    model_name: name,
    litellm_params: { model: "hosted_vllm/m", api_base: `http://10.0.0.${at}:1/v1`, api_key: key },
  });
  const outcome = converted({
    model_list: [server("m-1", 1, "one"), server("m_1", 2, "two"), server("m-1", 3, "one"), server("m-1", 4, "three")],
    router_settings: { redis_host: "a", redis_password: "four" },
    litellm_settings: { cache: true, cache_params: { type: "redis", host: "b", password: "five" } },
  });
  assert.deepEqual(
    upstreamsOf(outcome).map(({ key_env, endpoints }) => [key_env, endpoints.map(({ url }) => url)]),
    [
      ["M_1_API_KEY", ["http://10.0.0.1:1", "http://10.0.0.3:1"]],
      ["M_1_API_KEY_2", ["http://10.0.0.2:1"]],
    ],
  );
  assert.ok(notesOf(outcome).includes("dropped model_list.3"), "an entry with another key goes with its upstream's");
  assert.equal(outcome.config["redis_url"], "redis://:${REDIS_PASSWORD}@a:6379/0");
  assert.equal(outcome.config["cache_redis_url"], "redis://:${REDIS_PASSWORD_2}@b:6379/0");
});

test("an empty key is no key, and of a cloud the one that its variable usually holds", () => {
  const [own] = upstreamsOf(converted(one({ model: "hosted_vllm/m", api_base: "http://h:1", api_key: "" })));
  assert.equal(own?.["key_env"], undefined);
  const outcome = converted(one({ model: "openai/m", api_key: "" }));
  assert.equal(upstreamsOf(outcome)[0]?.["key_env"], "OPENAI_API_KEY");
  assert.ok(outcome.notes.every(({ kind }) => kind !== "secret"));
});
