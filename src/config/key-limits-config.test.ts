import assert from "node:assert/strict";
import { test } from "node:test";
import { stringify } from "yaml";
import { parseConfigText } from "./load-config.ts";

test("no limit of a key is said to be without effect [60.K3]", () => {
  const limits = {
    requests_per_minute: 1,
    tokens_per_minute: 1,
    tokens_per_day: 1,
    max_in_flight: 1,
    cost_per_day: 1,
    cost_per_month: 1,
  };
  const keys = [{ id: "k", hash: `sha256:${"ab".repeat(32)}`, limits }];
  const loaded = parseConfigText(stringify({ auth: { mode: "keys", keys }, upstreams: [] }), "test.yaml", {});
  assert.ok(loaded.kind === "valid");
  assert.equal(loaded.config.auth.keys[0]?.limits.tokensPerMinute, 1);
  assert.deepEqual(
    loaded.warnings.filter((warning) => warning.includes("limits")),
    [],
  );
});
