import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { Reply } from "../contract/reply.ts";
import type { ClaimName } from "../decide/replay/claims.ts";
import { within } from "../testing/wait-for.ts";
import type { ReplyStore } from "./reply-store.ts";

export interface ReplyStoreWorld {
  /** Stores that share what they hold, as two gateways do; where nothing is shared, the same one twice. */
  readonly one: ReplyStore;
  readonly other: ReplyStore;
  /** Lets leases and times to live pass. */
  pass(ms: number): Promise<void>;
  readonly close: () => Promise<void>;
}

/** The bound of all answers together that every world is opened with. */
export const CONFORMANCE_BYTES_MAX = 1024 * 1024;
// Long enough that a test on real time is where it means to be, however busy the machine is.
const LEASE_MS = 5_000;
const TTL_MS = 3_000;

let names = 0;
const newKey = (): string => `key-${++names}`;
const claimOf = (key: string, owner: string, lane = ""): ClaimName => ({ key, lane, owner });
const aReply = (text: string, over: Partial<Reply> = {}): Reply => ({
  kind: "answer",
  status: 200,
  headers: ["content-type", "application/json", "X-Twice", "1", "x-twice", "2"],
  body: Buffer.from(text),
  ...over,
});

/** What every store of answers promises, whatever it is made of. */
export function replyStoreSuite(name: string, open: () => Promise<ReplyStoreWorld>): void {
  const check = (title: string, body: (world: ReplyStoreWorld) => Promise<void>): void => {
    test(`${name}: ${title}`, async () => {
      const world = await open();
      try {
        await body(world);
      } finally {
        await world.close();
      }
    });
  };

  check("one caller takes the claim, all others wait, and find the answer byte for byte [20.I1]", async (world) => {
    const key = newKey();
    const body = Buffer.from(Array.from({ length: 70_000 }, (_, i) => i % 256));
    assert.deepEqual(await world.one.begin(claimOf(key, "a"), "f", LEASE_MS), { kind: "taken" });
    assert.deepEqual(await world.one.begin(claimOf(key, "a"), "f", LEASE_MS), { kind: "taken" });
    assert.deepEqual(await world.other.begin(claimOf(key, "b"), "f", LEASE_MS), { kind: "running" });
    assert.equal(await world.one.finish(claimOf(key, "a"), "f", aReply("", { body }), TTL_MS), "kept");
    for (const store of [world.one, world.other]) {
      const found = await store.begin(claimOf(key, "c"), "f", LEASE_MS);
      assert.equal(found.kind, "found");
      assert.ok(found.kind === "found" && found.ageMs >= 0 && found.ageMs < 60_000);
      assert.deepEqual(found.kind === "found" && found.reply, aReply("", { body }));
      assert.deepEqual((await store.find(key, "f"))?.reply, aReply("", { body }));
    }
  });

  check("of many that ask at once one gets the claim", async (world) => {
    const key = newKey();
    const asked = await Promise.all(
      Array.from({ length: 60 }, (_, i) =>
        (i % 2 === 0 ? world.one : world.other).begin(claimOf(key, `o${i}`), "f", LEASE_MS),
      ),
    );
    assert.equal(asked.filter(({ kind }) => kind === "taken").length, 1);
    assert.equal(asked.filter(({ kind }) => kind === "running").length, 59);
  });

  check(
    "another fingerprint is a mismatch, while somebody works and after the answer [20.I1 80.G16]",
    async (world) => {
      const key = newKey();
      await world.one.begin(claimOf(key, "a"), "f", LEASE_MS);
      assert.deepEqual(await world.other.begin(claimOf(key, "b"), "g", LEASE_MS), { kind: "mismatch" });
      await world.one.finish(claimOf(key, "a"), "f", aReply("one"), TTL_MS);
      assert.deepEqual(await world.other.begin(claimOf(key, "b"), "g", LEASE_MS), { kind: "mismatch" });
      assert.equal(await world.other.find(key, "g"), null);
    },
  );

  check("keys and lanes are apart, and an answer serves all lanes [20.I2]", async (world) => {
    const key = newKey();
    assert.equal((await world.one.begin(claimOf(key, "a", "batch"), "f", LEASE_MS)).kind, "taken");
    assert.equal((await world.other.begin(claimOf(key, "b", "interactive"), "f", LEASE_MS)).kind, "taken");
    assert.equal((await world.other.begin(claimOf(newKey(), "c", "batch"), "f", LEASE_MS)).kind, "taken");
    await world.one.finish(claimOf(key, "a", "batch"), "f", aReply("x"), TTL_MS);
    assert.equal((await world.other.begin(claimOf(key, "d", "interactive"), "f", LEASE_MS)).kind, "found");
    assert.equal((await world.other.begin(claimOf(key, "e", "system"), "f", LEASE_MS)).kind, "found");
  });

  check("an answer is gone when its time has passed", async (world) => {
    const key = newKey();
    await world.one.begin(claimOf(key, "a"), "f", LEASE_MS);
    await world.one.finish(claimOf(key, "a"), "f", aReply("x"), TTL_MS);
    await world.pass(TTL_MS / 10);
    assert.notEqual(await world.one.find(key, "f"), null);
    await world.pass(TTL_MS);
    assert.equal(await world.one.find(key, "f"), null);
    assert.deepEqual(await world.other.begin(claimOf(key, "b"), "g", LEASE_MS), { kind: "taken" });
  });

  check(
    "a claim that nobody renews ends with its lease, and its owner can neither renew nor finish it",
    async (world) => {
      const key = newKey();
      await world.one.begin(claimOf(key, "a"), "f", LEASE_MS);
      await world.pass(LEASE_MS / 2 + 50);
      assert.deepEqual(await world.one.renew([claimOf(key, "a"), claimOf(key, "never")], LEASE_MS), [true, false]);
      await world.pass(LEASE_MS / 2 + 50);
      assert.equal((await world.other.begin(claimOf(key, "b"), "f", LEASE_MS)).kind, "running");
      await world.pass(LEASE_MS / 2);
      assert.equal((await world.other.begin(claimOf(key, "b"), "f", LEASE_MS)).kind, "taken");
      assert.deepEqual(await world.one.renew([claimOf(key, "a")], LEASE_MS), [false]);
      assert.equal(await world.one.finish(claimOf(key, "a"), "f", aReply("late"), TTL_MS), "lost");
      await world.one.drop(claimOf(key, "a"));
      assert.equal((await world.one.begin(claimOf(key, "c"), "f", LEASE_MS)).kind, "running");
      assert.equal(await world.other.finish(claimOf(key, "b"), "f", aReply("second"), TTL_MS), "kept");
      assert.equal((await world.one.find(key, "f"))?.reply.body.toString(), "second");
    },
  );

  check("those who wait are told: all of an answer, one of a claim that was dropped [20.I1]", async (world) => {
    const key = newKey();
    await world.one.begin(claimOf(key, "a"), "f", LEASE_MS);
    const told: string[] = [];
    const first = Promise.withResolvers<void>();
    using _one = world.other.watch({ key, lane: "" }, () => (told.push("1"), first.resolve()));
    const second = Promise.withResolvers<void>();
    using two = world.other.watch({ key, lane: "" }, () => (told.push("2"), second.resolve()));
    assert.equal((await world.other.begin(claimOf(key, "w"), "f", LEASE_MS)).kind, "running");
    await world.one.drop(claimOf(key, "a"));
    await within("the first that waits to be told", first.promise, 10_000);
    assert.deepEqual(told, ["1"]);
    assert.equal((await world.other.begin(claimOf(key, "w"), "f", LEASE_MS)).kind, "taken");
    assert.equal((await world.one.begin(claimOf(key, "v"), "f", LEASE_MS)).kind, "running");
    await world.other.finish(claimOf(key, "w"), "f", aReply("x"), TTL_MS);
    await within("the second to be told", second.promise, 10_000);
    two[Symbol.dispose]();
  });

  check("an answer that is kept without a claim takes the place of an older one", async (world) => {
    const key = newKey();
    assert.equal(await world.one.keep(key, "f", aReply("1"), TTL_MS), "kept");
    assert.equal(await world.other.keep(key, "f", aReply("2", { kind: "refusal", status: 422 }), TTL_MS), "kept");
    assert.deepEqual((await world.one.find(key, "f"))?.reply, aReply("2", { kind: "refusal", status: 422 }));
  });

  check("answers together stay within the bound, and the oldest leave first [80.I9]", async (world) => {
    const part = Buffer.alloc(100 * 1024);
    const keys = Array.from({ length: 30 }, newKey);
    for (const key of keys) assert.equal(await world.one.keep(key, "f", aReply("", { body: part }), 60_000), "kept");
    const found = await Promise.all(keys.map((key) => world.other.find(key, "f")));
    const kept = found.filter((one) => one !== null).length;
    assert.ok(kept >= 8 && kept <= 10, `${kept} kept`);
    assert.equal(found[0], null);
    assert.notEqual(found.at(-1), null);
    assert.ok(world.one.stats().evicted >= 20);
    const large = aReply("", { body: Buffer.alloc(CONFORMANCE_BYTES_MAX) });
    assert.equal(await world.one.keep(newKey(), "f", large, 60_000), "tooLarge");
    assert.notEqual(await world.one.find(keys.at(-1) ?? "", "f"), null);
    const key = newKey();
    await world.one.begin(claimOf(key, "a"), "f", LEASE_MS);
    assert.equal(await world.one.finish(claimOf(key, "a"), "f", large, 60_000), "tooLarge");
    assert.equal((await world.one.begin(claimOf(key, "b"), "f", LEASE_MS)).kind, "taken");
  });

  check("any bytes come back as they were, and headers in their order", async (world) => {
    await fc.assert(
      fc.asyncProperty(
        fc.uint8Array({ maxLength: 300 }),
        fc.array(fc.string({ unit: "binary-ascii" }), { maxLength: 6 }),
        fc.string(),
        async (bytes, headers, fingerprint) => {
          const key = newKey();
          const reply = aReply("", { body: Buffer.from(bytes), headers });
          await world.one.keep(key, fingerprint, reply, TTL_MS);
          assert.deepEqual((await world.other.find(key, fingerprint))?.reply, reply);
        },
      ),
      { numRuns: 50 },
    );
  });
}
