import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import fc from "fast-check";
import { Redis } from "ioredis";
import type { SlotRequest } from "../../decide/coordination/slot-request.ts";
import { systemClock } from "../../kernel/clock.ts";
import { linkPorts, openRedisLink } from "../../testing/redis-links.ts";
import { OwnRedis } from "../../testing/servers/redis-server.ts";
import { Watched } from "../../testing/wait-for.ts";
import { SlotModel } from "../local/slot-model.ts";
import { aRequest, slotStoreSuite } from "../slot-store.conformance.ts";
import type { RedisLink } from "./redis-link.ts";
import { RedisSlots } from "./redis-slots.ts";
import { RedisSubscriber } from "./subscriber.ts";

let server: OwnRedis;
let admin: Redis;
let link: RedisLink;
let subscriber: RedisSubscriber;

before(async () => {
  server = await OwnRedis.start();
  admin = new Redis(server.url);
  link = await openRedisLink(server.url, "t", 5_000);
  subscriber = new RedisSubscriber(link, linkPorts());
});

after(async () => {
  subscriber.close();
  link.close();
  admin.disconnect();
  await server.close();
});

slotStoreSuite("in Redis", () => ({
  store: new RedisSlots(link, subscriber),
  empty: async () => void (await admin.flushall()),
  pass: (ms) => systemClock.sleep(ms, new AbortController().signal),
}));

const places = fc.uniqueArray(fc.constantFrom(0, 1), { minLength: 1, maxLength: 2 });
const rank = fc.constantFrom(0 as const, 1 as const, 2 as const);
const leaseId = fc.constantFrom("l0", "l1", "l2", "l3", "l4", "l5", "l6", "l7");
const waitingClass = fc.record({
  count: fc.constantFrom(0, 0, 0, 1, 2, 5),
  ageMs: fc.constantFrom(0, 1_000, 2_000, 3_000),
  goesFirst: fc.boolean(),
  endpoints: places,
});
const anyRequest = fc.record({
  gateway: fc.constantFrom("a", "b", "c"),
  reassert: fc.constantFrom(false, false, false, true),
  renews: fc.boolean(),
  ttlMs: fc.constantFrom(5, 60_000),
  slots: fc.integer({ min: 1, max: 5 }),
  batchMax: fc.integer({ min: 1, max: 3 }),
  endpoints: fc.constantFrom(
    [
      { token: "e1", slots: 2 },
      { token: "e2", slots: 3 },
    ],
    [
      { token: "e2", slots: 1 },
      { token: "e3", slots: 9 },
    ],
  ),
  release: fc.array(fc.record({ id: leaseId, endpoints: places }), { maxLength: 3 }),
  renew: fc.array(
    fc.record({
      id: leaseId,
      batch: fc.boolean(),
      endpoint: fc.constantFrom(0, 1),
      movedFrom: fc.constantFrom(-1, -1, 0, 1),
    }),
    { maxLength: 2 },
  ),
  wants: fc.array(fc.record({ id: leaseId, rank, goesFirst: fc.boolean(), endpoints: places }), { maxLength: 4 }),
  waiting: fc.tuple(waitingClass, waitingClass, waitingClass),
});

test("keys are kept alive by renewals also where every request asks for more [20.S7]", async () => {
  const slots = new RedisSlots(link, subscriber);
  const endpoints = [{ token: "always", slots: 4 }];
  const wants = [{ id: "w0", rank: 0 as const, goesFirst: false, endpoints: [0] }];
  await slots.ask("always", aRequest({ endpoints, wants }), false);
  const keys = ["leases", "at:always"].map((name) => `{t:always}:${name}`);
  for (const key of keys) assert.equal(await admin.pexpire(key, 5_000), 1, key);
  const renew = [{ id: "w0", batch: false, endpoint: 0, movedFrom: -1 }];
  const more = [{ id: "w1", rank: 0 as const, goesFirst: false, endpoints: [0] }];
  await slots.ask("always", aRequest({ endpoints, renew, renews: true, wants: more }), false);
  for (const key of keys) assert.ok((await admin.pttl(key)) > 60_000, `${key} ends while it is used`);
});

test("the script does what the model does, after any sequence of requests and at any time [20.S1]", async () => {
  const messages: string[] = [];
  const heard = new Watched();
  const ear = admin.duplicate();
  ear.on("message", (_channel, message: string) => {
    messages.push(message);
    heard.changed();
  });
  const store = new RedisSlots(link, subscriber);
  let round = 0;
  await using _closing = { [Symbol.asyncDispose]: () => Promise.resolve(ear.disconnect()) };
  await fc.assert(
    fc.asyncProperty(fc.array(anyRequest, { minLength: 1, maxLength: 25 }), async (requests) => {
      const upstream = `model-${(round += 1)}`;
      await ear.subscribe(`{t:${upstream}}:free`);
      const model = new SlotModel();
      messages.length = 0;
      const told: string[] = [];
      for (const over of requests) {
        const request: SlotRequest = aRequest({ ...over, renew: over.renew.filter((l) => l.movedFrom !== l.endpoint) });
        const answer = await store.ask(upstream, request, false);
        if (answer.kind === "failed" || answer.kind === "unknown") throw new Error(answer.reason);
        const names: string[] = [];
        const expected = model.ask(request, answer.now, (gateway) => names.push(gateway));
        if (names.length > 0) told.push(names.join(","));
        assert.deepEqual(answer, expected);
      }
      await heard.until("the messages", () => messages.length >= told.length);
      assert.deepEqual(messages, told);
    }),
    { numRuns: 150 },
  );
});

test("leases that the server threw away by themselves count as an emptied store, not as free slots [20.S3 80.R4]", async () => {
  const store = new RedisSlots(link, subscriber);
  const wants = ["x", "y"].map((id) => ({ id, rank: 0 as const, goesFirst: false, endpoints: [0] }));
  const first = await store.ask("evicted", aRequest({ slots: 2, wants }), false);
  assert.ok(first.kind === "done" && first.granted.length === 2);
  await admin.del("{t:evicted}:leases");
  const more = aRequest({ boot: first.boot, nonce: "second", slots: 2, wants: [{ ...wants[0]!, id: "z" }] });
  assert.equal((await store.ask("evicted", more, false)).kind, "reset");
  const renew = ["x", "y"].map((id) => ({ id, batch: false, endpoint: 0, movedFrom: -1 }));
  const told = await store.ask("evicted", { ...more, reassert: true, renew }, false);
  assert.deepEqual(told.kind === "done" && [told.boot, told.inUse, told.granted], ["second", 2, []]);
  const other = aRequest({ gateway: "b", boot: first.boot, nonce: "third", slots: 2 });
  assert.deepEqual((await store.ask("evicted", other, false)).kind, "reset");
  // Given back in the ordinary way there is nothing left, and nothing is missing.
  const release = ["x", "y"].map((id) => ({ id, endpoints: [0] }));
  await store.ask("evicted", { ...more, boot: "second", wants: [], release }, false);
  const after = await store.ask("evicted", { ...more, boot: "second", wants }, false);
  assert.ok(after.kind === "done" && after.granted.length === 2);
});

test("every key has an end, stands under the prefix with one hash tag for each upstream, and a cluster takes the script [20.S7]", async () => {
  await admin.flushall();
  const store = new RedisSlots(link, subscriber);
  const waiting = { count: 1, ageMs: 0, goesFirst: false, endpoints: [0] };
  const request = aRequest({
    wants: [
      { id: "x", rank: 2, goesFirst: false, endpoints: [0] },
      { id: "y", rank: 0, goesFirst: false, endpoints: [0] },
    ],
    waiting: [{ ...waiting, count: 3 }, waiting, waiting],
    slots: 2,
  });
  await store.ask("u", request, false);
  const keys = await admin.keys("*");
  assert.ok(keys.length >= 5);
  for (const key of keys) {
    assert.ok(key.startsWith("{t:u}:"), key);
    assert.ok((await admin.pttl(key)) > 0, `${key} never ends`);
  }
});
