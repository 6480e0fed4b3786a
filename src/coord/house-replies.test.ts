import assert from "node:assert/strict";
import { test } from "node:test";
import { VirtualClock } from "../testing/virtual-clock.ts";
import { HouseReplies } from "./house-replies.ts";
import { LocalReplies } from "./local/local-replies.ts";
import { MemoryShelf } from "./local/memory-shelf.ts";
import { CONFORMANCE_BYTES_MAX, replyStoreSuite } from "./reply-store.conformance.ts";
import type { BeginOutcome, FinishOutcome, ReplyStore } from "./reply-store.ts";

replyStoreSuite("through two houses", () => {
  const clock = new VirtualClock();
  const shared = new LocalReplies(new MemoryShelf(CONFORMANCE_BYTES_MAX, clock), clock);
  const [one, other] = [new HouseReplies(shared, clock), new HouseReplies(shared, clock)];
  return Promise.resolve({ one, other, pass: (ms) => clock.advance(ms), close: () => shared.close() });
});

const LEASE_MS = 15_000;
const TTL_MS = 86_400_000;
const claim = (owner: string, key = "k") => ({ key, lane: "", owner });
const aReply = (text: string) =>
  ({ kind: "answer", status: 200, headers: ["a", "b"], body: Buffer.from(text) }) as const;

/** A shared store that can be taken away, and counts what it is asked. */
class Fickle extends LocalReplies implements ReplyStore {
  away = false;
  asked = 0;

  override begin(...[claim, fingerprint, leaseMs]: Parameters<ReplyStore["begin"]>): Promise<BeginOutcome> {
    this.asked += 1;
    return this.away ? Promise.reject(new Error("away")) : super.begin(claim, fingerprint, leaseMs);
  }

  override finish(...args: Parameters<ReplyStore["finish"]>): Promise<FinishOutcome> {
    return this.away ? Promise.reject(new Error("away")) : super.finish(...args);
  }
}

function open() {
  const clock = new VirtualClock();
  const shared = new Fickle(new MemoryShelf(CONFORMANCE_BYTES_MAX, clock), clock);
  return { clock, shared, house: new HouseReplies(shared, clock), other: new HouseReplies(shared, clock) };
}

const kindsOf = (outcomes: readonly BeginOutcome[]): Record<string, number> => {
  const kinds: Record<string, number> = {};
  for (const { kind } of outcomes) kinds[kind] = (kinds[kind] ?? 0) + 1;
  return kinds;
};
const manyAsk = (house: HouseReplies, count: number, from = "c"): Promise<BeginOutcome[]> =>
  Promise.all(Array.from({ length: count }, (_, i) => house.begin(claim(`${from}${i}`), "f", LEASE_MS)));

for (const away of [false, true]) {
  test(`of 200 equal requests at once one works while the shared store is ${away ? "away" : "there"}, for one question [80.G16 20.I1]`, async () => {
    const { shared, house } = open();
    shared.away = away;
    const outcomes = await manyAsk(house, 200);
    assert.deepEqual(kindsOf(outcomes), { taken: 1, running: 199 });
    assert.equal(outcomes[0]?.kind === "taken" && outcomes[0].alone === true, away);
    assert.equal(shared.asked, 1);
    assert.deepEqual(kindsOf(await manyAsk(house, 50, "late")), { running: 50 });
    assert.equal((await house.begin(claim("x"), "another body", LEASE_MS)).kind, "mismatch");
    assert.equal(shared.asked, 1);
  });
}

test("what was answered while the shared store was away is given again here, to all who waited, and for a bounded time [20.I1 80.I9]", async () => {
  const { clock, shared, house } = open();
  shared.away = true;
  await manyAsk(house, 3);
  let told = 0;
  using _first = house.watch({ key: "k", lane: "" }, () => (told += 1));
  using _second = house.watch({ key: "k", lane: "" }, () => (told += 1));
  await assert.rejects(house.finish(claim("c0"), "f", aReply("once"), TTL_MS));
  assert.equal(told, 2);
  const found = await house.begin(claim("w"), "f", LEASE_MS);
  assert.equal(found.kind === "found" && String(found.reply.body), "once");
  assert.equal((await house.begin(claim("w"), "another body", LEASE_MS)).kind, "mismatch");
  await clock.advance(300_001);
  assert.deepEqual(await house.begin(claim("w"), "f", LEASE_MS), { kind: "taken", alone: true });
});

test("an answer begun alone counts on all gateways when the shared store is back at its end [20.I1]", async () => {
  const { shared, house, other } = open();
  shared.away = true;
  await house.begin(claim("a"), "f", LEASE_MS);
  shared.away = false;
  assert.equal(await house.finish(claim("a"), "f", aReply("once"), TTL_MS), "kept");
  assert.equal((await other.begin(claim("b"), "f", LEASE_MS)).kind, "found");
});

test("an answer begun alone takes nothing from a gateway that has the claim by then [20.I1]", async () => {
  const { shared, house, other } = open();
  shared.away = true;
  await house.begin(claim("a"), "f", LEASE_MS);
  shared.away = false;
  assert.equal((await other.begin(claim("b"), "f", LEASE_MS)).kind, "taken");
  await assert.rejects(house.finish(claim("a"), "f", aReply("here"), TTL_MS));
  assert.equal(await other.finish(claim("b"), "f", aReply("there"), TTL_MS), "kept");
});

test("when the one that works comes to nothing the next is told, also while the shared store is away [20.I1]", async () => {
  const { shared, house } = open();
  shared.away = true;
  await manyAsk(house, 3);
  let told = 0;
  using _first = house.watch({ key: "k", lane: "" }, () => (told += 1));
  await house.drop(claim("c0"));
  assert.equal(told, 1);
  assert.equal((await house.begin(claim("c1"), "f", LEASE_MS)).kind, "taken");
});
