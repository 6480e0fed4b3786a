import assert from "node:assert/strict";
import { test } from "node:test";
import { asMono, systemClock, type Clock, type MonoMs } from "../../src/kernel/clock.ts";
import { anEngine } from "./support/an-engine.ts";
import { aTask, call, errorCodeOf } from "./support/calls.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { startTestGateway } from "./support/test-gateway.ts";

/** Runs at `speed` times the real one, while its timers come when they come: to its reader every timer is late. */
class FastClock implements Clock {
  speed = 1;
  #mono = systemClock.mono();
  #real = systemClock.mono();

  mono(): MonoMs {
    const real = systemClock.mono();
    this.#mono = asMono(this.#mono + (real - this.#real) * this.speed);
    this.#real = real;
    return this.#mono;
  }
  wall = systemClock.wall;
  sleep = systemClock.sleep;
  after = systemClock.after;
}

test(
  "a gateway whose event loop falls behind refuses batch with Retry-After before it reads a body, serves people on, and takes batch again when it has caught up [80.C24 80.C19]",
  { timeout: 240_000 },
  async () => {
    await using engine = await anEngine({ slots: 8 });
    const clock = new FastClock();
    const gateway = await startTestGateway({
      clock,
      upstreams: [
        { id: "u", models: ["m"], engine: "vllm", slots: 8, health: "passive", endpoints: [{ url: engine.url }] },
      ],
    });
    try {
      const ask = (requestClass: "interactive" | "batch") =>
        call(gateway, { class: requestClass, body: aTask({}, {}, requestClass) });
      assert.equal((await ask("batch")).status, 200);
      clock.speed = 4;
      const refused = await eventually(
        "batch is refused",
        () => ask("batch"),
        ({ status }) => status === 429,
      );
      assert.equal(errorCodeOf(refused.text), "QUEUE_FULL");
      assert.match(String(refused.headers["retry-after"]), /^[1-9]\d*$/);
      const before = engine.ledger().byTag["batch"]?.opened;
      assert.equal((await ask("batch")).status, 429);
      assert.equal((await ask("interactive")).status, 200);
      assert.equal(engine.ledger().byTag["batch"]?.opened, before);

      clock.speed = 1;
      await eventually(
        "batch is taken again",
        () => ask("batch"),
        ({ status }) => status === 200,
      );
      const { records } = await gateway.audit("?limit=1000");
      const shed = records.filter((record) => record.shed);
      assert.ok(shed.length >= 2);
      assert.ok(
        shed.every((record) => record.class === "batch" && record.errorCode === "QUEUE_FULL" && record.bytesIn === 0),
      );
      assert.ok(((await gateway.metric('yardmaster_refusals_total{upstream="",code="QUEUE_FULL"}')) ?? 0) >= 2);
    } finally {
      await gateway.stop();
    }
  },
);
