import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import fc from "fast-check";
import { stringify } from "yaml";
import type { NewEvent } from "../../contract/control-event.ts";
import { systemClock } from "../../kernel/clock.ts";
import { silentLogger } from "../../kernel/log.ts";
import { Watched } from "../../testing/wait-for.ts";
import { ControlStore } from "../store/control-store.ts";
import { openSqlite } from "../store/sqlite-driver.ts";
import { CatalogReader } from "./catalog-reader.ts";
import { CatalogKeeper, type ProposalOutcome } from "./catalog-keeper.ts";
import { CatalogSource } from "./catalog-source.ts";

const folder = await mkdtemp(join(tmpdir(), "yardmaster-catalog-"));
after(() => rm(folder, { recursive: true, force: true }));

let made = 0;
async function openStore(): Promise<ControlStore> {
  const path = join(folder, `${(made += 1)}`, "control.db");
  const store = await ControlStore.open(await openSqlite({ path, clock: systemClock }));
  after(() => store.close());
  return store;
}

const reader = new CatalogReader(systemClock);
after(() => reader.close());

const openKeeper = (store: ControlStore, running: Record<string, number> = {}): Promise<CatalogKeeper> =>
  CatalogKeeper.open({
    store,
    reader,
    log: silentLogger,
    running: () => Promise.resolve(new Map(Object.entries(running))),
    bounded: (work) => work,
  });

interface Entry {
  readonly name: string;
  readonly min?: number;
  readonly priority?: number;
}
const text = (...models: readonly Entry[]): string =>
  stringify({
    models: models.map(({ name, min = 1, priority = 50 }) => ({
      name,
      priority,
      replicas: { min },
      profiles: [{ engine: "sim" }],
    })),
  });

const ANA = { author: "ana", onRecord: () => Promise.resolve() };

const give = (
  keeper: CatalogKeeper,
  body: string,
  facts: { base?: number; confirm?: string } = {},
): Promise<ProposalOutcome> => keeper.propose({ text: body, source: "request", origin: "api", ...ANA, ...facts });
const namesOf = (keeper: CatalogKeeper): string[] => [...keeper.snapshot.catalog.models.keys()];

test("a valid change is in force at once as a new revision, and who holds the old one keeps it [40.C1]", async () => {
  const store = await openStore();
  const [keeper, other] = [await openKeeper(store), await openKeeper(store)];
  const seen: number[] = [];
  using _listening = keeper.onChange(({ revision }) => seen.push(revision));
  assert.equal(keeper.snapshot.catalog.revision, 0);
  assert.equal((await give(keeper, text({ name: "a" }))).kind, "applied");
  const held = keeper.snapshot.catalog;
  const outcome = await give(keeper, text({ name: "a", priority: 60 }, { name: "b" }));
  assert.ok(outcome.kind === "applied");
  assert.deepEqual(outcome.diff, { added: ["b"], removed: [], changed: [{ model: "a", fields: ["priority"] }] });
  assert.deepEqual([...held.models.keys()], ["a"]);
  assert.equal(held.models.get("a")?.priority, 50);
  assert.deepEqual(seen, [1, 2]);
  assert.deepEqual(namesOf(other), []);
  await other.refresh();
  assert.deepEqual(namesOf(other), ["a", "b"]);
  assert.deepEqual((await give(keeper, text({ name: "a", priority: 60 }, { name: "b" }))).kind, "unchanged");
  assert.deepEqual(
    (await store.events({ limit: 9 })).map(({ kind, by }) => [kind, by]),
    [
      ["catalogApplied", "ana"],
      ["catalogApplied", "ana"],
    ],
  );
});

test("an invalid change is refused with every mistake and its path, and changes nothing [40.C1 80.P10]", async () => {
  const store = await openStore();
  const keeper = await openKeeper(store);
  await give(keeper, text({ name: "a" }));
  const outcome = await give(keeper, "models:\n  - {name: a, profiles: [{engine: vllm}]}\n  - {nme: b}\n");
  assert.ok(outcome.kind === "invalid");
  assert.deepEqual(
    outcome.problems.map(({ line, path }) => [line, path]),
    [
      [2, "models[0].profiles[0].gpu"],
      [2, "models[0].profiles[0].source"],
      [3, "models[1].name"],
      [3, "models[1].profiles"],
      [3, "models[1].nme"],
    ],
  );
  assert.equal(await store.catalogRevision(), 1);
  assert.deepEqual(namesOf(keeper), ["a"]);
});

test("of two editors the second is told that the catalog has changed [80.P10]", async () => {
  const store = await openStore();
  const [keeper, other] = [await openKeeper(store), await openKeeper(store)];
  await give(keeper, text({ name: "a" }));
  assert.equal((await give(keeper, text({ name: "a" }, { name: "b" }), { base: 1 })).kind, "applied");
  assert.deepEqual(await give(other, text({ name: "a" }, { name: "c" }), { base: 1 }), {
    kind: "changed",
    revision: 2,
  });
  const both = await Promise.all([
    give(keeper, text({ name: "a" }, { name: "b" }, { name: "d" }), { base: 2 }),
    give(other, text({ name: "a" }, { name: "b" }, { name: "e" }), { base: 2 }),
  ]);
  assert.deepEqual(both.map(({ kind }) => kind).toSorted(), ["applied", "changed"]);
});

test("a destructive change waits for the token of that change, and no other token fits [80.P10]", async () => {
  const store = await openStore();
  const keeper = await openKeeper(store);
  await give(keeper, text({ name: "a" }, { name: "b", min: 5 }));
  const wanted = text({ name: "b", min: 5 });
  const held = await give(keeper, wanted);
  assert.ok(held.kind === "unconfirmed");
  assert.deepEqual(held.harm, { replicas: 6, lost: 1, emptied: ["a"], destructive: true });
  assert.deepEqual(namesOf(keeper), ["a", "b"]);
  const worse = text();
  for (const confirm of ["", "yes", held.token.slice(1), `${held.token}0`])
    assert.equal((await give(keeper, wanted, { confirm })).kind, "unconfirmed");
  assert.equal((await give(keeper, worse, { confirm: held.token })).kind, "unconfirmed", "another text");
  await give(keeper, text({ name: "a" }, { name: "b", min: 5 }, { name: "c" }));
  assert.equal((await give(keeper, wanted, { confirm: held.token })).kind, "unconfirmed", "another revision below it");
  const again = await give(keeper, wanted);
  assert.ok(again.kind === "unconfirmed");
  assert.equal((await give(keeper, wanted, { confirm: again.token })).kind, "applied");
  assert.deepEqual(namesOf(keeper), ["b"]);
});

test("what runs counts, not only what the catalog says [80.P10]", async () => {
  const store = await openStore();
  const keeper = await openKeeper(store, { demand: 2, a: 1 });
  await give(keeper, text({ name: "a", min: 9 }, { name: "demand", min: 0 }));
  const outcome = await give(keeper, text({ name: "a", min: 9 }));
  assert.ok(outcome.kind === "unconfirmed");
  assert.deepEqual(outcome.harm.emptied, ["demand"]);
});

test("an earlier revision can be brought back, as a new one [40.C1]", async () => {
  const store = await openStore();
  const keeper = await openKeeper(store);
  await give(keeper, text({ name: "a", priority: 1 }));
  await give(keeper, text({ name: "a", priority: 2 }));
  const facts = ANA;
  assert.equal((await keeper.rollback(1, { ...facts, base: 1 }))?.kind, "changed");
  assert.equal((await keeper.rollback(1, facts))?.kind, "applied");
  assert.equal(keeper.snapshot.catalog.models.get("a")?.priority, 1);
  assert.deepEqual(
    (await keeper.history(9)).map(({ revision, origin }) => [revision, origin]),
    [
      [3, "rollback to 1"],
      [2, "api"],
      [1, "api"],
    ],
  );
  assert.equal(await keeper.rollback(77, facts), undefined);
});

test("in any course of edits by two control planes no catalog is in force in part, and no destructive one unconfirmed [80.P10]", async () => {
  const store = await openStore();
  const keepers = [await openKeeper(store), await openKeeper(store)];
  const names = ["a", "b", "c", "d", "e"] as const;
  const edit = fc.record({
    keeper: fc.nat(1),
    models: fc.uniqueArray(fc.record({ name: fc.constantFrom(...names), min: fc.nat(3), broken: fc.nat(9) }), {
      selector: ({ name }) => name,
      maxLength: 5,
    }),
    stale: fc.boolean(),
    confirmed: fc.boolean(),
  });
  const valid = new Set<string>([""]);
  for (const { keeper: index, models, stale, confirmed } of fc.sample(edit, { numRuns: 250, seed: 10 })) {
    const keeper = keepers[index];
    assert.ok(keeper !== undefined);
    const before = (await keeper.refresh()).catalog;
    const body = models.some(({ broken }) => broken === 0)
      ? `${text(...models)}  - {name: ${models[0]?.name ?? "x"}}\n`
      : text(...models);
    let outcome = await give(keeper, body, stale ? { base: before.revision - 1 } : {});
    if (outcome.kind === "unconfirmed") {
      assert.deepEqual(keeper.snapshot.catalog, before);
      if (confirmed) outcome = await give(keeper, body, { confirm: outcome.token });
    }
    if (outcome.kind === "applied") {
      valid.add(body);
      const kept = (name: string): number => keeper.snapshot.catalog.models.get(name)?.replicas.min ?? 0;
      if (!confirmed)
        for (const [name, { replicas }] of before.models) assert.ok(replicas.min === 0 || kept(name) > 0, name);
    } else assert.deepEqual(keeper.snapshot.catalog, before, "whatever was not applied changed nothing");
    assert.ok(valid.has(keeper.snapshot.stored?.text ?? ""));
  }
  assert.ok(valid.size > 10);
});

interface FileWorld {
  readonly keeper: CatalogKeeper;
  readonly source: CatalogSource;
  readonly events: NewEvent[];
  readonly changed: Watched;
  readonly write: (body: string) => Promise<void>;
  leading: boolean;
}

async function withFile(
  store: ControlStore,
  body: string | null,
  leading: boolean,
  act: (world: FileWorld) => Promise<void>,
): Promise<void> {
  const path = join(folder, `${(made += 1)}.yaml`);
  if (body !== null) await writeFile(path, body);
  const end = new AbortController();
  const keeper = await openKeeper(store);
  const events: NewEvent[] = [];
  const changed = new Watched();
  using _listening = keeper.onChange(() => changed.changed());
  const world = { keeper, events, changed, leading, write: (next: string) => writeFile(path, next) };
  const source = new CatalogSource({
    path,
    clock: systemClock,
    log: silentLogger,
    keeper,
    store,
    leading: () => world.leading,
    onEvent: (event) => {
      events.push(event);
      changed.changed();
    },
    audited: (save) => save(() => Promise.resolve()),
    signal: end.signal,
  });
  try {
    await act(Object.assign(world, { source }));
  } finally {
    end.abort();
  }
}

const revisionIs = (world: FileWorld, revision: number): Promise<void> =>
  world.changed.until(`revision ${revision}`, () => world.keeper.snapshot.catalog.revision === revision);
const eventIs = (world: FileWorld, kind: string): Promise<void> =>
  world.changed.until(kind, () => world.events.some((event) => event.kind === kind));

test("a watched file is taken over when it changes; a broken one changes nothing and says so [40.C1]", async () => {
  const store = await openStore();
  await withFile(store, text({ name: "a" }), true, async (world) => {
    await revisionIs(world, 1);
    await world.write(text({ name: "a" }, { name: "b" }));
    await revisionIs(world, 2);
    await world.write("models: [");
    await eventIs(world, "catalogRefused");
    assert.deepEqual(namesOf(world.keeper), ["a", "b"]);
    assert.match(world.source.refused ?? "", /not valid YAML/);
    await world.write(text({ name: "a" }, { name: "b" }, { name: "c" }));
    await revisionIs(world, 3);
    assert.equal(world.source.refused, null);
  });
});

test("a file that did not change undoes nothing that was applied since, and a standby takes no file over [40.C1]", async () => {
  const store = await openStore();
  const file = text({ name: "a" });
  await withFile(store, file, true, (world) => revisionIs(world, 1));
  const keeper = await openKeeper(store);
  await give(keeper, text({ name: "a" }, { name: "by-hand" }));
  await withFile(store, file, true, async (world) => {
    await world.write(text({ name: "a" }, { name: "by-hand" }, { name: "later" }));
    await revisionIs(world, 3);
  });
  await withFile(store, text({ name: "a" }, { name: "by-hand" }, { name: "z" }), false, async (world) => {
    await give(world.keeper, text({ name: "a" }, { name: "by-hand" }, { name: "y" }, { name: "later" }));
    await revisionIs(world, 4);
    world.leading = true;
    world.source.look();
    await eventIs(world, "catalogHeld");
    assert.deepEqual(namesOf(world.keeper), ["a", "by-hand", "y", "later"]);
  });
});

test("a file that would take much away waits, is told of once, and is taken over with its token [80.P10]", async () => {
  const store = await openStore();
  await withFile(store, text({ name: "a" }, { name: "b" }), true, async (world) => {
    await revisionIs(world, 1);
    await world.write(text());
    await eventIs(world, "catalogHeld");
    const { held } = world.source;
    assert.ok(held !== null && held.why.includes("2 of 2"));
    world.source.look();
    assert.equal((await world.source.confirm("0000", ANA))?.kind, "unconfirmed");
    assert.deepEqual(namesOf(world.keeper), ["a", "b"]);
    assert.equal((await world.source.confirm(held.token, ANA))?.kind, "applied");
    assert.deepEqual(namesOf(world.keeper), []);
    assert.equal(world.keeper.snapshot.stored?.author, "ana");
    assert.equal(await world.source.confirm(held.token, ANA), undefined);
    assert.equal(world.events.filter(({ kind }) => kind === "catalogHeld").length, 1);
  });
});

const UNUSABLE = [
  { name: "is missing", body: null, why: /can't be read|does not exist|ENOENT|no such|not found/i },
  { name: "is empty", body: "", why: /is empty/ },
] as const;
for (const { name, body, why } of UNUSABLE)
  test(`a watched file that ${name} is told once as an event, and shown until it can be used [80.P10]`, async () => {
    const store = await openStore();
    await withFile(store, body, true, async (world) => {
      await eventIs(world, "catalogRefused");
      assert.match(world.source.refused ?? "", why);
      assert.match(world.events[0]?.why ?? "", why);
      await world.write(text({ name: "a" }));
      await revisionIs(world, 1);
      assert.equal(world.source.refused, null);
      assert.equal(world.events.filter(({ kind }) => kind === "catalogRefused").length, 1);
    });
  });

test("of a file that is written with a pause no part is taken over [80.P10]", async () => {
  const store = await openStore();
  await withFile(store, text({ name: "a" }, { name: "b", min: 0 }), true, async (world) => {
    await revisionIs(world, 1);
    await world.write(text({ name: "a", priority: 60 }));
    await systemClock.sleep(1_200, new AbortController().signal);
    await world.write(text({ name: "a", priority: 60 }, { name: "b", min: 0 }));
    await revisionIs(world, 2);
    assert.deepEqual(namesOf(world.keeper), ["a", "b"]);
  });
});
