import assert from "node:assert/strict";
import { test } from "node:test";
import type { GateWaiting } from "../admission/gate.ts";
import { asMono } from "../../kernel/clock.ts";
import type { BookView } from "./book-view.ts";
import { LeaseBook } from "./lease-book.ts";
import type { SlotAnswer, SlotRequest } from "./slot-request.ts";

const at = asMono;
const E1 = { token: "e1", slots: 4 };
const LIMITS = { slots: 4, batchMax: 2 };
const nobody: GateWaiting = { waiting: 0, count: 0, groups: [], since: at(0), goesFirst: false };
const some = (count: number): GateWaiting => ({ ...nobody, waiting: count, count, groups: [{ name: "", count }] });

function aView(
  over: Partial<BookView> & { readonly up?: boolean; readonly people?: number; readonly batch?: number } = {},
): BookView {
  const { up = true, people = 0, batch = 0, ...rest } = over;
  return {
    limits: LIMITS,
    waiting: [some(people), nobody, some(batch)],
    slotsOf: () => 4,
    plan: (_group, count) => Array.from({ length: count }, () => ["e1"]),
    store: { up, stepMs: 100, gateways: 2, settled: true },
    ...rest,
  };
}

const done = (over: Partial<Extract<SlotAnswer, { kind: "done" }>> = {}): SlotAnswer => ({
  kind: "done",
  now: 1_000_000,
  boot: "b",
  bootAgeMs: 9e9,
  inUse: 0,
  batchInUse: 0,
  endpointsInUse: [0],
  granted: [],
  lost: [],
  crowded: [false, false, false],
  waitingGateways: [0, 0, 0],
  here: 1,
  ...over,
});

const asked = (request: SlotRequest | null): SlotRequest => {
  if (request === null) throw new Error("nothing was asked");
  return request;
};

/** A book that has joined. */
function joined(): LeaseBook {
  const book = new LeaseBook({ gateway: "g", ttlMs: 15_000 });
  asked(book.compose(aView(), at(0)));
  book.answered(done(), aView(), at(1));
  assert.equal(book.mode, "shared");
  return book;
}

/** Asks for what waits and is granted all of it. */
function grant(book: LeaseBook, view: BookView, now: number): SlotRequest {
  const request = asked(book.compose(view, at(now)));
  book.answered(
    done({ granted: request.wants.map(({ id }) => ({ id, endpoint: 0 })), inUse: request.wants.length }),
    view,
    at(now),
  );
  return request;
}

test("before the store was heard of nothing is permitted, and the first request asks for nothing", () => {
  const book = new LeaseBook({ gateway: "g", ttlMs: 15_000 });
  assert.equal(book.permits(0, [E1], LIMITS, at(0)), false);
  const request = asked(book.compose(aView({ people: 3 }), at(0)));
  assert.deepEqual([request.reassert, request.wants], [true, []]);
});

test("a call takes a lease that was granted, and its end gives it back until that is acknowledged [20.S2]", () => {
  const book = joined();
  const request = grant(book, aView({ people: 1 }), 10);
  assert.equal(request.wants.length, 1);
  assert.equal(book.permits(0, [E1], LIMITS, at(10)), true);
  assert.equal(book.permits(2, [E1], LIMITS, at(10)), false, "a person's lease is none for batch");
  book.take(1, 0, "e1", at(10));
  assert.equal(book.permits(0, [E1], LIMITS, at(10)), false);
  assert.equal(book.compose(aView(), at(11)), null, "nothing to ask while it runs");
  book.end(1, at(20));
  const back = asked(book.compose(aView(), at(20)));
  assert.deepEqual(
    back.release.map(({ id }) => id),
    request.wants.map(({ id }) => id),
  );
  book.unanswered("timeout", aView(), at(120));
  assert.equal(book.unreleased, 1);
  book.renew();
  book.answered(done({ now: 1 }), aView(), ask(book, 200));
  assert.equal(book.unreleased, 0);
});

function ask(book: LeaseBook, now: number): ReturnType<typeof at> {
  asked(book.compose(aView(), at(now)));
  return at(now);
}

test("what was asked for and not answered is never used, is released, and lapses by itself in the end [80.C7]", () => {
  const book = joined();
  const lost = asked(book.compose(aView({ people: 2 }), at(10)));
  assert.equal(lost.notAfter, 1_000_000 + 9 + 100, "the store's own time, and no later");
  const effects = book.unanswered("timeout", aView({ people: 2 }), at(110));
  assert.equal(effects.mayAdmit, true);
  assert.equal(book.mode, "open");
  book.renew();
  const back = asked(book.compose(aView(), at(200)));
  assert.deepEqual([back.reassert, back.release.map(({ id }) => id)], [true, lost.wants.map(({ id }) => id)]);
  book.unanswered("timeout", aView(), at(300));
  book.renew();
  assert.deepEqual(
    asked(book.compose(aView(), at(20_000))).release,
    [],
    "after the lease's time there is nothing to release",
  );
});

test("while the store is away calls go up to the share, and what they hold is told before anything is asked [80.C10]", () => {
  const book = joined();
  book.fail("gone", aView({ up: false }), at(100));
  assert.equal(book.permits(0, [E1], LIMITS, at(100)), true);
  book.take(1, 0, "e1", at(100));
  assert.equal(book.permits(0, [E1], LIMITS, at(100)), false, "of four slots, among two gateways, one at first");
  assert.equal(book.permits(0, [E1], LIMITS, at(90_000)), true, "and two in the end");
  assert.equal(book.compose(aView({ up: false, people: 5 }), at(100)), null);
  book.renew();
  const truth = asked(book.compose(aView({ people: 5 }), at(2_000)));
  assert.deepEqual([truth.reassert, truth.renew.length, truth.wants.length], [true, 1, 0]);
  book.answered(done({ inUse: 1 }), aView({ people: 5 }), at(2_001));
  assert.equal(book.mode, "shared");
  const capped = asked(book.compose(aView({ people: 5 }), at(2_002)));
  assert.deepEqual(capped.wants, [], "the others may not have told theirs yet");
  book.answered(done({ inUse: 1 }), aView({ people: 5 }), at(2_003));
  book.retryDenied();
  assert.equal(asked(book.compose(aView({ people: 2 }), at(5_100))).wants.length, 2);
});

test("a store that was emptied is told what runs first, and no more is taken than the share until as many gateways are there [80.R4]", () => {
  const book = joined();
  grant(book, aView({ people: 2 }), 10);
  for (const call of [1, 2]) book.take(call, 0, "e1", at(10));
  book.renew();
  asked(book.compose(aView(), at(20)));
  book.answered(done({ inUse: 4, here: 2 }), aView(), at(21));
  book.renew();
  asked(book.compose(aView(), at(5_000)));
  book.answered({ kind: "reset", now: 2, boot: "" }, aView(), at(5_001));
  const truth = asked(book.compose(aView({ people: 3 }), at(5_002)));
  assert.deepEqual([truth.reassert, truth.settled, truth.renew.length, truth.wants.length], [true, false, 2, 0]);
  const effects = book.answered(done({ boot: "c", bootAgeMs: 0, inUse: 2, here: 1 }), aView({ people: 3 }), at(5_003));
  assert.equal(effects.emptied, true);
  assert.deepEqual(asked(book.compose(aView({ people: 3 }), at(5_004))).wants, []);
  book.answered(done({ boot: "c", inUse: 4, here: 2 }), aView({ people: 3 }), at(5_005));
  assert.equal(asked(book.compose(aView({ people: 3 }), at(5_006))).wants.length, 3, "all are there again");
});

test("after a store was emptied all who share are waited for, also those that were away when it last counted [80.R4]", () => {
  const view = aView({ people: 3, store: { up: true, stepMs: 100, gateways: 3, settled: true } });
  const book = joined();
  grant(book, aView({ people: 1 }), 10);
  book.take(1, 0, "e1", at(10));
  book.renew();
  asked(book.compose(aView(), at(5_000)));
  book.answered(done({ inUse: 4, here: 1 }), view, at(5_001));
  book.renew();
  asked(book.compose(aView(), at(6_000)));
  book.answered({ kind: "reset", now: 2, boot: "" }, view, at(6_001));
  asked(book.compose(view, at(6_002)));
  book.answered(done({ boot: "c", bootAgeMs: 0, inUse: 1, here: 1 }), view, at(6_003));
  for (const here of [1, 2]) {
    book.renew();
    assert.deepEqual(asked(book.compose(view, at(6_010))).wants, [], "what the others hold is not known yet");
    book.answered(done({ boot: "c", inUse: 1, here }), view, at(6_011));
  }
  book.renew();
  asked(book.compose(view, at(6_020)));
  book.answered(done({ boot: "c", inUse: 1, here: 3 }), view, at(6_021));
  assert.equal(asked(book.compose(view, at(6_022))).wants.length, 3);
});

test("a renewal that is due is said with what is asked for besides, once", () => {
  const book = joined();
  const view = aView({ people: 2 });
  book.renew();
  assert.equal(grant(book, view, 10).renews, true);
  book.take(1, 0, "e1", at(10));
  book.retryDenied();
  const next = asked(book.compose(aView({ people: 3 }), at(11)));
  assert.deepEqual([next.renews, next.wants.length], [false, 3]);
});

test("a lease that was lost is counted once, offered again, and needs no release", () => {
  const book = joined();
  grant(book, aView({ people: 1 }), 10);
  book.take(1, 0, "e1", at(10));
  for (const [now, expected] of [
    [5_000, 1],
    [10_000, 0],
  ] as const) {
    book.renew();
    const [lease] = asked(book.compose(aView(), at(now))).renew;
    assert.equal(book.answered(done({ lost: [lease?.id ?? ""] }), aView(), at(now)).lost, expected);
    assert.equal(book.lostLeases, 1);
  }
  book.end(1, at(11_000));
  assert.equal(book.unreleased, 0);
});

test("those who were denied are not asked for again until something is told free, or it is time, but one of another class is", () => {
  const book = joined();
  asked(book.compose(aView({ batch: 2 }), at(10)));
  book.answered(done({ inUse: 4 }), aView({ batch: 2 }), at(11));
  assert.equal(book.compose(aView({ batch: 3 }), at(12)), null);
  assert.equal(asked(book.compose(aView({ batch: 3, people: 1 }), at(13))).wants.length, 4);
  book.answered(done({ inUse: 4 }), aView({ batch: 3, people: 1 }), at(14));
  assert.equal(book.compose(aView({ batch: 3, people: 2 }), at(15)), null);
  book.retryDenied();
  assert.notEqual(book.compose(aView({ batch: 3, people: 2 }), at(16)), null);
});

test("a call that goes elsewhere is told to the store with where it was, and released on both", () => {
  const book = joined();
  grant(book, aView({ people: 1 }), 10);
  book.take(1, 0, "e1", at(10));
  book.move(1, "e2");
  const moved = asked(book.compose(aView(), at(11)));
  assert.deepEqual(
    moved.renew.map(({ endpoint, movedFrom }) => [moved.endpoints[endpoint]?.token, moved.endpoints[movedFrom]?.token]),
    [["e2", "e1"]],
  );
  book.end(1, at(12));
  book.unanswered("timeout", aView(), at(111));
  book.renew();
  const back = asked(book.compose(aView(), at(112)));
  assert.deepEqual(
    back.release[0]?.endpoints.map((place) => back.endpoints[place]?.token),
    ["e2", "e1"],
  );
});

test("answers that come too late three times in a row are as good as none, fewer are a clock that was set", () => {
  const book = joined();
  for (const [n, mode] of [
    [1, "shared"],
    [2, "shared"],
    [3, "open"],
  ] as const) {
    asked(book.compose(aView({ people: 1 }), at(n * 10)));
    book.answered({ kind: "late", now: 5 }, aView({ people: 1 }), at(n * 10));
    assert.equal(book.mode, mode);
  }
});
