import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { parseMetricsText, type MetricsOptions, type MetricsPage, type Sample } from "./prometheus-text.ts";

function parsed(text: string | Buffer, options?: MetricsOptions): Extract<MetricsPage, { kind: "parsed" }> {
  const page = parseMetricsText(text, options);
  assert.ok(page.kind === "parsed", JSON.stringify(page));
  return page;
}

/** The one sample of a line. */
function one(line: string): {
  name: string;
  labels: Record<string, string>;
  value: number;
  timestampMs: number | undefined;
} {
  const { samples, skippedLines } = parsed(`${line}\n`);
  assert.deepEqual([samples.length, skippedLines], [1, 0], line);
  const sample = samples[0] as Sample;
  return { ...sample, labels: { ...sample.labels } };
}

const sample = (name: string, labels: Record<string, string>, value: number, timestampMs?: number) => ({
  name,
  labels,
  value,
  timestampMs,
});

const lines: { name: string; line: string; expect: ReturnType<typeof one> }[] = [
  { name: "no labels", line: "up 1", expect: sample("up", {}, 1) },
  { name: "an empty set", line: "up{} 1", expect: sample("up", {}, 1) },
  {
    name: "blanks and tabs everywhere and a comma too many",
    line: ' up { b = "2" ,\ta="1" , }\t42 ',
    expect: sample("up", { b: "2", a: "1" }, 42),
  },
  {
    name: "signs of the grammar inside a value",
    line: 'up{a="},=# \\\\ \\" \\n le=\\"1\\"",b="x} 5"} 7',
    expect: sample("up", { a: '},=# \\ " \n le="1"', b: "x} 5" }, 7),
  },
  {
    name: "a backslash before another letter",
    line: 'up{a="C:\\temp\\"} 1"} 2',
    expect: sample("up", { a: 'C:\\temp"} 1' }, 2),
  },
  { name: "colons in a name", line: "odd:name_total 1e3", expect: sample("odd:name_total", {}, 1000) },
  { name: "a quoted name", line: '{"my.metric", a="1"} 2', expect: sample("my.metric", { a: "1" }, 2) },
  { name: "a quoted label", line: 'up{"größe.x"="ß"} 2', expect: sample("up", { "größe.x": "ß" }, 2) },
  {
    name: "a label named like a built-in",
    line: 'up{__proto__="x"} 2',
    expect: sample("up", JSON.parse('{"__proto__":"x"}') as Record<string, string>, 2),
  },
  { name: "an empty label", line: 'up{a=""} 2', expect: sample("up", { a: "" }, 2) },
  { name: "the last of two equal labels", line: 'up{a="1",a="2"} 2', expect: sample("up", { a: "2" }, 2) },
  { name: "a time in milliseconds", line: "up 1 1796000000000", expect: sample("up", {}, 1, 1_796_000_000_000) },
  { name: "a negative time", line: "up 1 -1", expect: sample("up", {}, 1, -1) },
  {
    name: "a time in seconds with a fraction",
    line: "up 1 1796000011.5",
    expect: sample("up", {}, 1, 1_796_000_011_500),
  },
  { name: "a time that can only be seconds", line: "up 1 1796000011", expect: sample("up", {}, 1, 1_796_000_011_000) },
  {
    name: "an exemplar",
    line: 'b_bucket{le="1.0"} 11 # {note="a # and \\"q\\""} 0.7',
    expect: sample("b_bucket", { le: "1.0" }, 11),
  },
  {
    name: "a time and an exemplar",
    line: 'b_bucket{le="1"} 3 1796000000000 # {t="x"} 0.083 1796000011.5',
    expect: sample("b_bucket", { le: "1" }, 3, 1_796_000_000_000),
  },
  { name: "a NUL in a label", line: 'up{a="\u0000"} 2', expect: sample("up", { a: "\u0000" }, 2) },
];
for (const row of lines) test(`a line is read: ${row.name} [30.T2]`, () => assert.deepEqual(one(row.line), row.expect));

test("values are read as exporters write them [30.T2]", () => {
  const values: [string, number][] = [
    ["NaN", Number.NaN],
    ["nan", Number.NaN],
    ["+Inf", Number.POSITIVE_INFINITY],
    ["-Inf", Number.NEGATIVE_INFINITY],
    ["Inf", Number.POSITIVE_INFINITY],
    ["+infinity", Number.POSITIVE_INFINITY],
    ["1e+09", 1e9],
    ["1.23457e+06", 1_234_570],
    [".5", 0.5],
    ["5.", 5],
    ["-0.0", -0],
    ["0x1p-2", 0.25],
    ["-0x1.8p1", -3],
    ["9.223372036854775807e+18", 2 ** 63],
    ["9223372036854775794", 2 ** 63],
  ];
  for (const [text, value] of values) assert.ok(Object.is(one(`up ${text}`).value, value), text);
});

test("a bad line is skipped and counted, and the others are kept [30.T2]", () => {
  const bad = [
    'up{team="a "quoted" team"} 30',
    "up{a=1} 2",
    'up{a="1"} [N/A]',
    'up{a="1"}',
    "up",
    "up 1 2 3",
    "up 1 soon",
    "up 1_000",
    "up 0x",
    "up --1",
    'up{a="1" b="2"} 1',
    'up{a="1",,b="2"} 1',
    'up{a="unfinished} 1',
    '{a="1"} 2',
    'up{"x"} 1',
    "9up 1",
    "\u0000\u0000",
    `up{a="${"x".repeat(70_000)}"} 1`,
  ];
  for (const line of bad) {
    const page = parsed(`# HELP up x\nup{i="0"} 1\n${line}\nup{i="1"} 2\n`);
    assert.deepEqual([page.samples.length, page.skippedLines, page.complete], [2, 1, true], line.slice(0, 40));
  }
});

test("repeated and late comments, blank lines, CRLF and a byte order mark do no harm [30.T2]", () => {
  const text =
    '\uFEFF# HELP up a\\nb "q"\r\n# TYPE up gauge\r\n\r\nup 1\r\n# HELP up a\r\n# TYPE up counter\r\n# any words\r\n#\r\n   \r\nup 2\r\n# TYPE up bogus\r\n';
  const page = parsed(Buffer.from(text));
  assert.deepEqual(
    page.samples.map(({ value }) => value),
    [1, 2],
  );
  assert.deepEqual([page.skippedLines, page.complete], [0, true]);
});

test("a cut last line is dropped, for its number may be cut [30.T2]", () => {
  const page = parsed("up 1\nup 12");
  assert.deepEqual([page.samples.map(({ value }) => value), page.skippedLines, page.complete], [[1], 1, false]);
});

test("an OpenMetrics page is whole only with its end mark, and counts time in seconds [30.T2]", () => {
  const body = 'x_total{a="1"} 12.0\nx_created{a="1"} 1796000000.123\ny 0.42 1796000012.25\nz 1 5\n';
  const whole = parsed(`# UNIT y seconds\n${body}# EOF`);
  assert.ok(whole.complete);
  assert.deepEqual(
    whole.samples.map(({ timestampMs }) => timestampMs),
    [undefined, undefined, 1_796_000_012_250, 5_000],
  );
  assert.equal(parsed(body, { contentType: "application/openmetrics-text; version=1.0.0" }).complete, false);
  assert.equal(parsed(body).complete, true);
});

test("a page that is no metrics page is rejected [30.T2]", () => {
  const pages = [
    "<!doctype html>\n<html>\n",
    "\n\n  <html>x 1\n",
    '{"error":"Unauthorized"}\n',
    "Bad Gateway\n",
    "upstream connect error\nup 1\n",
  ];
  for (const page of pages) assert.deepEqual(parseMetricsText(page), { kind: "rejected", why: "notMetrics" }, page);
  assert.equal(parsed("").samples.length, 0);
});

test("pages above the bounds are rejected, and unwanted series cost nothing [30.T2]", () => {
  assert.deepEqual(parseMetricsText(Buffer.alloc(50_000_000, "up 1\n")), { kind: "rejected", why: "tooLarge" });
  const series = Array.from({ length: 1_001 }, (_, index) => `up{i="${index}"} 1`).join("\n");
  assert.deepEqual(parseMetricsText(`${series}\n`, { maxSeries: 1_000 }), { kind: "rejected", why: "tooManySeries" });
  const bad = `down 1\n${'up{a="b" c"} [N/A]\n'.repeat(1_000)}`;
  assert.deepEqual(parseMetricsText(bad, { maxSeries: 1_000 }), { kind: "rejected", why: "tooManySeries" });
  assert.equal(parsed(bad, { maxSeries: 1_001 }).skippedLines, 1_000);
  assert.equal(parsed(`${series}\ndown 1\n`, { maxSeries: 1, want: new Set(["down"]) }).samples.length, 1);
  assert.equal(parsed(`${series}\ndown 1\n`, { maxSeries: 1, want: (name) => name.startsWith("d") }).samples.length, 1);
  const longLine = parsed(`# HELP x\nup{a="${"y".repeat(5_000_000)}"} 1\nup 2\n`);
  assert.deepEqual([longLine.samples.length, longLine.skippedLines], [1, 1]);
});

const anyValueText = fc.string({
  unit: fc.constantFrom("a", "\\", '"', "\n", "}", ",", "=", "#", " ", "ß", "🙂"),
  maxLength: 12,
});
const escaped = (text: string): string => text.replaceAll("\\", "\\\\").replaceAll('"', '\\"').replaceAll("\n", "\\n");

test("what is written by the rules is read back, whatever its labels hold [30.T2]", () => {
  const anySample = fc.record({
    name: fc.constantFrom("a", "vllm:x_total", "_b"),
    labels: fc.dictionary(fc.constantFrom("le", "gpu", "pod"), anyValueText),
    value: fc.double(),
    timestampMs: fc.option(fc.integer({ min: 1_600_000_000_000, max: 1_900_000_000_000 }), { nil: undefined }),
  });
  fc.assert(
    fc.property(fc.array(anySample, { maxLength: 10 }), (samples) => {
      const text = samples.map(({ name, labels, value, timestampMs }) => {
        const set = Object.entries(labels).map(([label, content]) => `${label}="${escaped(content)}"`);
        return `${name}{${set.join(",")}} ${Object.is(value, -0) ? "-0" : String(value).replace("Infinity", "Inf")}${timestampMs === undefined ? "" : ` ${timestampMs}`}\n`;
      });
      const page = parsed(text.join(""));
      assert.deepEqual(
        page.samples.map((read) => ({ ...read, labels: { ...read.labels } })),
        samples.map((written) => ({ ...written, labels: { ...written.labels } })),
      );
      assert.equal(page.skippedLines, 0);
    }),
    { numRuns: 200 },
  );
});

test("no bytes make the parser throw [30.T2]", () => {
  const anyPiece = fc.oneof(
    fc.uint8Array({ maxLength: 40 }),
    fc.constantFrom("up{", 'a="', "} 1", "\n", "# EOF", " # {", "\\").map((text) => Buffer.from(text)),
  );
  fc.assert(
    fc.property(fc.array(anyPiece, { maxLength: 30 }), (pieces) => {
      parseMetricsText(Buffer.concat([Buffer.from("up 1\n"), ...pieces.map((piece) => Buffer.from(piece))]));
    }),
    { numRuns: 300 },
  );
});
