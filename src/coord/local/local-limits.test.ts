import assert from "node:assert/strict";
import { test } from "node:test";
import { NO_LIMITS } from "../../contract/gateway-config.ts";
import { aLimitRequest, anEntry } from "../limits/limit-store.conformance.ts";
import type { LimitAnswer } from "../limits/limit-store.ts";
import type { DocStore } from "../overflow/doc-store.ts";
import { VirtualClock } from "../../testing/virtual-clock.ts";
import { limitStoreSuite } from "../limits/limit-store.conformance.ts";
import { LocalLimits } from "./local-limits.ts";

limitStoreSuite("in this process", () => {
  const clock = new VirtualClock();
  const store = new LocalLimits(clock, null);
  return {
    store,
    empty: () => {
      store.empty();
      return Promise.resolve();
    },
    pass: (ms) => clock.advance(ms),
  };
});

/** Keeps texts as a file does, and may be broken. */
class FakeDocs implements DocStore {
  readonly kind = "local";
  readonly texts = new Map<string, string>();
  broken = false;

  load(names: readonly string[]): ReturnType<DocStore["load"]> {
    if (this.broken) return Promise.reject(new Error("broken"));
    return Promise.resolve({ docs: names.map((name) => this.texts.get(name) ?? null), now: 0 });
  }

  commit({ writes }: Parameters<DocStore["commit"]>[0]): ReturnType<DocStore["commit"]> {
    if (this.broken) return Promise.reject(new Error("broken"));
    for (const { name, text } of writes) this.texts.set(name, text);
    return Promise.resolve("done");
  }

  open(): ReturnType<DocStore["open"]> {
    return Promise.resolve([]);
  }

  close(): Promise<void> {
    return Promise.resolve();
  }
}

const ask = (store: LocalLimits, micros: number): Promise<LimitAnswer> => {
  const limits = { ...NO_LIMITS, monthMicrosMax: 100 };
  const entries = [anEntry({ want: { id: "r", limits, amount: { tokens: 0, micros } } })];
  return new Promise((resolve) => store.ask(aLimitRequest({ entries }), resolve));
};
const granted = (answer: LimitAnswer): boolean | string =>
  answer.kind === "done" ? answer.keys[0]?.granted === true : answer.kind;

test("what a key has spent in the month is known after a restart [60.K3]", async () => {
  const clock = new VirtualClock();
  const docs = new FakeDocs();
  const before = new LocalLimits(clock, docs);
  assert.equal(granted(await ask(before, 70)), true);
  await clock.advance(150);
  // As after the process was killed: nothing was closed.
  const after = new LocalLimits(clock, docs);
  assert.equal(granted(await ask(after, 40)), false);
  assert.equal(granted(await ask(after, 30)), true);
  await after.close();
  assert.equal(granted(await ask(new LocalLimits(clock, docs), 1)), false);
});

test("while what was spent can't be read or written down, no money is let in [60.K3]", async () => {
  const clock = new VirtualClock();
  const docs = new FakeDocs();
  docs.broken = true;
  const store = new LocalLimits(clock, docs);
  assert.equal(granted(await ask(store, 1)), "failed");
  docs.broken = false;
  assert.equal(granted(await ask(store, 1)), true);
  docs.broken = true;
  await clock.advance(150);
  assert.equal(granted(await ask(store, 1)), "failed");
  docs.broken = false;
  await clock.advance(1_100);
  assert.equal(granted(await ask(store, 1)), true);
});
