import assert from "node:assert/strict";
import crypto, { createHash } from "node:crypto";
import { syncBuiltinESMExports } from "node:module";
import { mock, test } from "node:test";
import { NO_LIMITS } from "../contract/gateway-config.ts";
import { hashKey } from "../contract/key-hash.ts";
import { VirtualClock } from "../testing/virtual-clock.ts";
import { KeyRing } from "./key-ring.ts";

test("a key is looked up by its whole hash and compared in constant time, so the work is the same however many of its characters are right [80.D5 80.C38 60.K1]", () => {
  const valid = "k".repeat(64);
  const key = {
    id: "k",
    hash: hashKey(valid),
    role: "client",
    classes: ["interactive"],
    models: null,
    weight: 1,
    limits: NO_LIMITS,
    allowExternal: false,
    expiresAt: null,
  } as const;
  const ring = new KeyRing(new VirtualClock(), { config: [key] });
  const compared = mock.method(crypto, "timingSafeEqual");
  const lookedUp: unknown[] = [];
  const { get } = Map.prototype;
  mock.method(Map.prototype, "get", function (this: Map<unknown, unknown>, name: unknown): unknown {
    lookedUp.push(name);
    return get.call(this, name);
  });
  syncBuiltinESMExports();
  try {
    for (const matching of [0, 8, 31, 63, 64]) {
      const presented = valid.slice(0, matching) + "x".repeat(64 - matching);
      lookedUp.length = 0;
      const outcome = ring.check(presented, "192.0.2.1").kind;
      assert.equal(outcome, matching === 64 ? "ok" : "wrong");
      assert.equal(
        lookedUp[0],
        createHash("sha256").update(presented).digest().toString("latin1"),
        "nothing of the key itself is compared",
      );
      assert.equal(compared.mock.callCount(), matching === 64 ? 1 : 0);
    }
    const [left, right] = compared.mock.calls[0]!.arguments as [Buffer, Buffer];
    assert.deepEqual([left.length, right.length], [32, 32]);
  } finally {
    mock.restoreAll();
    syncBuiltinESMExports();
  }
});
