import assert from "node:assert/strict";
import { test } from "node:test";
import { UsageMeter } from "../../coord/usage/usage-meter.ts";
import type { UsagePiece, UsageStore } from "../../coord/usage/usage-store.ts";
import { systemClock } from "../../kernel/clock.ts";
import { silentLogger } from "../../kernel/log.ts";
import { UsageReader } from "./usage-reader.ts";

const OPERATOR = { id: "op", role: "operator" } as const;

function readerOf(read: UsageStore["read"]): UsageReader {
  const store: UsageStore = {
    kind: "local",
    id: () => Promise.resolve("store"),
    add: () => Promise.resolve({ kind: "done" }),
    read,
    close: () => Promise.resolve(),
  };
  const meter = new UsageMeter({ clock: systemClock, log: silentLogger, store, gateway: "g", onWrite: () => {} });
  return new UsageReader({ clock: systemClock, store, meter });
}

test("a store that can't be read is said to be so", async () => {
  const reader = readerOf(() => Promise.reject(new Error("on fire")));
  await assert.rejects(reader.answer(new URLSearchParams(), OPERATOR), {
    code: "USAGE_UNAVAILABLE",
    message: /on fire/,
  });
});

test("an answer is made of a bounded number of rows, and more is refused with what to ask instead [60.K4]", async () => {
  let pieces = 0;
  const endless = (): Promise<UsagePiece> => {
    pieces += 1;
    const rows = Array.from({ length: 10_000 }, (_, i) => ({
      day: 20_000,
      keyId: `k${pieces}.${i}`,
      model: "m",
      counts: { "out:ok": 1 },
    }));
    return Promise.resolve({ rows, next: { day: 20_000, keyId: `k${pieces}`, model: "m" } });
  };
  for (const group of ["key", "day"])
    await assert.rejects(readerOf(endless).answer(new URLSearchParams({ group }), OPERATOR), {
      code: "BAD_REQUEST",
      message: /fewer days/,
    });
  assert.ok(pieces < 60, `${pieces} pieces`);
});

test("a client's key asks its store for nothing but its own [60.K4]", async () => {
  const asked: (string | null)[] = [];
  const reader = readerOf((ask) => {
    asked.push(ask.keyId);
    return Promise.resolve({ rows: [], next: null });
  });
  const mine = { id: "mine", role: "client" } as const;
  await reader.answer(new URLSearchParams(), mine);
  await assert.rejects(reader.answer(new URLSearchParams({ key_id: "other" }), mine), { code: "FORBIDDEN" });
  assert.deepEqual(asked, ["mine"]);
});
