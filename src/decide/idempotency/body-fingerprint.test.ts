import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import fc from "fast-check";
import { type BodyForm, fingerprintSteps } from "./body-fingerprint.ts";
import { CanonicalDigest, MEMBERS_MAX } from "./canonical-digest.ts";

const newHasher = () => createHash("sha256");
const JSON_FORM: BodyForm = { kind: "json" };

function fingerprint(chunks: readonly Buffer[], form: BodyForm = JSON_FORM): string {
  const steps = fingerprintSteps(chunks, form, newHasher);
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step.value;
  }
}
const ofText = (text: string, form: BodyForm = JSON_FORM): string => fingerprint([Buffer.from(text)], form);
const ofValue = (value: unknown): string => ofText(JSON.stringify(value));

/** Another spelling of the same document: members in an order given by the numbers, blanks between all tokens. */
function respelled(value: unknown, numbers: readonly number[], blank: string): string {
  let at = 0;
  const next = (): number => numbers[at++ % numbers.length] ?? 0;
  const write = (part: unknown): string => {
    if (Array.isArray(part)) return `[${blank}${part.map(write).join(`${blank},${blank}`)}${blank}]`;
    if (typeof part !== "object" || part === null) return JSON.stringify(part);
    const members = Object.entries(part).map(([key, inner]) => ({ key, inner, rank: next() }));
    members.sort((a, b) => a.rank - b.rank);
    const texts = members.map(({ key, inner }) => `${JSON.stringify(key)}${blank}:${blank}${write(inner)}`);
    return `{${blank}${texts.join(`${blank},${blank}`)}${blank}}`;
  };
  return write(value);
}

const anObject = (): fc.Arbitrary<Record<string, unknown>> =>
  fc.dictionary(fc.string({ maxLength: 8 }), fc.jsonValue({ maxDepth: 4 }), { maxKeys: 6 }) as fc.Arbitrary<
    Record<string, unknown>
  >;
const cutAt = (bytes: Buffer, cuts: readonly number[]): Buffer[] => {
  const places = [...new Set(cuts.map((cut) => cut % (bytes.length + 1)))].toSorted((a, b) => a - b);
  return [0, ...places].map((from, i) => bytes.subarray(from, places[i] ?? bytes.length));
};

test("order of members and white space make no difference, wherever the body is cut [20.I2]", () => {
  fc.assert(
    fc.property(
      anObject(),
      fc.array(fc.nat(), { minLength: 1, maxLength: 20 }),
      fc.constantFrom("", " ", "\n\t ", "\r\n"),
      fc.array(fc.nat(), { maxLength: 6 }),
      (value, numbers, blank, cuts) => {
        const other = Buffer.from(respelled(value, numbers, blank));
        assert.equal(fingerprint(cutAt(other, cuts)), ofValue(value));
      },
    ),
    { numRuns: 1_000 },
  );
});

test("two documents that differ have two fingerprints [20.I2]", () => {
  fc.assert(
    fc.property(anObject(), anObject(), (a, b) => {
      const same = respelled(a, [1], "") === respelled(b, [1], "") || sorted(a) === sorted(b);
      assert.equal(ofValue(a) === ofValue(b), same);
    }),
    { numRuns: 1_000 },
  );
});

/** The document with all members sorted: the slow way to compare. */
function sorted(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(sorted).join(",")}]`;
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  const members = Object.entries(value).map(([key, inner]) => `${JSON.stringify(key)}:${sorted(inner)}`);
  return `{${members.toSorted().join(",")}}`;
}

const differing: { name: string; a: string; b: string }[] = [
  { name: "numbers spelled in two ways", a: '{"n":1}', b: '{"n":1.0}' },
  { name: "numbers beyond the precision of a double", a: '{"seed":9007199254740993}', b: '{"seed":9007199254740992}' },
  { name: "a number and its text", a: '{"n":1}', b: '{"n":"1"}' },
  { name: "null and an absent member", a: '{"n":null}', b: "{}" },
  { name: "true and false", a: '{"n":true}', b: '{"n":false}' },
  { name: "one member twice, in two orders", a: '{"a":1,"a":2}', b: '{"a":2,"a":1}' },
  { name: "one member once and twice", a: '{"a":1,"a":1}', b: '{"a":1}' },
  { name: "lists in two orders", a: '{"a":[1,2]}', b: '{"a":[2,1]}' },
  { name: "a list inside another and beside it", a: '{"a":[[1],2]}', b: '{"a":[1,[2]]}' },
  { name: "a member inside and outside an object", a: '{"a":{"b":1},"c":2}', b: '{"a":{"b":1,"c":2}}' },
  { name: "an empty object and an empty list", a: '{"a":{}}', b: '{"a":[]}' },
  { name: "white space inside a string", a: '{"a":"x y"}', b: '{"a":"x  y"}' },
  { name: "a key and a value that change places", a: '{"a":"b"}', b: '{"b":"a"}' },
  {
    name: "the last byte of a long string",
    a: `{"a":"${"x".repeat(9_000)}1"}`,
    b: `{"a":"${"x".repeat(9_000)}2"}`,
  },
  {
    name: "the first item of a long list",
    a: `{"a":[1,${"7,".repeat(80_000)}7]}`,
    b: `{"a":[2,${"7,".repeat(80_000)}7]}`,
  },
];
for (const { name, a, b } of differing) test(`different: ${name} [20.I2]`, () => assert.notEqual(ofText(a), ofText(b)));

test("a body that is cut inside escapes, long strings and long lists has the fingerprint of the whole", () => {
  const text = `{"b":"${'\\\\\\"x'.repeat(3_000)}","a":[${"1234567, ".repeat(30_000)}{"z":1,"y":"\\u00e9"}], "c" : null}`;
  const bytes = Buffer.from(text);
  const whole = fingerprint([bytes]);
  for (const size of [1_000, 4_095, 4_096, 4_097, 65_536])
    assert.equal(
      fingerprint(
        cutAt(
          bytes,
          Array.from({ length: 400 }, (_, i) => i * size),
        ),
      ),
      whole,
      String(size),
    );
  const head = bytes.subarray(0, 5_000);
  for (let cut = 0; cut < head.length; cut += 1) {
    const digest = new CanonicalDigest(newHasher);
    digest.push(bytes.subarray(0, cut));
    digest.push(bytes.subarray(cut));
    assert.equal(`j:${digest.end()?.toString("hex")}`, whole);
    if (cut > 60) cut += 40;
  }
});

test("an object with more members than can be sorted counts byte for byte", () => {
  const members = Array.from({ length: MEMBERS_MAX + 1 }, (_, i) => `"k${i}":${i}`);
  const one = ofText(`{${members.join(",")}}`);
  const other = ofText(`{${members.toReversed().join(",")}}`);
  assert.match(one, /^r:/);
  assert.notEqual(one, other);
});

test("a body that is no JSON object counts byte for byte, and is never an error", () => {
  const unknown: BodyForm = { kind: "unknown" };
  assert.equal(ofText('{"a":1,"b":2}', unknown), ofText('{ "b":2, "a":1 }', unknown));
  for (const text of ["", "plain", "[1, 2]", '{"a":1', "}{", '{"a" "b"}', '{"a":1}}', "[}", ':,"\\', '{"a":tr ue}'])
    assert.match(ofText(text, unknown), /^r:/, text);
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 60 }), fc.constantFrom<BodyForm>(unknown, JSON_FORM), (bytes, form) => {
      assert.match(fingerprint([Buffer.from(bytes)], form), /^[jr]:[0-9a-f]{64}$/);
    }),
  );
});

const formText = (boundary: string, file: string): Buffer =>
  Buffer.from(
    `--${boundary}\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n--${boundary}\r\nContent-Disposition: form-data; name="file"\r\n\r\n${file}\r\n--${boundary}--\r\n`,
    "latin1",
  );

test("a form sent again with a new boundary is the same form, and another file is another one [20.I1]", () => {
  fc.assert(
    fc.property(
      fc.stringMatching(/^[A-Za-z0-9]{4,40}$/),
      fc.stringMatching(/^[A-Za-z0-9]{4,40}$/),
      fc.array(fc.nat(), { maxLength: 8 }),
      (one, two, cuts) => {
        const file = "RIFF\0\r\n--data-- \0\0\0\0";
        const first = fingerprint([formText(`-a-${one}`, file)], { kind: "form", boundary: `-a-${one}` });
        const again = fingerprint(cutAt(formText(`-b-${two}`, file), cuts), { kind: "form", boundary: `-b-${two}` });
        assert.equal(again, first);
        const other = fingerprint([formText(`-b-${two}`, `${file}!`)], { kind: "form", boundary: `-b-${two}` });
        assert.notEqual(other, first);
      },
    ),
  );
});

test("a large body is worked on in pieces, none of which is longer than a few milliseconds of work [80.C24]", () => {
  const body = Buffer.from(`{"messages":"${"A".repeat(8 * 1024 * 1024)}"}`);
  const steps = fingerprintSteps([body], JSON_FORM, newHasher);
  let pieces = 0;
  while (steps.next().done !== true) pieces += 1;
  assert.equal(pieces, Math.ceil(body.length / 262_144));
});
