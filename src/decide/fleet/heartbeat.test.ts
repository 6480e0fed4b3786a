import assert from "node:assert/strict";
import { test } from "node:test";
import { heartbeatMs, HEARTBEATS_PER_S } from "./heartbeat.ts";

test("agents report every 2 s, less often when there are very many, and always often enough to stay reachable [80.C14 80.A17]", () => {
  assert.equal(heartbeatMs(1, 10_000), 2_000);
  assert.equal(heartbeatMs(500, 10_000), 2_000);
  assert.equal(heartbeatMs(750, 10_000), 3_000);
  assert.equal(heartbeatMs(10_000, 10_000), 10_000 / 3);
  assert.equal(heartbeatMs(10_000, 60_000), 20_000);
  assert.equal(heartbeatMs(1, 1_000), 1_000 / 3);
  assert.equal(heartbeatMs(1, 100), 200);
  for (const agents of [500, 1_000, 5_000])
    assert.ok(agents / (heartbeatMs(agents, 3_600_000) / 1_000) <= HEARTBEATS_PER_S);
});
