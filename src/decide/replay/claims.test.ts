import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { asMono } from "../../kernel/clock.ts";
import { ClaimTable } from "./claims.ts";

test("a lane of a key has one owner at a time, after any sequence of takes, renewals, ends and time [20.I1]", () => {
  const step = fc.record({
    act: fc.constantFrom("take", "renew", "end"),
    key: fc.constantFrom("k", "l"),
    lane: fc.constantFrom("", "batch"),
    owner: fc.constantFrom("a", "b", "c"),
    fingerprint: fc.constantFrom("f", "g"),
    passMs: fc.nat(60),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 80 }), (steps) => {
      const table = new ClaimTable();
      const model = new Map<string, { owner: string; fingerprint: string; until: number }>();
      let now = asMono(0);
      for (const { act, key, lane, owner, fingerprint, passMs } of steps) {
        now = asMono(now + passMs);
        const place = `${key}|${lane}`;
        const held = model.get(place);
        const live = held !== undefined && now < held.until ? held : undefined;
        const name = { key, lane, owner };
        if (act === "take") {
          const expected =
            live === undefined || live.owner === owner
              ? live !== undefined && live.fingerprint !== fingerprint
                ? "mismatch"
                : "taken"
              : live.fingerprint === fingerprint
                ? "running"
                : "mismatch";
          assert.equal(table.take(name, fingerprint, now, 100), expected);
          if (expected === "taken") model.set(place, { owner, fingerprint, until: now + 100 });
        } else if (act === "renew") {
          assert.equal(table.renew(name, now, 100), live?.owner === owner);
          if (live?.owner === owner) live.until = now + 100;
        } else {
          assert.equal(table.end(name, now), live?.owner === owner);
          if (live?.owner === owner) model.delete(place);
        }
      }
    }),
    { numRuns: 2_000 },
  );
});
