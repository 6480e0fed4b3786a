import assert from "node:assert/strict";
import { after, test } from "node:test";
import { systemClock } from "../../kernel/clock.ts";
import { silentLogger } from "../../kernel/log.ts";
import { seededRandom } from "../../kernel/random.ts";
import { Secret } from "../../kernel/secret.ts";
import { FaultProxy } from "../../testing/fault-proxy.ts";
import { aNodeDoc } from "../../testing/fleet-docs.ts";
import { rounds } from "../../testing/rounds.ts";
import { startPostgresDatabases } from "../../testing/servers/postgres-databases.ts";
import { eventually, within } from "../../testing/wait-for.ts";
import { Leadership } from "../leader/leadership.ts";
import { ControlStore } from "./control-store.ts";
import { openPostgres } from "./postgres-driver.ts";
import { StoreFault } from "./sql-driver.ts";
import { lead, told } from "./suite.conformance.ts";

// A real PostgreSQL behind a proxy that breaks, delays and swallows.

const databases = await startPostgresDatabases();
after(() => databases[Symbol.asyncDispose]());

interface World extends AsyncDisposable {
  /** Of the database itself. */
  readonly direct: string;
  readonly proxy: FaultProxy;
  /** Through the proxy. */
  readonly store: ControlStore;
}

async function world(): Promise<World> {
  const direct = await databases.create();
  const url = new URL(direct);
  const proxy = await FaultProxy.start({ clock: systemClock, target: { port: Number(url.port) } });
  url.port = String(proxy.port);
  const store = await ControlStore.open(openPostgres(new Secret(url.href)));
  return {
    direct,
    proxy,
    store,
    [Symbol.asyncDispose]: async () => {
      await proxy.down();
      await store.close();
    },
  };
}

const msOf = async (act: () => Promise<unknown>): Promise<number> => {
  const start = systemClock.mono();
  await act();
  return systemClock.mono() - start;
};

test("connections that break at any byte of a commit: what is told as done is done once, what is unknown at most once [80.P2]", async () => {
  await using w = await world();
  const term = await lead(w.store, "me");
  const random = seededRandom(2);
  const outcomes = new Map<string, string>();
  for (let round = 0; round < rounds(40, 200); round += 1) {
    const name = `n${round}`;
    const direction = random.next() < 0.5 ? "upstream" : "downstream";
    // Between nothing at all and more than a whole commit takes.
    const bytes = Math.floor(random.next() * (direction === "upstream" ? 1_800 : 700));
    using _toxic = w.proxy.add(direction, { kind: "limit_data", bytes });
    const broken = w.store.commit(term, [{ kind: "node", id: name, doc: aNodeDoc(name) }], [told(name)]);
    // The second connection, with which it is looked for, gets through.
    await systemClock.sleep(2, new AbortController().signal);
    w.proxy.clear();
    outcomes.set(name, await within(`the outcome of ${name}`, broken));
    w.proxy.resetAll();
  }
  const nodes = new Set((await w.store.load()).nodes.map(({ id }) => id));
  const events = (await w.store.events({ limit: 1_000 })).map(({ why }) => why);
  for (const [name, outcome] of outcomes) {
    const times = events.filter((why) => why === name).length;
    assert.equal(nodes.has(name), times === 1, `${name}: document and event are one`);
    if (outcome === "ok") assert.equal(times, 1, `${name} was told as done`);
    else assert.equal(outcome, "unknown", name);
    assert.ok(times <= 1, `${name} was done ${times} times`);
  }
  assert.ok([...outcomes.values()].includes("ok"));
});

test("backends that are ended at any moment of a commit: the same [80.P2]", async () => {
  await using w = await world();
  const term = await lead(w.store, "me");
  const random = seededRandom(5);
  const done: string[] = [];
  const ends =
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'yardmaster control' AND datname = current_database()";
  for (let round = 0; round < rounds(15, 200); round += 1) {
    const name = `n${round}`;
    const writes = Array.from({ length: 300 }, (_, index) => {
      const id = `${name}-${index}`;
      return { kind: "node", id, doc: aNodeDoc(id) } as const;
    });
    const committing = w.store.commit(term, writes, [told(name)]);
    await systemClock.sleep(random.next() * 30, new AbortController().signal);
    await databases.run(w.direct, ends);
    if ((await committing) === "ok") done.push(name);
  }
  const { nodes } = await w.store.load();
  const events = (await w.store.events({ limit: 1_000 })).map(({ why }) => why);
  assert.equal(new Set(events).size, events.length);
  for (const name of done) assert.ok(events.includes(name), name);
  assert.equal(nodes.length, events.length * 300, "each commit whole or not at all");
});

test("a server that swallows everything: every call ends within seconds, and the store goes on when it answers again [80.P1]", async () => {
  await using w = await world();
  const term = await lead(w.store, "me");
  w.proxy.add("upstream", { kind: "timeout", timeoutMs: 0 });
  w.proxy.add("downstream", { kind: "timeout", timeoutMs: 0 });
  const calls: (() => Promise<unknown>)[] = [
    () => w.store.load(),
    () => w.store.commit(term, [], [told("x")]),
    () => w.store.askLease({ holder: "me", leaseMs: 1_000, floor: 0, alone: false }),
    () => w.store.issueToken("n", "ana"),
  ];
  for (const call of calls) {
    const ms = await msOf(() => call().catch((error: unknown) => assert.ok(error instanceof StoreFault)));
    assert.ok(ms < 6_500, `${Math.round(ms)} ms`);
  }
  w.proxy.clear();
  w.proxy.resetAll();
  await eventually(
    "the way back",
    () =>
      w.store.load().then(
        () => true,
        () => false,
      ),
    (ok) => ok,
  );
  assert.deepEqual(await w.store.commit(term, [], [told("after")]), "ok");
});

test("a server that is gone is told at once, and found again when it is back [80.P1]", async () => {
  await using w = await world();
  await w.proxy.down();
  const ms = await msOf(() => assert.rejects(w.store.load(), { code: "STORE_UNAVAILABLE" }));
  assert.ok(ms < 1_000, `${Math.round(ms)} ms`);
  await w.proxy.up();
  assert.deepEqual((await w.store.load()).nodes, []);
});

test("while only bulk queries are slow the leader does not change, and a slow commit ends by itself [80.P4]", async () => {
  await using w = await world();
  const clock = systemClock;
  const changes: string[] = [];
  const leadership = new Leadership({
    store: w.store,
    clock,
    log: silentLogger,
    settings: { leaseMs: 3_000, renewMs: 300, blindMsMax: 3_000 },
    self: "me",
    alone: false,
    onEvent: ({ kind }) => changes.push(kind),
  });
  await eventually(
    "the lead",
    () => leadership.mayAct(),
    (leads) => leads,
  );
  const { term } = leadership;
  assert.ok(term !== null);
  // Whoever reads or writes documents waits for this one, longer than a lease lasts.
  const locked = databases.run(
    w.direct,
    "BEGIN; LOCK TABLE ym_docs IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(5); COMMIT",
  );
  const slow = async (): Promise<void> => {
    const ms = await msOf(() => w.store.load().catch((error: unknown) => assert.ok(error instanceof StoreFault)));
    assert.ok(ms < 4_000, `${Math.round(ms)} ms`);
  };
  const commit = w.store.commit(term, [{ kind: "node", id: "n", doc: aNodeDoc("n") }], []);
  await Promise.all([commit, ...Array.from({ length: 8 }, slow)]);
  await locked;
  assert.equal(leadership.mayAct(), true);
  assert.deepEqual(changes, ["leaderChanged"]);
  assert.equal(leadership.term?.epoch, term.epoch);
  await leadership.stop();
});

test("a transaction that is left open, as by a process that was frozen in it, does not hold the lease against the others [80.P5]", async () => {
  await using w = await world();
  await lead(w.store, "frozen");
  const url = new URL(w.direct);
  await using proxy = await FaultProxy.start({ clock: systemClock, target: { port: Number(url.port) } });
  url.port = String(proxy.port);
  const driver = openPostgres(new Secret(url.href));
  // It takes the lease's row and then waits for this one; what it says next is swallowed, as if it were frozen.
  const blocking = databases.run(
    w.direct,
    "BEGIN; LOCK TABLE ym_docs IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(1); COMMIT",
  );
  const waiting = (table: string, granted: boolean): Promise<number> =>
    databases
      .run(
        w.direct,
        `SELECT count(*) AS n FROM pg_locks WHERE relation = '${table}'::regclass AND granted = ${granted}`,
      )
      .then(([row]) => Number(row?.["n"]));
  await eventually(
    "the block",
    () => waiting("ym_docs", true),
    (count) => count === 1,
  );
  const holding = driver
    .transaction([
      { text: "UPDATE ym_lease SET expires_ms = 0 WHERE id = 1 RETURNING epoch", values: [] },
      { text: "SELECT count(*) AS n FROM ym_docs", values: [] },
    ])
    .catch(() => {});
  await eventually(
    "the wait inside the transaction",
    () => waiting("ym_docs", false),
    (count) => count === 1,
  );
  proxy.add("upstream", { kind: "timeout", timeoutMs: 0 });
  await blocking;
  assert.ok((await waiting("ym_lease", true)) > 0, "the open transaction holds the row");
  const start = systemClock.mono();
  const taken = await eventually(
    "the lease for another",
    () => w.store.askLease({ holder: "next", leaseMs: 60_000, floor: 0, alone: true }).catch(() => undefined),
    (answer) => answer?.kind === "held",
  );
  assert.ok(taken?.kind === "held" && taken.epoch === 2);
  assert.ok(systemClock.mono() - start < 8_000);
  await proxy.down();
  await holding;
  await driver.close();
});
