import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import {
  FIELD_TEXT_BYTES_MAX,
  JsonTopScan,
  stringField,
  type JsonScanOptions,
  type JsonScanResult,
} from "./json-scan.ts";

const KEYS = ["model", "stream", "stream_options", "priority", "n", "__proto__"];

function scan(body: string | Buffer, cuts: readonly number[] = [], options: JsonScanOptions = {}): JsonScanResult {
  const bytes = Buffer.from(body as string);
  const scanner = new JsonTopScan(KEYS, options);
  let from = 0;
  for (const cut of [...cuts.map((at) => at % (bytes.length + 1)).toSorted((a, b) => a - b), bytes.length]) {
    scanner.push(Buffer.from(bytes.subarray(from, cut)));
    from = cut;
  }
  return scanner.end();
}

function invalid(body: string, options?: JsonScanOptions): string {
  const result = scan(body, [], options);
  assert.equal(result.kind, "invalid", body);
  return result.kind === "invalid" ? result.why : "";
}

function fieldsOf(result: JsonScanResult): Record<string, unknown> {
  assert.equal(result.kind, "object", JSON.stringify(result));
  if (result.kind !== "object") return {};
  return Object.fromEntries([...result.fields].map(([key, field]) => [`=${key}`, JSON.parse(field.text!)]));
}

/** What JSON.parse says: whether it is an object, and the wanted fields, marked so that `__proto__` is a plain key. */
function oracle(text: string): { object: boolean; duplicate: boolean; fields: Record<string, unknown> } {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return { object: false, duplicate: false, fields: {} };
  }
  if (typeof value !== "object" || value === null || Array.isArray(value))
    return { object: false, duplicate: false, fields: {} };
  const fields: Record<string, unknown> = {};
  for (const key of KEYS) if (Object.hasOwn(value, key)) fields[`=${key}`] = (value as Record<string, unknown>)[key];
  return { object: true, duplicate: false, fields };
}

test("a body that is not a JSON object is refused with a reason", () => {
  for (const body of ["null", "[]", '"x"', "123", "true", "", "  ", "\uFEFF{}", "x{}"])
    assert.match(invalid(body), /not a JSON object/);
  assert.match(invalid("{} x"), /behind the end/);
  assert.match(invalid('{"model":"a"}{'), /behind the end/);
  assert.match(invalid('{"a":"x\ny"}'), /control character/);
  assert.match(invalid('{"a":"\\x"}'), /escape/);
  assert.match(invalid('{"a":"\\u12g4"}'), /escape/);
});

test("every cut of a body before its end is refused", () => {
  const body = '{"model":"a\\u00e9","n":-1.5e+3,"x":[true,false,null,{"y":{}}],"stream":false}';
  for (let end = 0; end < body.length; end++)
    assert.equal(scan(body.slice(0, end)).kind, "invalid", body.slice(0, end));
  assert.equal(scan(body).kind, "object");
});

test("a wanted key that comes twice is refused, also when it is written with escapes [80.D8]", () => {
  assert.match(invalid('{"model":"a","x":1,"model":"b"}'), /duplicate key "model"/);
  assert.match(invalid('{"model":"a","\\u006dodel":"b"}'), /duplicate key "model"/);
  assert.match(invalid('{"__proto__":1,"\\u005f_proto__":2}'), /duplicate key "__proto__"/);
  assert.equal(scan('{"x":1,"x":2,"y":{"model":1,"model":2}}').kind, "object");
});

test("keys are compared after their escapes are read, and __proto__ is an ordinary key", () => {
  assert.deepEqual(fieldsOf(scan('{"\\u006d\\u006F\\u0064\\u0065\\u006c":"a","stre\\u0061m":true}')), {
    "=model": "a",
    "=stream": true,
  });
  assert.deepEqual(fieldsOf(scan('{"__proto__":{"model":"evil"}}')), { "=__proto__": { model: "evil" } });
  assert.equal(({} as Record<string, unknown>)["model"], undefined);
});

test("offsets name the value and the place for a further member", () => {
  const body = ' { "a" : [1] , "model" :\t"xü" , "n":12}';
  const result = scan(body);
  assert.ok(result.kind === "object");
  const bytes = Buffer.from(body);
  const model = result.fields.get("model")!;
  assert.equal(bytes.subarray(model.start, model.end).toString(), '"xü"');
  assert.equal(stringField(result.fields, "model"), "xü");
  const n = result.fields.get("n")!;
  assert.equal(bytes.subarray(n.start, n.end).toString(), "12");
  assert.equal(stringField(result.fields, "n"), undefined);
  assert.equal(result.firstMemberOffset, 2);
  assert.equal(result.empty, false);
  const empty = scan("{ }");
  assert.ok(empty.kind === "object" && empty.empty && empty.fields.size === 0);
});

test("a wanted value over 64 KiB has offsets but no text", () => {
  const long = "x".repeat(FIELD_TEXT_BYTES_MAX);
  for (const cuts of [[], [100, 40_000], [70_000]]) {
    const result = scan(`{"model":"${long}","stream":true}`, cuts);
    assert.ok(result.kind === "object");
    assert.deepEqual(result.fields.get("model"), { start: 9, end: 11 + long.length, text: undefined });
    assert.equal(result.fields.get("stream")?.text, "true");
  }
});

test("nesting is bounded, so a body 100,000 deep is refused at once [80.G13]", () => {
  const nested = (depth: number): string => `{"a":${"[".repeat(depth - 1)}${"]".repeat(depth - 1)}}`;
  assert.equal(scan(nested(512)).kind, "object");
  assert.match(invalid(nested(513)), /nested deeper than 512/);
  assert.match(invalid(nested(100_000)), /nested deeper than 512/);
  assert.match(invalid(`{"a":`.repeat(100_000)), /nested deeper than 512/);
  assert.match(invalid(nested(9), { maxDepth: 8 }), /nested deeper than 8/);
});

test("an object of a million keys is read, and a limit on keys is kept [80.G13]", () => {
  const members = Array.from({ length: 1_000_000 }, (_, index) => `"k${index}":${index}`).join(",");
  assert.deepEqual(fieldsOf(scan(`{${members},"model":"m"}`)), { "=model": "m" });
  assert.match(invalid('{"a":1,"b":2,"c":3}', { maxKeys: 2 }), /more than 2 keys/);
  assert.equal(scan('{"a":1,"b":{"c":3,"d":4}}', [], { maxKeys: 2 }).kind, "object");
});

test("a lone surrogate is accepted as JSON.parse accepts it", () => {
  assert.deepEqual(fieldsOf(scan('{"model":"\\ud800"}')), { "=model": "\ud800" });
});

test("text of several bytes a character and escapes keep their meaning at every cut", () => {
  const body = '{"model":"é🙂\\u00e9\\\\\\"","stream":true}';
  const whole = scan(body);
  for (let cut = 0; cut <= Buffer.byteLength(body); cut++)
    assert.deepEqual(scan(body, [cut, cut + 1]), whole, `cut at ${cut}`);
});

test("long strings are skipped without losing an escape or the end, wherever chunks are cut", () => {
  fc.assert(
    fc.property(
      fc.array(fc.tuple(fc.nat(9_000), fc.constantFrom("\\n", '\\"', "\\\\", "\\u0041", "é")), { maxLength: 6 }),
      fc.array(fc.nat(60_000), { maxLength: 4 }),
      (parts, cuts) => {
        const text = parts.map(([length, tail]) => "x".repeat(length) + tail).join("");
        assert.deepEqual(fieldsOf(scan(`{"a":"${text}","b":"${text}","n":1}`, cuts)), { "=n": 1 });
      },
    ),
    { numRuns: 60 },
  );
});

test("work is linear in the body: many long strings and many backslashes in one chunk", () => {
  const strings = Array.from({ length: 2_000 }, () => `"${"y".repeat(5_000)}"`).join(",");
  assert.equal(scan(`{"a":[${strings}]}`).kind, "object");
  assert.equal(scan(`{"a":"${"\\\\".repeat(2_000_000)}"}`).kind, "object");
});

const blank = fc.constantFrom("", "", "", " ", "\n", "\t \r");

/** JSON text with white space, escaped keys and odd numbers, which JSON.stringify never makes. */
const anyText: fc.Arbitrary<string> = fc.letrec<{ value: string }>((tie) => {
  const key = fc.oneof(
    fc.constantFrom('"model"', '"stream"', '"n"', '"\\u006e"', '"__proto__"', '""', '"m\\u006fdel"'),
    fc.string().map((text) => JSON.stringify(text)),
  );
  const member = fc
    .tuple(blank, key, blank, blank, tie("value"), blank)
    .map(([a, name, b, c, value, d]) => `${a}${name}${b}:${c}${value}${d}`);
  return {
    value: fc.oneof(
      { depthSize: "small", withCrossShrink: true },
      fc.constantFrom("0", "-0", "1", "-12.5", "1e5", "1E-7", "0.0e+00", "true", "false", "null", '""', '"\\ud800\\n"'),
      fc.string({ unit: "binary" }).map((text) => JSON.stringify(text)),
      fc
        .array(
          fc.tuple(blank, tie("value"), blank).map((parts) => parts.join("")),
          { maxLength: 4 },
        )
        .map((items) => `[${items.join(",") || " "}]`),
      fc.array(member, { maxLength: 5 }).map((members) => `{${members.join(",") || " "}}`),
    ),
  };
}).value;

function countWanted(text: string): boolean {
  // JSON.parse calls the reviver once a key, so duplicates are found by a reader of its own: keep the last of each.
  const seen = new Set<string>();
  let depth = 0;
  const tokens = text.matchAll(/"(?:[^"\\]|\\.)*"|[{}[\]:,]/gs);
  let last = "";
  for (const [token] of tokens) {
    if (token === ":" && depth === 1) {
      const key = JSON.parse(last) as string;
      if (KEYS.includes(key) && seen.has(key)) return true;
      seen.add(key);
    }
    if (token === "{" || token === "[") depth++;
    if (token === "}" || token === "]") depth--;
    last = token;
  }
  return false;
}

function agrees(text: string, cuts: readonly number[]): void {
  const expected = oracle(text);
  const result = scan(text, cuts);
  if (expected.object && !countWanted(text)) assert.deepEqual(fieldsOf(result), expected.fields);
  else assert.equal(result.kind, "invalid", text);
  assert.deepEqual(result, scan(text), "cut into chunks the result is the same");
}

test("accepts what JSON.parse accepts and reads the same values, for random documents and cuts", () => {
  fc.assert(
    fc.property(anyText, fc.array(fc.nat(), { maxLength: 5 }), (text, cuts) => agrees(text, cuts)),
    { numRuns: 1_500 },
  );
  fc.assert(
    fc.property(
      fc.array(
        anyText.filter((text) => text.startsWith("{")),
        { minLength: 1, maxLength: 1 },
      ),
      fc.array(fc.nat()),
      ([text], cuts) => agrees(text!, cuts),
    ),
    { numRuns: 300 },
  );
});

test("refuses what JSON.parse refuses, for documents with a byte changed, dropped or put in", () => {
  const mutation = fc.tuple(
    fc.nat(),
    fc.nat(2),
    fc.constantFrom(
      "{",
      "}",
      "[",
      "]",
      ":",
      ",",
      '"',
      "\\",
      "0",
      "1",
      "-",
      "+",
      ".",
      "e",
      "E",
      "t",
      "u",
      "\u0000",
      "\u001f",
      " ",
      "\u00a0",
      "/",
      "N",
    ),
  );
  fc.assert(
    fc.property(
      anyText,
      fc.array(mutation, { minLength: 1, maxLength: 2 }),
      fc.array(fc.nat(), { maxLength: 3 }),
      (text, mutations, cuts) => {
        let changed = `{"a":${text},"model":1}`;
        for (const [at, kind, byte] of mutations) {
          const from = at % changed.length;
          changed = changed.slice(0, from) + (kind === 1 ? "" : byte) + changed.slice(from + (kind === 2 ? 0 : 1));
        }
        agrees(changed.toWellFormed(), cuts);
      },
    ),
    { numRuns: 3_000 },
  );
});
