import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { parseOpenMetrics, parsePrometheus } from "../testing/exposition-parser.ts";
import { Registry } from "./registry.ts";
import { negotiateFormat } from "./render.ts";

const PARSERS = { prometheus: parsePrometheus, openmetrics: parseOpenMetrics } as const;
const FORMATS = ["prometheus", "openmetrics"] as const;

const readable = (text: string): string => text.toWellFormed().replaceAll("\u0000", "\ufffd");

const NASTY = 'a"b\\c\n}{,= #\u{1f600}\ud800 le="1"\\';

for (const format of FORMATS) {
  test(`label values and help texts of any content keep the ${format} page valid and are read back [10.O2]`, () => {
    fc.assert(
      fc.property(fc.string({ unit: "binary" }), fc.string({ unit: "binary" }), fc.double(), (value, help, number) => {
        const registry = new Registry();
        registry.gauge("g", help, ["v"]).labels(value).set(number);
        const [family] = PARSERS[format](registry.render(format));
        assert.equal(family?.samples[0]?.labels["v"], readable(value));
        assert.equal(family?.help, readable(help));
        assert.ok(Object.is(family?.samples[0]?.value, number) || (number === 0 && family?.samples[0]?.value === 0));
      }),
    );
  });

  test(`a quote, backslash, line feed, brace, lone surrogate and ten kilobytes in a label leave the ${format} page valid`, () => {
    const registry = new Registry();
    registry.counter("c_total", `help ${NASTY}`, ["a", "b"]).labels(NASTY, "x".repeat(10_000)).inc(3);
    const [family] = PARSERS[format](registry.render(format));
    assert.deepEqual(family?.samples, [
      { name: "c_total", labels: { a: NASTY.toWellFormed(), b: "x".repeat(10_000) }, value: 3 },
    ]);
  });

  test(`a histogram of the ${format} page is cumulative and ends in +Inf`, () => {
    const registry = new Registry();
    const series = registry.histogram("h_seconds", "h", ["u"], [0.1, 1, 10]).labels("u1");
    for (const value of [0.1, 0.1000001, 1, 5, 11, Infinity, -1, NaN]) series.observe(value);
    const [family] = PARSERS[format](registry.render(format));
    const buckets = family?.samples
      .filter(({ name }) => name === "h_seconds_bucket")
      .map(({ labels, value }) => [Number(labels["le"]?.replace("+Inf", "Infinity")), value]);
    assert.deepEqual(buckets, [
      [0.1, 3],
      [1, 5],
      [10, 6],
      [Infinity, 8],
    ]);
    assert.equal(family?.samples.find(({ name }) => name === "h_seconds_count")?.value, 8);
  });
}

test("what a collector does not know is absent, not zero", () => {
  const registry = new Registry();
  registry.gauge("known", "k", ["e"], (set) => {
    set(["a"], undefined);
    set(["b"], 0);
  });
  registry.gauge("unknown", "u", ["e"], (set) => set(["a"], undefined));
  for (const format of FORMATS) {
    const families = PARSERS[format](registry.render(format));
    assert.deepEqual(
      families.map(({ name, samples }) => [name, samples.map(({ labels }) => labels["e"])]),
      [["known", ["b"]]],
    );
  }
});

test("a collected gauge shows this scrape's values and none of an earlier one", () => {
  const registry = new Registry();
  let ids = ["a", "b"];
  registry.gauge("g", "g", ["id"], (set) => ids.forEach((id) => set([id], 1)));
  registry.render("prometheus");
  ids = ["b"];
  const [family] = parsePrometheus(registry.render("prometheus"));
  assert.deepEqual(
    family?.samples.map(({ labels }) => labels["id"]),
    ["b"],
  );
});

test("a collector that throws costs its own metric only, and is told", () => {
  const registry = new Registry();
  const failed: string[] = [];
  registry.hooks = { onCollectError: (metric) => failed.push(metric) };
  registry.gauge("bad", "b", [], (set) => {
    set([], 1);
    throw new Error("gone");
  });
  registry.gauge("good", "g", []).labels().set(2);
  assert.deepEqual(
    parsePrometheus(registry.render("prometheus")).map(({ name }) => name),
    ["good"],
  );
  assert.deepEqual(failed, ["bad"]);
});

test("a hundred thousand label values make no more series than the bound, and nothing counted is lost", () => {
  const registry = new Registry(100);
  let collapsed = 0;
  registry.hooks = { onCollapsed: () => (collapsed += 1) };
  const family = registry.counter("c_total", "c", ["name"]);
  for (let i = 0; i < 100_000; i += 1) family.labels(`name-${i}`).inc();
  const samples = parsePrometheus(registry.render("prometheus"))[0]?.samples ?? [];
  assert.equal(samples.length, 101);
  assert.equal(samples.find(({ labels }) => labels["name"] === "other")?.value, 99_900);
  assert.equal(collapsed, 99_900);
});

test("series of what left the configuration go, and come back at zero", () => {
  const registry = new Registry();
  const family = registry.counter("c_total", "c", ["upstream", "code"]);
  const held = family.labels("gone", "x");
  held.inc(5);
  family.labels("stays", "gone").inc();
  registry.forget("upstream", "gone");
  held.inc();
  assert.deepEqual(
    parsePrometheus(registry.render("prometheus"))[0]?.samples.map(({ labels }) => labels["upstream"]),
    ["stays"],
  );
  family.labels("gone", "x").inc();
  assert.equal(
    parsePrometheus(registry.render("prometheus"))[0]?.samples.find(({ labels }) => labels["upstream"] === "gone")
      ?.value,
    1,
  );
});

test("the same labels give the same handle, and a counter never goes back", () => {
  const family = new Registry().counter("c_total", "c", ["a", "b"]);
  assert.equal(family.labels("x", "y"), family.labels("x", "y"));
  assert.notEqual(family.labels("x,y", ""), family.labels("x", ",y"));
  const series = family.labels("x", "y");
  for (const amount of [2, -1, NaN, 0]) series.inc(amount);
  assert.equal(series.value, 2);
});

test("names, labels and bounds that a scraper can't read are refused at registration", () => {
  const registry = new Registry();
  registry.gauge("g", "g", []);
  const bad: (() => unknown)[] = [
    () => registry.gauge("g", "again", []),
    () => registry.counter("c", "no _total", []),
    () => registry.gauge("g_total", "gauge with _total", []),
    () => registry.gauge("a-b", "dash", []),
    () => registry.gauge("x", "label", ["a b"]),
    () => registry.gauge("x", "label twice", ["a", "a"]),
    () => registry.histogram("h", "unsorted", [], [2, 1]),
    () => registry.histogram("h", "le", ["le"], [1]),
    () =>
      registry.histogram(
        "h",
        "too many",
        [],
        Array.from({ length: 17 }, (_, i) => i),
      ),
    () => registry.gauge("y", "arity", ["a"]).labels(),
  ];
  for (const act of bad) assert.throws(act);
});

test("an empty page is valid in both formats", () => {
  assert.deepEqual(parsePrometheus(new Registry().render("prometheus")), []);
  assert.deepEqual(parseOpenMetrics(new Registry().render("openmetrics")), []);
});

for (const [accept, expected] of [
  [undefined, "prometheus"],
  ["", "prometheus"],
  ["*/*", "prometheus"],
  ["text/plain;version=0.0.4", "prometheus"],
  ["application/openmetrics-text", "openmetrics"],
  [
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
    "openmetrics",
  ],
  ["application/openmetrics-text;q=0.1, text/plain;q=0.9", "prometheus"],
  ["application/openmetrics-text;q=0", "prometheus"],
  ["application/openmetrics-text;q=abc", "prometheus"],
] as const) {
  test(`Accept ${accept ?? "absent"} gets the ${expected} format`, () =>
    assert.equal(negotiateFormat(accept), expected));
}
