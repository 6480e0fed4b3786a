import assert from "node:assert/strict";
import { test } from "node:test";
import { parseConfigText } from "./load-config.ts";

const file = (second: string): string => `
listen: 127.0.0.1:0
auth: { mode: none }
upstreams:
  - { id: near, models: [m], slots: 1, endpoints: [{ url: "http://127.0.0.1:1" }], price: { input_per_1m: 1, output_per_1m: 1, currency: EUR } }
  - { id: free, models: [f], slots: 1, endpoints: [{ url: "http://127.0.0.1:2" }] }
  - { id: far, models: [n], slots: 1, endpoints: [{ url: "http://127.0.0.1:3" }], price: { input_per_1m: 1, output_per_1m: 1${second} } }
`;

test("prices in two currencies are refused, with both upstreams named [60.K3 60.K4]", () => {
  for (const second of ["", ", currency: USD"]) {
    const loaded = parseConfigText(file(second), "test.yaml", {});
    assert.ok(loaded.kind === "invalid");
    const [problem, ...others] = loaded.problems;
    assert.equal(others.length, 0);
    assert.equal(problem?.path, "upstreams[2].price.currency");
    assert.match(problem.message, /far is priced in USD, and near in EUR/);
  }
  assert.equal(parseConfigText(file(", currency: EUR"), "test.yaml", {}).kind, "valid");
});

test("usage is kept for longer in a file than in Redis, and for as long as the file says", () => {
  const keepDays = (more: string): number | null => {
    const loaded = parseConfigText(`auth: { mode: none }\nupstreams: []\n${more}`, "test.yaml", {});
    return loaded.kind === "valid" ? loaded.config.usageKeepDays : null;
  };
  const redis = "coordination: redis\nredis_url: redis://127.0.0.1:1\n";
  assert.deepEqual([keepDays(""), keepDays(redis)], [400, 62]);
  assert.equal(keepDays(`${redis}usage: { keep_days: 90 }`), 90);
  assert.equal(keepDays("usage: { keep_days: 0 }"), null);
});
