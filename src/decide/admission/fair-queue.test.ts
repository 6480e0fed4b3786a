import assert from "node:assert/strict";
import { test } from "node:test";
import { asMono } from "../../kernel/clock.ts";
import { FairQueue, type Ticket } from "./fair-queue.ts";

let order = 0;
function add(queue: FairQueue, key: string, over: Partial<Ticket> & { group?: string } = {}): Ticket {
  const { group = "", ...rest } = over;
  const ticket: Ticket = {
    at: -1,
    id: order,
    weight: 1,
    bytes: 1,
    deadline: undefined,
    arrivedAt: asMono(0),
    expiresAt: asMono(1),
    expiry: "queueTimeout",
    order: order++,
    nth: 0,
    rank: 0,
    lane: undefined,
    prev: undefined,
    next: undefined,
    told: Infinity,
    ...rest,
  };
  queue.add(ticket, key, group);
  return ticket;
}

function serve(queue: FairQueue, canTake: (group: string) => boolean = () => true): Ticket | undefined {
  const ticket = queue.next(canTake);
  if (ticket !== undefined) queue.serve(ticket);
  return ticket;
}

test("a key that asks again right after being served waits for the other's turn [10.A3]", () => {
  const queue = new FairQueue();
  for (let index = 0; index < 20; index += 1) add(queue, "hog");
  const polite: boolean[] = [];
  let own = add(queue, "polite");
  for (let turn = 0; turn < 10; turn += 1) {
    const served = serve(queue);
    polite.push(served === own);
    if (served === own) own = add(queue, "polite");
  }
  assert.equal(polite.filter(Boolean).length, 5);
});

test("a key without room saves up no turns for later", () => {
  const queue = new FairQueue();
  const blocked = Array.from({ length: 20 }, () => add(queue, "blocked", { group: "m" }));
  for (let index = 0; index < 60; index += 1) add(queue, "free");
  for (let turn = 0; turn < 40; turn += 1) serve(queue, (group) => group !== "m");
  const after = Array.from({ length: 10 }, () => serve(queue));
  assert.equal(after.filter((ticket) => ticket !== undefined && blocked.includes(ticket)).length, 5);
});

test("a key that returns after long takes turns from now on, not from where it was", () => {
  const queue = new FairQueue();
  for (let index = 0; index < 60; index += 1) add(queue, "hog");
  add(queue, "back", { weight: 0.1 }); // One service moves it ten turns ahead.
  for (let turn = 0; turn < 30; turn += 1) serve(queue);
  const back = Array.from({ length: 10 }, () => add(queue, "back"));
  const served = Array.from({ length: 10 }, () => serve(queue));
  assert.equal(served.filter((ticket) => ticket !== undefined && back.includes(ticket)).length, 5);
});

test("of one key's requests with room in different groups the oldest goes first", () => {
  for (const groups of [
    ["a", "b", "a"],
    ["b", "a", "a"],
  ]) {
    const queue = new FairQueue();
    add(queue, "other", { group: "a" });
    add(queue, "other", { group: "b" });
    serve(queue);
    serve(queue);
    add(queue, "keeps the groups alive", { group: "a", weight: 0.001 });
    add(queue, "keeps the groups alive", { group: "b", weight: 0.001 });
    serve(queue);
    const own = groups.map((group) => add(queue, "k", { group }));
    assert.deepEqual(
      Array.from({ length: 3 }, () => serve(queue)?.id),
      own.map(({ id }) => id),
    );
  }
});

test("keys that have gone are forgotten", () => {
  const queue = new FairQueue();
  for (let index = 0; index < 3_000; index += 1) add(queue, "stays");
  for (let index = 0; index < 1_000; index += 1) {
    add(queue, `once ${index}`);
    if (index % 3 === 0) queue.remove(add(queue, `leaves ${index}`));
    serve(queue);
    serve(queue);
    assert.ok(queue.flowCount <= 4, `${queue.flowCount}`);
  }
  while (serve(queue) !== undefined);
  assert.deepEqual([queue.flowCount, queue.waiting, queue.bytes], [0, 0, 0]);
});

test("sorted into groups anew, requests keep their order, their keys' turns and their loads [10.A3]", () => {
  const grouped = new FairQueue();
  const plain = new FairQueue();
  const shapes = Array.from({ length: 60 }, (_, index) => ({
    key: `k${index % 4}`,
    more: { weight: 1 + (index % 3), bytes: index },
  }));
  const start = order;
  for (const { key, more } of shapes) add(plain, key, { ...more, group: "b" });
  order = start;
  for (const { key, more } of shapes) add(grouped, key, { ...more, group: "a" });
  const served: (number | undefined)[] = [];
  const expected: (number | undefined)[] = [];
  for (let turn = 0; turn < 60; turn += 1) {
    if (turn % 7 === 0) grouped.regroup((id) => ["", "b", "c"][(id + turn) % 3] ?? "");
    assert.deepEqual([grouped.waiting, grouped.bytes], [plain.waiting, plain.bytes]);
    assert.deepEqual(grouped.heaviest()?.key, plain.heaviest()?.key);
    served.push(serve(grouped)?.id);
    expected.push(serve(plain)?.id);
  }
  assert.deepEqual(served, expected);
  assert.deepEqual([grouped.flowCount, grouped.waiting, serve(grouped)], [0, 0, undefined]);
});

test("sorted into groups anew, a request goes by the room of the new one [10.R1]", () => {
  const queue = new FairQueue();
  const first = add(queue, "k");
  const second = add(queue, "k", { group: "m" });
  queue.regroup((id) => (id === first.id ? "m" : ""));
  const seen: [string, number][] = [];
  queue.eachGroup((name, count) => seen.push([name, count]));
  assert.deepEqual(
    seen.toSorted(([a], [b]) => (a < b ? -1 : 1)),
    [
      ["", 1],
      ["m", 1],
    ],
  );
  assert.equal(
    serve(queue, (group) => group === ""),
    second,
  );
  assert.equal(
    serve(queue, (group) => group === ""),
    undefined,
  );
  assert.equal(
    serve(queue, (group) => group === "m"),
    first,
  );
});

test("requests that had a slot before go before all others of their key, the older first, and take no turn of another key [10.A2 10.R4]", () => {
  const queue = new FairQueue();
  const later = Array.from({ length: 3 }, (_, index) => add(queue, "k", { group: index % 2 === 0 ? "" : "m" }));
  const other = Array.from({ length: 3 }, () => add(queue, "other"));
  const [second, first] = [add(queue, "k", { order: -5, group: "m" }), add(queue, "k", { order: -9 })];
  assert.deepEqual(
    [first, second, ...later].map((ticket) => queue.position(ticket)).toSorted((a, b) => a - b),
    [1, 3, 5, 7, 8],
  );
  const served = Array.from({ length: 8 }, () => serve(queue));
  const own = [first, second, ...later];
  assert.deepEqual(
    served.filter((ticket) => ticket !== undefined && own.includes(ticket)),
    own,
  );
  assert.deepEqual(served.slice(0, 6), [first, other[0], second, other[1], later[0], other[2]]);
});
