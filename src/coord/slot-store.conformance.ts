import assert from "node:assert/strict";
import { test } from "node:test";
import type {
  HeldLease,
  LeaseWant,
  SlotAnswer,
  SlotRequest,
  WaitingClass,
} from "../decide/coordination/slot-request.ts";
import { Watched } from "../testing/wait-for.ts";
import type { SlotStore } from "./slot-store.ts";

/** What is the same for every store. Time passes by itself: a lease that must lapse is short, one that must not is long. */

const LONG_MS = 60_000;
/** Of what lapses in a test: longer than a busy machine needs for two steps. */
const TTL_MS = 2_000;
export const nobody: WaitingClass = { count: 0, ageMs: 0, goesFirst: false, endpoints: [] };

export const aRequest = (over: Partial<SlotRequest> = {}): SlotRequest => ({
  gateway: "a",
  boot: "",
  nonce: "first",
  reassert: false,
  renews: false,
  settled: false,
  notAfter: 0,
  ttlMs: LONG_MS,
  slots: 4,
  batchMax: 2,
  endpoints: [{ token: "e1", slots: 4 }],
  release: [],
  renew: [],
  wants: [],
  waiting: [nobody, nobody, nobody],
  ...over,
});

export const aWant = (id: string, over: Partial<LeaseWant> = {}): LeaseWant => ({
  id,
  rank: 0,
  goesFirst: false,
  endpoints: [0],
  ...over,
});

const held = (id: string, over: Partial<HeldLease> = {}): HeldLease => ({
  id,
  batch: false,
  endpoint: 0,
  movedFrom: -1,
  ...over,
});
const waits = (count: number, ageMs: number, endpoints: readonly number[] = [0]): WaitingClass => ({
  count,
  ageMs,
  goesFirst: false,
  endpoints,
});
const many = (count: number, name: string, over: Partial<LeaseWant> = {}): LeaseWant[] =>
  Array.from({ length: count }, (_, i) => aWant(`${name}${i}`, over));

export interface StoreUnderTest {
  readonly store: SlotStore;
  /** As after a restart without persistence. */
  empty(): Promise<void>;
  /** Lets this much time of the store pass. */
  pass(ms: number): Promise<void>;
}

type Done = Extract<SlotAnswer, { kind: "done" }>;

export function slotStoreSuite(name: string, open: () => StoreUnderTest): void {
  let upstreams = 0;
  const scenario = (title: string, run: (of: Scenario) => Promise<void>): void => {
    void test(`${name}: ${title}`, () => run(new Scenario(open(), `u${(upstreams += 1)}`)));
  };
  limits(scenario);
  time(scenario);
  order(scenario);
  emptied(scenario);
}

class Scenario {
  readonly under: StoreUnderTest;
  readonly upstream: string;

  constructor(under: StoreUnderTest, upstream: string) {
    this.under = under;
    this.upstream = upstream;
  }

  async ask(over: Partial<SlotRequest>): Promise<SlotAnswer> {
    const answer = await this.under.store.ask(this.upstream, aRequest(over), false);
    if (answer.kind === "failed" || answer.kind === "unknown") throw new Error(`no answer: ${answer.reason}`);
    return answer;
  }

  async done(over: Partial<SlotRequest>): Promise<Done> {
    const answer = await this.ask(over);
    assert.equal(answer.kind, "done");
    return answer as Done;
  }

  async granted(over: Partial<SlotRequest>): Promise<string[]> {
    return (await this.done(over)).granted.map(({ id }) => id);
  }
}

type Define = (title: string, run: (of: Scenario) => Promise<void>) => void;

function limits(scenario: Define): void {
  scenario(
    "slots are granted up to the limit over all gateways, and again when one is released [20.S2]",
    async (of) => {
      assert.equal((await of.granted({ wants: many(3, "a") })).length, 3);
      assert.deepEqual(await of.granted({ gateway: "b", wants: many(3, "b") }), ["b0"]);
      const last = await of.done({ gateway: "b", release: [{ id: "b0", endpoints: [0] }], wants: many(2, "c") });
      assert.deepEqual([last.granted.length, last.inUse], [1, 4]);
    },
  );

  scenario("batch gets no more than its part, and leaves the rest to people [20.S2]", async (of) => {
    const answer = await of.done({ wants: many(4, "b", { rank: 2 }) });
    assert.deepEqual([answer.granted.length, answer.batchInUse], [2, 2]);
    assert.equal((await of.granted({ gateway: "b", wants: many(2, "i") })).length, 2);
  });

  scenario("an endpoint gets no more than its own slots over all gateways, the next best one is taken", async (of) => {
    const endpoints = [
      { token: "e1", slots: 1 },
      { token: "e2", slots: 2 },
    ];
    const wants = many(2, "a", { endpoints: [0, 1] });
    const first = await of.done({ endpoints, wants });
    assert.deepEqual(
      first.granted.map(({ endpoint }) => endpoint),
      [0, 1],
    );
    const second = await of.done({ gateway: "b", endpoints, wants: many(2, "b", { endpoints: [0, 1] }) });
    assert.deepEqual(
      second.granted.map(({ endpoint }) => endpoint),
      [1],
    );
    assert.deepEqual(second.endpointsInUse, [1, 2]);
  });

  scenario("a call that goes elsewhere takes its lease along", async (of) => {
    const endpoints = [
      { token: "e1", slots: 1 },
      { token: "e2", slots: 1 },
    ];
    await of.done({ endpoints, wants: [aWant("a")] });
    const moved = await of.done({ endpoints, renew: [held("a", { endpoint: 1, movedFrom: 0 })] });
    assert.deepEqual([moved.inUse, ...moved.endpointsInUse], [1, 0, 1]);
  });

  scenario("a lease of batch that a person uses no longer counts as batch", async (of) => {
    await of.done({ wants: many(2, "b", { rank: 2 }) });
    const answer = await of.done({ renew: [held("b0")] });
    assert.deepEqual([answer.inUse, answer.batchInUse], [2, 1]);
  });

  scenario("releasing what was never granted, or twice, changes nothing [80.C7]", async (of) => {
    await of.done({ wants: [aWant("a")] });
    const release = [{ id: "never", endpoints: [0] }];
    assert.equal((await of.done({ release })).inUse, 1);
    assert.equal((await of.done({ release: [{ id: "a", endpoints: [0] }] })).inUse, 0);
    assert.equal((await of.done({ release: [{ id: "a", endpoints: [0] }] })).inUse, 0);
  });
}

function time(scenario: Define): void {
  scenario("what comes after its time does nothing [80.C7]", async (of) => {
    const { now } = await of.done({});
    assert.equal((await of.ask({ notAfter: now - 1, wants: [aWant("a")] })).kind, "late");
    assert.equal((await of.done({ notAfter: now + LONG_MS })).inUse, 0);
  });

  scenario("a gateway at which somebody always waits is counted by its renewals all the same [80.R4]", async (of) => {
    const share = { ttlMs: TTL_MS, gateway: "busy" };
    await of.done(share);
    await of.under.pass(TTL_MS / 2 + 50);
    await of.done({ ...share, renews: true, wants: [aWant("a")] });
    await of.under.pass(TTL_MS / 2 + 50);
    assert.equal((await of.done({ gateway: "calm" })).here, 2);
  });

  scenario(
    "a gateway that dies frees its slots when they lapse, one that renews keeps them [20.S2 80.C6]",
    async (of) => {
      await of.done({ ttlMs: TTL_MS, wants: many(2, "dead") });
      await of.done({ gateway: "b", ttlMs: TTL_MS, wants: many(2, "alive") });
      await of.done({ gateway: "b", renew: [held("alive0"), held("alive1")] });
      await of.under.pass(TTL_MS + 50);
      const answer = await of.done({ gateway: "c", wants: many(4, "c") });
      assert.deepEqual([answer.granted.length, answer.inUse], [2, 4]);
    },
  );

  scenario(
    "a lapsed lease is taken back while there is room, and is lost when there is none [20.S3 80.C6]",
    async (of) => {
      await of.done({ ttlMs: 200, wants: many(2, "frozen") });
      await of.under.pass(250);
      await of.done({ gateway: "b", wants: many(3, "b") });
      const answer = await of.done({ renew: [held("frozen0"), held("frozen1")] });
      assert.deepEqual([answer.lost, answer.inUse], [["frozen1"], 4]);
    },
  );
}

function order(scenario: Define): void {
  scenario("batch gets nothing that people at another gateway wait for, whoever came first [20.S5]", async (of) => {
    await of.done({ wants: many(4, "a") });
    await of.done({ gateway: "old-batch", waiting: [nobody, nobody, waits(2, 9_000)] });
    await of.done({ gateway: "people", waiting: [waits(1, 0), nobody, nobody] });
    const release = [{ id: "a0", endpoints: [0] }];
    await of.done({ release });
    const wants = [aWant("b", { rank: 2 })];
    assert.deepEqual(await of.granted({ gateway: "old-batch", wants, waiting: [nobody, nobody, waits(2, 9_000)] }), []);
    assert.deepEqual(await of.granted({ gateway: "people", wants: [aWant("p")] }), ["p"]);
  });

  scenario("batch whose share is due goes first all the same [20.S5]", async (of) => {
    await of.done({ gateway: "people", waiting: [waits(9, 5_000), nobody, nobody] });
    const wants = [aWant("b", { rank: 2, goesFirst: true })];
    assert.deepEqual(await of.granted({ gateway: "batch", wants }), ["b"]);
  });

  scenario(
    "of one class the gateway whose first has waited longest goes first, and the others take what is left [20.S4]",
    async (of) => {
      await of.done({ gateway: "old", waiting: [waits(2, 5_000), nobody, nobody] });
      const wants = many(4, "young");
      assert.deepEqual(await of.granted({ gateway: "young", wants, waiting: [waits(4, 10), nobody, nobody] }), [
        "young0",
        "young1",
      ]);
      assert.equal(
        (await of.granted({ gateway: "old", wants: many(3, "old"), waiting: [waits(3, 5_000), nobody, nobody] }))
          .length,
        2,
      );
    },
  );

  scenario("who waits for a full endpoint holds up nobody who can go to another", async (of) => {
    const endpoints = [
      { token: "full", slots: 1 },
      { token: "free", slots: 3 },
    ];
    await of.done({ endpoints, wants: [aWant("a")] });
    await of.done({ gateway: "b", endpoints, waiting: [waits(3, 9_000, [0]), nobody, nobody] });
    const wants = many(2, "c", { endpoints: [1] });
    assert.equal((await of.granted({ gateway: "c", endpoints, wants })).length, 2);
  });

  scenario("the last slot of an endpoint is left to the higher class that can go nowhere else", async (of) => {
    const endpoints = [
      { token: "only", slots: 1 },
      { token: "other", slots: 3 },
    ];
    await of.done({ gateway: "people", endpoints, waiting: [waits(1, 0, [0]), nobody, nobody] });
    const answer = await of.done({ gateway: "batch", endpoints, wants: [aWant("b", { rank: 2, endpoints: [0, 1] })] });
    assert.deepEqual(answer.granted, [{ id: "b", endpoint: 1 }]);
  });

  scenario("a gateway that says no more that it waits is waited for no longer than a moment", async (of) => {
    await of.done({ gateway: "gone", waiting: [waits(4, 9_000), nobody, nobody] });
    assert.deepEqual(await of.granted({ wants: [aWant("a")] }), []);
    await of.under.pass(2_600);
    assert.deepEqual(await of.granted({ wants: [aWant("a2")] }), ["a2"]);
  });

  scenario("a slot that comes free is told to the gateway whose turn it is, and to no other [20.S4]", async (of) => {
    const told: string[] = [];
    const seen = new Watched();
    const listening = ["people", "batch"].map((gateway) =>
      of.under.store.onFree(of.upstream, gateway, () => {
        told.push(gateway);
        seen.changed();
      }),
    );
    await of.under.pass(100); // Listening begins with a call of its own.
    await of.done({ wants: many(4, "a") });
    await of.done({ gateway: "batch", waiting: [nobody, nobody, waits(2, 9_000)] });
    await of.done({ gateway: "people", waiting: [waits(1, 0), nobody, nobody] });
    told.length = 0;
    await of.done({ release: [{ id: "a0", endpoints: [0] }] });
    await seen.until("a message", () => told.length > 0);
    assert.deepEqual(told, ["people"]);
    for (const one of listening) one[Symbol.dispose]();
  });

  scenario(
    "a gateway hears whether higher classes wait elsewhere, and at how many gateways its own does",
    async (of) => {
      await of.done({ gateway: "people", slots: 1, waiting: [waits(1, 0), nobody, nobody] });
      const answer = await of.done({ gateway: "batch", slots: 1, waiting: [nobody, nobody, waits(2, 9_000)] });
      assert.deepEqual(answer.crowded, [false, true, true]);
      assert.deepEqual(answer.waitingGateways, [1, 0, 1]);
    },
  );
}

function emptied(scenario: Define): void {
  scenario(
    "an emptied store does nothing for who knows it otherwise, until what runs is told again [80.R4]",
    async (of) => {
      const { boot } = await of.done({ wants: many(3, "a") });
      assert.equal(boot, "first");
      await of.under.empty();
      const wants = [aWant("b")];
      assert.deepEqual(await of.ask({ boot, nonce: "second", wants }).then(({ kind }) => kind), "reset");
      const again = await of.done({
        boot,
        nonce: "second",
        reassert: true,
        renew: [held("a0"), held("a1"), held("a2")],
      });
      assert.deepEqual([again.boot, again.inUse, again.lost], ["second", 3, []]);
      assert.ok(again.bootAgeMs < 60_000);
      const other = await of.ask({ gateway: "b", boot, nonce: "third" });
      assert.deepEqual([other.kind, other.kind === "reset" ? other.boot : ""], ["reset", "second"]);
      assert.equal((await of.done({ gateway: "b", boot: "", nonce: "third" })).boot, "second");
    },
  );

  scenario("what runs is counted whatever the limits say, when it is told as the truth [80.C10]", async (of) => {
    await of.done({ gateway: "b", wants: many(4, "b") });
    const truth = [held("a0"), held("a1", { batch: true }), held("a2")];
    const answer = await of.done({ reassert: true, renew: truth });
    assert.deepEqual([answer.inUse, answer.batchInUse, answer.lost], [7, 1, []]);
    assert.deepEqual(await of.granted({ wants: [aWant("c")] }), []);
  });

  scenario("an upstream that a settled store does not know is a new one", async (of) => {
    assert.ok((await of.done({ settled: true })).bootAgeMs > 60_000);
  });
}
