import assert from "node:assert/strict";
import { inspect } from "node:util";
import { test } from "node:test";
import { configFile } from "./config-schema.ts";
import { parseEndpointUrl, resolveConfig } from "./resolve-config.ts";
import type { Env, GatewayConfig } from "./resolve-config.ts";

const resolve = (upstream: object, env: Env = {}): GatewayConfig["upstreams"][number] => {
  const [first] = resolveConfig(configFile.parse({ upstreams: [{ id: "u", slots: 8, ...upstream }] }), env).upstreams;
  return first ?? assert.fail("no upstream");
};

test("batch may hold three quarters of the slots, and at least one [10.A2]", () => {
  assert.deepEqual(
    [1, 2, 4, 16, 48].map((slots) => resolve({ slots }).limits.batchMax),
    [1, 1, 3, 12, 36],
  );
  assert.equal(resolve({ slots: 16, batch_max: 8 }).limits.batchMax, 8);
});

test("seconds become milliseconds, percents become ratios, header names become lower-case", () => {
  const upstream = resolve({
    timeouts: { connect_s: 0.25 },
    retry: { budget_percent: 20 },
    forward_headers: ["X-A", "x-a", "X-B"],
    sse_keepalive_s: 15,
  });
  assert.equal(upstream.timeouts.connectMs, 250);
  assert.equal(upstream.timeouts.totalMs, 3_600_000);
  assert.equal(upstream.retry.budgetRatio, 0.2);
  assert.deepEqual(upstream.forwardHeaders, ["x-a", "x-b"]);
  assert.equal(upstream.sseKeepaliveMs, 15_000);
  assert.deepEqual(upstream.limits.queueTimeoutMs, { interactive: 30_000, system: 30_000, batch: 900_000 });
});

test("endpoints get stable ids: host and port, and more only where that is not unique", () => {
  const urls = [
    "http://h:1",
    "http://h:1/a",
    "https://h:1/a",
    "http://H:1/a/",
    "http://[::1]:8001",
    "https://cloud.example",
  ];
  const endpoints = resolve({ endpoints: urls.map((url) => ({ url })) }).endpoints;
  assert.deepEqual(
    endpoints.map((endpoint) => endpoint.id),
    ["h:1", "h:1/a", "https://h:1/a", "http://h:1/a", "[::1]:8001", "cloud.example:443"],
  );
  assert.deepEqual(
    endpoints.map((endpoint) => endpoint.slots),
    Array.from({ length: 6 }, () => 8),
  );
});

test("an endpoint's address is split once, the port always known and no slash at the end", () => {
  assert.deepEqual(parseEndpointUrl("https://[::1]/base//"), {
    url: "https://[::1]:443/base",
    origin: "https://[::1]:443",
    protocol: "https:",
    hostname: "::1",
    port: 443,
    basePath: "/base",
  });
  assert.equal(parseEndpointUrl("http://h")?.port, 80);
  assert.equal(parseEndpointUrl("ftp://h"), undefined);
});

test("an engine's key comes from the environment and can't be printed [80.C45]", () => {
  const upstream = resolve({ key_env: "ENGINE_KEY" }, { ENGINE_KEY: "CANARY-key" });
  assert.equal(upstream.engineKey?.reveal(), "CANARY-key");
  assert.ok(!JSON.stringify(upstream).includes("CANARY") && !inspect(upstream, { depth: 9 }).includes("CANARY"));
  assert.equal(resolve({ key_env: "ENGINE_KEY" }, { ENGINE_KEY: "" }).engineKey, null);
  assert.equal(resolve({ key_env: "toString" }, Object.create(null) as Env).engineKey, null);
  assert.equal(resolve({ key_env: "toString" }, {}).engineKey, null);
});

test("the command line goes before the file", () => {
  const config = resolveConfig(
    configFile.parse({ listen: "127.0.0.1:1", data_dir: "a", upstreams: [] }),
    {},
    { listen: "0.0.0.0:2", dataDir: "b" },
  );
  assert.deepEqual(config.listen, { host: "0.0.0.0", port: 2 });
  assert.equal(config.dataDir, "b");
  assert.equal(config.metricsPublic, false);
});

test("a key's expiry is a time in any zone", () => {
  const key = { id: "k", hash: `sha256:${"0".repeat(64)}`, expires: "2027-01-31T12:00:00+02:00" };
  assert.equal(
    resolveConfig(configFile.parse({ upstreams: [], auth: { keys: [key] } }), {}).auth.keys[0]?.expiresAt,
    1_801_389_600_000,
  );
});
