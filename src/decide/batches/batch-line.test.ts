import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { LineCutter, readLine } from "./batch-line.ts";

const ENDPOINT = "/v1/embeddings";
const line = (text: string): ReturnType<typeof readLine> => readLine(Buffer.from(text), ENDPOINT);

test("a line's body is what stands in it, byte for byte [20.J7]", () => {
  const body = '{ "model" : "mod\\u0065l", "input": [1.0, 12345678901234567890],\t"x": {"model": "other"} }';
  const text = `{"body":${body}, "url":"${ENDPOINT}","extra":[{"body":1}],"method":"POST","custom_id":"\u00fc"}`;
  const read = line(text);
  assert.ok(read.kind === "line");
  assert.deepEqual([read.line.customId, read.line.model], ["\u00fc", "model"]);
  assert.equal(Buffer.from(text).subarray(read.line.bodyStart, read.line.bodyEnd).toString("utf8"), body);
});

test("a mark of UTF-8 before a line, as some editors write it, is no part of it [20.J7]", () => {
  const text = `\ufeff{"custom_id":"a","method":"POST","url":"${ENDPOINT}","body":{"model":"m"}}`;
  const read = line(text);
  assert.ok(read.kind === "line");
  assert.equal(Buffer.from(text).subarray(read.line.bodyStart, read.line.bodyEnd).toString("utf8"), '{"model":"m"}');
  assert.equal(line("\ufeff").kind, "blank");
  assert.equal(line("\ufeff\ufeff{}").kind, "bad");
});

const head = `"method":"POST","url":"${ENDPOINT}"`;
const rows: readonly (readonly [text: string, code: string])[] = [
  ["nonsense", "invalid_json_line"],
  ["[]", "invalid_json_line"],
  [`{"custom_id":"a",${head},"body":{"model":"m"}} {}`, "invalid_json_line"],
  [`{"custom_id":1,${head},"body":{"model":"m"}}`, "invalid_type"],
  [`{"custom_id":"",${head},"body":{"model":"m"}}`, "invalid_type"],
  [`{"custom_id":"${"x".repeat(513)}",${head},"body":{"model":"m"}}`, "invalid_custom_id"],
  [`{"custom_id":"a","custom_id":"b",${head},"body":{"model":"m"}}`, "invalid_json_line"],
  [`{"custom_id":"a",${head}}`, "missing_required_parameter"],
  [`{"custom_id":"a",${head},"body":[]}`, "invalid_body"],
  [`{"custom_id":"a",${head},"body":{}}`, "missing_required_parameter"],
  [`{"custom_id":"a",${head},"body":{"model":"m","model":"n"}}`, "invalid_body"],
  [`{"custom_id":"a",${head},"body":{"model":["m"]}}`, "invalid_type"],
  [`{"custom_id":"a",${head},"body":{"model":"m","stream":1}}`, "invalid_stream"],
];
for (const [text, code] of rows)
  test(`a line is refused as ${code}: ${text.slice(0, 70)} [20.J7 80.D8]`, () => {
    const read = line(text);
    assert.equal(read.kind === "bad" ? read.problem.code : read.kind, code);
  });

test("the lines of a file are the same wherever its pieces were cut [20.J7]", () => {
  const bytes = fc.array(fc.constantFrom("a", "b", "\n", "\r\n", "longer than is taken"), { maxLength: 60 });
  fc.assert(
    fc.property(bytes, fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 1 }), (parts, sizes) => {
      const file = Buffer.from(parts.join(""));
      const cutter = new LineCutter(15);
      const found: (string | null)[] = [];
      let taken = 0;
      const note = ([text, length]: readonly [Buffer | null, number]): void => {
        found.push(text === null ? null : text.toString("utf8"));
        taken += length;
      };
      for (let at = 0, turn = 0; at < file.length; turn += 1) {
        const size = sizes[turn % sizes.length] ?? 1;
        for (const each of cutter.push(file.subarray(at, at + size))) note(each);
        at += size;
      }
      for (const each of cutter.end()) note(each);
      const wanted = file.toString("utf8").split("\n");
      if (wanted.at(-1) === "") wanted.pop();
      assert.deepEqual(
        found,
        wanted.map((text) => (text.length > 15 ? null : text)),
      );
      assert.equal(taken, file.length);
    }),
  );
});
