import assert from "node:assert/strict";
import { test } from "node:test";
import { klingSetup, minimaxSetup, providerOf, tasksSetup } from "../testing/cloud/cloud-setups.ts";
import { providerConfig } from "./overflow-provider-schema.ts";
import { providerProblems, resolveProvider } from "./resolve-provider.ts";

test("a tier's place is resolved with its usual address, its keys and millionths of its currency", () => {
  const settings = resolveProvider(
    providerConfig.parse({ provider: "minimax", key_env: "K", price: { per_second: 0.05, currency: "EUR" } }),
    { K: "secret" },
  );
  assert.equal(settings.baseUrl, "https://api.minimax.io");
  assert.deepEqual(settings.price, { unit: "second", micros: 50_000, currency: "EUR" });
  assert.equal(settings.key?.reveal(), "secret");
  assert.equal(settings.signingKey, null);
  assert.equal(settings.submitMs, 60_000);
  assert.ok(!JSON.stringify(settings).includes("secret"));
  assert.equal(providerOf(klingSetup.file("https://k.example/")).baseUrl, "https://k.example");
});

test("what a place needs and lacks is named by its key", () => {
  const rows: readonly (readonly [Record<string, unknown>, readonly string[]])[] = [
    [minimaxSetup.file("https://m.example"), []],
    [klingSetup.file("https://k.example"), []],
    [tasksSetup.file("https://t.example"), []],
    [{ provider: "minimax" }, ["price", "key_env"]],
    [{ provider: "kling", key_env: "K", price: { per_call: 1, currency: "EUR" } }, ["secret_key_env"]],
    [{ provider: "openai" }, ["base_url"]],
    [{ provider: "openai", base_url: "http://other-site" }, []],
    [{ provider: "http", base_url: "http://x" }, ["http"]],
  ];
  for (const [file, keys] of rows) {
    const problems = providerProblems(providerConfig.parse(file));
    assert.deepEqual(
      problems.map(({ key }) => key),
      keys,
      JSON.stringify(file),
    );
  }
});

test("a price in two units, a state without words and a path without the task are refused", () => {
  const base = tasksSetup.file("https://t.example");
  const http = base["http"] as Record<string, Record<string, unknown>>;
  const bad: readonly Record<string, unknown>[] = [
    { price: { per_second: 1, per_call: 1, currency: "EUR" } },
    { price: { currency: "EUR" } },
    { price: { per_call: -1, currency: "EUR" } },
    { price: { per_call: 1, currency: "euro" } },
    { http: { ...http, poll: { ...http["poll"], running: [] } } },
    { http: { ...http, poll: { ...http["poll"], path: "/v1/tasks" } } },
    { http: { ...http, poll: { ...http["poll"], status: "state" } } },
    { http: { ...http, result: {} } },
    { http: { ...http, result: { url: "/u", path: "/r/{id}" } } },
  ];
  for (const change of bad)
    assert.equal(providerConfig.safeParse({ ...base, ...change }).success, false, JSON.stringify(change));
  assert.equal(providerConfig.safeParse(base).success, true);
});
