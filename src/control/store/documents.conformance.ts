import assert from "node:assert/strict";
import fc from "fast-check";
import { CLUSTER_DOC_ID, NO_CLUSTER_DOC } from "../../contract/fleet.ts";
import { aNodeDoc, aReplicaDoc } from "../../testing/fleet-docs.ts";
import { askLease as askModel, type LeaseRow } from "../../testing/lease-row.ts";
import { eventually } from "../../testing/wait-for.ts";
import { EVENTS_KEPT } from "./events.ts";
import { StoreFault } from "./sql-driver.ts";
import { lead, nth, type StoreSuite, told, withFault } from "./suite.conformance.ts";

/** Tables, lease, documents and events. */
export function runDocumentSuite({ it }: StoreSuite): void {
  it("control planes that start at once make one cluster, and find it again", async ({ connect, open }) => {
    const drivers = await Promise.all([connect(), connect(), connect()]);
    const stores = await Promise.all(drivers.map(open));
    assert.equal(new Set(stores.map(({ clusterId }) => clusterId)).size, 1);
    assert.equal(new Set(stores.map(({ clusterSecret }) => clusterSecret.reveal())).size, 1);
    assert.equal((await open()).clusterId, stores[0]?.clusterId);
  });

  it("a database of a newer program, or of another one, is refused and not touched", async ({ connect, open }) => {
    const driver = await connect();
    await open(driver);
    const insert = "INSERT INTO ym_versions (version, name, checksum, applied_ms) VALUES (99, 'later', '', 0)";
    await driver.transaction([{ text: insert, values: [] }]);
    await assert.rejects(open(driver), { code: "STORE_REFUSED", message: /version 99/ });
    await driver.transaction([
      { text: "DELETE FROM ym_versions WHERE version = 99", values: [] },
      { text: "UPDATE ym_versions SET checksum = 'x'", values: [] },
    ]);
    await assert.rejects(open(driver), { code: "STORE_REFUSED", message: /another program/ });
  });

  it("the lease statement does what its model does, after any sequence of requests [40.L1]", async ({ open }) => {
    const store = await open();
    let row: LeaseRow | null = null;
    // A lease of no time is over at once, one of a day never: so the database's clock can't blur the comparison.
    const request = fc.record({
      holder: fc.constantFrom("a", "b", "c"),
      leaseMs: fc.constantFrom(0, 86_400_000),
      floor: fc.nat(30),
      alone: fc.boolean(),
    });
    const sequences = fc.sample(fc.array(request, { minLength: 5, maxLength: 5 }), { numRuns: 40, seed: 7 });
    for (const asked of sequences.flat()) {
      const verdict = askModel(row, asked, 0);
      const answer = await store.askLease(asked);
      assert.deepEqual(
        answer,
        verdict.held
          ? { kind: "held", epoch: verdict.row.epoch, priorEpoch: verdict.row.priorEpoch }
          : { kind: "refused", by: { holder: verdict.row.holder, epoch: verdict.row.epoch } },
      );
      row = verdict.row;
    }
  });

  it("of many that ask at once one gets the lease, and the others are told who [40.L1]", async ({ connect, open }) => {
    const stores = await Promise.all((await Promise.all([connect(), connect(), connect(), connect()])).map(open));
    const ask = (holder: string, index: number) =>
      nth(stores, index).askLease({ holder, leaseMs: 60_000, floor: 0, alone: false });
    const holders = Array.from({ length: 12 }, (_, index) => `h${index}`);
    const answers = await Promise.all(holders.map(ask));
    const held = answers.filter((answer) => answer.kind === "held");
    assert.equal(held.length, 1);
    const winner = holders[answers.findIndex((answer) => answer.kind === "held")];
    for (const answer of answers)
      if (answer.kind === "refused") assert.deepEqual(answer.by, { holder: winner, epoch: 1 });
  });

  it("a lease ends by the database's clock, and one that is handed over is free at once [40.L5]", async ({ open }) => {
    const store = await open();
    await store.askLease({ holder: "a", leaseMs: 200, floor: 0, alone: false });
    const ask = () => store.askLease({ holder: "b", leaseMs: 60_000, floor: 0, alone: false });
    assert.equal((await ask()).kind, "refused");
    await eventually("the end of the lease", ask, ({ kind }) => kind === "held");
    await store.releaseLease({ holder: "b", epoch: 1 });
    assert.equal((await store.askLease({ holder: "c", leaseMs: 1, floor: 0, alone: false })).kind, "refused");
    await store.releaseLease({ holder: "b", epoch: 2 });
    assert.deepEqual(await store.askLease({ holder: "c", leaseMs: 60_000, floor: 0, alone: false }), {
      kind: "held",
      epoch: 3,
      priorEpoch: 2,
    });
  });

  it("documents are kept, replaced and removed as written, in one step with their events", async ({ open }) => {
    const store = await open();
    const term = await lead(store, "me");
    const many = Array.from({ length: 1_203 }, (_, index) => aReplicaDoc(`r${index}`, { reason: "née ☃ \u0000 '\"" }));
    const writes = many.map((doc) => ({ kind: "replica", id: doc.id, doc }) as const);
    assert.equal(
      await store.commit(term, [...writes, { kind: "node", id: "n", doc: aNodeDoc("n") }], [told("first")]),
      "ok",
    );
    const loaded = await store.load();
    assert.deepEqual(new Map(loaded.replicas.map((doc) => [doc.id, doc])), new Map(many.map((doc) => [doc.id, doc])));
    assert.deepEqual(loaded.nodes, [aNodeDoc("n")]);
    const changed = aNodeDoc("n", { cordoned: true });
    const removed = many.slice(1).map(({ id }) => ({ kind: "replica", id, doc: null }) as const);
    const twice = { kind: "node", id: "n", doc: aNodeDoc("n") } as const;
    assert.equal(await store.commit(term, [...removed, twice, { ...twice, doc: changed }], [told("second")]), "ok");
    const cluster = NO_CLUSTER_DOC;
    assert.deepEqual(await store.load(), { nodes: [changed], replicas: [many[0]], models: [], memory: [], cluster });
    assert.deepEqual(
      (await store.events({ limit: 10 })).map(({ seq, why }) => [seq, why]),
      [
        [1, "first"],
        [2, "second"],
      ],
    );
  });

  it("that the store is an old copy is kept with the documents, until that is taken back", async ({ open }) => {
    const store = await open();
    await lead(store, "a");
    const term = { holder: "a", epoch: 1 };
    const write = { kind: "cluster", id: CLUSTER_DOC_ID } as const;
    assert.equal(await store.commit(term, [{ ...write, doc: { restoredAbove: 7, commit: 3 } }], []), "ok");
    assert.deepEqual((await store.load()).cluster, { restoredAbove: 7, commit: 3 });
    assert.equal(await store.commit(term, [{ ...write, doc: null }], []), "ok");
    assert.deepEqual((await store.load()).cluster, NO_CLUSTER_DOC);
  });

  it("a write under a term that is over changes nothing, whatever else is in it [40.L2 80.C3]", async ({ open }) => {
    const store = await open();
    const old = await lead(store, "old");
    assert.equal(await store.commit(old, [{ kind: "node", id: "n", doc: aNodeDoc("n") }], []), "ok");
    const next = await lead(store, "new");
    const write = [
      { kind: "node", id: "n", doc: null },
      { kind: "node", id: "x", doc: aNodeDoc("x") },
    ] as const;
    for (const term of [old, { ...old, epoch: next.epoch }, { ...next, epoch: next.epoch + 1 }])
      assert.equal(await store.commit(term, write, [told("never")]), "notLeader");
    assert.deepEqual((await store.load()).nodes, [aNodeDoc("n")]);
    assert.deepEqual(await store.events({ limit: 10 }), []);
    assert.equal(await store.commit(next, write, []), "ok");
  });

  it("a commit whose answer is lost is found again, and done once [80.P2]", async ({ connect, open }) => {
    const driver = await connect();
    const store = await open(driver);
    const term = await lead(store, "me");
    const lost = new StoreFault("the answer is lost", { applied: "unknown" });
    const orders = { "after it was done": true, "before it was done": false };
    for (const [order, done] of Object.entries(orders)) {
      let armed = false;
      const faulty = await open(
        withFault(driver, async (carryOut) => {
          if (!armed) return carryOut();
          armed = false;
          if (done) await carryOut();
          throw lost;
        }),
      );
      armed = true;
      assert.equal(await faulty.commit(term, [{ kind: "node", id: order, doc: aNodeDoc(order) }], [told(order)]), "ok");
      assert.equal(armed, false);
    }
    assert.deepEqual(
      (await store.events({ limit: 10 })).map(({ why }) => why),
      Object.keys(orders),
    );
    assert.equal((await store.load()).nodes.length, 2);
  });

  it("a commit that comes through late beside its own repetition is done once [80.P2]", async ({ connect, open }) => {
    const driver = await connect();
    const store = await open(driver);
    const term = await lead(store, "me");
    let late: Promise<unknown> | undefined;
    let armed = false;
    const faulty = await open(
      withFault(driver, (carryOut) => {
        if (!armed) return carryOut();
        armed = false;
        late = carryOut();
        return Promise.reject(new StoreFault("the answer is lost", { applied: "unknown" }));
      }),
    );
    armed = true;
    assert.equal(await faulty.commit(term, [{ kind: "node", id: "n", doc: aNodeDoc("n") }], [told("once")]), "ok");
    assert.ok(late !== undefined);
    await late;
    assert.equal((await store.events({ limit: 10 })).length, 1);
  });

  it("a commit that can't be found again is told as unknown, not as done", async ({ connect, open }) => {
    const driver = await connect();
    const term = await lead(await open(driver), "me");
    let gone = false;
    const away = new StoreFault("away", { applied: "unknown" });
    const faulty = await open({
      ...withFault(driver, (carryOut) => (gone ? Promise.reject(away) : carryOut())),
      query: (statement) => (gone ? Promise.reject(away) : driver.query(statement)),
    });
    gone = true;
    assert.equal(await faulty.commit(term, [], [told("perhaps")]), "unknown");
  });

  it("events of several that write at once have numbers without gaps, and the newest are kept", async ({
    connect,
    open,
  }) => {
    const stores = await Promise.all((await Promise.all([connect(), connect()])).map(open));
    const each = Array.from({ length: 8 }, (_, index) => index);
    await Promise.all(each.map((index) => nth(stores, index).addEvents([told(`${index}`)])));
    const [store] = stores;
    assert.ok(store !== undefined);
    const events = await store.events({ limit: 100 });
    assert.deepEqual(
      events.map(({ seq }) => seq),
      each.map((index) => index + 1),
    );
    assert.deepEqual(
      (await store.events({ limit: 2, afterSeq: 5 })).map(({ seq }) => seq),
      [6, 7],
    );
    const many = Array.from({ length: 499 }, () => told("x"));
    for (let written = 8; written < EVENTS_KEPT + 1_000; written += 499) await store.addEvents(many);
    const [newest] = await store.events({ limit: 1 });
    const [oldest] = await store.events({ limit: 1, afterSeq: 0 });
    assert.equal((newest?.seq ?? 0) - (oldest?.seq ?? 0) + 1, EVENTS_KEPT);
  });

  it("an event that is not what was written costs itself alone, and is told as such [80.P9]", async ({
    connect,
    open,
  }) => {
    const driver = await connect();
    const store = await open(driver);
    await store.addEvents(Array.from({ length: 5 }, (_, index) => told(`event ${index + 1}`)));
    const damage = [
      "UPDATE ym_events SET event = 'garbage' WHERE seq = 2",
      "UPDATE ym_events SET event = replace(event, 'event 3', 'event 9') WHERE seq = 3",
      "UPDATE ym_events SET event = '{}' WHERE seq = 4",
    ];
    await driver.transaction(damage.map((text) => ({ text, values: [] })));
    const events = await store.events({ limit: 10 });
    assert.deepEqual(
      events.map(({ seq, kind, why }) => [seq, kind, why.startsWith("event ")]),
      [
        [1, "modelRetried", true],
        [2, "eventDamaged", false],
        [3, "eventDamaged", false],
        [4, "eventDamaged", false],
        [5, "modelRetried", true],
      ],
    );
    assert.equal((await store.events({ limit: 10, kind: "modelRetried" })).length, 2);
  });

  it("a document that is not what was written is refused, not acted upon [80.P9]", async ({ connect, open }) => {
    const driver = await connect();
    const store = await open(driver);
    const term = await lead(store, "me");
    await store.commit(term, [{ kind: "node", id: "n", doc: aNodeDoc("n") }], []);
    const flip = "UPDATE ym_docs SET doc = replace(doc, '\"cordoned\":false', '\"cordoned\":true')";
    await driver.transaction([{ text: flip, values: [] }]);
    await assert.rejects(store.load(), { code: "STORE_REFUSED", message: /node n/ });
  });
}
