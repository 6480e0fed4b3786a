import assert from "node:assert/strict";
import { test } from "node:test";
import { dayOf } from "../../decide/limits/windows.ts";
import { OTHERS, type UsageRow } from "../../decide/usage/usage-book.ts";
import { systemClock } from "../../kernel/clock.ts";
import type { UsageAsk, UsageBounds, UsagePlaceRead, UsageStore } from "./usage-store.ts";

/** What is the same for every store of what was used. */

export const today = (): number => dayOf(systemClock.wall());

export const aUsageRow = (change: Partial<UsageRow> = {}): UsageRow => ({
  day: today(),
  keyId: "k",
  model: "m",
  counts: { prompt: 1 },
  ...change,
});

/** All that there is, in the order of the store. */
export async function readAll(store: UsageStore, ask: Partial<UsageAsk> = {}): Promise<UsageRow[]> {
  const rows: UsageRow[] = [];
  let after: UsagePlaceRead | null = null;
  do {
    const piece = await store.read({ fromDay: today() - 500, toDay: today() + 500, keyId: null, ...ask }, after);
    rows.push(...piece.rows);
    after = piece.next;
  } while (after !== null);
  return rows;
}

export interface UsageStoreUnderTest {
  /** Empty, and kept for 100 days. */
  open(bounds?: UsageBounds): Promise<UsageStore>;
}

/** Within a key stores have an order of their own. */
const sorted = (rows: readonly UsageRow[]): UsageRow[] =>
  rows.toSorted((a, b) => a.day - b.day || (a.keyId + a.model < b.keyId + b.model ? -1 : 1));

export function usageStoreSuite(name: string, { open }: UsageStoreUnderTest): void {
  const scenario = (title: string, run: (store: UsageStore) => Promise<void>, bounds?: UsageBounds): void => {
    void test(`${name}: ${title}`, async () => {
      const store = await open(bounds);
      try {
        await run(store);
      } finally {
        await store.close();
      }
    });
  };
  const add = async (store: UsageStore, seq: number, rows: readonly UsageRow[], gateway = "a"): Promise<void> =>
    assert.deepEqual(await store.add(gateway, { seq, rows }), { kind: "done" });

  scenario("what several gateways tell is added up by day, key and model [60.K4]", async (store) => {
    const day = today();
    await add(store, 1, [
      aUsageRow({ counts: { "out:ok": 2, prompt: 10, "cost:USD": 7 } }),
      aUsageRow({ keyId: "l", model: "", counts: { "out:refused": 1 } }),
      aUsageRow({ day: day - 1, counts: { "out:ok": 1 } }),
    ]);
    await add(store, 1, [aUsageRow({ counts: { "out:ok": 1, prompt: 5, cached: 2 } })], "b");
    await add(
      store,
      2,
      [aUsageRow({ model: "m with blanks", counts: { "out:ok": 4, slotMicros: 9_007_199_254 } })],
      "b",
    );
    assert.deepEqual(
      sorted(await readAll(store)),
      sorted([
        aUsageRow({ day: day - 1, counts: { "out:ok": 1 } }),
        aUsageRow({ counts: { "out:ok": 3, prompt: 15, "cost:USD": 7, cached: 2 } }),
        aUsageRow({ model: "m with blanks", counts: { "out:ok": 4, slotMicros: 9_007_199_254 } }),
        aUsageRow({ keyId: "l", model: "", counts: { "out:refused": 1 } }),
      ]),
    );
  });

  scenario("what is told again under one number is added once, however late it comes [60.K4]", async (store) => {
    await add(store, 1, [aUsageRow()]);
    await add(store, 1, [aUsageRow()]);
    await add(store, 2, [aUsageRow()]);
    await add(store, 1, [aUsageRow()]);
    await add(store, 1, [aUsageRow()], "b");
    assert.deepEqual(await readAll(store), [aUsageRow({ counts: { prompt: 3 } })]);
  });

  scenario("a question is answered for its days and its key alone", async (store) => {
    const day = today();
    const rows = [0, 1, 2].flatMap((ago) => ["k", "l"].map((keyId) => aUsageRow({ day: day - ago, keyId })));
    await add(store, 1, rows);
    assert.equal((await readAll(store)).length, 6);
    assert.equal((await readAll(store, { fromDay: day - 1, toDay: day })).length, 4);
    assert.equal((await readAll(store, { keyId: "l" })).length, 3);
    assert.deepEqual(await readAll(store, { fromDay: day - 1, toDay: day - 1, keyId: "l" }), [
      aUsageRow({ day: day - 1, keyId: "l" }),
    ]);
  });

  scenario("many keys are read in pieces, each once", async (store) => {
    const keys = Array.from({ length: 1_100 }, (_, i) => `k${String(i).padStart(5, "0")}`);
    for (let from = 0, seq = 1; from < keys.length; from += 64, seq += 1)
      await add(
        store,
        seq,
        keys.slice(from, from + 64).map((keyId) => aUsageRow({ keyId })),
      );
    assert.deepEqual(
      (await readAll(store)).map(({ keyId }) => keyId),
      keys,
    );
  });

  scenario(
    "beyond the bounds keys and models are counted together, and nothing is lost [60.K4]",
    async (store) => {
      let seq = 0;
      const keys = ["a", "b", "c", "d", "a"];
      for (const keyId of keys) await add(store, (seq += 1), [aUsageRow({ keyId })]);
      const models = ["n", "o", "p", "m"];
      for (const model of models) await add(store, (seq += 1), [aUsageRow({ keyId: "a", model })]);
      const rows = await readAll(store);
      const sums = Object.fromEntries(rows.map(({ keyId, model, counts }) => [`${keyId} ${model}`, counts["prompt"]]));
      assert.deepEqual(sums, {
        "a m": 3,
        "a n": 1,
        "a o": 1,
        [`a ${OTHERS}`]: 1,
        "b m": 1,
        [`${OTHERS} m`]: 2,
      });
    },
    { keysPerDay: 2, modelsPerKey: 3 },
  );

  scenario("days are forgotten when their time is over [60.K4]", async (store) => {
    const day = today();
    await add(store, 1, [aUsageRow({ day: day - 102 }), aUsageRow({ day: day - 99 }), aUsageRow()]);
    // A store may forget with what is told next.
    await add(store, 2, [aUsageRow()]);
    const days = async (): Promise<number[]> => (await readAll(store)).map((row) => day - row.day);
    assert.deepEqual(
      (await days()).filter((ago) => ago < 100),
      [99, 0],
    );
  });
}
