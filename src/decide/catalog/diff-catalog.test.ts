import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { Catalog } from "../../contract/catalog.ts";
import { catalogFile } from "../../contract/catalog-schema.ts";
import { resolveCatalog } from "../../contract/resolve-catalog.ts";
import { diffCatalogs, isEmptyDiff, judgeHarm, LOST_PART_MAX } from "./diff-catalog.ts";

type Entry = Record<string, unknown> & { readonly name: string };
const catalog = (...models: Entry[]): Catalog =>
  resolveCatalog(
    catalogFile.parse({ models: models.map((model) => ({ profiles: [{ engine: "sim" }], ...model })) }),
    1,
  );
const count = (min: number, max = Math.max(1, min)) => ({ replicas: { min, max } });
const none = (): number => 0;

test("a difference names what came, what went, and which parts of a model changed", () => {
  const before = catalog(
    { name: "a" },
    { name: "b", priority: 1 },
    { name: "c", profiles: [{ engine: "sim", args: { x: 1, y: 2 } }] },
  );
  const after = catalog(
    { name: "b", priority: 2, aliases: ["bb"] },
    { name: "c", profiles: [{ engine: "sim", args: { y: 2, x: 1 } }] },
    { name: "d" },
  );
  const diff = diffCatalogs(before, after);
  assert.deepEqual(diff, { added: ["d"], removed: ["a"], changed: [{ model: "b", fields: ["aliases", "priority"] }] });
  assert.ok(isEmptyDiff(diffCatalogs(after, after)) && !isEmptyDiff(diff));
});

const rows: readonly {
  readonly name: string;
  readonly before: Entry[];
  readonly after: Entry[];
  readonly running?: Record<string, number>;
  readonly expect: { lost: number; emptied: string[]; destructive: boolean };
}[] = [
  {
    name: "adding and changing takes nothing away",
    before: [{ name: "a", ...count(2) }],
    after: [{ name: "a", ...count(3), priority: 9 }, { name: "b" }],
    expect: { lost: 0, emptied: [], destructive: false },
  },
  {
    name: "a model that goes takes its last replica along",
    before: [
      { name: "a", ...count(1) },
      { name: "b", ...count(50) },
    ],
    after: [{ name: "b", ...count(50) }],
    expect: { lost: 1, emptied: ["a"], destructive: true },
  },
  {
    name: "so does one that gets another name",
    before: [
      { name: "a", ...count(1) },
      { name: "b", ...count(50) },
    ],
    after: [
      { name: "A", ...count(1) },
      { name: "b", ...count(50) },
    ],
    expect: { lost: 1, emptied: ["a"], destructive: true },
  },
  {
    name: "a model that runs on demand and does not run may go",
    before: [{ name: "a", ...count(0) }, { name: "b" }],
    after: [{ name: "b" }],
    running: { a: 0, b: 1 },
    expect: { lost: 0, emptied: [], destructive: false },
  },
  {
    name: "one that runs may not",
    before: [
      { name: "a", ...count(0) },
      { name: "b", ...count(9) },
    ],
    after: [{ name: "b", ...count(9) }],
    running: { a: 1, b: 9 },
    expect: { lost: 1, emptied: ["a"], destructive: true },
  },
  {
    name: "three of ten is not too many",
    before: [{ name: "a", ...count(10) }],
    after: [{ name: "a", ...count(7, 10) }],
    expect: { lost: 3, emptied: [], destructive: false },
  },
  {
    name: "four of ten is",
    before: [{ name: "a", ...count(10) }],
    after: [{ name: "a", ...count(6, 10) }],
    expect: { lost: 4, emptied: [], destructive: true },
  },
  {
    name: "fewer at most take away what runs above it",
    before: [{ name: "a", ...count(1, 10) }],
    after: [{ name: "a", ...count(1, 4) }],
    running: { a: 8 },
    expect: { lost: 4, emptied: [], destructive: true },
  },
  {
    name: "from one kept running to started on demand is the last replica",
    before: [
      { name: "a", ...count(1) },
      { name: "b", ...count(9) },
    ],
    after: [
      { name: "a", ...count(0) },
      { name: "b", ...count(9) },
    ],
    expect: { lost: 1, emptied: ["a"], destructive: true },
  },
  {
    name: "an empty catalog after one with models",
    before: [{ name: "a" }],
    after: [],
    expect: { lost: 1, emptied: ["a"], destructive: true },
  },
  {
    name: "the first catalog",
    before: [],
    after: [{ name: "a" }],
    expect: { lost: 0, emptied: [], destructive: false },
  },
];
for (const row of rows) {
  test(`what a change stops: ${row.name} [80.P10]`, () => {
    const harm = judgeHarm(catalog(...row.before), catalog(...row.after), (model) => row.running?.[model] ?? 0);
    const { lost, emptied, destructive } = harm;
    assert.deepEqual({ lost, emptied, destructive }, row.expect);
  });
}

test("a change that empties a model or takes more than the part is always held, and one that only adds never [80.P10]", () => {
  const entries = fc.uniqueArray(
    fc.record({ name: fc.constantFrom("a", "b", "c", "d"), min: fc.nat(4), more: fc.nat(4) }),
    { selector: ({ name }) => name, maxLength: 4 },
  );
  const made = (list: readonly { name: string; min: number; more: number }[]): Catalog =>
    catalog(...list.map(({ name, min, more }) => ({ name, ...count(min, Math.max(1, min + more)) })));
  fc.assert(
    fc.property(
      entries,
      entries,
      fc.dictionary(fc.constantFrom("a", "b", "c", "d"), fc.nat(8), { noNullPrototype: true }),
      (from, to, run) => {
        const [before, after] = [made(from), made(to)];
        const running = (model: string): number => run[model] ?? 0;
        const harm = judgeHarm(before, after, running);
        const has = (model: string): number => Math.max(running(model), before.models.get(model)?.replicas.min ?? 0);
        for (const name of before.models.keys())
          if (!after.models.has(name) && has(name) > 0) assert.ok(harm.destructive && harm.emptied.includes(name));
        assert.equal(
          harm.replicas,
          [...before.models.keys()].reduce((sum, name) => sum + has(name), 0),
        );
        assert.ok(harm.lost <= harm.replicas);
        if (harm.lost > harm.replicas * LOST_PART_MAX) assert.ok(harm.destructive);
        const grown = made([
          ...from.map((entry) => ({ ...entry, more: entry.more + 9 })),
          ...to.filter(({ name }) => !before.models.has(name)),
        ]);
        assert.equal(judgeHarm(before, grown, none).destructive, false);
      },
    ),
  );
});
