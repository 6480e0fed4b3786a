import assert from "node:assert/strict";
import { test } from "node:test";
import type { AuditPage } from "../../contract/audit-event.ts";
import { anAuditEvent } from "../../testing/an-audit-event.ts";
import { VirtualClock } from "../../testing/virtual-clock.ts";
import type { AuditSink } from "./audit-sink.ts";
import type { SpooledAuditOptions } from "./spooled-audit.ts";

/** One store, empty at first, and sinks of several runs on it. */
export interface AuditWorld {
  open(over?: Partial<SpooledAuditOptions>): Promise<AuditSink>;
  close(): Promise<void>;
}

export const AUDIT_MAX = 100_000;
export const seqs = (page: AuditPage): number[] => page.records.map((record) => record.seq);
const ids = (page: AuditPage): string[] => page.records.map((record) => record.requestId);

export function recordMany(sink: AuditSink, from: number, to: number): void {
  for (let i = from; i <= to; i += 1) sink.record(anAuditEvent({ requestId: `req-${i}`, time: 1_767_225_600_000 + i }));
}

async function readAll(world: AuditWorld): Promise<AuditPage> {
  const sink = await world.open();
  const page = await sink.query({ limit: 100_000 });
  await sink.close();
  return page;
}

/** What every audit promises, wherever its events lie. */
export function auditSuite(where: string, makeWorld: () => Promise<AuditWorld>): void {
  const check = (title: string, body: (world: AuditWorld) => Promise<void>): void => {
    test(`${where}: ${title}`, async () => {
      const world = await makeWorld();
      try {
        await body(world);
      } finally {
        await world.close();
      }
    });
  };

  check("an event is read back with every fact it was recorded with, numbered from one [10.O1]", async (world) => {
    const sink = await world.open();
    const event = anAuditEvent({
      model: 'a"b\\c\n\u{1f600}',
      errorCode: "UPSTREAM_ERROR",
      outcome: "upstream_failed",
      overflow: "cloud",
      shed: true,
      cachedTokens: 3,
    });
    sink.record(event);
    const page = await sink.query({ limit: 10 });
    assert.deepEqual(page, { records: [{ ...event, seq: 1 }], lastSeq: 1, gaps: [], dropped: 0 });
    await sink.close();
  });

  check(
    "what must not happen without its record waits until it is stored, behind all before it [80.G18]",
    async (world) => {
      const sink = await world.open();
      recordMany(sink, 1, 700);
      await sink.commit(anAuditEvent({ requestId: "committed" }));
      assert.equal(sink.stats().pending, 0);
      await sink.close();
      assert.equal(ids(await readAll(world)).at(-1), "committed");
      await assert.rejects(sink.commit(anAuditEvent()), { code: "AUDIT_UNAVAILABLE" });
    },
  );

  check("a thousand events recorded just before the stop are all stored [10.O1]", async (world) => {
    const sink = await world.open();
    recordMany(sink, 1, 1_000);
    await sink.close();
    assert.deepEqual(sink.stats(), { recorded: 1_000, dropped: 0, pending: 0 });
    const page = await readAll(world);
    assert.equal(page.records.length, 1_000);
    assert.equal(new Set(ids(page)).size, 1_000);
    assert.deepEqual(page.gaps, []);
  });

  check("numbers go on by one over a clean restart", async (world) => {
    for (const [from, to] of [
      [1, 3],
      [4, 5],
    ] as const) {
      const sink = await world.open();
      recordMany(sink, from, to);
      await sink.close();
    }
    const page = await readAll(world);
    assert.deepEqual(seqs(page), [1, 2, 3, 4, 5]);
    assert.deepEqual(page.gaps, []);
  });

  check("queries narrow by every field and give the newest events, oldest first", async (world) => {
    const sink = await world.open();
    sink.record(anAuditEvent({ requestId: "a", keyId: "k1", model: "m1", upstream: "u1", time: 1_000 }));
    sink.record(
      anAuditEvent({ requestId: "b", keyId: "k2", model: "m1", upstream: "u2", time: 2_000, outcome: "refused" }),
    );
    sink.record(anAuditEvent({ requestId: "c", keyId: null, model: "m2", upstream: "u1", time: 3_000 }));
    const rows = [
      { query: { keyId: "k1" }, expect: ["a"] },
      { query: { model: "m1" }, expect: ["a", "b"] },
      { query: { upstream: "u1" }, expect: ["a", "c"] },
      { query: { outcome: "refused" }, expect: ["b"] },
      { query: { requestId: "c" }, expect: ["c"] },
      { query: { sinceMs: 2_000 }, expect: ["b", "c"] },
      { query: { untilMs: 2_000 }, expect: ["a"] },
      { query: { afterSeq: 1 }, expect: ["b", "c"] },
      { query: { afterSeq: 0, limit: 2 }, expect: ["a", "b"] },
      { query: { limit: 2 }, expect: ["b", "c"] },
      { query: { model: "m1", keyId: "none" }, expect: [] },
    ];
    for (const { query, expect } of rows)
      assert.deepEqual(ids(await sink.query({ limit: 10, ...query })), expect, JSON.stringify(query));
    await sink.close();
  });

  check(
    "beyond its bound the spool drops and counts, and readers see the gap in numbers and by a marker [80.G18]",
    async (world) => {
      const clock = new VirtualClock(); // No batch leaves before the clock moves.
      const sink = await world.open({ clock, limits: { eventsMax: 100, bytesMax: 1_000_000 } });
      recordMany(sink, 1, 150);
      assert.deepEqual(sink.stats(), { recorded: 150, dropped: 50, pending: 100 });
      await sink.query({ limit: 1 });
      recordMany(sink, 151, 160);
      const page = await sink.query({ limit: 1_000 });
      assert.deepEqual(seqs(page).slice(98, 102), [99, 100, 151, 152]);
      assert.equal(page.dropped, 50);
      assert.deepEqual(
        page.gaps.map(({ afterSeq, missing, why }) => ({ afterSeq, missing, why })),
        [{ afterSeq: 100, missing: 50, why: "dropped" }],
      );
      await sink.close();
    },
  );

  check("the spool is bounded by bytes too [80.G18]", async (world) => {
    const sink = await world.open({
      clock: new VirtualClock(),
      limits: { eventsMax: 1_000_000, bytesMax: 64 * 1024 },
    });
    for (let i = 0; i < 1_000; i += 1) sink.record(anAuditEvent({ model: "x".repeat(5_000) }));
    const { dropped, pending } = sink.stats();
    assert.ok(pending > 0 && pending * 10_000 <= 64 * 1024, `${pending} held`);
    assert.equal(dropped + pending, 1_000);
    await sink.close();
  });

  check("two gateways on one store give each number once", async (world) => {
    const [a, b] = [await world.open(), await world.open()];
    for (let round = 0; round < 5; round += 1) {
      recordMany(a, round * 10 + 1, round * 10 + 10);
      recordMany(b, 1_000 + round * 10, 1_000 + round * 10 + 9);
      await Promise.all([a.query({ limit: 1 }), b.query({ limit: 1 })]);
    }
    await Promise.all([a.close(), b.close()]);
    const page = await readAll(world);
    assert.deepEqual(
      seqs(page),
      Array.from({ length: 100 }, (_, i) => i + 1),
    );
    assert.equal(new Set(ids(page)).size, 100);
    assert.deepEqual(page.gaps, []);
  });
}
