import assert from "node:assert/strict";
import { test } from "node:test";
import { NO_LIMITS } from "../../contract/gateway-config.ts";
import { NOTHING_STORED, type KeyAnswer, type KeyEntry } from "../../decide/limits/key-account.ts";
import { dayOf, monthOf, pieceOf } from "../../decide/limits/windows.ts";
import type { LimitAnswer, LimitRequest, LimitStore } from "./limit-store.ts";

/** What is the same for every store of counts. */

const LONG_MS = 60_000;

export const anEntry = (over: Partial<KeyEntry> = {}): KeyEntry => ({
  keyId: "k",
  boot: "",
  floors: NOTHING_STORED,
  pieces: [],
  days: [],
  months: [],
  release: [],
  renew: [],
  want: null,
  ...over,
});

export const aLimitRequest = (over: Partial<LimitRequest> = {}): LimitRequest => ({
  gateway: "a",
  seq: 0,
  notAfter: 0,
  ttlMs: LONG_MS,
  nonce: "first",
  entries: [anEntry()],
  ...over,
});

export interface LimitStoreUnderTest {
  readonly store: LimitStore;
  /** As after a restart without persistence. */
  empty(): Promise<void>;
  /** Lets this much time of the store pass. */
  pass(ms: number): Promise<void>;
}

class Scenario {
  readonly #of: LimitStoreUnderTest;
  readonly #keyId: string;
  readonly gateway: string;

  constructor(of: LimitStoreUnderTest, keyId: string) {
    this.#of = of;
    this.#keyId = keyId;
    this.gateway = `${keyId}-a`;
  }

  ask(request: Partial<LimitRequest>, entry: Partial<KeyEntry>): Promise<LimitAnswer> {
    const entries = [anEntry({ keyId: this.#keyId, ...entry })];
    const whole = aLimitRequest({ gateway: this.gateway, ...request, entries });
    return new Promise((resolve) => this.#of.store.ask(whole, resolve));
  }

  async do(request: Partial<LimitRequest>, entry: Partial<KeyEntry>): Promise<KeyAnswer & { readonly now: number }> {
    const answer = await this.ask(request, entry);
    assert.equal(answer.kind, "done");
    assert.ok(answer.kind === "done" && answer.keys[0] !== undefined);
    return { ...answer.keys[0], now: answer.now };
  }

  want(id: string, limits: Partial<typeof NO_LIMITS>, tokens = 0, micros = 0): ReturnType<Scenario["do"]> {
    return this.do({}, { want: { id, limits: { ...NO_LIMITS, ...limits }, amount: { tokens, micros } } });
  }

  empty = (): Promise<void> => this.#of.empty();
  pass = (ms: number): Promise<void> => this.#of.pass(ms);
}

type Declare = (title: string, run: (of: Scenario) => Promise<void>) => void;

export function limitStoreSuite(name: string, open: () => LimitStoreUnderTest): void {
  let keys = 0;
  const scenario: Declare = (title, run) => {
    void test(`${name}: ${title}`, () => run(new Scenario(open(), `k${(keys += 1)}`)));
  };
  counting(scenario);
  telling(scenario);
  losing(scenario);
}

function counting(scenario: Declare): void {
  scenario("of two hundred at once exactly as many are let in as fit under the limit [60.K3]", async (of) => {
    const all = await Promise.all(
      Array.from({ length: 200 }, (_, i) => of.want(`r${i}`, { requestsPerMinute: 30, tokensPerMinute: 1_000 }, 20)),
    );
    assert.equal(all.filter(({ granted }) => granted).length, 30);
  });

  const limits = {
    inFlightMax: [{ inFlightMax: 2 }, 0, 0],
    requestsPerMinute: [{ requestsPerMinute: 2 }, 0, 0],
    tokensPerMinute: [{ tokensPerMinute: 25 }, 10, 0],
    tokensPerDay: [{ tokensPerDay: 25 }, 10, 0],
    dayMicrosMax: [{ dayMicrosMax: 25 }, 0, 10],
    monthMicrosMax: [{ monthMicrosMax: 25 }, 0, 10],
  } as const;
  for (const [name, [limit, tokens, micros]] of Object.entries(limits))
    scenario(`${name} lets in what fits and no more, and what is refused counts for nothing [60.K3]`, async (of) => {
      const said: boolean[] = [];
      for (let i = 0; i < 4; i += 1) said.push((await of.want(`r${i}`, limit, tokens, micros)).granted);
      assert.deepEqual(said, [true, true, false, false]);
      const { use } = await of.do({}, {});
      assert.equal(use.inFlight, 2);
      assert.equal(
        use.pieces.reduce((sum, { requests }) => sum + requests, 0),
        2,
      );
      assert.deepEqual([use.dayTokens, use.dayMicros, use.monthMicros], [2 * tokens, 2 * micros, 2 * micros]);
    });

  scenario("what ends makes room for one more, and ending twice for none [60.K3]", async (of) => {
    for (const id of ["r0", "r1"]) await of.want(id, { inFlightMax: 2 });
    await of.do({}, { release: ["r0"] });
    await of.do({}, { release: ["r0"] });
    assert.equal((await of.want("r2", { inFlightMax: 2 })).granted, true);
    assert.equal((await of.want("r3", { inFlightMax: 2 })).granted, false);
  });

  scenario("what nobody renews is in flight no more, and what it was counted for stays [60.K3]", async (of) => {
    const want = { id: "dead", limits: { ...NO_LIMITS, inFlightMax: 1 }, amount: { tokens: 7, micros: 3 } };
    await of.do({ ttlMs: 20 }, { want });
    await of.pass(40);
    const { granted, use } = await of.want("r1", { inFlightMax: 1 });
    assert.deepEqual([granted, use.inFlight, use.dayTokens, use.monthMicros], [true, 1, 7, 3]);
  });

  scenario("what is renewed stays in flight", async (of) => {
    await of.do({ ttlMs: 50 }, { renew: ["r0"] });
    await of.do({ ttlMs: LONG_MS }, { renew: ["r0"] });
    await of.pass(70);
    assert.equal((await of.want("r1", { inFlightMax: 1 })).granted, false);
  });

  scenario("what comes after its time is not done", async (of) => {
    const { now } = await of.do({}, {});
    const want = { id: "r0", limits: NO_LIMITS, amount: { tokens: 5, micros: 0 } };
    assert.equal((await of.ask({ notAfter: now - 1_000 }, { want })).kind, "late");
    assert.equal((await of.do({}, {})).use.dayTokens, 0);
  });
}

function telling(scenario: Declare): void {
  const told = (now: number, requests: number, tokens: number, micros: number): Partial<KeyEntry> => ({
    pieces: [[pieceOf(now), requests, tokens]],
    days: [[dayOf(now), tokens, micros]],
    months: [[monthOf(now), micros]],
  });

  scenario("what is told again under one number is done once, and the next number is done [60.K3]", async (of) => {
    const { now } = await of.do({}, {});
    for (const seq of [1, 1, 1, 2, 1]) await of.do({ seq }, told(now, 1, 10, 4));
    const { use } = await of.do({}, {});
    assert.deepEqual([use.dayTokens, use.dayMicros, use.monthMicros], [20, 8, 8]);
    assert.deepEqual(
      use.pieces.map(({ requests, tokens }) => [requests, tokens]),
      [[2, 20]],
    );
  });

  scenario("what was not used is given back, and counts do not fall below nothing [60.K3]", async (of) => {
    const { now } = await of.want("r0", {}, 100, 50);
    await of.do({ seq: 1 }, told(now, 0, -70, -30));
    assert.equal((await of.do({}, {})).use.dayTokens, 30);
    await of.do({ seq: 2 }, told(now, 0, -70, -30));
    const { use } = await of.do({}, {});
    assert.deepEqual([use.dayTokens, use.dayMicros, use.monthMicros, use.pieces.at(-1)?.tokens], [0, 0, 0, 0]);
  });

  scenario("what is told of windows that are over, or far ahead, counts for nothing", async (of) => {
    const { now } = await of.do({}, {});
    const entry = {
      pieces: [
        [pieceOf(now) - 13, 1, 10],
        [pieceOf(now) + 13, 1, 10],
      ],
      days: [[dayOf(now) - 1, 10, 10]],
      months: [[monthOf(now) - 1, 10]],
    } as const;
    await of.do({ seq: 1 }, entry);
    assert.deepEqual((await of.do({}, {})).use, {
      inFlight: 0,
      pieces: [],
      dayTokens: 0,
      dayMicros: 0,
      monthMicros: 0,
    });
  });

  scenario("requests that run without the store having let them in are in flight once it is told", async (of) => {
    await of.do({ seq: 1 }, { renew: ["r0", "r1"] });
    assert.equal((await of.want("r2", { inFlightMax: 2 })).granted, false);
  });
}

function losing(scenario: Declare): void {
  scenario("an emptied store is told what a gateway last heard, and counts on from there [60.K3]", async (of) => {
    const first = await of.want("r0", {}, 40, 9);
    const heard = {
      boot: first.boot,
      floors: { day: dayOf(first.now), dayTokens: 40, dayMicros: 9, month: monthOf(first.now), monthMicros: 9 },
    };
    await of.empty();
    const emptied = await of.do({ nonce: "second" }, heard);
    assert.notEqual(emptied.boot, first.boot);
    assert.deepEqual([emptied.use.dayTokens, emptied.use.dayMicros, emptied.use.monthMicros], [40, 9, 9]);
    const want = { id: "r1", limits: { ...NO_LIMITS, tokensPerDay: 50 }, amount: { tokens: 20, micros: 0 } };
    assert.equal((await of.do({}, { ...heard, want })).granted, false);
  });

  scenario("what a gateway heard of the life that there is changes nothing", async (of) => {
    const { boot, now } = await of.want("r0", {}, 40);
    const floors = { day: dayOf(now), dayTokens: 900, dayMicros: 900, month: monthOf(now), monthMicros: 900 };
    assert.equal((await of.do({}, { boot, floors })).use.dayTokens, 40);
  });
}
